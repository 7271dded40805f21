"""`towline bench ha`: replication beside raw ZeroMQ, its lag, what waiting for it costs, and a slave that catches up.

Everything runs on one machine: both nodes, the load, and what is compared share its cores and its disk.
"""

import os
import tempfile
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from towline.limits import GIB, KIB, MIB
from towline.link.context import close_context, new_context

from .client import PutClient
from .goals import goal_rows
from .ha_pair import BenchPair, Watch, bench_pair, lags_ms, rate_of
from .latency import TimedClient, figures
from .raw import RawPair
from .round_trip import round_trips
from .shapes import Load, Shape, load_of

FRAME: Final = Shape(16, 64 * KIB)  # of the raw limit: 1 MiB, 16 of them on their way
BATCH: Final = Shape(500, KIB)
STEADY: Final = Shape(64, KIB)
SINGLE: Final = Shape(1, KIB)
SINGLES_PER_S: Final = 200.0
AT_ONCE: Final = 16
IN_FLIGHT: Final = 0.2  # of a stream that is measured: what its sockets held when it began does not count
COMPARED: Final = ("p50_us", "p99_us")
LIMIT: Final = 3  # times the load: what a slave that catches up may be sent in a second, where that is held down
NEAR_S: Final = 0.1  # of the load: a slave that is no further behind has caught up
CHUNK_S: Final = 0.5
CHUNKS_MAX: Final = 600
SYNC: Final[dict[str, Any]] = {"broker_role": "SYNC_MASTER", "in_sync_replicas": 2, "slave_timeout": 60_000}
GOALS: Final = {
    "stream_of_raw": 0.5,
    "send_cores_per_gb_s": 0.5,
    "receive_cores_per_gb_s": 0.5,
    "lag_p99_ms": 10.0,
    "sync_of_async": 0.7,
    "catch_up_of_load": 5.0,
}
_AT_MOST: Final = ("send_cores_per_gb_s", "receive_cores_per_gb_s", "lag_p99_ms")

Note = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Plan:
    """What one run does. `stream` and `behind` in bytes, `rate` in bytes a second."""

    rounds: int = 5
    stream: int = 2 * GIB
    seconds: float = 10.0  # of a steady load
    rate: int = 100_000_000
    behind: int = 10 * GIB
    batches: int = 1000  # requests of 500 records in each turn
    segment_size: int = GIB


QUICK: Final = Plan(rounds=2, stream=384 * MIB, seconds=3.0, behind=GIB, batches=150, segment_size=128 * MIB)


