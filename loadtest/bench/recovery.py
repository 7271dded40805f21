"""`towline bench recovery`: from kill -9 to the first acknowledgement, a full walk, and a clean start.

For every size one store is filled by a real node (four topics of eight queues, 1-KiB bodies, keys, index on), then
started again and again. The load before a kill goes on for `unflushed_s` while flush is held, so nothing of it is
synced and no mark covers it. A walk runs in this process, with every mark deleted, beside a plain read of the same
files; both begin with a dropped cache. Time to the first acknowledgement is taken by a client of this process.
"""

import contextlib
import json
import os
import shutil
import signal
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any, Final

from towline.errors import BenchFailed
from towline.limits import GIB, MIB
from towline.log.recovery.recovery import recover
from towline.node.process.context import runtime_of
from towline.node.supervise.launch import Launched, start_node
from towline.node.supervise.recover import recovery_settings
from towline.places import Store
from towline.runtime.positions import Duty, Position, Positions
from towline.runtime.settings import Settings

from .fill import Filler

FIRST_ACK_MAX_S: Final = 1.0
CLEAN_MAX_S: Final = 1.0
WALK_OF_READ_MAX: Final = 3.0
MANY_QUEUES_MAX_S: Final = 2.0
READ_STEP: Final = 4 * MIB
GONE_MAX_S: Final = 5.0
DISPATCHED_MAX_S: Final = 300.0
STEP_S: Final = 0.002
DISK_SPARE: Final = 6 * GIB
QUEUES_PER_TOPIC: Final = 1000
SETTINGS: Final[dict[str, Any]] = {
    "flush_disk_type": "ASYNC_FLUSH",
    "broker_role": "ASYNC_MASTER",
    "flush_backlog_max": 16 * GIB,
    "wait_time_mills_in_send_queue": 60_000,  # a load that makes the store is not what is measured
    "os_page_cache_busy_time_out_mills": 60_000,
    "listen_port": 0,
    "ha_listen_port": 0,
}

Note = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Plan:
    """What one run does. Sizes in bytes; a segment of `segment_size`; every figure is the median of `rounds`."""

    sizes: tuple[int, ...] = (GIB, 4 * GIB, 16 * GIB)
    rounds: int = 3
    unflushed_s: float = 10.0
    unflushed_rate: int = 100 * MIB  # bytes a second of the load before a kill
    queues: int = 10_000
    segment_size: int = GIB
    index_entries: int = 20_000_000  # of an index file, with a quarter as many slots: RocketMQ's default


QUICK: Final = Plan(
    sizes=(64 * MIB, 256 * MIB), rounds=1, unflushed_s=1.0, unflushed_rate=32 * MIB, queues=500, segment_size=64 * MIB
)


@dataclass(slots=True)
class Started:
    """A start, split: seconds from the start command, one after the other, and of each part of recovery."""

    first_ack_s: float
    stages: dict[str, float]
    recovery: dict[str, float]
    starved_s: float  # the longest that supervisor or zygote waited for a CPU
    resumed: bool  # recovery went on where the node before left off
    notes: list[str]  # of recovery


@dataclass
class BenchStore:
    """A store in a directory of its own, and the master that runs on it now and then."""

    root: Path
    filler: Filler
    plan: Plan
    launched: Launched | None = field(default=None, init=False)

    @property
    def store(self) -> Store:
        return Store(self.root.resolve())

    @property
    def endpoint(self) -> str:
        return f"ipc://{runtime_of(self.store.root).socket('put')}"

    @property
    def positions(self) -> Positions:
        return Positions.open(runtime_of(self.store.root).positions, writable=False)

    def start(self) -> Started:
        """The node runs and has acknowledged one message. A new store is given its topics."""
        new = not self.store.commitlog.exists()
        settings = SETTINGS | {
            "mapped_file_size_commit_log": self.plan.segment_size,
            "max_index_num": self.plan.index_entries,
            "max_hash_slot_num": self.plan.index_entries // 4,
        }
        flags = [word for key, value in settings.items() for word in ("--set", f"{key}={value}")]
        began = time.monotonic_ns()
        self.launched = start_node("master", self.store.root, flags, tied=True)
        with self.filler.linked(self.endpoint) as client:
            if new:
                self.filler.make_topics(client)
            self.filler.put_one(client)
            acknowledged = time.monotonic_ns()
        facts = json.loads(self.store.node.read_text())
        reached: dict[str, int] = facts["stages"]
        starved = max(_waited_s(facts["pid"]), _waited_s(facts["zygote"]))
        stages, since = {}, began
        for name, at in [*reached.items(), ("first_ack", acknowledged)]:
            stages[name], since = (at - since) / 1e9, at
        found = json.loads(self.store.recovery.read_text())
        seconds = (acknowledged - began) / 1e9
        return Started(seconds, stages, found["stages"], starved, found["resumed"], found["notes"])

    def stop(self) -> None:
        """Raises BenchFailed when the store is not clean."""
        launched, self.launched = self.launched, None
        if launched is not None and not launched.stop():
            raise BenchFailed(f"the node did not stop cleanly; see {self.store.node_log}")

    def kill(self) -> None:
        """SIGKILL to every process of the node at once; returns when all have gone."""
        assert self.launched is not None
        facts = json.loads(self.store.node.read_text())
        pids = [facts["zygote"], *facts["processes"].values()]
        for pid in (facts["pid"], *pids):
            with contextlib.suppress(ProcessLookupError):  # it died with its parent
                os.kill(pid, signal.SIGKILL)
        self.launched.kill()
        self.launched = None
        _await(lambda: not any(Path(f"/proc/{pid}").exists() for pid in pids), GONE_MAX_S, "killed processes are there")

    def end(self) -> None:
        if self.launched is not None:
            self.launched.kill()
        shutil.rmtree(runtime_of(self.store.root).root, ignore_errors=True)
        shutil.rmtree(self.root, ignore_errors=True)

    def await_dispatched(self) -> None:
        positions = self.positions
        end = positions.get(Position.APPENDED)
        _await(lambda: positions.get(Position.DISPATCHED) >= end, DISPATCHED_MAX_S, "reput did not catch up")
        positions.close()

    def load_unflushed(self, rate: int, seconds: float) -> dict[str, int]:
        """Load that no sync and no mark covers: flush is held meanwhile. What there is of it, in bytes."""
        positions = self.positions
        os.kill(positions.duty(Duty.FLUSH).pid, signal.SIGSTOP)
        with self.filler.linked(self.endpoint) as client:
            self.filler.fill_at(client, positions, rate, seconds)
        end = positions.get(Position.APPENDED)
        found = {"unflushed": end - positions.get(Position.FLUSHED), "end": end}
        positions.close()
        return found


