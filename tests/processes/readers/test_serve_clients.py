"""The read process under its own duty cycle, asked by the library's own clients."""

import threading
import time
from collections.abc import Callable, Iterator

import pytest

from tests.serve.building import NOON, SEGMENT, Built
from tests.serve.conftest import Build, build
from towline.client.admin import AdminClient
from towline.client.consumer import Consumer
from towline.client.errors import AskRefused
from towline.clock import SystemClock
from towline.errors import UnknownTopic
from towline.format.wire.frames import Buffer
from towline.link.log_files import LogFiles
from towline.link.native import address_of
from towline.runtime.agent import run
from towline.runtime.doorbell import Doorbell
from towline.runtime.idle_sleep import IdleSleep
from towline.runtime.positions import Duty, State
from towline.serve.service import ServeAgent

__all__ = ["build"]  # the fixture

DEADLINE_S = 60.0


class Running:
    """The agent in a thread, with the machine's clock."""

    def __init__(self, built: Built) -> None:
        built.clock = SystemClock()  # type: ignore[assignment]
        node = built.node()
        self.line = node.line
        bell = Doorbell(built.runtime.bell(Duty.SERVE.label), self.line)
        agent = ServeAgent(node)
        self._stop = threading.Event()
        self._thread = threading.Thread(
            target=run, args=(agent, bell, self.line, IdleSleep(self.line, address_of("zmq_poll")), self._stop.is_set)
        )
        self._thread.start()
        deadline = time.monotonic() + DEADLINE_S
        while self.line.state is not State.RUNNING:
            assert time.monotonic() < deadline
        self.endpoint = agent.endpoints[0]

    def stop(self) -> None:
        self._stop.set()
        self._thread.join(DEADLINE_S)
        assert self.line.state is State.STOPPED


@pytest.fixture
def serve() -> Iterator[Callable[[Built], str]]:
    made: list[Running] = []

    def start(built: Built) -> str:
        made.append(Running(built))
        return made[-1].endpoint

    yield start
    for running in made:
        running.stop()


Serve = Callable[[Built], str]


def test_a_consumer_reads_every_queue_and_then_what_arrives(build: Build, serve: Serve):
    built = build()
    built.topics(t=3)
    for number in range(600):  # several queue files and segments
        built.append("t", number % 3, b"%d:" % number + b"y" * (number % 700))
    built.dispatch()
    expected = set(built.records)
    with Consumer(serve(built), "t", max_count=50) as consumer:
        got = []
        while len(got) < 600:
            messages = consumer.poll(10_000)
            assert messages
            got += messages
        assert {message.physical_offset for message in got} == expected
        for queue in range(3):
            offsets = [message.queue_offset for message in got if message.queue_id == queue]
            assert offsets == list(range(200))
        at = built.append("t", 1, b"new")
        built.dispatch()
        assert [message.physical_offset for message in consumer.poll(10_000)] == [at]
        assert not consumer.moved


