"""The node of a benchmark: a whole master, ASYNC_FLUSH and ASYNC_MASTER, body CRCs checked."""

import os
import select
import shutil
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final

from towline.errors import BenchFailed
from towline.limits import GIB, MIB
from towline.link.free_port import free_port
from towline.node.process.context import open_node, runtime_of
from towline.node.report.running import node_facts
from towline.node.supervise.launch import start_node
from towline.runtime.positions import Counter, Duty, Position

LOOPBACK: Final = "127.0.0.1"
STEP_S: Final = 0.001
SETTLE_MAX_S: Final = 60.0
SEGMENTS_AHEAD: Final = 2
BACKLOG_MAX: Final = 16 * MIB
SETTINGS: Final[dict[str, Any]] = {
    "flush_disk_type": "ASYNC_FLUSH",
    "broker_role": "ASYNC_MASTER",
    "flush_backlog_max": 16 * GIB,
    "wait_time_mills_in_send_queue": 60_000,  # a machine that does something else meanwhile is not what is measured
    "max_hash_slot_num": 1_000_000,
    "max_index_num": 8_000_000,
    "listen_port": 0,
    "ha_listen_port": 0,
}


class BenchNode:
    """A running master. `put_endpoint` is by transport."""

    def __init__(self, store: Path, segment_size: int, *, warmed: bool = True) -> None:
        self.segment_size = segment_size
        self._ready = Position.WARM if warmed else Position.ALLOCATED
        self._view = open_node(store)
        self._positions = self._view.positions
        facts = node_facts(store)["endpoints"]
        self._endpoints = facts

    def put_endpoint(self, transport: str) -> str:
        return self._endpoint("put", transport)

    @property
    def serve_endpoint(self) -> str:
        return self.serve_endpoint_of("ipc")

    def serve_endpoint_of(self, transport: str) -> str:
        return self._endpoint("serve", transport)

    def _endpoint(self, service: str, transport: str) -> str:
        """Over ipc the process's own; over tcp one port is for all of them."""
        return str(self._endpoints[service if transport == "ipc" else "remoting"][0])

    def put_cpu_ns(self) -> int:
        """CPU time of all threads of the put process so far."""
        return self.cpu_ns()[Duty.PUT.label]

    def cpu_ns(self) -> dict[str, int]:
        """CPU time so far of each process of the node that runs, by its duty."""
        pids = {duty.label: self._positions.duty(duty).pid for duty in Duty}
        found = {}
        for label, pid in pids.items():
            with suppress(OSError):  # no process of this role has the duty
                tasks = list(Path(f"/proc/{pid}/task").iterdir()) if pid else []
                found[label] = sum(int((task / "schedstat").read_text().split()[0]) for task in tasks)
        return {label: ns for label, ns in found.items() if ns}

    def await_segments(self) -> None:
        """Until the next segments are made and warm: their making is not what is measured."""

        def ready() -> bool:
            ahead = self._positions.get(self._ready) - self._positions.get(Position.WANTED)
            return ahead > SEGMENTS_AHEAD * self.segment_size

        await_(ready, "the next segments were not made")

    def waits_for_segments(self) -> tuple[int, int]:
        """For how many segments the writer waited, and how many it made itself, since the node was started."""
        line = self._positions.duty(Duty.PUT)
        return line.counter(Counter.LATE), line.counter(Counter.FALLBACKS)

    def room(self) -> int:
        """Bytes left in the segment that is written to."""
        return self.segment_size - self._positions.get(Position.APPENDED) % self.segment_size

    def await_flushed(self) -> None:
        """Until flush has little to write: what the disk takes from the turn before is not this turn's."""
        positions = self._positions

        def flushed() -> bool:
            return positions.get(Position.APPENDED) - positions.get(Position.FLUSHED) <= BACKLOG_MAX

        await_(flushed, "flush did not catch up")

    def lag(self) -> int:
        """Bytes that reput is behind the writer."""
        dispatched = self._positions.get(Position.DISPATCHED)
        return self._positions.get(Position.APPENDED) - dispatched

    def await_dispatched(self) -> float:
        """Seconds until queues and index hold everything that was put."""
        started = time.perf_counter()
        end = self._positions.get(Position.APPENDED)
        await_(lambda: self._positions.get(Position.DISPATCHED) >= end, "reput did not catch up")
        return time.perf_counter() - started

    @contextmanager
    def reput_held(self) -> Iterator[None]:
        """Queues and index wait: what a burst meets while reput has not begun with it."""
        pid = self._positions.duty(Duty.REPUT).pid
        os.kill(pid, signal.SIGSTOP)
        try:
            yield
        finally:
            os.kill(pid, signal.SIGCONT)

    def close(self) -> None:
        self._positions.close()


@contextmanager
def bench_node(directory: Path, segment_size: int, **more: Any) -> Iterator[BenchNode]:
    """A master on a store in `directory`, ended and with its store removed when the block is left. `more`: settings."""
    store = directory / "store"
    settings = {
        **SETTINGS,
        "mapped_file_size_commit_log": segment_size,
        "listen_port": free_port(),
        **more,
    }
    flags = [word for key, value in settings.items() for word in ("--set", f"{key}={value}")]
    launched = start_node("master", store, flags, tied=True)
    try:
        node = BenchNode(store, segment_size, warmed=more.get("warm_mapped_file_enable", True))
        try:
            yield node
        finally:
            node.close()
    finally:
        launched.end()
        shutil.rmtree(runtime_of(store).root, ignore_errors=True)
        shutil.rmtree(store, ignore_errors=True)


def await_(reached: Callable[[], bool], otherwise: str) -> None:
    deadline = time.monotonic() + SETTLE_MAX_S
    while not reached():
        if time.monotonic() > deadline:
            raise BenchFailed(f"{otherwise} within {SETTLE_MAX_S:.0f} s")
        select.select([], [], [], STEP_S)
