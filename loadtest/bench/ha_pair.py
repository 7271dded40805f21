"""The master and the slave of a benchmark, and the figures that are read of them while they work."""

import os
import select
import shutil
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from towline.errors import BenchFailed
from towline.link.free_port import free_port
from towline.node.process.context import open_node, runtime_of
from towline.node.supervise.launch import start_node
from towline.runtime.positions import Counter, Duty, Position, Positions

from .node import LOOPBACK, SEGMENTS_AHEAD, SETTINGS, STEP_S, BenchNode, bench_node

LINK_MAX_S: Final = 30.0
CATCH_UP_MAX_S: Final = 300.0
SAMPLE_S: Final = 0.0005
NS: Final = 1_000_000_000
HELD_MS: Final = 3_600_000  # a receiver that is held is not taken for dead


class BenchPair:
    """`node` is the master. Offsets are of the log that both have."""

    def __init__(self, node: BenchNode, master: Positions, slave: Positions) -> None:
        self.node, self.master, self.slave = node, master, slave

    @property
    def end(self) -> int:
        return self.master.get(Position.APPENDED)

    @property
    def held(self) -> int:
        """Up to where the slave's log goes."""
        return self.slave.get(Position.APPENDED)

    def await_level(self) -> None:
        """Raises BenchFailed."""
        end = self.end
        _await(lambda: self.held >= end, CATCH_UP_MAX_S, "the slave did not catch up")

    def await_idle(self) -> None:
        """Until nothing of what was put before is left to do: on either side, in queues, index and on the disk."""
        self.await_level()
        self.node.await_flushed()
        self.node.await_dispatched()
        end = self.end
        parts = (Position.DISPATCHED, Position.FLUSHED)
        _await(
            lambda: all(self.slave.get(part) >= end for part in parts), CATCH_UP_MAX_S, "the slave did not come to rest"
        )
        self.node.await_segments()
        _await(self._slave_is_warm, CATCH_UP_MAX_S, "the slave's next segments were not made")
        os.sync()  # queues and index are synced much later, and every append then waits for the journal

    def _slave_is_warm(self) -> bool:
        """As of the master: the making of segments is not what is measured."""
        ahead = self.slave.get(Position.WARM) - self.slave.get(Position.WANTED)
        return ahead > SEGMENTS_AHEAD * self.node.segment_size

    def await_in_sync(self) -> None:
        """Until the slave counts. Raises BenchFailed."""
        _await(lambda: self.master.get(Position.IN_SYNC).bit_count() == 2, LINK_MAX_S, "the slave is not in sync")

    def cpu_s(self) -> tuple[float, float]:
        """CPU time of all threads of send and of receive so far."""
        return _cpu_s(self.master.duty(Duty.SEND).pid), _cpu_s(self.slave.duty(Duty.RECEIVE).pid)

    def slave_turn_ns(self) -> int:
        """Spent by the receiver so far from finding bytes to having acknowledged them."""
        return self.slave.duty(Duty.RECEIVE).counter(Counter.BUSY_NS)

    @contextmanager
    def receiver_held(self) -> Iterator[None]:
        """The slave falls behind."""
        pid = self.slave.duty(Duty.RECEIVE).pid
        os.kill(pid, signal.SIGSTOP)
        try:
            yield
        finally:
            os.kill(pid, signal.SIGCONT)


@contextmanager
def bench_pair(directory: Path, segment_size: int, **more: Any) -> Iterator[BenchPair]:
    """Both on stores in `directory`, ended and removed when the block is left. `more`: settings of the master."""
    directory.mkdir()
    port = free_port()
    given = {"ha_listen_port": port, "ha_housekeeping_interval": HELD_MS} | more
    with bench_node(directory, segment_size, **given) as node, _slave(directory / "slave", segment_size, port) as slave:
        master = open_node(directory / "store").positions
        try:
            pair = BenchPair(node, master, slave)
            _await(lambda: any(line.connected for line in master.slaves()), LINK_MAX_S, "the slave did not connect")
            yield pair
        finally:
            master.close()


@contextmanager
def _slave(store: Path, segment_size: int, port: int) -> Iterator[Positions]:
    settings = {name: value for name, value in SETTINGS.items() if name not in ("broker_role", "ha_listen_port")}
    settings |= {"mapped_file_size_commit_log": segment_size, "ha_master_address": f"{LOOPBACK}:{port}"}
    settings |= {"ha_housekeeping_interval": HELD_MS}
    flags = [word for key, value in settings.items() for word in ("--set", f"{key}={value}")]
    launched = start_node("slave", store, flags, tied=True)
    try:
        positions = open_node(store).positions
        try:
            yield positions
        finally:
            positions.close()
    finally:
        launched.end()
        shutil.rmtree(runtime_of(store).root, ignore_errors=True)
        shutil.rmtree(store, ignore_errors=True)


class Watch(threading.Thread):
    """Looks at both ends of the log all the time, as a context manager."""

    def __init__(self, pair: BenchPair) -> None:
        super().__init__(name="watch", daemon=True)
        self._pair = pair
        self._rows: list[tuple[int, int, int]] = []
        self._over = threading.Event()

    def __enter__(self) -> "Watch":
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self.join()

    def run(self) -> None:
        while not self._over.wait(SAMPLE_S):
            self._look()
        self._look()

    def _look(self) -> None:
        held = self._pair.held  # first: then the master's end is never the older one
        self._rows.append((time.monotonic_ns(), self._pair.end, held))

    @property
    def rows(self) -> npt.NDArray[np.int64]:
        """Columns: ns, the master's end, the slave's."""
        return np.array(self._rows, dtype=np.int64).reshape(-1, 3)


def lags_ms(rows: npt.NDArray[np.int64]) -> npt.NDArray[np.float64]:
    """At each sample, how old the oldest byte was that the slave lacked: since when the master had been beyond it."""
    times, ends, held = rows.T
    began = np.searchsorted(ends, held, side="right")  # the first sample at which the master had more
    found: npt.NDArray[np.float64] = np.zeros(len(rows))
    behind = np.flatnonzero(ends > held)
    found[behind] = (times[behind] - times[began[behind]]) / 1e6
    return found


def rate_of(rows: npt.NDArray[np.int64], start: int, end: int) -> float:
    """Bytes a second at which the slave went from `start` to `end`. Raises BenchFailed where it was not seen to."""
    times, _, held = rows.T
    first, last = int(np.searchsorted(held, start)), int(np.searchsorted(held, end))
    if not first < last < len(rows):
        raise BenchFailed("the slave was too fast, or too slow, to be watched")
    return float((held[last] - held[first]) / ((times[last] - times[first]) / NS))


def _cpu_s(pid: int) -> float:
    tasks = Path(f"/proc/{pid}/task").iterdir()
    return sum(int((task / "schedstat").read_text().split()[0]) for task in tasks) / NS


def _await(reached: Any, seconds: float, otherwise: str) -> None:
    deadline = time.monotonic() + seconds
    while not reached():
        if time.monotonic() > deadline:
            raise BenchFailed(f"{otherwise} within {seconds:.0f} s")
        select.select([], [], [], STEP_S)
