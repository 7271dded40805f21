"""Samples the state of the cluster ten times a second, and records the faults."""

import threading
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

from .errors import DrillFailed
from .ground import Ground
from .history import EVENTS, SAMPLES, write_lines
from .load import VerifiedLoad
from .nodes import MASTER

TURN_S: Final = 0.1
TURNS_KEPT: Final = 600_000  # a day of ten a second; a drill lasts minutes


@dataclass
class Fault:
    """Done to the cluster from `begin` on; `healed` is when the drill took it back, `end` when all was as before."""

    what: str
    begin: float
    service: float | None = None  # the first acknowledgement by who is master now
    healed: float | None = None
    end: float | None = None
    facts: dict[str, Any] = field(default_factory=dict)


class Watch(threading.Thread):
    """Samples, lag at its worst, faults. Flushes the load's history on the way."""

    def __init__(self, ground: Ground, load: VerifiedLoad, began: float) -> None:
        super().__init__(name="drill watch", daemon=True)
        self.faults: list[Fault] = []
        self.samples: list[dict[str, Any]] = []
        self.worst_lag = 0
        self.error: BaseException | None = None
        self._ground, self._load, self._began = ground, load, began
        self._stopping = threading.Event()

    def now(self) -> float:
        return time.monotonic() - self._began

    def fault(self, what: str, **facts: Any) -> Fault:
        made = Fault(what, self.now(), facts=facts)
        self.faults.append(made)
        return made

    def stop(self) -> None:
        """Raises DrillFailed where watching itself has broken."""
        self._stopping.set()
        self.join(10.0)
        if self.error is not None:
            raise DrillFailed(f"the watch ended with {type(self.error).__name__}: {self.error}")

    def save(self, directory: Path) -> None:
        write_lines(directory / EVENTS, map(asdict, self.faults))
        write_lines(directory / SAMPLES, self.samples)

    def run(self) -> None:
        try:
            while not self._stopping.wait(TURN_S) and len(self.samples) < TURNS_KEPT:
                self._sample()
                self._load.flush()
        except BaseException as error:
            self.error = error

    def _sample(self) -> None:
        seen, at = self._ground.observe(), self.now()
        masters = [one for one in seen.values() if one is not None and one.role == MASTER]
        leader = max(masters, key=lambda one: one.epoch, default=None)
        lag = {}
        for number, one in seen.items():
            if leader is not None and one is not None and one is not leader:
                lag[str(number)] = max(0, leader.appended - one.appended)
        self.worst_lag = max([self.worst_lag, *lag.values()])
        roles = {str(number): "down" if one is None else one.role for number, one in seen.items()}
        self.samples.append({"t": round(at, 3), "roles": roles, "lag": lag})