def measure(plan: Plan, note: Note = lambda _: None) -> dict[str, Any]:
    """The whole document. `note` is called with each step, for people who wait."""
    started, load = time.perf_counter(), os.getloadavg()[0]
    rows = []
    with ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="towline-recovery-")))
        filler = Filler()
        stack.callback(filler.close)
        for size in plan.sizes:
            free = shutil.disk_usage(directory).free
            if free < size + DISK_SPARE:
                rows.append({"size": size, "skipped": f"{free} bytes are free, {size + DISK_SPARE} are needed"})
                continue
            with _bench_store(directory, filler, plan) as store:
                rows.append(_size(store, plan, size, note))
        with _bench_store(directory, filler, plan) as store:
            queues = _queues(store, plan, note)
    measured = [row for row in rows if "skipped" not in row]
    return {
        "sizes": rows,
        "queues": queues,
        "goals": _goals(measured, queues),
        "machine": {"cpus": os.cpu_count(), "load_before": load, "load_after": os.getloadavg()[0]},
        "unflushed": {"seconds": plan.unflushed_s, "bytes_per_s": plan.unflushed_rate},
        "seconds": time.perf_counter() - started,
    }


@contextlib.contextmanager
def _bench_store(directory: Path, filler: Filler, plan: Plan) -> Iterator[BenchStore]:
    store = BenchStore(directory / "store", filler, plan)
    try:
        yield store
    finally:
        store.end()


def _size(store: BenchStore, plan: Plan, size: int, note: Note) -> dict[str, Any]:
    name = f"{size / GIB:g} GiB"
    note(f"{name}: filling")
    store.start()
    began = time.perf_counter()
    with _view(store) as positions, store.filler.linked(store.endpoint) as client:
        store.filler.fill(client, positions, size)
    store.await_dispatched()
    filled_s = time.perf_counter() - began
    store.stop()
    clean, killed = [], []
    for number in range(plan.rounds):
        note(f"{name}: clean start {number + 1} of {plan.rounds}")
        clean.append(store.start())
        store.stop()
    store.start()
    for number in range(plan.rounds):
        note(f"{name}: load and kill {number + 1} of {plan.rounds}")
        killed.append(_kill(store, plan))
    store.stop()
    walks = []
    for number in range(plan.rounds):
        note(f"{name}: full walk {number + 1} of {plan.rounds}")
        walks.append(_walk(store))
    return {
        "size": size,
        "filled_s": filled_s,
        "clean": _summary(clean),
        "killed": {**_summary([start for start, _ in killed]), "unflushed": median(lost for _, lost in killed)},
        "walk": {key: median(walk[key] for walk in walks) for key in walks[0]},
    }


@contextlib.contextmanager
def _view(store: BenchStore) -> Iterator[Positions]:
    """The positions of the running node."""
    positions = store.positions
    try:
        yield positions
    finally:
        positions.close()


