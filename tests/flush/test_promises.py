"""Whatever happens in whatever order: what the state files promise survives a power cut.

The model of the disk holds what a successful sync wrote, and nothing else. A sync that failed leaves its pages clean,
as the kernel does: the next sync of them succeeds and writes nothing (H5).
"""

import errno
import gc
import os
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from towline.errors import SyncFailed
from towline.flush.housekeeping import Housekeeper
from towline.flush.syncing import SyncThread
from towline.log.files.mapped_file import MappedFile
from towline.log.files.segment_files import segment_name
from towline.node.store.confirmed import confirmed_of
from towline.node.store.pool_state import PoolState
from towline.node.store.transient_pool import TransientPool, pool_of
from towline.runtime.positions import Duty, Position, State

from .bench import ENTRY, Bench

SEGMENT = 64 << 10
TOPICS = (b"orders", b"stocks")
OS_OPEN, OS_CLOSE = os.open, os.close


class Killed(BaseException):
    """The flush process ends inside a sync."""


@dataclass(frozen=True)
class Record:
    end: int
    timestamp: int
    topic: bytes


class Disk:
    """What a power cut leaves of the files, by path."""

    def __init__(self) -> None:
        self.files: dict[Path, bytearray] = {}
        self._lost: dict[Path, bytes] = {}  # content at a failed sync: pages with it are clean, and never written

    def synced(self, path: Path, start: int, end: int) -> None:
        now = path.read_bytes()
        kept = self.files.setdefault(path, bytearray())
        kept.extend(bytes(max(0, len(now) - len(kept))))
        lost = self._lost.get(path, b"")
        for page in range(start - start % 4096, min(end, len(now)), 4096):
            content = now[page : page + 4096]
            if content != lost[page : page + len(content)] or not any(content):
                kept[page : page + len(content)] = content

    def failed(self, path: Path) -> None:
        self._lost[path] = path.read_bytes()


