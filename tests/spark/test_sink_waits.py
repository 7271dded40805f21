"""What the sink waits for, when it does not come: each wait ends by an error that says where it stood."""

import itertools
import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tests.processes.nodes import TestNode, ending, free_port
from tests.processes.waiting import await_
from towline.client.admin import AdminClient
from towline.client.columns import Columns
from towline.client.errors import DeliveryTimeout, ResultPending
from towline.client.link.rpc import Reply
from towline.client.producer import Producer
from towline.client.send.futures import SendFuture
from towline.errors import NoAnswer
from towline.runtime.positions import Position
from towline.spark import idempotent_producer as module
from towline.spark.errors import NotWritten
from towline.spark.idempotent_producer import IdempotentProducer
from towline.spark.rows import unique_keys

STEM = "0123456789ABCDEF01234567"
SHORT_MS = 300
CHUNKS = 50  # less than may be under way at once
BOUND_S = 20.0  # less than one wait after the other would take


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestNode]:
    root = tmp_path_factory.mktemp("waits") / "master"
    made = TestNode("master", root, ha_listen_port=free_port(), default_topic_queue_nums=1)
    with ending(made):
        made.start()
        yield made
        made.stop()


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    """A request and a question that nobody answers end soon."""
    monkeypatch.setattr(module, "SEND_TIMEOUT_MS", 2_000)  # what comes before the end of the node is bound by it too
    monkeypatch.setattr(module, "ANSWER_MS", 2_000)


@contextmanager
def frozen(pid: int) -> Iterator[None]:
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


def rows(producer: IdempotentProducer, topic: str, count: int, size: int = 10) -> None:
    batch = pa.RecordBatch.from_pydict({"body": [bytes(size)] * count})
    producer.send(topic, batch, unique_keys(STEM, 0, count))


