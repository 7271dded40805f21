"""Delayed messages while the clock steps by an hour, and while a process that has to do with them stands still."""

import os
import signal
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.processes.arming import Arming
from tests.processes.nodes import TestNode, check_nothing_is_left, ended
from tests.processes.stopping import stopped
from tests.processes.waiting import await_
from towline.client.consumer import Consumer
from towline.client.errors import PutRefused
from towline.client.message import Message, ReceivedMessage
from towline.client.producer import Producer, SendResult
from towline.clock import ENVIRONMENT, SystemClock
from towline.errors import TowlineError
from towline.link.endpoints import ipc_endpoint
from towline.log.files.config_file import ConfigFile
from towline.runtime.settings import parse_delay_levels
from towline.runtime.settings_model import DELAY_LEVELS

DEADLINE_S = 60.0
HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS
LEAD_MS = 300  # a step ends so long before what it is for
LEVELS = f"{DELAY_LEVELS} 2d"  # those of a node without settings, and one of days


class SteppedClock:
    """The wall clock of the node's processes, an hour and more ahead or behind as the test wants it."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.ahead_ms = 0
        self.step(0)

    def step(self, ms: int) -> None:
        self.ahead_ms += ms
        fresh = self._path.with_suffix(".new")
        fresh.write_text(str(self.ahead_ms))
        fresh.rename(self._path)

    def now_ms(self) -> int:
        return SystemClock().now_ms() + self.ahead_ms


@pytest.fixture(scope="module")
def clock(tmp_path_factory: pytest.TempPathFactory) -> SteppedClock:
    return SteppedClock(tmp_path_factory.mktemp("clock") / "ahead")


@pytest.fixture(scope="module")
def arming(tmp_path_factory: pytest.TempPathFactory) -> Arming:
    return Arming(tmp_path_factory.mktemp("armed"))


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory, clock: SteppedClock, arming: Arming) -> Iterator[TestNode]:
    root = tmp_path_factory.mktemp("steps")
    made = TestNode("master", root, message_delay_level=LEVELS, ha_listen_port=0)
    cleaning = ended(made)
    next(cleaning)
    try:
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv(ENVIRONMENT, str(clock._path))
            arming.announce(patch)
            made.start()
        yield made
        assert made.stop()
        check_nothing_is_left(made)
    finally:
        next(cleaning, None)


def send(node: TestNode, *messages: Message) -> list[SendResult]:
    with Producer(node.endpoint, linger_ms=1.0) as producer:
        futures = [producer.send_async(message) for message in messages]
        return [future.result() for future in futures]


def keys_of(results: list[SendResult]) -> set[str]:
    return {result.unique_key for result in results}


def read(node: TestNode, topic: str, keys: set[str]) -> list[ReceivedMessage]:
    """The topic from its beginning, until each of these unique keys was seen and nothing more is there."""
    found: list[ReceivedMessage] = []
    with Consumer(ipc_endpoint(node.runtime, "serve"), topic, start="first", suspend_ms=50) as consumer:

        def complete() -> bool:
            found.extend(consumer.poll(100))
            return keys <= {message.unique_key for message in found} and consumer.at_end

        await_(complete, DEADLINE_S, f"{len(keys)} messages of {topic}")
    return found


def check_once(found: list[ReceivedMessage], keys: set[str]) -> None:
    assert Counter(message.unique_key for message in found) == Counter(keys)


def test_a_clock_an_hour_ahead_makes_what_is_due_come_at_once_and_once(node: TestNode, clock: SteppedClock) -> None:
    at = clock.now_ms() + HOUR_MS
    due = send(node, *(Message("ahead", b"%d" % number, deliver_at=at + number) for number in range(200)))
    due += send(node, *(Message("ahead", b"level", delay_level=17) for _ in range(50)))
    send(node, *(Message("ahead", b"far", deliver_at=at + HOUR_MS) for _ in range(10)))
    early = send(node, Message("ahead", b"soon", delay_level=1))
    check_once(read(node, "ahead", keys_of(early)), keys_of(early))
    clock.step(HOUR_MS + 10_000)
    check_once(read(node, "ahead", keys_of([*early, *due])), keys_of([*early, *due]))
    last = send(node, Message("ahead", b"last", delay_level=1))
    found = read(node, "ahead", keys_of([*early, *due, *last]))
    check_once(found, keys_of([*early, *due, *last]))


def test_a_clock_set_back_an_hour_holds_levels_no_longer_and_times_until_they_come(
    node: TestNode, clock: SteppedClock
) -> None:
    now = clock.now_ms()
    timed = send(node, *(Message("back", b"%d" % number, deliver_at=now + 5000 + number) for number in range(100)))
    levels = send(node, *(Message("back", b"level", delay_level=2) for _ in range(100)))
    clock.step(-HOUR_MS)
    before_ms = SystemClock().monotonic_ms()
    levels += send(node, *(Message("back", b"after", delay_level=2) for _ in range(100)))
    found = read(node, "back", keys_of(levels))
    check_once(found, keys_of(levels))
    assert SystemClock().monotonic_ms() - before_ms >= 4900, "what came after the step waits for its delay, too"
    with Producer(node.endpoint) as producer:
        for result in timed[::2]:
            assert producer.cancel(result.handle).acknowledged
    soon = send(node, Message("back", b"soon", deliver_at=clock.now_ms() + 500))
    check_once(read(node, "back", keys_of([*levels, *soon])), keys_of([*levels, *soon]))
    clock.step(HOUR_MS)
    wanted = keys_of([*levels, *soon, *timed[1::2]])
    check_once(read(node, "back", wanted), wanted)


def test_what_is_taken_back_while_schedule_stands_still_never_comes(node: TestNode, clock: SteppedClock) -> None:
    at = clock.now_ms() + 4000
    sent = send(node, *(Message("still", b"%d" % number, deliver_at=at) for number in range(40)))
    with stopped(node.pids()["schedule"]), Producer(node.endpoint) as producer:
        for result in sent[::2]:
            assert producer.cancel(result.handle).acknowledged
        await_(lambda: clock.now_ms() > at + 300, DEADLINE_S, "their time is over")
        with pytest.raises(PutRefused, match="CANCEL_TOO_LATE"):
            producer.cancel(sent[1].handle)
    last = send(node, Message("still", b"last", deliver_at=clock.now_ms() + 300))
    wanted = keys_of([*sent[1::2], *last])
    check_once(read(node, "still", wanted), wanted)


def test_taking_back_is_promised_by_put_alone(node: TestNode, clock: SteppedClock) -> None:
    at = clock.now_ms() + 120_000
    sent = send(node, *(Message("mute", b"%d" % number, deliver_at=at) for number in range(10)))
    with Producer(node.endpoint, send_timeout_ms=200, delivery_timeout_ms=400, retries=0) as hasty:
        hasty.route("mute")
        with stopped(node.pids()["put"]), pytest.raises(TowlineError):
            hasty.cancel(sent[0].handle)
    with Producer(node.endpoint) as producer:
        assert producer.cancel(sent[0].handle).acknowledged, "asked again when put goes on"
    last = send(node, Message("mute", b"last", deliver_at=at + 1))
    clock.step(120_001)
    wanted = keys_of([*sent[1:], *last])
    check_once(read(node, "mute", wanted), wanted)


def test_taking_back_that_waits_inside_put_until_it_is_late_is_refused(
    node: TestNode, clock: SteppedClock, arming: Arming
) -> None:
    (sent,) = send(node, Message("inside", b"", deliver_at=clock.now_ms() + 1500))
    arming.arm("put.before_append=stall:3000")
    with Producer(node.endpoint) as producer, pytest.raises(PutRefused, match="CANCEL_TOO_LATE"):
        producer.cancel(sent.handle)
    assert arming.fired
    check_once(read(node, "inside", {sent.unique_key}), {sent.unique_key})


@pytest.mark.parametrize("compression", ["zlib", "lz4", "zstd"])
def test_a_compressed_body_is_delivered_as_it_was_sent(node: TestNode, clock: SteppedClock, compression: str) -> None:
    body, topic = b"towline " * 4000, f"packed-{compression}"
    with Producer(node.endpoint, compression=compression) as producer:
        sent = [
            producer.send(Message(topic, body, delay_level=1)),
            producer.send(Message(topic, body, deliver_at=clock.now_ms() + 300)),
        ]
    found = read(node, topic, keys_of(sent))
    check_once(found, keys_of(sent))
    for message in found:
        assert message.body == body
        assert len(message.raw) < len(body) // 4, "it stays compressed on its way"


def test_each_level_and_a_time_three_days_away_come_when_they_are_due_and_none_before(
    node: TestNode, clock: SteppedClock
) -> None:
    began, sent = clock.now_ms(), []
    for number in range(1, 20):
        sent += send(node, Message("days", b"%d" % number, delay_level=number))
    sent += send(node, Message("days", b"far", deliver_at=began + 3 * DAY_MS - 1000))
    delays = [*parse_delay_levels(LEVELS), 3 * DAY_MS]
    assert delays[17:] == [2 * HOUR_MS, 2 * DAY_MS, 3 * DAY_MS]
    for place, delay_ms in enumerate(delays):
        ahead = began + delay_ms - clock.now_ms() - LEAD_MS
        if ahead > 0:
            clock.step(ahead)
        wanted = keys_of(sent[: place + 1])
        found = read(node, "days", wanted)
        seen = keys_of(sent[: 1 + sum(began + each <= clock.now_ms() + LEAD_MS for each in delays)])
        assert {message.unique_key for message in found} <= seen | wanted, f"level {place + 1}: nothing else is due"
    for message in found:
        due = began + delays[int(message.body) - 1] if message.body.isdigit() else began + 3 * DAY_MS - 1000
        assert message.store_timestamp >= due


def test_after_a_clock_went_back_neither_a_kill_nor_a_stop_doubles_what_was_noted(
    node: TestNode, clock: SteppedClock
) -> None:
    offsets = ConfigFile(node.store.config / "timerOffset.json")
    sent = send(node, Message("noted", b"before", deliver_at=clock.now_ms()))
    check_once(read(node, "noted", keys_of(sent)), keys_of(sent))
    clock.step(-HOUR_MS)
    at = clock.now_ms() + 500
    late = send(node, Message("noted", b"late", deliver_at=at + HOUR_MS // 2))
    sent += send(node, *(Message("noted", b"%d" % number, deliver_at=at + number // 4) for number in range(800)))
    check_once(read(node, "noted", keys_of(sent)), keys_of(sent))
    await_(lambda: (offsets.load() or {})["deliveredDue"] == at + 799 // 4, DEADLINE_S, "it is noted")
    pids = node.pids()
    os.kill(pids["schedule"], signal.SIGKILL)
    node.await_restarted("schedule", pids)
    sent += send(node, Message("noted", b"killed", deliver_at=clock.now_ms()))
    check_once(read(node, "noted", keys_of(sent)), keys_of(sent))
    assert node.stop()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(ENVIRONMENT, str(clock._path))
        node.start()
    sent += send(node, Message("noted", b"stopped", deliver_at=clock.now_ms()))
    check_once(read(node, "noted", keys_of(sent)), keys_of(sent))
    clock.step(HOUR_MS)
    check_once(read(node, "noted", keys_of(sent + late)), keys_of(sent + late))
