"""Pulls of our own clients that are answered in place of serve, which stands still while they are asked for."""

import contextlib
import os
from pathlib import Path

import pytest

from tests.processes import aging
from tests.processes.aging import CLEANED_AT_ONCE, clean
from tests.processes.nodes import ending
from tests.processes.waiting import await_
from towline.client.columns import Columns
from towline.client.consumer import Consumer
from towline.client.message import Message
from towline.client.producer import Producer
from towline.format.wire.frames import PULL_ANSWER, Pull, encode_pull, expect, read_json
from towline.limits import MIB
from towline.runtime.positions import Position
from towline.runtime.remoting_counts import Total

from .conftest import RemotingNode, remoting_node
from .raw import RawClient
from .test_log_reads import WAIT_S, read_of, serve_stands_still
from .test_own_clients import WireClient

COUNT = 3_000


def fill(node: RemotingNode, topic: str, size: int) -> list[bytes]:
    """Messages in queue 0 that can be read."""
    sent = [os.urandom(size) for _ in range(COUNT)]
    with Producer(node.address, compression=None) as producer:
        assert all(result.acknowledged for result in producer.send_bodies(topic, sent, queue_id=0))
    with Consumer(node.address, topic, queues=[0], start="first") as consumer:
        read(consumer, COUNT)
    return sent


def read(consumer: Consumer, count: int) -> list[bytes]:
    found: list[bytes] = []
    while len(found) < count:
        came = consumer.poll(5_000)
        assert came, f"{len(found)} of {count} came"
        found += [message.body for message in came]
    return found


@pytest.mark.parametrize("reads_files", [False, True])
@pytest.mark.parametrize("size", [10, 500])
def test_what_is_in_memory_is_read_without_serve(
    node: RemotingNode, client: RawClient, size: int, reads_files: bool
) -> None:
    topic = f"without-serve-{size}-{reads_files}"
    sent = fill(node, topic, size)
    with Consumer(node.address, topic, queues=[0], start="first", reads_files=reads_files) as consumer:
        consumer.position()
        with serve_stands_still(node, client):
            assert read(consumer, COUNT) == sent


def test_who_reads_slowly_gets_the_same_bytes(node: RemotingNode) -> None:
    """Many records leave straight from the files, as the client takes them."""
    sent = fill(node, "own-slow", 500)
    with WireClient(node.port) as client:
        client.greet("consumer")
        client.say(*encode_pull(Pull(7, b"own-slow", 0, 0, COUNT, 4 * MIB, 0)))
        head, sizes, records = client.hear()
        found = Columns(sizes, records).bodies()
        assert expect(PULL_ANSWER, head)[4] == len(found)
        assert found == sent[: len(found)]
        assert len(records) > MIB


def test_who_does_not_read_keeps_no_file_from_being_deleted(tmp_path: Path) -> None:
    """What still waits in a file that goes is read by then, and comes whole."""
    node = remoting_node(tmp_path / "store", **CLEANED_AT_ONCE)
    with ending(node):
        node.start()
        aging.fill(node)
        oldest = min(node.store.commitlog.iterdir()).resolve()

        def has_oldest() -> bool:
            return any(name.startswith(str(oldest)) for name in files_of(node.pids()["remoting"]))

        with WireClient(node.port) as client:
            client.greet("consumer")
            asked = set[int]()

            def waits() -> bool:
                asked.add(len(asked) + 1)
                client.say(*encode_pull(Pull(len(asked), b"plain", 0, 0, 400, MIB, 0)))
                return node.counts.total(Total.HELD) > 0

            await_(waits, WAIT_S, "an answer that the system has not taken")
            assert has_oldest()
            clean(node, hours_old=2)
            await_(lambda: node.at(Position.LOG_MIN) > 0, WAIT_S, "the first segment is deleted")
            await_(lambda: not has_oldest(), WAIT_S, "nobody has it")
            answered = set()
            while answered != asked:  # those that serve has to answer come later
                head, *parts = client.hear()
                answered.add(expect(PULL_ANSWER, head)[3])
                if parts:
                    assert Columns(*parts).damaged() == []


def files_of(pid: int) -> list[str]:
    """Paths of what a process has open; of a deleted file they go on."""
    found = []
    for path in Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):
            found.append(str(path.readlink()))
    return found


def test_what_was_read_so_is_counted_by_serve(node: RemotingNode) -> None:
    fill(node, "own-counted", 100)
    await_(lambda: read_of(node, "own-counted")[0] == COUNT, WAIT_S, "what was read to see that it is there")
    before = read_of(node, "own-counted")[0]
    with Consumer(node.address, "own-counted", queues=[0], start="first") as consumer:
        read(consumer, COUNT)
    await_(lambda: read_of(node, "own-counted")[0] == before + COUNT, WAIT_S, "what was read")


def test_tags_are_left_to_serve(node: RemotingNode, client: RawClient) -> None:
    with Producer(node.address) as producer:
        producer.make_topic("own-tags")
        for number in range(20):
            producer.send(Message("own-tags", b"%d" % number, tags="odd" if number % 2 else "even"))
    with Consumer(node.address, "own-tags", queues=[0], start="first", tags="odd") as consumer:
        consumer.position()
        with serve_stands_still(node, client):
            assert not consumer.poll(300)
        assert read(consumer, 10) == [b"%d" % number for number in range(1, 20, 2)]


@pytest.mark.parametrize(("count", "size"), [(0, 1_000), (-1, 1_000), (-(1 << 31), 1_000), (5, 0), (5, -1), (-1, -1)])
def test_who_asks_for_no_message_or_fewer_harms_nobody(node: RemotingNode, count: int, size: int) -> None:
    """As at serve the first one comes, whatever is asked for."""
    fill(node, "own-none", 10)
    before = node.pids()
    with WireClient(node.port) as client:
        client.greet("consumer")
        client.say(*encode_pull(Pull(1, b"own-none", 0, 0, count, size, 0)))
        assert expect(PULL_ANSWER, client.hear()[0])[4] == 1
    assert node.pids() == before


def test_a_producer_reads_nothing(node: RemotingNode) -> None:
    fill(node, "own-secret", 10)
    with WireClient(node.port) as client:
        client.greet("producer")
        client.say(*encode_pull(Pull(1, b"own-secret", 0, 0, 10, 1_000, 0)))
        assert "pulls come from consumers" in str(read_json(client.hear()[1])["sentence"])
