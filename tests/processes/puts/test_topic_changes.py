"""While the disk holds up the file of topics: who waits is who asked, and a kill or a full disk leaves whole topics."""

import os
import signal
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.processes.arming import Arming
from tests.processes.nodes import TestNode, check_nothing_is_left, ending
from tests.processes.tracing import failing, strace, traced
from tests.processes.waiting import await_
from tests.processes.wire import WireClient, records_of
from towline.client.admin import AdminClient
from towline.client.consumer import Consumer
from towline.client.errors import AskRefused
from towline.client.message import Message
from towline.client.producer import Producer
from towline.format.wire.frames import ANSWER, ASK, Kind, expect, json_part
from towline.format.wire.status import PutStatus
from towline.link.endpoints import ipc_endpoint
from towline.master.put.service import DRAIN_MS

HELD_MS = 2_000  # of a write
SOON_S = 0.001
TOPIC = "orders"


@pytest.fixture(scope="module")
def arming(tmp_path_factory: pytest.TempPathFactory) -> Arming:
    return Arming(tmp_path_factory.mktemp("arming"))


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory, arming: Arming) -> Iterator[TestNode]:
    made = TestNode("master", tmp_path_factory.mktemp("topics"), ha_listen_port=0)
    with ending(made):
        with pytest.MonkeyPatch.context() as patch:
            arming.announce(patch)
            made.start()
        with AdminClient(made.endpoint) as admin:
            admin.create_topic(TOPIC, 1)
        yield made
        assert made.stop()
        check_nothing_is_left(made)


@pytest.fixture
def asking(node: TestNode) -> Iterator[WireClient]:
    client = WireClient(node.endpoint)
    yield client
    client.close()


def ask(client: WireClient, op: str, topic: str, number: int = 1, **facts: object) -> None:
    """Without waiting for the answer."""
    assert client.link.send([ASK.pack(Kind.ASK, number), json_part({"op": op, "topic": topic, **facts})])


def hold(asking: WireClient, arming: Arming, topic: str) -> None:
    """`asking` waits for a topic from now on, and the write of it is under way."""
    arming.arm(f"put.in_topics=stall:{HELD_MS}")
    ask(asking, "route", topic)
    arming.await_fired()


def topics_of(node: TestNode) -> set[str]:
    with AdminClient(node.endpoint, timeout_ms=30_000) as admin:
        return {facts["topic"] for facts in admin.topics()}


def test_others_put_and_ask_while_a_topic_is_being_made(node: TestNode, asking: WireClient, arming: Arming) -> None:
    other = WireClient(node.endpoint)
    hold(asking, arming, "made-by-itself")
    stored = 0
    while asking.receive(SOON_S) is None:  # the answer comes when the write has ended, and only then
        assert other.put(records_of(TOPIC.encode(), 2)).status == PutStatus.PUT_OK
        assert other.ask({"op": "route", "topic": TOPIC})["write_queues"] == 1
        stored += 1
    assert stored > 1
    assert other.put(records_of(b"made-by-itself", 1)).status == PutStatus.PUT_OK
    other.close()


def test_the_threads_of_one_producer_do_not_wait_for_each_others_topics(
    node: TestNode, asking: WireClient, arming: Arming
) -> None:
    with Producer(node.endpoint) as producer:
        hold(asking, arming, "made-first")
        assert producer.send(Message(TOPIC, b"known to the node")).acknowledged
        assert asking.receive(SOON_S) is None
        assert producer.send(Message("made-first", b"waits for it")).acknowledged
        assert asking.receive(30) is not None


def test_a_put_that_dies_in_between_leaves_what_was_acknowledged(
    node: TestNode, asking: WireClient, arming: Arming
) -> None:
    hold(asking, arming, "lost-or-there")
    with Producer(node.endpoint) as producer:
        sent = [producer.send(Message(TOPIC, b"%d" % number)) for number in range(20)]
        assert all(result.acknowledged for result in sent)
        before = node.pids()
        os.kill(before["put"], signal.SIGKILL)
        node.await_restarted("put", before)
        assert producer.send(Message(TOPIC, b"after")).queue_offset == sent[-1].queue_offset + 1
        assert "lost-or-there" not in topics_of(node)  # nothing of it was written
        assert producer.send(Message("lost-or-there", b"made by now")).acknowledged


def test_a_full_disk_is_told_to_who_asked_and_nothing_has_changed(node: TestNode, arming: Arming) -> None:
    with AdminClient(node.endpoint, timeout_ms=30_000) as admin:
        admin.create_topic("kept", 1)
        before = topics_of(node)
        for change in (lambda: admin.create_topic("no-room", 1), lambda: admin.delete_topic("kept")):
            arming.arm("put.in_topics=raise:ENOSPC")
            with pytest.raises(AskRefused, match="No space left"):
                change()
            assert topics_of(node) == before
        with Producer(node.endpoint) as producer:
            assert producer.send(Message("kept", b"")).acknowledged
        admin.create_topic("no-room", 1)


