"""The supervisor's look at its workers' heartbeats.

Who stands still is logged, and while one does for too long, a service manager gets no sign of life. The node kills
nobody for it (H9); the manager, which was told how long is too long, may.
"""

import logging
import time
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from towline.node.process.service_manager import ServiceManager
from towline.runtime.positions import Duty, Positions

SILENT_S: Final = 5.0  # a heartbeat older than this is reported
LISTEN_MS: Final = 500  # of a supervisor for which nothing is due
NS_PER_S: Final = 1_000_000_000


@dataclass
class Worker:
    """One duty as the supervisor sees it."""

    duty: Duty
    pid: int = 0
    started: float = 0.0
    failures: int = 0
    due: float | None = None  # monotonic time of the next start
    reported_silent: bool = False


def look_at(workers: Iterable[Worker], positions: Positions, manager: ServiceManager, log: logging.Logger) -> str:
    """Reports workers that stand still, and gives a sign of life while none does for half of the manager's time. Which
    one does, for people; "" where all move.

    One that went and has not come back counts by its last beat.
    """
    now, tolerated_s, still = time.monotonic_ns(), manager.watchdog_s / 2, ""
    for worker in workers:
        line = positions.duty(worker.duty)
        silent_s = (now - line.beat_ns) / NS_PER_S if line.beat_ns else 0.0
        silent = worker.pid != 0 and silent_s > SILENT_S
        if silent and not worker.reported_silent:
            log.warning("%s has stood still for %.0f s in %s", worker.duty.label, SILENT_S, line.state.name)
        worker.reported_silent = silent
        if tolerated_s and silent_s > tolerated_s:
            still = still or f"{worker.duty.label} stands still in {line.state.name}"
    if not still:
        manager.alive()
    return still


def listen_ms(manager: ServiceManager) -> int:
    """How long the supervisor may listen before it looks at its workers again."""
    return LISTEN_MS if manager.pause_s is None else min(LISTEN_MS, max(1, int(1000 * manager.pause_s)))
