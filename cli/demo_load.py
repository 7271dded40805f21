"""The demo's load: sends every flight as a message and remembers what must come back."""

import gc
import time
import zlib
from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import orjson
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn

from towline.client.message import Message
from towline.client.producer import Producer
from towline.client.send.futures import SendFuture
from towline.format.wire.status import PutStatus
from towline.runtime.positions import Position

from . import flights
from .demo_nodes import RunningNode, await_true
from .output import progress_console

DISPATCH_MAX_S = 60.0
OUTCOME_MAX_S = 5.0
_LAST = 10_000  # messages
_ROOM_MS = 30_000  # a flight waits so long for those before it
_LOOK_EVERY = 1000  # messages between two checks of progress and lag


@dataclass
class Sent:
    """What was sent, by unique key, and how long it took. Bodies are kept as their CRC-32."""

    crcs: dict[bytes, int] = field(default_factory=dict)
    acked: int = 0
    statuses: Counter[str] = field(default_factory=Counter)
    by_aircraft: defaultdict[str, set[bytes]] = field(default_factory=lambda: defaultdict(set))
    by_carrier: Counter[str] = field(default_factory=Counter)
    delays: defaultdict[tuple[str, str], list[int]] = field(default_factory=lambda: defaultdict(list))
    body_bytes: int = 0
    record_bytes: int = 0
    seconds: float = 0.0
    last_ack: float = 0.0  # monotonic seconds
    latency_ms: dict[str, float] = field(default_factory=dict)
    slave_lag_bytes_max: int = 0
    dispatched_ms: dict[str, float] = field(default_factory=dict)  # from the last acknowledgement, by node

    def busiest_aircraft(self, flights_max: int) -> str:
        """Of those with at most so many flights."""
        fitting = [tail for tail, keys in self.by_aircraft.items() if len(keys) <= flights_max]
        return max(sorted(fitting), key=lambda tail: len(self.by_aircraft[tail]))

    @property
    def busiest_carrier(self) -> str:
        return max(sorted(self.by_carrier), key=self.by_carrier.__getitem__)


def send_flights(master: RunningNode, slave: RunningNode, limit: int | None) -> Sent:
    """Sends every flight and waits for every outcome; the queue is the origin airport."""
    sent = Sent()
    futures: list[SendFuture] = []
    begin = master.position(Position.APPENDED)
    with (
        no_collector(),
        Producer(master.endpoint("put"), name="towline demo") as producer,
        progress_bar("sending") as progress,
    ):
        task = progress.add_task("send", total=min(limit or flights.COUNT, flights.COUNT))
        started = time.monotonic()
        for flight in flights.read_flights(limit):
            futures.append(_send(producer, flight, sent))
            if len(futures) % _LOOK_EVERY == 0:
                progress.update(task, completed=producer.statistics.acknowledged)
                _note_lag(master, slave, sent)
        sent.last_ack = _await_last_ack(producer, futures)
        sent.dispatched_ms = await_dispatched(master, slave, sent.last_ack)
        progress.update(task, completed=producer.statistics.acknowledged)
        latency = producer.statistics.latency
        sent.latency_ms = {f"p{percent}": round(latency.percentile_ms(percent), 3) for percent in (50, 99)}
    sent.seconds = sent.last_ack - started
    sent.record_bytes = master.position(Position.APPENDED) - begin
    for future in futures:
        error = future.exception()
        status = type(error).__name__ if error else future.result().status.name
        sent.statuses[status] += 1
    sent.acked = sent.statuses[PutStatus.PUT_OK.name]
    return sent


@contextmanager
def no_collector() -> Iterator[None]:
    """Every outcome is kept until the end and none is in a cycle: a collector would walk them all again and again."""
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def await_dispatched(master: RunningNode, slave: RunningNode, since: float) -> dict[str, float]:
    """Until both nodes have everything in their queues: ms from `since` (monotonic seconds), as the positions say."""
    end = master.position(Position.APPENDED)
    reached: dict[str, float] = {}

    def both() -> bool:
        for name, node in (("master", master), ("slave", slave)):
            if name not in reached and node.position(Position.DISPATCHED) >= end:
                reached[name] = round((time.monotonic() - since) * 1000, 3)
        return len(reached) == 2

    await_true(both, DISPATCH_MAX_S, "the queues did not reach the end of the log")
    return reached


def progress_bar(doing: str) -> Progress:
    columns = (TextColumn(f"{doing:<8}"), BarColumn(), TaskProgressColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    return Progress(*columns, console=progress_console())


def _send(producer: Producer, flight: flights.Flight, sent: Sent) -> SendFuture:
    body = orjson.dumps(flight)
    carrier, tail = str(flight["carrier"]), flight["tailnum"]
    future = producer.send_async(
        Message(
            flights.TOPIC,
            body,
            tags=carrier,
            keys=flights.keys_of(flight),
            queue_id=flights.ORIGINS.index(str(flight["origin"])),
        ),
        max_block_ms=_ROOM_MS,
    )
    key = future.unique_key.encode()
    sent.crcs[key] = zlib.crc32(body)
    sent.by_carrier[carrier] += 1
    sent.body_bytes += len(body)
    if tail is not None:
        sent.by_aircraft[str(tail)].add(key)
    delays = sent.delays[carrier, str(flight["origin"])]
    if isinstance(minutes := flight["dep_delay"], int):  # one that never left has none
        delays.append(minutes)
    return future


def _await_last_ack(producer: Producer, futures: list[SendFuture]) -> float:
    """Until every message has its outcome; the moment of the last one, as the producer's own thread saw it."""
    seen: list[float] = []
    last = futures[-_LAST:]  # requests end in another order than they began; the last one is among these
    for future in last:
        future.add_done_callback(lambda _: seen.append(time.monotonic()))
    producer.flush()
    await_true(lambda: len(seen) == len(last), OUTCOME_MAX_S, "not every message has an outcome")
    return max(seen)


def _note_lag(master: RunningNode, slave: RunningNode, sent: Sent) -> None:
    lag = master.position(Position.APPENDED) - slave.position(Position.APPENDED)
    sent.slave_lag_bytes_max = max(sent.slave_lag_bytes_max, lag)