def test_a_delete_and_a_create_of_one_topic_stay_in_order(node: TestNode, asking: WireClient, arming: Arming) -> None:
    with AdminClient(node.endpoint, timeout_ms=30_000) as admin, Producer(node.endpoint) as producer:
        admin.create_topic("again", 1)
        assert [producer.send(Message("again", b"")).queue_offset for _ in range(3)] == [0, 1, 2]
        other = WireClient(node.endpoint)
        hold(asking, arming, "held-before")
        ask(other, "delete_topic", "again", 1)
        ask(other, "create_topic", "again", 2, queues=1)
        answers = [other.receive(30) for _ in range(2)]
        heads = [expect(ANSWER, parts[0]) for parts in answers if parts is not None]
        assert [(status, number) for _, status, number, _ in heads] == [(0, 1), (0, 2)]
        other.close()
    with Producer(node.endpoint) as producer:
        assert producer.send(Message("again", b"", queue_id=0)).queue_offset == 3


def test_a_stop_waits_for_what_is_being_written(node: TestNode, asking: WireClient, arming: Arming) -> None:
    arming.arm(f"put.in_topics=stall:{2 * DRAIN_MS}")
    ask(asking, "route", "made-at-the-end")
    arming.await_fired()
    with ThreadPoolExecutor(1) as beside:
        stopped = beside.submit(node.stop)
        parts = asking.receive(60)
        assert stopped.result()
    assert parts is not None
    assert b'"write_queues":8' in bytes(parts[1])
    node.start()
    assert "made-at-the-end" in topics_of(node)


def bodies(node: TestNode, topic: str) -> list[bytes]:
    with Consumer(ipc_endpoint(node.runtime, "serve"), topic, start="first", suspend_ms=0) as consumer:
        found: list[bytes] = []
        while more := consumer.poll(100):
            found.extend(message.body for message in more)
    return found


@strace
def test_a_deletion_whose_directory_was_not_synced_is_undone_and_the_topic_keeps_its_messages(node: TestNode) -> None:
    with AdminClient(node.endpoint, timeout_ms=60_000) as admin, Producer(node.endpoint) as producer:
        admin.create_topic("stays", 1)
        sent = [b"before %d" % number for number in range(5)]
        for body in sent:
            assert producer.send(Message("stays", body)).acknowledged
        with (
            traced(failing("fsync", node.store.config, "1"), [node.pids()["put"]]),
            pytest.raises(AskRefused, match="Input/output error"),
        ):
            admin.delete_topic("stays")
        assert "stays" in topics_of(node)
        assert producer.send(Message("stays", b"after")).acknowledged
    await_(lambda: bodies(node, "stays") == [*sent, b"after"], 60.0, "they are read while the node runs")
    node.stop()
    node.start()
    assert bodies(node, "stays") == [*sent, b"after"]


@strace
@pytest.mark.parametrize(
    ("topic", "change"),
    [
        ("deleted-in-vain", lambda admin, topic: admin.delete_topic(topic)),
        ("narrowed-in-vain", lambda admin, topic: admin.alter_topic(topic, write_queues=1)),
    ],
    ids=["a deletion", "fewer queues"],
)
def test_while_a_change_can_be_neither_kept_nor_undone_its_topic_is_closed_by_name(
    node: TestNode, topic: str, change: Callable[[AdminClient, str], object]
) -> None:
    with AdminClient(node.endpoint, timeout_ms=60_000) as admin, Producer(node.endpoint) as producer:
        admin.create_topic(topic, 2)
        assert producer.send(Message(topic, b"before", queue_id=0)).acknowledged
        with traced(failing("fsync", node.store.config), [node.pids()["put"]]):
            with pytest.raises(AskRefused, match="is not known"):
                change(admin, topic)
            client = WireClient(node.endpoint)
            refused = client.put(records_of(topic.encode(), 1))
            assert (refused.status, "cause=topics_file" in refused.sentence) == (PutStatus.SERVICE_NOT_AVAILABLE, True)
            assert client.put(records_of(TOPIC.encode(), 1)).status == PutStatus.PUT_OK
        await_(lambda: client.put(records_of(topic.encode(), 1)).status == PutStatus.PUT_OK, 60.0, "it is open again")
        client.close()
    node.stop()
    node.start()
    assert len(bodies(node, topic)) == 2
    with AdminClient(node.endpoint) as admin:
        assert [facts["write_queues"] for facts in admin.topics() if facts["topic"] == topic] == [2]