def test_a_node_that_dispatches_no_more_is_not_waited_for_for_ever(
    node: TestNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    with IdempotentProducer(node.endpoint) as producer, frozen(node.pids()["reput"]):
        rows(producer, "undispatched", 3)
        producer.finish()
        monkeypatch.setattr(producer, "_timeout_ms", SHORT_MS)  # only of what is to fail
        end = node.at(Position.APPENDED)
        assert node.at(Position.DISPATCHED) < end
        with pytest.raises(NotWritten, match=rf"is not known after 300 ms: dispatched stands at \d+, .* at {end}"):
            producer.there("undispatched", STEM.encode())
        with pytest.raises(NotWritten, match="indexed stands at"):
            producer.lookup("undispatched", f"{STEM}00000000")


class Lost:
    """The outcome of a request, which is lost some time after it was handed over."""

    def __init__(self, seconds: float) -> None:
        self.at = time.monotonic() + seconds

    def exception(self, _: float | None = None) -> Exception:
        await_(lambda: time.monotonic() >= self.at, 30, "the moment of the loss")
        return DeliveryTimeout("lost", 0, 1, "the connection was lost")


def test_lost_requests_are_waited_for_together(node: TestNode, monkeypatch: pytest.MonkeyPatch) -> None:
    """To send again takes as long as one request takes, however many there are."""
    with IdempotentProducer(node.endpoint, timeout_ms=2_000, compression=None) as producer:
        rows(producer, "lost", 1)
        producer.finish()
        began = time.monotonic()
        monkeypatch.setattr(Producer, "send_records", lambda *_: Lost(0.5))
        rows(producer, "lost", CHUNKS, 2 * module.CHUNK_BYTES)
        with pytest.raises(NotWritten, match=f"({CHUNKS} messages are not surely stored|not known) after 2000 ms"):
            producer.finish()
    assert time.monotonic() - began < BOUND_S


@pytest.mark.usefixtures("short")
def test_a_node_that_is_gone_is_named(tmp_path: Path) -> None:
    made = TestNode("master", tmp_path / "gone", ha_listen_port=free_port())
    with ending(made):
        made.start()
        with IdempotentProducer(made.endpoint) as producer:
            rows(producer, "gone", 3)
            producer.finish()
            made.kill_supervisor()
            rows(producer, "gone", 3)
            with pytest.raises(NoAnswer):
                producer.finish()
            with pytest.raises(NoAnswer):
                producer.lookup("gone", f"{STEM}00000000")
        with pytest.raises(NoAnswer), IdempotentProducer(made.endpoint, timeout_ms=1_000) as producer:
            rows(producer, "gone", 3)


def test_queues_that_end_before_where_they_were_said_to_are_named(
    node: TestNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    with IdempotentProducer(node.endpoint) as producer:
        rows(producer, "cut", 5)
        producer.finish()
        await_(lambda: len(producer.there("cut", STEM.encode())) == 5, 30, "the rows are seen")
        monkeypatch.setattr(producer, "_timeout_ms", SHORT_MS)
        bounds = AdminClient.bounds
        monkeypatch.setattr(AdminClient, "bounds", lambda *told: {0: (0, bounds(*told)[0][1] + 1)})
        with pytest.raises(NotWritten, match=r"cut was read up to, of: \{0: \(5, 6\)\}"):
            producer.there("cut", STEM.encode())


def test_a_request_without_an_outcome_is_an_error(node: TestNode, monkeypatch: pytest.MonkeyPatch) -> None:
    """As if the producer's thread had died."""

    def silent(_: SendFuture, timeout: float | None = None) -> None:
        assert timeout is not None
        raise ResultPending(round(timeout * 1000))

    with IdempotentProducer(node.endpoint, timeout_ms=SHORT_MS) as producer:
        monkeypatch.setattr(SendFuture, "exception", silent)
        rows(producer, "silent", 3)
        with pytest.raises(NotWritten, match="3 messages are not surely stored after 300 ms: no result after 300 ms"):
            producer.finish()


@pytest.mark.parametrize("epoch", [1, 2])
def test_what_a_restart_or_another_master_cut_off_is_not_waited_for(
    monkeypatch: pytest.MonkeyPatch, epoch: int
) -> None:
    """The log ended at 100 and ends at 80 now: its new end is what has to be dispatched."""
    later = {"appended": 80, "epoch": epoch}
    first = {"appended": 100, "epoch": 1, "dispatched": 50}
    answers = itertools.chain([first, later | {"dispatched": 60}], itertools.repeat(later | {"dispatched": 80}))

    class Asked:
        def ask(self, op: str, **_: Any) -> Reply:
            assert op == "log_ends"
            return Reply(next(answers), Columns(b"", b""))

    monkeypatch.setattr(IdempotentProducer, "_asked", Asked())
    with IdempotentProducer("ipc:///tmp/nobody", timeout_ms=SHORT_MS) as producer:
        producer._settled("dispatched", producer._deadline())


def test_a_request_that_leaves_late_is_not_looked_for_too_early(
    node: TestNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may be taken for a second after it left the producer, which is later than when it was handed over."""
    looked: list[float] = []
    there = IdempotentProducer._there
    launch = Producer.send_records

    def looking(*told: Any, **more: Any) -> Any:
        looked.append(time.monotonic())
        return there(*told, **more)

    lost = Lost(2.0)
    futures = iter([lost])
    monkeypatch.setattr(IdempotentProducer, "_there", looking)
    monkeypatch.setattr(Producer, "send_records", lambda *told: next(futures, None) or launch(*told))
    with IdempotentProducer(node.endpoint) as producer:
        rows(producer, "late", 3)
        assert producer.finish().sent == 3
    assert looked[0] - lost.at >= module.TAKE_TIMEOUT_MS / 1000


def test_a_look_at_many_delayed_rows_ends_in_time(node: TestNode, monkeypatch: pytest.MonkeyPatch) -> None:
    with IdempotentProducer(node.endpoint, timeout_ms=2_000) as producer:
        rows(producer, "many", 1)
        producer.finish()
        keys = unique_keys(STEM, 0, 100_000)
        began = time.monotonic()
        with pytest.raises(NotWritten, match=r"of 100000 messages were looked up in SCHEDULE_TOPIC_XXXX"):
            producer.there_of("SCHEDULE_TOPIC_XXXX", keys)
        assert time.monotonic() - began < BOUND_S


def test_damage_that_may_hide_a_delayed_row_is_no_miss(node: TestNode, monkeypatch: pytest.MonkeyPatch) -> None:
    with IdempotentProducer(node.endpoint, timeout_ms=2_000) as producer:
        rows(producer, "hidden", 1)
        producer.finish()
        asked = AdminClient.ask

        def damaged(admin: AdminClient, op: str, **facts: Any) -> Reply:
            reply = asked(admin, op, **facts)
            return Reply({**reply.facts, "damaged": 1}, reply.columns) if op == "query_unique_key" else reply

        monkeypatch.setattr(AdminClient, "ask", damaged)
        with pytest.raises(NotWritten, match=r"with the key .* is damaged"):
            producer.there_of("SCHEDULE_TOPIC_XXXX", unique_keys(STEM, 7, 1))
