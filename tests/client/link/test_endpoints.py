"""Clients that know several nodes: the right one is found, and found again, and nothing waits beyond its deadline."""

import socket
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from tests.client.group.standin import GroupNode
from tests.client.standin import Put, Refuse, Silence, Standin, Store, StoreAndCut
from towline.client.admin import AdminClient
from towline.client.consumer import Consumer
from towline.client.errors import AskRefused, DeliveryTimeout, StoreBusy
from towline.client.group.consumer import GroupConsumer
from towline.client.link.connection import Connection, own_facts
from towline.client.link.endpoints import masters, masters_like, neighbour, several
from towline.client.message import Message
from towline.client.producer import Producer
from towline.errors import InvalidEndpoint, LinkRefused, NoAnswer
from towline.format.wire.status import PutStatus
from towline.link.context import close_context, new_context
from towline.link.poller import Poller

WAIT_MS = 20_000


@pytest.fixture
def nodes(tmp_path: Path) -> Iterator[tuple[GroupNode, GroupNode]]:
    """Two nodes, `a` and `b`, of one store; both running."""
    made = []
    for name in ("a", "b"):
        directory = tmp_path / name
        directory.mkdir()
        node = GroupNode(directory, {"t": 1})
        node.start()
        made.append(node)
    yield made[0], made[1]
    for node in made:
        node.stop()