def measure(plan: Plan, note: Note = lambda _: None) -> dict[str, Any]:
    """Everything `towline bench ha` shows, as JSON can carry it."""
    started, load = time.monotonic(), os.getloadavg()[0]
    with tempfile.TemporaryDirectory(prefix="towline-bench-") as name:
        directory = Path(name)
        note("a master and a slave start")
        with bench_pair(directory / "stream", plan.segment_size) as pair:
            stream = _streams(pair, plan, note)
            note("lag under a steady load")
            lag = _lag(pair, plan)
            note(f"a slave that is {plan.behind / GIB:g} GiB behind")
            behind = _catch_up(pair, plan)
        limit = LIMIT * plan.rate
        note(f"the same with at most {limit / 1e6:,.0f} MB/s to a slave")
        flow = {"ha_flow_control_enable": True, "max_ha_transfer_byte_in_second": limit}
        with bench_pair(directory / "limited", plan.segment_size, **flow) as pair:
            limited = _catch_up(pair, replace(plan, behind=plan.behind // 4)) | {"limit_mb_s": limit / 1e6}
        note("SYNC_MASTER beside ASYNC_MASTER")
        waiting = _waiting(directory, plan)
    return {
        "stream": stream,
        "lag": lag,
        "waiting": waiting,
        "catch_up": behind,
        "limited": limited,
        "goals": _goals(stream, lag, waiting, behind),
        "machine": {"cpus": os.cpu_count(), "load_before": load},
        "seconds": time.monotonic() - started,
    }


# --- how fast it streams


def _streams(pair: BenchPair, plan: Plan, note: Note) -> dict[str, float]:
    """Medians over the rounds, ratios taken in each."""
    raw_pair, context = RawPair(), new_context()
    client = PutClient(context, pair.node.put_endpoint("ipc"))
    try:
        client.make_topic()
        rounds = []
        for number in range(plan.rounds + 1):
            note(f"stream, round {number} of {plan.rounds}" if number else "stream, warming up")
            raw = _raw(raw_pair, plan.stream)
            rounds.append(_stream(pair, client, plan.stream) | {"raw_gb_s": raw})
    finally:
        client.close()
        close_context(context)
        raw_pair.close()
    for one in rounds:
        one["of_raw"] = one["gb_s"] / one["raw_gb_s"]
    return {name: median(one[name] for one in rounds[1:]) for name in rounds[0]} | {"bytes": plan.stream}


def _raw(pair: RawPair, size: int) -> float:
    """GB a second of 1-MiB frames over TCP."""
    load = Load(FRAME, os.urandom(MIB), [bytes(32)] * (2 * FRAME.window))
    return size // MIB * MIB / pair.measure("tcp", load, size // MIB) / 1e9


def _stream(pair: BenchPair, client: PutClient, size: int) -> dict[str, float]:
    """The slave is held until so much waits for it."""
    pair.await_idle()
    start = pair.held
    with pair.receiver_held():
        _fill(pair, client, start + size)
        pair.node.await_flushed()
        pair.node.await_dispatched()
    cpu = pair.cpu_s()
    with Watch(pair) as watch:
        pair.await_level()
    spent = [after - before for before, after in zip(cpu, pair.cpu_s(), strict=True)]
    done = pair.held - start
    rate = rate_of(watch.rows, start + int(IN_FLIGHT * done), start + done)
    return {
        "gb_s": rate / 1e9,
        "send_cores_per_gb_s": spent[0] / (done / 1e9),
        "receive_cores_per_gb_s": spent[1] / (done / 1e9),
    }


def _fill(pair: BenchPair, client: PutClient, end: int) -> None:
    load = load_of(BATCH)
    while pair.end < end:
        client.send(load, AT_ONCE)


# --- how far it is behind


def _lag(pair: BenchPair, plan: Plan) -> dict[str, float]:
    load = load_of(STEADY)
    with _Timed(pair) as client:
        pair.await_idle()
        with Watch(pair) as watch:
            timings = client.run(load, plan.rate / len(load.records), plan.seconds)
        lags = lags_ms(watch.rows)
    found = {name: float(np.percentile(lags, share)) for name, share in (("p50_ms", 50), ("p99_ms", 99))}
    done = len(timings.sent) * len(load.records) / timings.seconds
    return found | {"max_ms": float(lags.max()), "reached_mb_s": done / 1e6, "looks": len(lags)}


class _Timed:
    """A timed client with its context."""

    def __init__(self, pair: BenchPair) -> None:
        self._context = new_context()
        self.client = TimedClient(self._context, pair.node.put_endpoint("ipc"))
        self.client.make_topic()

    def __enter__(self) -> TimedClient:
        return self.client

    def __exit__(self, *_: object) -> None:
        self.client.close()
        close_context(self._context)


# --- what waiting for it costs


def _waiting(directory: Path, plan: Plan) -> dict[str, Any]:
    """Both pairs run all the time and take turns, each when both have nothing left to do."""
    batches, single = load_of(BATCH), load_of(SINGLE)
    seconds: dict[str, list[float]] = {"async": [], "level": [], "sync": []}
    with ExitStack() as stack:
        pairs = {
            "async": stack.enter_context(bench_pair(directory / "async", plan.segment_size)),
            "sync": stack.enter_context(bench_pair(directory / "sync", plan.segment_size, **SYNC)),
        }
        pairs["sync"].await_in_sync()
        clients = {name: stack.enter_context(_Timed(pair)) for name, pair in pairs.items()}
        for _ in range(plan.rounds + 1):
            for name in pairs:
                _rest(pairs)
                seconds[name].append(clients[name].measure(batches, plan.batches))
                if name == "async":
                    acknowledged = time.perf_counter()
                    pairs[name].await_level()
                    seconds["level"].append(seconds[name][-1] + time.perf_counter() - acknowledged)
        latency = {}
        turns: list[int] = []  # of the slave that is waited for, its counter as each answer found it
        for name, pair in pairs.items():
            _rest(pairs)
            look = (lambda pair=pair: turns.append(pair.slave_turn_ns())) if name == "sync" else None
            latency[name] = figures(clients[name].run(single, SINGLES_PER_S, plan.seconds, look).us)
    trips = figures(round_trips(len(single.records), SINGLES_PER_S, plan.seconds))
    slave = figures(np.diff(np.array(turns, dtype=np.float64)) / 1000.0)
    size = plan.batches * len(batches.records)
    rates = {name: np.array([size / one for one in each[1:]]) for name, each in seconds.items()}
    return {
        "async_mb_s": float(np.median(rates["async"])) / 1e6,
        "async_level_mb_s": float(np.median(rates["level"])) / 1e6,
        "sync_mb_s": float(np.median(rates["sync"])) / 1e6,
        "sync_of_async": float(np.median(rates["sync"] / rates["async"])),
        "sync_of_level": float(np.median(rates["sync"] / rates["level"])),
        "latency": latency,
        "round_trip": trips,
        "slave_turn": slave,
        **{f"added_{name}": latency["sync"][name] - latency["async"][name] for name in COMPARED},
        **{f"allowed_{name}": trips[name] + slave[name] for name in COMPARED},
    }


def _rest(pairs: Mapping[str, BenchPair]) -> None:
    """All of them: what ASYNC_MASTER puts off would else be done in the turn of SYNC_MASTER."""
    for pair in pairs.values():
        pair.await_idle()


# --- a slave that catches up


def _catch_up(pair: BenchPair, plan: Plan) -> dict[str, Any]:
    """Put's latency under the load with the slave held, then while it comes back."""
    load = load_of(STEADY)
    rate = plan.rate / len(load.records)
    with _Timed(pair) as client:
        pair.await_idle()
        start = pair.held
        with pair.receiver_held():
            _fill(pair, client, start + plan.behind)
            pair.node.await_flushed()
            pair.node.await_dispatched()
            quiet = figures(client.run(load, rate, plan.seconds).us)
            gap = pair.end - start
        near = int(NEAR_S * plan.rate)
        during: list[npt.NDArray[np.float64]] = []
        with Watch(pair) as watch:
            while pair.held < pair.end - near and len(during) < CHUNKS_MAX:
                during.append(client.run(load, rate, CHUNK_S).us)
        rows = watch.rows
    level = int(np.argmax(rows[:, 2] >= rows[:, 1] - near))
    caught = int(rows[level, 2]) if level else int(rows[-1, 2])
    stream = rate_of(rows, start + int(IN_FLIGHT * gap), caught)
    return {
        "behind": gap,
        "load_mb_s": plan.rate / 1e6,
        "stream_mb_s": stream / 1e6,
        "of_load": stream / plan.rate,
        "seconds": float(rows[level, 0] - rows[0, 0]) / 1e9,
        "quiet": quiet,
        "during": figures(np.concatenate(during)),
    }


def _goals(
    stream: dict[str, float], lag: dict[str, float], waiting: dict[str, Any], behind: dict[str, Any]
) -> list[dict[str, Any]]:
    reached = {
        "stream_of_raw": stream["of_raw"],
        "send_cores_per_gb_s": stream["send_cores_per_gb_s"],
        "receive_cores_per_gb_s": stream["receive_cores_per_gb_s"],
        "lag_p99_ms": lag["p99_ms"],
        "sync_of_async": waiting["sync_of_async"],
        "catch_up_of_load": behind["of_load"],
    }
    return goal_rows(GOALS, _AT_MOST, reached)
