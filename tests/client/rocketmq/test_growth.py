"""What a producer sees of a cluster that grows while it runs, and how it sends there."""

from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from tests.processes.waiting import await_
from towline.client.message import Message
from towline.client.producer import Producer
from towline.client.rocketmq import link
from towline.client.transaction import TransactionProducer
from towline.format.remoting.codes import RequestCode

from .standins import Standin, broker, names_of, serving, silent

DEADLINE_S = 30.0
SENDS = (RequestCode.SEND_MESSAGE_V2, RequestCode.SEND_BATCH_MESSAGE)


class Cluster:
    """A broker `a` that has the topic `t` in two queues; `grow` changes what name servers say."""

    def __init__(self, opened: ExitStack) -> None:
        self._opened = opened
        self.brokers: dict[str, Standin] = {}
        self.names = opened.enter_context(serving({}))
        self.grow("a", 2)

    def grow(self, name: str, queues: int) -> None:
        """One more broker, or other queues at one."""
        if name not in self.brokers:
            self.brokers[name] = self._opened.enter_context(serving(broker()))
        self._queues = {**getattr(self, "_queues", {}), name: queues}
        addresses = {each: {0: standin.address} for each, standin in self.brokers.items()}
        self.names.answers.update(names_of(addresses, {"t": self._queues}))

    @property
    def endpoint(self) -> str:
        return f"rocketmq://{self.names.address}"

    def queues(self) -> set[tuple[str, int]]:
        """Those that were sent to."""
        return {
            (name, int(each.fields["e"]))
            for name, standin in self.brokers.items()
            for each in standin.asked
            if each.code in SENDS
        }

    def forget(self) -> None:
        for each in self.brokers.values():
            each.asked.clear()


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Iterator[Cluster]:
    monkeypatch.setattr(link, "ROUTES_MS", 50)
    with ExitStack() as opened:
        yield Cluster(opened)


def send(producer: Producer, count: int) -> Counter[str]:
    """How many messages went to which broker."""
    return Counter(producer.send(Message("t", b"%d" % number)).broker_name for number in range(count))


def test_queues_that_a_topic_got_are_used_and_those_it_lost_are_not(cluster: Cluster) -> None:
    with Producer(cluster.endpoint) as producer:
        send(producer, 4)
        assert cluster.queues() == {("a", 0), ("a", 1)}
        cluster.grow("a", 4)
        await_(lambda: producer.route("t").write_queues == 4, DEADLINE_S, "the producer sees them")
        send(producer, 8)
        assert cluster.queues() == {("a", queue) for queue in range(4)}
        cluster.grow("a", 1)
        await_(lambda: producer.route("t").write_queues == 1, DEADLINE_S, "the producer sees it")
        cluster.forget()
        send(producer, 4)
        assert cluster.queues() == {("a", 0)}


def test_a_broker_that_joins_gets_its_share(cluster: Cluster) -> None:
    with Producer(cluster.endpoint) as producer:
        assert send(producer, 4) == {"a": 4}
        assert not producer.has_groups
        cluster.grow("b", 2)
        await_(lambda: producer.linked_groups == ["a", "b"], DEADLINE_S, "the producer sees it")
        found = send(producer, 8)
        assert found["a"] + found["b"] == 8
        assert found["b"] >= 3
        keyed = [producer.send(Message("t", b"", sharding_key=f"{number}")) for number in range(40)]
        again = [producer.send(Message("t", b"", sharding_key=f"{number}")) for number in range(40)]
        places = [(each.broker_name, each.queue_id) for each in keyed]
        assert places == [(each.broker_name, each.queue_id) for each in again]
        assert len(set(places)) == 4
        assert producer.statistics.acknowledged == 92


def test_replies_come_through_a_broker_that_has_joined(cluster: Cluster) -> None:
    with Producer(cluster.endpoint) as producer:
        send(producer, 1)
        cluster.grow("b", 2)
        await_(lambda: producer.linked_groups == ["a", "b"], DEADLINE_S, "the producer sees it")
        bodies = [
            {bytes(each.body) for each in standin.asked if each.code == RequestCode.HEART_BEAT}
            for standin in cluster.brokers.values()
        ]
        assert bodies[0] == bodies[1], "it is the same client at both"


def test_what_is_sent_while_the_only_broker_is_gone_waits_in_the_buffer(cluster: Cluster) -> None:
    with Producer(cluster.endpoint) as producer:
        send(producer, 1)
        gone = cluster.brokers["a"]
        heartbeat, gone.answers[RequestCode.HEART_BEAT] = gone.answers[RequestCode.HEART_BEAT], silent
        gone.cut()
        await_(lambda: not producer.linked_groups, DEADLINE_S, "the link is lost")
        futures = [producer.send_async(Message("t", b"%d" % number)) for number in range(10)]
        assert not any(future.done() for future in futures)
        gone.answers[RequestCode.HEART_BEAT] = heartbeat
        gone.cut()  # a link that was begun meanwhile waits for its answer
        assert all(future.result().acknowledged for future in futures)


def test_a_producer_that_is_closed_makes_no_more_links(cluster: Cluster) -> None:
    producer = Producer(cluster.endpoint)
    send(producer, 1)
    producer.close()
    cluster.grow("b", 2)
    producer.meet(["a", "b"])
    assert producer.linked_groups == []


def test_a_producer_for_one_broker_stays_there(cluster: Cluster) -> None:
    with Producer(f"{cluster.endpoint}/a") as producer:
        send(producer, 1)
        cluster.grow("b", 2)
        cluster.grow("a", 4)
        await_(lambda: producer.route("t").write_queues == 4, DEADLINE_S, "it has looked")
        assert producer.linked_groups == ["a"]


def test_transactions_stay_at_the_broker_that_there_was(cluster: Cluster) -> None:
    with TransactionProducer(cluster.endpoint, "billing") as producer:
        cluster.grow("b", 2)
        assert producer.begin(Message("t", b"half"))[1].broker_name == "a"
    with pytest.raises(ValueError, match="one group of nodes"):
        TransactionProducer(cluster.endpoint, "billing")