class Spied:
    """What readers of files asked for, and how often they got it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *, works: Callable[[int], bool]) -> None:
        self.asked = self.got = 0
        read = LogFiles.read

        def spied(files: LogFiles, place: Buffer) -> Buffer | None:
            self.asked += 1
            found = read(files, place) if works(self.asked) else None
            self.got += found is not None
            return found

        monkeypatch.setattr(LogFiles, "read", spied)


@pytest.mark.parametrize(
    ("works", "most_in_vain"),
    [
        pytest.param(lambda asked: True, 0, id="always"),
        pytest.param(lambda asked: asked not in (3, 4), 2, id="but for two cleaned files"),
        pytest.param(lambda asked: asked <= 3, 3, id="three times"),
        pytest.param(lambda asked: False, 3, id="never"),
    ],
)
def test_records_are_read_from_the_files_as_long_as_that_works(
    build: Build, serve: Serve, monkeypatch: pytest.MonkeyPatch, works: Callable[[int], bool], most_in_vain: int
):
    built = build(segment=4 * SEGMENT)
    built.topics(t=2)
    for queue in (0, 1):  # each queue's records stand back to back, over several segments
        for number in range(40):
            built.append("t", queue, b"%d:" % number + b"y" * 20_000)
    built.dispatch()
    expected = [built.records[at] for at in sorted(built.records)]
    spied = Spied(monkeypatch, works=works)
    with Consumer(serve(built), "t", max_bytes=2 * SEGMENT) as consumer:
        got: list[tuple[int, bytes]] = []
        while len(got) < 80:
            columns = consumer.poll_columns(10_000)
            assert columns is not None
            ends = columns.start + columns.size
            cut = [bytes(columns.records[a:b]) for a, b in zip(columns.start.tolist(), ends.tolist(), strict=True)]
            got += zip(columns.physical_offset.tolist(), cut, strict=True)
        assert consumer.poll_columns(0) is None
    assert [record for _, record in sorted(got)] == expected
    assert spied.asked - spied.got == most_in_vain
    assert spied.asked >= 10 or not works(99)


def test_a_consumer_may_leave_the_files_alone(build: Build, serve: Serve, monkeypatch: pytest.MonkeyPatch):
    built = build(segment=16 * SEGMENT)
    built.topics(t=1)
    for _ in range(8):
        built.append(body=b"y" * 50_000)
    built.dispatch()
    spied = Spied(monkeypatch, works=lambda _: True)
    with Consumer(serve(built), "t", reads_files=False) as consumer:
        assert len(consumer.poll(10_000)) == 8
    assert not spied.asked


def test_a_tag_with_the_hash_of_another_is_left_out_by_the_consumer(build: Build, serve: Serve):
    built = build()
    built.topics(t=1)
    for tag in ("Aa", "BB", None, "c", "Aa"):
        built.append(tag=tag)
    built.dispatch()
    with Consumer(serve(built), "t", tags="Aa || c") as consumer:
        got = consumer.poll(10_000)
    assert [message.tags for message in got] == ["Aa", "c", "Aa"]


def test_a_consumer_begins_where_a_time_says(build: Build, serve: Serve):
    built = build()
    built.topics(t=1)
    for number in range(20):
        built.append(store_time=NOON + 1000 * number)
    built.dispatch()
    with Consumer(serve(built), "t", start=NOON + 12_500) as consumer:
        assert consumer.poll(10_000)[0].queue_offset == 13


def test_a_consumer_of_removed_messages_goes_on_behind_them(build: Build, serve: Serve):
    built = build()
    built.topics(t=1)
    for _ in range(4):
        built.append(body=b"y" * 30_000)
    built.dispatch()
    built.forget_before(SEGMENT)
    with Consumer(serve(built), "t") as consumer:
        assert [message.queue_offset for message in consumer.poll(10_000)] == [2, 3]


@pytest.mark.parametrize("start", ["first", "last"])
def test_of_a_topic_that_was_not_there_yet_all_messages_come(build: Build, serve: Serve, start: str):
    built = build()
    built.topics(other=1)
    endpoint = serve(built)
    with Consumer(endpoint, "t", start=start) as consumer:  # type: ignore[arg-type]
        with pytest.raises(UnknownTopic):
            consumer.poll(10_000)
        built.topics(other=1, t=1)
        for number in range(3):
            built.append("t", 0, b"%d" % number)
        built.dispatch()
        found: list[bytes] = []
        deadline = time.monotonic() + DEADLINE_S
        while len(found) < 3:
            assert time.monotonic() < deadline
            try:
                found += [message.body for message in consumer.poll(100)]
            except UnknownTopic:
                continue
        assert found == [b"0", b"1", b"2"]


def test_an_administrator_looks_messages_up(build: Build, serve: Serve):
    built = build()
    built.topics(t=2, u=1)
    at = built.append(keys="k1 k2", unique_key="U1", store_time=NOON)
    built.append("u", keys="k1")
    built.dispatch()
    with AdminClient(serve(built)) as admin:
        assert [row["topic"] for row in admin.topics()] == ["t", "u"]
        assert admin.bounds("t") == {0: (0, 1), 1: (0, 0)}
        [message] = admin.by_key("t", "k2")
        assert message.physical_offset == at
        assert [found.physical_offset for found in admin.by_unique_key("t", "U1")] == [at]
        same = admin.by_id(message.message_id)
        assert same is not None
        assert same.physical_offset == at
        assert admin.by_offset(at) is not None
        assert admin.offset_at("t", 0, NOON + 1) == 1
        assert [found.physical_offset for found in admin.by_time("t", NOON)] == [at]
        with pytest.raises(AskRefused, match="NoRecordHere"):
            admin.by_offset(at + 1)
        with pytest.raises(UnknownTopic):
            admin.bounds("no")
