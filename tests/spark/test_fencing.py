"""Attempts at the same rows that run at once: the newest writes them, the others stop. A node, without a JVM."""

import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from tests.processes.nodes import TestNode, ending, free_port
from tests.processes.waiting import await_
from towline.client.admin import AdminClient
from towline.client.consumer import Consumer
from towline.errors import NoAnswer
from towline.runtime.positions import Position
from towline.spark.errors import Fenced
from towline.spark.fencing import FENCE_WAIT_MS, FENCES, LOOK_S, VALID_S, FencedProducer
from towline.spark.idempotent_producer import CLOCKS_MS, TAKE_TIMEOUT_MS, Chunk, Sent, There
from towline.spark.sink import SinkOptions, stem_of, write_rows

from .test_sink_nodes import Task, is_whole, options

WAIT_S = 60.0
ROWS = 900


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestNode]:
    """Which makes no topics by itself."""
    made = TestNode(
        "master",
        tmp_path_factory.mktemp("fences") / "master",
        ha_listen_port=free_port(),
        auto_create_topic_enable=False,
    )
    with ending(made):
        made.start()
        yield made
        made.stop()


@pytest.fixture
def threads() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(2) as made:
        yield made


class Slow:
    """Rows of an attempt that stands still in their middle until it is told to go on."""

    def __init__(self) -> None:
        self.is_there, self.goes_on = threading.Event(), threading.Event()

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        for number, batch in enumerate(rows()):
            if number == 4:
                self.is_there.set()
                assert self.goes_on.wait(WAIT_S)
            yield batch


def rows() -> Iterator[pa.RecordBatch]:
    for first in range(0, ROWS, 100):
        yield pa.RecordBatch.from_pydict({"body": [f"body {row}".encode() for row in range(first, first + 100)]})


def begun(threads: ThreadPoolExecutor, given: SinkOptions, task: Task, slow: Slow) -> Future[Sent]:
    found = threads.submit(write_rows, given, task, iter(slow))
    assert slow.is_there.wait(WAIT_S)
    return found


def topic_of(node: TestNode, name: str) -> SinkOptions:
    with AdminClient(node.endpoint) as admin:
        admin.create_topic(name, 4)
    return options(node, name)


def fences(node: TestNode) -> int:
    await_(lambda: node.at(Position.DISPATCHED) == node.at(Position.APPENDED), WAIT_S, "everything is dispatched")
    with Consumer(node.endpoint.replace("put", "serve"), FENCES, suspend_ms=0) as consumer:
        found = 0
        while not consumer.at_end:
            found += len(consumer.poll(1_000))
    return found


@pytest.mark.parametrize("attempt", [1, 0], ids=["speculation", "another driver"])
def test_an_attempt_that_runs_on_stops_when_a_newer_one_has_begun(
    node: TestNode, threads: ThreadPoolExecutor, attempt: int
) -> None:
    topic = f"runs-on-{attempt}"
    given, stem, slow = topic_of(node, topic), stem_of(topic, 0, 0, ""), Slow()
    older = begun(threads, given, Task(stem, 0, looks_back=True), slow)
    sent = write_rows(given, Task(stem, attempt, looks_back=True), rows())
    slow.goes_on.set()
    with pytest.raises(Fenced, match=stem):
        older.result(WAIT_S)
    assert sent.sent + sent.there == ROWS
    assert sent.there > 0
    is_whole(node, topic, ROWS)


def test_of_two_later_attempts_the_last_goes_on(node: TestNode, threads: ThreadPoolExecutor) -> None:
    given, stem, slow = topic_of(node, "last"), stem_of("last", 0, 0, ""), Slow()
    second = begun(threads, given, Task(stem, 1, looks_back=True), slow)
    third = threads.submit(write_rows, given, Task(stem, 2, looks_back=True), rows())
    assert third.result(WAIT_S).sent > 0
    slow.goes_on.set()
    with pytest.raises(Fenced):
        second.result(WAIT_S)
    is_whole(node, "last", ROWS)


def test_fences_that_are_raised_at_once_let_one_through(node: TestNode, threads: ThreadPoolExecutor) -> None:
    given, stem = topic_of(node, "at-once"), stem_of("at-once", 0, 0, "")
    tasks = [threads.submit(write_rows, given, Task(stem, attempt, looks_back=True), rows()) for attempt in (1, 2)]
    outcomes = [task.exception(WAIT_S) for task in tasks]
    assert sorted(type(error).__name__ for error in outcomes) in (["Fenced", "NoneType"], ["NoneType", "NoneType"])
    is_whole(node, "at-once", ROWS)


def test_who_is_alone_raises_no_fence_and_others_rows_do_not_count(node: TestNode) -> None:
    given = topic_of(node, "alone")
    write_rows(given, Task(stem_of("one", 0, 0, ""), 1, looks_back=True), rows())
    before = fences(node)

    def lasting() -> Iterator[pa.RecordBatch]:
        began = time.monotonic()
        yield from rows()
        await_(lambda: time.monotonic() > began + LOOK_S, WAIT_S, "it is time to look")
        yield pa.RecordBatch.from_pydict({"body": [b"late"]})

    assert write_rows(given, Task(stem_of("two", 0, 0, ""), 0, looks_back=True), lasting()).sent == ROWS + 1
    assert fences(node) == before


def looking(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *answers: There | NoAnswer) -> FencedProducer:
    """Whose next request comes after a look, which gives the answers one after the other."""
    left = list(answers)

    def there(*_: object) -> There:
        answer = left.pop(0)
        if isinstance(answer, NoAnswer):
            raise answer
        return answer

    producer = FencedProducer(f"ipc://{tmp_path}/put", stem="AB", timeout_ms=1_000)
    monkeypatch.setattr(producer, "there", there)
    monkeypatch.setattr(producer, "_seen_at", time.monotonic() - LOOK_S)
    monkeypatch.setattr(producer._producer, "send_records", lambda *_: None)
    return producer


CHUNK = Chunk("t", 0, [b""], np.array([b"AB0"]))


def test_a_fence_ends_also_what_is_sent_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What else goes wrong with a request is tried again; this is not."""
    with looking(tmp_path, monkeypatch, There([b"AB0000000100000000"])) as producer, pytest.raises(Fenced):
        producer._put_right([CHUNK])


def test_a_look_waits_for_a_node_that_is_away_for_a_moment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    away = NoAnswer("ipc://put", 10, "nobody listens there")
    with looking(tmp_path, monkeypatch, away, away, There()) as producer:
        producer._launch(CHUNK)
        assert producer._seen_at > time.monotonic() - LOOK_S


def test_an_older_attempt_has_stopped_when_the_newer_one_looks(tmp_path: Path) -> None:
    """A look, what it is worth, and a request's life fit into the wait; a look comes before it is worth nothing."""
    assert VALID_S * 1000 + TAKE_TIMEOUT_MS + CLOCKS_MS <= FENCE_WAIT_MS
    assert LOOK_S < VALID_S
    given = SinkOptions.parse({"endpoint": f"ipc://{tmp_path}/put", "topic": "t"})
    assert given.replay_wait_ms >= FENCE_WAIT_MS