def _kill(store: BenchStore, plan: Plan) -> tuple[Started, float]:
    """Load, kill, start; nothing that was acknowledged may be missing. The start, and the unflushed bytes."""
    found = store.load_unflushed(plan.unflushed_rate, plan.unflushed_s)
    store.kill()
    started = store.start()
    with _view(store) as positions:
        end = positions.get(Position.APPENDED)
    if end < found["end"]:
        raise BenchFailed(f"the log ended at {found['end']}, all of it acknowledged; after the kill at {end}")
    store.await_dispatched()
    return started, found["unflushed"]


def _walk(store: BenchStore) -> dict[str, float]:
    """Recovery of a store without any mark, beside a plain read of the same files."""
    places = store.store
    settings = Settings.from_json(places.settings.read_text(encoding="utf-8"))
    files = sorted(places.commitlog.iterdir())
    for path in files:
        _drop_cache(path)
    began = time.perf_counter()
    size = sum(_read(path) for path in files)
    read_s = time.perf_counter() - began
    for path in (places.durable, places.checkpoint):
        path.unlink(missing_ok=True)
    for folder in (places.consumequeue, places.index):
        shutil.rmtree(folder)
    for path in files:
        _drop_cache(path)
    recovered = recover(places, recovery_settings(settings))
    walked = recovered.seconds
    return {"read_s": read_s, "walk_s": walked, "of_read": walked / read_s, "bytes": size, "end": recovered.end}


def _drop_cache(path: Path) -> None:
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
    finally:
        os.close(fd)


def _read(path: Path) -> int:
    """Bytes of a file, each read once, one after the other."""
    buffer = bytearray(READ_STEP)
    done = 0
    with path.open("rb", buffering=0) as file:
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_SEQUENTIAL)
        while count := file.readinto(buffer):
            done += count
    return done


def _queues(store: BenchStore, plan: Plan, note: Note) -> dict[str, Any]:
    """A store of many queues with a message in each."""
    note(f"{plan.queues} queues: filling")
    store.start()
    per_topic = min(QUEUES_PER_TOPIC, plan.queues)
    topics = tuple(f"many-{number}" for number in range(plan.queues // per_topic))
    with store.filler.linked(store.endpoint) as client:
        store.filler.fill_queues(client, topics, per_topic)
    store.await_dispatched()
    store.stop()
    clean, killed = [], []
    for number in range(plan.rounds):
        note(f"{plan.queues} queues: round {number + 1} of {plan.rounds}")
        clean.append(store.start())
        with store.filler.linked(store.endpoint) as client:
            store.filler.fill_queues(client, topics, per_topic)
        store.await_dispatched()
        store.kill()
        killed.append(store.start())
        store.stop()
    return {"queues": per_topic * len(topics), "clean": _summary(clean), "killed": _summary(killed)}


def _summary(starts: list[Started]) -> dict[str, Any]:
    """Medians over the rounds, with the fastest and the slowest."""
    times = [start.first_ack_s for start in starts]
    return {
        "first_ack_s": median(times),
        "least_s": min(times),
        "most_s": max(times),
        "starved_s": median(start.starved_s for start in starts),
        "resumed": sum(start.resumed for start in starts),
        "starts": len(starts),
        "notes": sorted({note for start in starts for note in start.notes}),
        "stages": _medians([start.stages for start in starts]),
        "recovery": _medians([start.recovery for start in starts]),
    }


def _medians(rounds: list[dict[str, float]]) -> dict[str, float]:
    """By name; 0 counts where a round had no such part."""
    names = dict.fromkeys(name for parts in rounds for name in parts)
    return {name: median(parts.get(name, 0.0) for parts in rounds) for name in names}


def _goals(rows: list[dict[str, Any]], queues: dict[str, Any]) -> list[dict[str, Any]]:
    """Each goal beside the worst figure it is about."""
    many = max(queues["clean"]["first_ack_s"], queues["killed"]["first_ack_s"])
    found = [
        ("killed_first_ack_s", FIRST_ACK_MAX_S, _worst(rows, "killed")),
        ("clean_first_ack_s", CLEAN_MAX_S, _worst(rows, "clean")),
        ("walk_of_read", WALK_OF_READ_MAX, max((row["walk"]["of_read"] for row in rows), default=0.0)),
    ]
    found = [*(found if rows else []), ("many_queues_first_ack_s", MANY_QUEUES_MAX_S, many)]
    return [{"goal": name, "at_most": limit, "reached": value, "met": value <= limit} for name, limit, value in found]


def _waited_s(pid: int) -> float:
    """How long a process was ready to run and did not."""
    return int(Path(f"/proc/{pid}/schedstat").read_text().split()[1]) / 1e9


def _worst(rows: list[dict[str, Any]], kind: str) -> float:
    return max((float(row[kind]["first_ack_s"]) for row in rows), default=0.0)


def _await(reached: Callable[[], bool], within_s: float, otherwise: str) -> None:
    deadline = time.monotonic() + within_s
    while not reached():
        if time.monotonic() > deadline:
            raise BenchFailed(f"{otherwise} within {within_s:.0f} s")
        time.sleep(STEP_S)
