"""Pulls that are answered from the files, in place of serve: serve stands still while they are asked for."""

import os
import random
import signal
from collections.abc import Iterator
from contextlib import contextmanager

from tests.processes.waiting import await_
from towline.format.remoting.codes import RequestCode
from towline.places import Runtime
from towline.runtime.store_stats import StoreStats

from .conftest import RemotingNode
from .raw import RawClient
from .test_consumers import MOVED, NOT_FOUND, SUCCESS, SUSPENDS, WAIT_S, bodies_in, filled

WITHIN_S = 1.0  # far less than a stopped process may be silent


@contextmanager
def serve_stands_still(node: RemotingNode, client: RawClient) -> Iterator[None]:
    """What needs serve meanwhile gets no answer in `WITHIN_S`."""
    pid = node.pids()["serve"]
    os.kill(pid, signal.SIGSTOP)
    client.socket.settimeout(WITHIN_S)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)
        client.socket.settimeout(WAIT_S)


def test_plain_pulls_of_what_is_in_memory_need_no_serve(node: RemotingNode, client: RawClient) -> None:
    filled(client, "near", 40)
    with serve_stands_still(node, client):
        offset, found = 0, []
        while len(found) < 40:
            answer = client.pull("g", "near", 0, offset, maxMsgNums=7)
            assert (answer.code, answer.fields["minOffset"], answer.fields["maxOffset"]) == (SUCCESS, "0", "40")
            offset = int(answer.fields["nextBeginOffset"])
            found += bodies_in(answer)
            assert offset == len(found)
    assert found == [b"%d" % number for number in range(40)]


def test_records_of_queues_that_lie_between_each_other_are_gathered(node: RemotingNode, client: RawClient) -> None:
    chance = random.Random(3)
    wanted: dict[tuple[str, int], list[bytes]] = {}
    for number in range(300):
        queue = chance.choice(("mixed-a", "mixed-b")), chance.randrange(4)
        body = b"%d " % number * chance.randrange(1, 60)
        assert client.put(queue[0], body, e=queue[1]).code == SUCCESS
        wanted.setdefault(queue, []).append(body)
    for (topic, queue_id), bodies in wanted.items():
        last = len(bodies) - 1
        await_(lambda at=(topic, queue_id, last): client.pull("g", *at).code == SUCCESS, WAIT_S, "the last message")
    with serve_stands_still(node, client):
        for (topic, queue_id), bodies in wanted.items():
            found: list[bytes] = []
            while len(found) < len(bodies):
                answer = client.pull("g", topic, queue_id, len(found), maxMsgBytes=chance.randrange(2_000, 60_000))
                assert answer.code == SUCCESS
                found += bodies_in(answer)
            assert found == bodies


def test_what_thought_is_needed_for_is_left_to_serve(node: RemotingNode, client: RawClient) -> None:
    filled(client, "left", 3)
    with RawClient(node.port) as waiting:
        with serve_stands_still(node, waiting):
            waits = [
                waiting.send(RequestCode.PULL_MESSAGE, asked)
                for asked in (
                    pull("left", 0, subscription="A"),  # tags are compared
                    pull("left", 0, maxMsgBytes=1),  # the first message is larger than that
                    pull("left", 3, sysFlag=4 | SUSPENDS, suspendTimeoutMillis=100),  # nothing is there yet
                    pull("left", 9),  # behind the end
                )
            ]
            assert client.pull("g", "left", 0, 0).code == SUCCESS
        answers = {}
        while not set(waits) <= answers.keys():
            found = waiting.read()
            answers[found.opaque] = found
    assert [answers[number].code for number in waits] == [SUCCESS, SUCCESS, NOT_FOUND, MOVED]
    assert [bodies_in(answers[number]) for number in waits[:2]] == [[b"0", b"1", b"2"], [b"0"]]


def test_messages_that_were_read_so_are_counted_by_serve(node: RemotingNode, client: RawClient) -> None:
    filled(client, "counted-gets", 12)
    await_(lambda: read_of(node, "counted-gets")[0] == 1, WAIT_S, "the message that was asked for first")
    before = read_of(node, "counted-gets")
    with serve_stands_still(node, client):
        size = len(client.pull("g", "counted-gets", 0, 0, maxMsgNums=9).body)
    wanted = before[0] + 9, before[1] + size
    await_(lambda: read_of(node, "counted-gets") == wanted, WAIT_S, "nine messages")


def test_an_offset_that_a_pull_commits_is_there_for_the_next_question(client: RawClient) -> None:
    filled(client, "committed", 6)
    asked = {"consumerGroup": "with-pulls", "topic": "committed", "queueId": 0}
    for offset in range(1, 6):
        assert client.pull("with-pulls", "committed", 0, 0, sysFlag=5, commitOffset=offset).code == SUCCESS
        assert client.ask(RequestCode.QUERY_CONSUMER_OFFSET, asked).fields["offset"] == str(offset)
    client.pull("with-pulls", "committed", 0, 0, sysFlag=5, commitOffset=3)
    with RawClient(client.socket.getpeername()[1]) as other:
        await_(lambda: other.ask(RequestCode.QUERY_CONSUMER_OFFSET, asked).fields["offset"] == "3", WAIT_S, "3")


def pull(topic: str, offset: int, **more: object) -> dict[str, object]:
    fields = {"consumerGroup": "g", "topic": topic, "queueId": 0, "queueOffset": offset, "maxMsgNums": 32,
              "sysFlag": 4, "commitOffset": 0, "suspendTimeoutMillis": 0, "subscription": "*",
              "subVersion": 1}  # fmt: skip
    return {**fields, **more}


def read_of(node: RemotingNode, topic: str) -> tuple[int, int]:
    """Messages and bytes that serve has counted for a topic."""
    stats = StoreStats.open(Runtime(node.runtime).get_stats)
    try:
        rows = [row for row in stats if row.topic == topic.encode()]
        return sum(row.messages for row in rows), sum(row.bytes for row in rows)
    finally:
        stats.close()