@pytest.fixture
def long_held(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is stored without a promise waits for a later master however long that takes."""
    monkeypatch.setattr("towline.client.send.io_thread.UNPROMISED_S", 60.0)


def ask_again_after(monkeypatch: pytest.MonkeyPatch, seconds: float) -> None:
    """So that a node that did not fit is not being asked once more when the time is over."""
    monkeypatch.setattr("towline.client.link.connection.AGAIN_S", seconds)
    monkeypatch.setattr(Connection._postpone, "__defaults__", (seconds,))


@pytest.fixture
def dead(tmp_path: Path) -> str:
    return f"ipc://{tmp_path}/nobody"


def both(*nodes: Standin) -> list[str]:
    return [node.endpoint for node in nodes]


def connected(endpoints: object, timeout_ms: int = WAIT_MS, **facts: str) -> tuple[str, dict]:
    context = new_context()
    connection = Connection(context, endpoints, own_facts("producer", "p", "") | facts, Poller(), masters)
    try:
        connection.open(timeout_ms)
        return connection.endpoint, connection.welcome
    finally:
        connection.close()
        close_context(context)


class TestNames:
    def test_a_text_with_commas_or_a_sequence(self):
        assert several("tcp://a:1, tcp://b:2") == ("tcp://a:1", "tcp://b:2")
        assert several(["a:1", "tcp://a:1", "b:2"]) == ("tcp://a:1", "tcp://b:2")

    @pytest.mark.parametrize("given", ["", "tcp://a:1,", [], "tcp://a:1,b"])
    def test_what_is_no_endpoint_is_named(self, given):
        with pytest.raises(InvalidEndpoint):
            several(given)

    @pytest.mark.parametrize("came", ["", "ipc:///run/serve.sock"])
    def test_what_a_node_says_of_its_master_is_checked(self, came):
        assert masters_like(came, {"master": {"remoting": ["tcp://a:1", "nonsense", 3]}}) == ("tcp://a:1",)
        for facts in ({"master": {"remoting": "tcp://b:1"}}, {"master": 7}, {"master": {}}, {}):
            assert masters_like(came, facts) == ()

    def test_of_who_came_over_tcp_the_masters_port_is_named_alike(self):
        facts = {"master": {"remoting": ["tcp://a:2", "nonsense"]}}
        assert masters_like("tcp://b:2", facts) == ("tcp://a:2",)
        assert masters_like("tls://b:2?ca=/ca.pem", facts) == ("tls://a:2?ca=/ca.pem",)

    @pytest.mark.parametrize("endpoint", ["tls://a:2?ca=/ca.pem", "tcp://[::1]:2", "rocketmq://a:9876"])
    def test_over_tcp_one_port_has_every_service(self, endpoint):
        assert neighbour(endpoint, "serve") == endpoint


class TestLooking:
    def test_nobody_listens_at_the_first(self, nodes, dead):
        assert connected([dead, f"{dead}2", nodes[1].endpoint])[0] == nodes[1].endpoint

    def test_the_first_listens_and_says_nothing(self, nodes):
        with socket.create_server(("127.0.0.1", 0)) as mute:
            endpoint = f"tcp://127.0.0.1:{mute.getsockname()[1]}"
            assert connected([endpoint, nodes[1].endpoint])[0] == nodes[1].endpoint

    def test_a_slave_is_passed_over(self, nodes):
        nodes[0].welcome = {"broker_role": "slave"}
        assert connected(both(*nodes))[0] == nodes[1].endpoint

    def test_where_there_is_no_other_a_slave_is_taken_and_says_itself_what_is_wrong(self, nodes):
        nodes[0].welcome = {"broker_role": "slave"}
        assert connected(nodes[0].endpoint)[0] == nodes[0].endpoint

    def test_a_slave_tells_where_its_master_is(self, nodes):
        nodes[0].welcome = {"broker_role": "slave", "master": {"remoting": [nodes[1].endpoint]}}
        assert connected(nodes[0].endpoint)[0] == nodes[1].endpoint

    def test_one_that_refuses_us_is_passed_over(self, nodes):
        nodes[0].own = nodes[0].own | {"cluster": "c2"}
        nodes[0].stop()
        nodes[0].start()
        assert connected(both(*nodes), cluster="c1")[0] == nodes[1].endpoint

    def test_all_refuse_us(self, nodes):
        with pytest.raises(LinkRefused, match="'c9'"):
            connected(both(*nodes), cluster="c9")

    def test_nobody_is_there_and_all_are_named(self, nodes, dead, monkeypatch):
        ask_again_after(monkeypatch, 60.0)
        nodes[0].welcome = {"broker_role": "slave"}
        with pytest.raises(NoAnswer) as raised:
            connected([dead, nodes[0].endpoint], 1_000)
        assert f"{dead}: nobody listens there" in raised.value.trouble
        assert f"{nodes[0].endpoint}: it is a slave" in raised.value.trouble

    def test_a_master_of_an_older_epoch_is_none(self, nodes, context, monkeypatch):
        ask_again_after(monkeypatch, 1.5)
        nodes[0].welcome, nodes[1].welcome = {"epoch": 512}, {"epoch": 256}
        with closing(Connection(context, both(*nodes), own_facts("producer", "p", ""), Poller(), masters)) as there:
            there.open(WAIT_MS)
            assert there.epoch == 512
            there.move_on()
            nodes[0].stop()
            with pytest.raises(NoAnswer, match="its epoch 256 is over: a master of epoch 512 was there"):
                there.open(1_000)
            nodes[1].welcome = {"epoch": 513}
            there.open(WAIT_MS)
            assert (there.endpoint, there.epoch) == (nodes[1].endpoint, 513)
        nodes[0].start()

    def test_who_was_left_comes_last(self, nodes, context, monkeypatch):
        ask_again_after(monkeypatch, 60.0)
        with closing(Connection(context, both(*nodes), own_facts("producer", "p", ""), Poller(), masters)) as there:
            there.open(WAIT_MS)
            first = there.endpoint
            there.move_on()
            there.open(WAIT_MS)
            assert there.endpoint != first


class TestProducer:
    def test_what_had_no_answer_goes_to_the_other_node_with_the_same_bytes(self, nodes):
        first, second = nodes
        with Producer(both(*nodes)) as producer:
            assert producer.send(Message("t", b"1")).acknowledged
            first.orders.append(Silence())
            future = producer.send_async(Message("t", b"2"))
            first.wait_for(lambda: len(first.puts) == 2)
            first.stop()
            assert future.result(WAIT_MS / 1000).acknowledged
            assert second.puts[0].records == first.puts[1].records
            assert producer.send(Message("t", b"3")).acknowledged
        assert [record.body for record in second.stored("t")] == [b"2", b"3"]
        first.start()

    def test_a_node_that_is_no_master_any_more_is_left(self, nodes):
        first, second = nodes
        with Producer(",".join(both(*nodes)), retries=1) as producer:
            assert producer.send(Message("t", b"1")).acknowledged
            first.judge = lambda put: Refuse(PutStatus.NOT_MASTER)
            assert producer.send(Message("t", b"2")).acknowledged
        assert [record.body for record in second.stored("t")] == [b"2"]

    def test_a_master_without_slaves_is_left_for_one_that_has_them(self, nodes):
        first, second = nodes
        with Producer(both(*nodes)) as producer:
            assert producer.send(Message("t", b"1")).acknowledged
            first.judge = lambda put: Refuse(PutStatus.IN_SYNC_REPLICAS_NOT_ENOUGH, retry_after=1_000)
            assert producer.send(Message("t", b"2")).acknowledged
        assert [record.body for record in second.stored("t")] == [b"2"]

    @pytest.mark.usefixtures("long_held")
    def test_what_a_deposed_master_stored_without_a_promise_is_sent_again(self, nodes):
        first, second = nodes
        first.welcome, second.welcome = {"epoch": 256}, {"epoch": 513, "broker_role": "slave"}

        def judge(put: Put) -> Store | Silence | Refuse:
            if b"kept" in put.records:
                return Store(PutStatus.FLUSH_SLAVE_TIMEOUT)
            if b"silent" in put.records:
                return Silence()
            second.welcome = {"epoch": 513}
            return Refuse(PutStatus.NOT_MASTER)

        first.judge = judge
        bodies = [b"kept", b"silent", b"refused"]
        futures = []
        with Producer(both(*nodes), in_flight_max=4, linger_ms=0, retries=3) as producer:
            for count, body in enumerate(bodies, 1):
                futures.append(producer.send_async(Message("t", body)))
                first.wait_for(lambda count=count: len(first.puts) == count)  # a request of its own
            assert [future.result(WAIT_MS / 1000).status for future in futures] == [PutStatus.PUT_OK] * 3
        assert [record.body for record in first.stored("t")] == [b"kept"]
        assert {record.body for record in second.stored("t")} == set(bodies)

    def test_an_unpromised_message_of_a_master_that_stays_is_reported(self, nodes):
        nodes[0].orders.append(Store(PutStatus.SLAVE_NOT_AVAILABLE))
        with Producer(both(*nodes)) as producer:
            assert producer.send(Message("t", b"1")).status is PutStatus.SLAVE_NOT_AVAILABLE
        assert not nodes[1].puts

    @pytest.mark.usefixtures("long_held")
    def test_what_a_master_stored_before_it_was_deposed_goes_to_its_successor(self, nodes):
        first, second = nodes
        first.welcome, second.welcome = {"epoch": 256}, {"epoch": 513, "broker_role": "slave"}
        first.orders.append(Store(PutStatus.FLUSH_SLAVE_TIMEOUT))
        with Producer(both(*nodes)) as producer:
            future = producer.send_async(Message("t", b"1"))
            first.wait_for(lambda: first.puts)
            first.stop()
            second.welcome = {"epoch": 513}
            assert future.result(WAIT_MS / 1000).acknowledged
        assert second.puts[0].records == first.puts[0].records
        first.start()

    @pytest.mark.usefixtures("long_held")
    def test_of_one_request_at_a_time_nothing_passes_what_is_held(self, nodes):
        first, second = nodes
        first.welcome, second.welcome = {"epoch": 256}, {"epoch": 513, "broker_role": "slave"}
        first.orders += [Store(PutStatus.FLUSH_SLAVE_TIMEOUT), Silence()]
        with Producer(both(*nodes), in_flight_max=1) as producer:
            futures = [producer.send_async(Message("t", b"1"))]
            first.wait_for(lambda: first.puts)
            futures.append(producer.send_async(Message("t", b"2")))
            first.stop()
            second.welcome = {"epoch": 513}
            results = [future.result(WAIT_MS / 1000) for future in futures]
            assert all(result.acknowledged for result in results)
        assert len(first.puts) == 1
        assert results[0].physical_offset < results[1].physical_offset
        first.start()

    @pytest.mark.parametrize("stopped", [False, True])
    def test_what_is_not_promised_is_told_where_no_later_master_comes(self, nodes, stopped):
        nodes[0].welcome = nodes[1].welcome = {"epoch": 256}
        nodes[0].orders.append(Store(PutStatus.FLUSH_SLAVE_TIMEOUT))
        with Producer(nodes[0].endpoint + "," + nodes[1].endpoint, delivery_timeout_ms=3_000) as producer:
            future = producer.send_async(Message("t", b"1"))
            nodes[0].wait_for(lambda: nodes[0].puts)
            if stopped:
                nodes[0].topics["u"] = 1
                producer.route("u")  # what is answered on the same link comes behind the put's answer
                for node in nodes:
                    node.stop()
            assert future.result(WAIT_MS / 1000).status is PutStatus.FLUSH_SLAVE_TIMEOUT
            assert producer.statistics.unpromised == 1
        if stopped:
            for node in nodes:
                node.start()
        assert len(nodes[0].puts) + len(nodes[1].puts) == 1

    def test_nothing_waits_beyond_its_deadline(self, dead):
        with Producer([dead, f"{dead}2"], delivery_timeout_ms=400) as producer:
            began = time.monotonic()
            with pytest.raises(NoAnswer) as raised:
                producer.send(Message("t", b"1"))
            assert f"{dead}2: nobody listens" in raised.value.trouble
            assert time.monotonic() - began < WAIT_MS / 1000

    def test_a_silent_master_is_left_when_another_is_there(self, nodes):
        """Long before its answer is overdue; and not for a node that is no later master."""
        first, second = nodes
        first.welcome, second.welcome = {"epoch": 256, "answer_ms": 600_000}, {"epoch": 256, "broker_role": "slave"}
        with Producer(both(*nodes), delivery_timeout_ms=600_000) as producer:
            producer.route("t")
            first.judge = lambda put: Silence()
            future = producer.send_async(Message("t", b"1"))
            first.wait_for(lambda: first.puts)
            second.wait_for(lambda: second.greeted > 2)  # it is looked at, and is a slave
            assert not future.done()
            second.welcome = {"epoch": 513}
            assert future.result(WAIT_MS / 1000).acknowledged
        assert second.puts[0].records == first.puts[0].records

    def test_every_node_says_that_it_is_no_master(self, nodes):
        with Producer(both(*nodes), delivery_timeout_ms=600) as producer:
            producer.route("t")
            for node in nodes:
                node.judge = lambda put: Refuse(PutStatus.NOT_MASTER)
            with pytest.raises(StoreBusy) as raised:
                producer.send(Message("t", b"1"))
            assert raised.value.status == "NOT_MASTER"

    def test_what_may_be_stored_is_never_said_to_be_refused(self, nodes):
        first, second = nodes
        second.judge = lambda put: Refuse(PutStatus.NOT_MASTER)
        with Producer(both(*nodes), delivery_timeout_ms=800) as producer:
            producer.route("t")
            first.judge = lambda put: StoreAndCut() if len(first.puts) == 1 else Refuse(PutStatus.NOT_MASTER)
            with pytest.raises(DeliveryTimeout):
                producer.send(Message("t", b"1"))

    def test_neighbours_are_those_of_the_node_that_is_master_now(self, nodes):
        with Producer(both(*nodes)) as producer:
            assert producer.neighbour("serve") == f"ipc://{nodes[0].directory}/serve.sock"
            follow = producer.follow("serve")
            nodes[0].judge = lambda put: Refuse(PutStatus.NOT_MASTER)
            producer.send(Message("t", b"1"))
            assert follow() == f"ipc://{nodes[1].directory}/serve.sock"


class TestReaders:
    def test_a_consumer_reads_on_at_another_node(self, nodes):
        for node in nodes:
            with Producer(node.endpoint) as producer:
                producer.send_batch([Message("t", b"%d" % number) for number in range(4)])
        with Consumer(both(*nodes), "t", max_count=2, suspend_ms=200) as consumer:
            found = consumer.poll(WAIT_MS)
            nodes[0].stop()
            while len(found) < 4:
                found += consumer.poll(WAIT_MS)
        assert [message.body for message in found] == [b"0", b"1", b"2", b"3"]
        nodes[0].start()

    def test_what_a_new_master_does_not_have_is_read_as_it_is_there(self, nodes):
        """The second node's queue was two messages long when it became master, and has grown since."""
        first, second = nodes
        first.welcome, second.welcome = {"epoch": 256}, {"epoch": 513}
        second.epoch_ends = {"0": 2}
        for node, bodies in ((first, b"0123"), (second, b"01abcd")):
            with Producer(node.endpoint) as producer:
                producer.send_batch([Message("t", b"%c" % body) for body in bodies])
        second.stop()  # else a reader that both have answered goes to the newer master at once
        with Consumer(both(*nodes), "t", suspend_ms=200) as consumer:
            assert [message.body for message in consumer.poll(WAIT_MS)] == [b"0", b"1", b"2", b"3"]
            second.start()
            first.stop()
            assert [message.body for message in consumer.poll(WAIT_MS)] == [b"a", b"b", b"c", b"d"]
            assert [(moved.from_offset, moved.to_offset) for moved in consumer.moved] == [(4, 2)]
        assert [question for question in second.asked if question["op"] == "epoch_ends"] == [
            {"op": "epoch_ends", "topic": "t", "epoch": 256}
        ]
        first.start()

    def test_a_question_for_the_master_goes_on_to_it(self, nodes):
        nodes[0].refusals["group_offsets"] = "NOT_MASTER"
        with AdminClient(both(*nodes)) as admin:
            assert admin.group_offsets("g", "t") == {"t": {0: -1}}
        assert [question["op"] for question in nodes[1].asked] == ["group_offsets"]

    def test_without_another_node_the_question_is_refused(self, nodes):
        nodes[0].refusals["group_offsets"] = "NOT_MASTER"
        with AdminClient(nodes[0].endpoint) as admin, pytest.raises(AskRefused) as raised:
            admin.group_offsets("g", "t")
        assert raised.value.error == "NOT_MASTER"

    def test_a_member_goes_on_at_the_new_master(self, nodes):
        first, second = nodes
        for node in nodes:
            with Producer(node.endpoint) as producer:
                producer.send_batch([Message("t", b"%d" % number) for number in range(4)])
        second.welcome = {"broker_role": "slave"}
        with GroupConsumer(both(*nodes), "g", "t", start="first", max_count=2, suspend_ms=200) as consumer:
            found = consumer.poll(WAIT_MS)
            consumer.commit()
            second.group.offsets = dict(first.group.offsets)
            second.group.started = set(first.group.started)
            second.welcome = {}
            first.refusals = dict.fromkeys(["group_watch", "group_join", "group_commit"], "NOT_MASTER")
            first.grow("t", 1)  # whoever watches is answered, and watches again
            while len(found) < 4:
                found += consumer.poll(WAIT_MS)
            assert [message.body for message in found] == [b"0", b"1", b"2", b"3"]
            consumer.commit()
        assert second.group.offsets["t", 0] == 4

    def test_a_member_reads_again_what_a_new_master_does_not_have(self, nodes):
        first, second = nodes
        first.welcome, second.welcome = {"epoch": 256}, {"epoch": 513, "broker_role": "slave"}
        second.epoch_ends = {"0": 2}
        for node, bodies in ((first, b"0123"), (second, b"01abcd")):
            with Producer(node.endpoint) as producer:
                producer.send_batch([Message("t", b"%c" % body) for body in bodies])
        with GroupConsumer(both(*nodes), "g", "t", start="first", suspend_ms=200) as consumer:
            assert [message.body for message in consumer.poll(WAIT_MS)] == [b"0", b"1", b"2", b"3"]
            consumer.commit()
            assert first.asked[-1]["epoch"] == 256
            second.group.offsets = {("t", 0): 1}  # as it came from the master before
            second.group.started = set(first.group.started)
            second.welcome = {"epoch": 513}
            first.stop()
            assert [message.body for message in consumer.poll(WAIT_MS)] == [b"a", b"b", b"c", b"d"]
            assert [(moved.from_offset, moved.to_offset) for moved in consumer.moved] == [(4, 2)]
            consumer.commit()
            assert second.asked[-1]["epoch"] == 513
        assert second.group.offsets["t", 0] == 6
        first.start()
