"""Pulls through a running master and slave: expressions, the hint to read from a slave, both serving."""

import os
import signal
from collections.abc import Callable, Iterator

import pytest

from tests.processes.nodes import Pair, TestNode, ending
from tests.processes.waiting import await_
from tests.processes.wire import endpoint_of
from towline.client.admin import AdminClient
from towline.client.consumer import Consumer
from towline.client.errors import FilterRefused
from towline.client.group.consumer import GroupConsumer
from towline.client.message import Message
from towline.client.producer import Producer
from towline.runtime.positions import Position

COUNT = 3_000
READ_MS = 20_000


@pytest.fixture(scope="module")
def pair(tmp_path_factory) -> Iterator[Pair]:
    """Nothing counts as in memory, so that whoever reads an old message is far behind."""
    more = {"enable_property_filter": True, "access_message_in_memory_max_ratio": 0, "slave_read_enable": True}
    made = Pair(tmp_path_factory.mktemp("pair"), **more)
    made.slave.flags += [word for key, value in more.items() for word in ("--set", f"{key}={value}")]
    with ending(*made.nodes):
        made.start()
        with Producer(endpoint_of(made.master.runtime)) as producer:
            producer.send_batch(
                Message("t", b"%d" % number, queue_id=0, properties=properties_of(number)) for number in range(COUNT)
            )
        made.await_caught_up()
        with AdminClient(serve_of(made.slave)) as admin:
            await_(lambda: any(row["topic"] == "t" for row in admin.topics()), 60.0, "the slave knows the topic")
        yield made
        assert made.stop() == (True, True)


def properties_of(number: int) -> dict[str, str]:
    found = {"a": str(number % 10)}
    return found | {"b": "x"} if number % 3 else found


def serve_of(node: TestNode) -> str:
    return next(str(each) for each in node.facts["endpoints"]["serve"] if str(each).startswith("ipc"))


def bodies(node: TestNode, **options) -> list[int]:
    with Consumer(serve_of(node), "t", queues=[0], suspend_ms=100, **options) as consumer:
        got: list[int] = []
        while not consumer.at_end or not got:
            got += [int(message.body) for message in consumer.poll(READ_MS)]
        return got


@pytest.mark.parametrize("role", ["master", "slave"])
@pytest.mark.parametrize(
    ("expression", "passes"),
    [
        ("a > 7", lambda number: number % 10 > 7),
        ("a > 7 AND b IS NOT NULL", lambda number: number % 10 > 7 and number % 3),
        ("NOT (b = 'x')", lambda _: False),
    ],
    ids=["a number", "two properties", "NULL is not false"],
)
def test_master_and_slave_evaluate_expressions(pair, role, expression, passes):
    expected = [number for number in range(COUNT) if passes(number)]
    node = pair.node(role)
    with Consumer(serve_of(node), "t", queues=[0], suspend_ms=100, sql=expression, max_count=500) as consumer:
        got: list[int] = []
        while len(got) < len(expected) or consumer.position()[0] < COUNT:
            got += [int(message.body) for message in consumer.poll(1_000)]
    assert got == expected


def test_what_is_no_expression_is_refused_by_name_and_position(pair):
    with (
        Consumer(serve_of(pair.master), "t", sql="a > 3 AND AND b") as consumer,
        pytest.raises(FilterRefused) as refused,
    ):
        consumer.poll(READ_MS)
    assert refused.value.error == "BadExpression"
    assert refused.value.position == len("a > 3 AND ")


def test_a_held_pull_with_an_expression_waits_for_a_message_that_matches(pair):
    with Producer(endpoint_of(pair.master.runtime)) as producer:
        producer.send(Message("held", b"first", queue_id=0, properties={"a": "2"}))
        end = pair.master.at(Position.APPENDED)
        await_(lambda: pair.master.at(Position.DISPATCHED) >= end, 60.0, "it is dispatched")
        with Consumer(serve_of(pair.master), "held", queues=[0], sql="a = 1", suspend_ms=READ_MS) as consumer:
            assert consumer.poll(500) == []
            producer.send(Message("held", b"other", queue_id=0, properties={"a": "3"}))
            assert consumer.poll(500) == []
            producer.send(Message("held", b"wanted", queue_id=0, properties={"a": "1"}))
            assert [message.body for message in consumer.poll(READ_MS)] == [b"wanted"]


def test_who_is_far_behind_is_told_to_read_from_a_slave_and_the_slave_serves(pair):
    with Consumer(serve_of(pair.master), "t", queues=[0]) as consumer:
        assert consumer.poll(READ_MS)
        assert consumer.far_behind
    with Consumer(serve_of(pair.slave), "t", queues=[0]) as consumer:
        assert consumer.poll(READ_MS)
        assert not consumer.far_behind
    assert bodies(pair.master) == bodies(pair.slave) == list(range(COUNT))


def read_by_a_group(pair: Pair, group: str, when_aside: Callable[[], None]) -> tuple[list[int], int]:
    """All bodies, and how many of them a slave has read. `when_aside` is called once it has read some."""
    both = [serve_of(pair.master), serve_of(pair.slave)]
    with GroupConsumer(both, group, {"t": "*"}, start="first", max_count=100) as consumer:
        got = [int(message.body) for message in consumer.poll(READ_MS)]
        replica = consumer._node_groups.all[0].member._rpc.replica
        await_(lambda: replica.is_open, 60.0, "the member has a link to the slave")
        called = False
        while len(got) < COUNT and (messages := consumer.poll(READ_MS)):
            got += [int(message.body) for message in messages]
            if consumer.from_slaves and not called:
                when_aside()
                called = True
        assert called
        assert consumer.missed == 0
        return got, consumer.from_slaves


def test_a_member_that_is_far_behind_reads_from_the_slave(pair):
    got, from_slaves = read_by_a_group(pair, "far", lambda: None)
    assert got == list(range(COUNT))
    assert from_slaves >= COUNT // 2


def test_a_member_goes_on_at_the_master_when_the_slave_dies(pair):
    before = pair.slave.pids()
    got, from_slaves = read_by_a_group(pair, "left", lambda: os.kill(before["serve"], signal.SIGKILL))
    assert got == list(range(COUNT))
    assert from_slaves < COUNT
    pair.slave.await_restarted("serve", before)


def test_a_member_with_one_endpoint_reads_there(pair):
    with GroupConsumer(serve_of(pair.master), "one", {"t": "*"}, start="first") as consumer:
        assert consumer.poll(READ_MS)
        assert consumer.from_slaves == 0


def test_a_time_stands_for_the_first_message_or_for_the_last_one(pair):
    with AdminClient(serve_of(pair.slave)) as admin:
        stored = [message.store_timestamp for message in admin.by_time("t", 0, max_count=COUNT)]
        assert len(stored) == COUNT
        for time in (0, stored[0], stored[0] - 1, stored[COUNT // 2], stored[-1], stored[-1] + 1):
            lower = next((number for number, at in enumerate(stored) if at >= time), COUNT)
            upper = max((number for number, at in enumerate(stored) if at <= time), default=0)
            assert admin.offset_at("t", 0, time) == lower
            assert admin.offset_at("t", 0, time, boundary="upper") == upper