class StateFilesPromiseOnlyWhatIsOnTheDisk(RuleBasedStateMachine):
    pooled = False

    @initialize()
    def start(self) -> None:
        self.fds: set[int] = set()  # plain descriptors that nobody closed: a process takes them with it
        self.root = Path(tempfile.mkdtemp(prefix="towline-promises-", dir=Path("/dev/shm")))
        flags = {"transient_store_pool_enable": True, "transient_store_pool_size": 40} if self.pooled else {}
        self.bench = Bench(self.root, segment=SEGMENT, flush_disk_type="ASYNC_FLUSH", **flags)
        assert (self.bench.pool_state is PoolState.ON) is self.pooled
        self.disk, self.records, self.dispatched = Disk(), [], 0
        self.failing: set[str] = set()  # kinds of files whose next sync fails
        self.kill_next = False
        self.meanwhile: list[tuple[int, bytes]] = []  # appended while the next sync of the log runs
        self.log_failed = self.queues_failed = False
        self.patches = [
            mock.patch.object(Housekeeper, "start"),
            mock.patch.object(SyncThread, "start"),
            mock.patch.object(MappedFile, "sync", lambda mapped, start, end: self._log_sync(mapped, start, end)),
            mock.patch.object(os, "fdatasync", self._data_sync),
            mock.patch.object(os, "open", self._open),
            mock.patch.object(os, "close", self._close),
            mock.patch.object(gc, "freeze"),
        ]
        for patch in self.patches:
            patch.start()
        self.agent = self.bench.flush()
        self.pool: TransientPool | None = pool_of(self.bench.node)
        self.confirmed = confirmed_of(self.bench.node)

    def teardown(self) -> None:
        for patch in reversed(getattr(self, "patches", [])):
            patch.stop()
        for fd in getattr(self, "fds", ()):
            os.close(fd)
        for name in ("agent", "bench", "pool", "confirmed", "patches"):
            self.__dict__.pop(name, None)
        gc.collect()  # mappings go with it
        shutil.rmtree(getattr(self, "root", "nowhere"), ignore_errors=True)

    def _open(self, path: Any, *arguments: Any, **more: Any) -> int:
        """Others open files too: Hypothesis keeps what it found in sources, and closes that behind our back."""
        fd = OS_OPEN(path, *arguments, **more)
        if Path(path).is_relative_to(self.root):
            self.fds.add(fd)
        return fd

    def _close(self, fd: int) -> None:
        self.fds.discard(fd)
        OS_CLOSE(fd)

    # --- the other processes

    @rule(size=st.integers(100, 9000), topic=st.sampled_from(TOPICS), passed_ms=st.integers(0, 3))
    def append(self, size: int, topic: bytes, passed_ms: int) -> None:
        self.bench.clock.ms += passed_ms
        at = self.end
        room = SEGMENT - at % SEGMENT
        if at % SEGMENT and size + 8 > room:
            self._write(at, b"\xbb" * room)  # the rest of the segment, as a blank would end it
            self.bench.move(Position.APPENDED, at + room)
            at += room
        self._write(at, bytes([1 + len(self.records) % 250]) * size)
        timestamp = self.bench.clock.ms
        self.bench.move(Position.APPENDED, at + size)
        self.records.append(Record(at + size, timestamp, topic))
        self.bench.move(Position.STORE_TIMESTAMP, timestamp)

    @rule(count=st.integers(1, 5))
    def dispatch(self, count: int) -> None:
        for record in self.records[self.dispatched : self.dispatched + count]:
            if record.end <= self.confirmed():
                self.bench.dispatch(record.topic, 1, record.end, record.timestamp)
                self.dispatched += 1

    @rule(sizes=st.lists(st.tuples(st.integers(100, 5000), st.sampled_from(TOPICS)), min_size=1, max_size=3))
    def append_while_the_next_sync_runs(self, sizes: list[tuple[int, bytes]]) -> None:
        self.meanwhile = sizes

    # --- flush

    @rule(passed_ms=st.sampled_from([0, 1, 100, 200, 500, 10_000]))
    def cycle(self, passed_ms: int) -> None:
        self.bench.clock.ms += passed_ms
        self._guarded(self._turn)

    def _turn(self) -> None:
        self.agent.do_work()
        if self.agent._pooled is not None:
            self.agent._pooled.syncing.cycle()

    @rule(thorough=st.booleans(), passed_ms=st.sampled_from([0, 1000, 60_000]))
    def housekeeping(self, thorough: bool, passed_ms: int) -> None:
        self.bench.clock.ms += passed_ms
        self._guarded(lambda: self.agent._housekeeper._round(thorough=thorough))

    @rule()
    def restart(self) -> None:
        self.agent = self.bench.flush()

    @rule()
    def writer_stops_and_starts(self) -> None:
        self.bench.positions.duty(Duty.PUT).state = State.STOPPED
        self._guarded(self.agent.do_work)
        self.bench.positions.duty(Duty.PUT).state = State.RUNNING

    # --- bad luck

    @rule(kind=st.sampled_from(["log", "consumequeue"]))
    def the_next_sync_fails(self, kind: str) -> None:
        self.failing.add(kind)

    @rule()
    def flush_is_killed_inside_the_next_sync(self) -> None:
        self.kill_next = True

    # --- what must hold

    @invariant()
    def a_power_cut_now_takes_nothing_that_is_promised(self) -> None:
        if not hasattr(self, "bench"):
            return
        durable, checkpoint = self.bench.durable(), self.bench.checkpoint()
        on_disk = self._log_on_disk()
        assert durable.flushed <= on_disk
        assert checkpoint.confirm_phy_offset <= min(durable.flushed, self.confirmed())
        assert checkpoint.master_flushed_offset == 0
        queued = {topic: self._entries_on_disk(topic) for topic in TOPICS}
        counts = dict.fromkeys(TOPICS, 0)
        for record in self.records:
            counts[record.topic] += 1
            if record.timestamp < checkpoint.physic_msg_timestamp:
                assert record.end <= on_disk
            if record.end <= durable.queues_durable or record.timestamp < checkpoint.logics_msg_timestamp:
                assert counts[record.topic] <= queued[record.topic]

    @invariant()
    def a_failed_sync_is_never_forgotten(self) -> None:
        if not hasattr(self, "bench"):
            return
        assert bool(self.bench.positions.get(Position.SYNC_FAILED)) is self.log_failed
        assert bool(self.bench.positions.get(Position.DERIVED_SYNC_FAILED)) is self.queues_failed
        if self.log_failed:
            assert self.bench.durable().sync_failed

    # --- how

    @property
    def end(self) -> int:
        return self.bench.positions.get(Position.APPENDED)

    def _write(self, at: int, data: bytes) -> None:
        base = at - at % SEGMENT
        path = self.bench.store.commitlog / segment_name(base)
        if not path.exists():
            self.bench.make_segment(base)
            self.bench.move(Position.ALLOCATED, base + SEGMENT, Duty.ALLOCATE)
        if self.pool is not None:
            assert self.pool.borrow(base)
            path = self.pool.path_of(base)
        with path.open("r+b") as file:
            file.seek(at - base)
            file.write(data)

    def _guarded(self, work) -> None:
        try:
            work()
        except Killed:
            self.agent = self.bench.flush()

    def _log_sync(self, mapped: MappedFile, start: int, end: int) -> None:
        covered, self.meanwhile = self.meanwhile, []
        self._luck("log", mapped.path, lambda: self.disk.synced(mapped.path, start, end))
        for size, topic in covered:
            self.append(size, topic, 1)

    def _data_sync(self, fd: int) -> None:
        path = Path(f"/proc/self/fd/{fd}").readlink()
        kind = next((kind for kind in ("consumequeue",) if kind in path.parts), "state")
        self._luck(kind, path, lambda: self.disk.synced(path, 0, path.stat().st_size))

    def _luck(self, kind: str, path: Path, sync) -> None:
        if kind in self.failing:
            self.failing.discard(kind)
            self.disk.failed(path)
            if kind == "log":
                self.log_failed = True
                raise SyncFailed(str(path), 0, 0, errno.EIO, "Input/output error")
            self.queues_failed = True
            raise OSError(errno.EIO, "Input/output error")
        sync()
        if self.kill_next and kind != "state":
            self.kill_next = False
            raise Killed

    def _log_on_disk(self) -> int:
        """How much of the log the disk holds, from its beginning on, byte for byte."""
        for base in range(0, self.end, SEGMENT):
            path = self.bench.store.commitlog / segment_name(base)
            now = np.frombuffer(self._appended(base), dtype=np.uint8)
            kept = np.frombuffer(self.disk.files.get(path, b"").ljust(len(now), b"\0"), dtype=np.uint8)[: len(now)]
            if (differs := now != kept).any():
                return base + int(differs.argmax())
        return self.end

    def _appended(self, base: int) -> bytes:
        path = self.bench.store.commitlog / segment_name(base)
        if self.pool is not None and self.pool.path_of(base).exists():
            path = self.pool.path_of(base)
        return path.read_bytes()[: self.end - base]

    def _entries_on_disk(self, topic: bytes) -> int:
        directory = self.bench.store.consumequeue / topic.decode() / "0"
        kept = [bytes(content) for path, content in self.disk.files.items() if path.parent == directory]
        return sum(content.count(ENTRY) for content in kept)


class TheSameWithATransientPool(StateFilesPromiseOnlyWhatIsOnTheDisk):
    pooled = True


_SETTINGS = settings(
    max_examples=50, stateful_step_count=60, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
TestPromises = StateFilesPromiseOnlyWhatIsOnTheDisk.TestCase
TestPromises.settings = _SETTINGS
TestPromisesWithAPool = TheSameWithATransientPool.TestCase
TestPromisesWithAPool.settings = _SETTINGS
