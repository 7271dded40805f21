"""A request and its reply through a node: the requester reads the reply topic, a consumer replies with its producer."""

import threading
from collections.abc import Iterator

import pytest

from tests.processes.nodes import TestNode, check_nothing_is_left, ending, free_port
from tests.processes.waiting import await_
from towline.client.admin import AdminClient
from towline.client.consumer import Consumer
from towline.client.errors import RequestTimeout
from towline.client.message import Message, ReceivedMessage
from towline.client.producer import Producer
from towline.client.request import reply
from towline.link.endpoints import ipc_endpoint

DEADLINE_MS = 20_000
DEADLINE_S = 60.0


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestNode]:
    """It listens on TCP."""
    made = TestNode(
        "master",
        tmp_path_factory.mktemp("node"),
        listen_port=free_port(),
        ha_listen_port=0,
        auto_create_topic_enable=False,
    )
    with ending(made):
        made.start()
        yield made
        assert made.stop()
        check_nothing_is_left(made)


def tcp_of(node: TestNode) -> str:
    return str(node.facts["endpoints"]["remoting"][0])


class Answering(threading.Thread):
    """Replies to the requests of a topic with their bodies in capitals, while it is allowed to."""

    def __init__(self, node: TestNode, topic: str) -> None:
        super().__init__(daemon=True)
        self.allowed = threading.Event()
        self.allowed.set()
        self.requests: list[ReceivedMessage] = []
        self._put, self._serve, self._topic = node.endpoint, ipc_endpoint(node.runtime, "serve"), topic
        self._ending = threading.Event()

    def run(self) -> None:
        with Consumer(self._serve, self._topic) as consumer, Producer(self._put) as producer:
            while not self._ending.is_set():
                for message in consumer.poll(50):
                    self.requests.append(message)
                    assert self.allowed.wait(DEADLINE_S)
                    producer.send(reply(message, message.body.upper()))

    def stop(self) -> None:
        self._ending.set()
        self.allowed.set()
        self.join(DEADLINE_S)


def test_requests_of_many_threads_and_a_late_reply(node: TestNode) -> None:
    with AdminClient(node.endpoint) as admin:
        admin.create_topic("asked", 4)
    with Producer(tcp_of(node)) as producer:
        answering = Answering(node, "asked")
        answering.start()
        got: dict[int, bytes] = {}

        def ask(number: int) -> None:
            got[number] = producer.request(Message("asked", b"body %d" % number), DEADLINE_MS).body

        threads = [threading.Thread(target=ask, args=(number,)) for number in range(20)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(DEADLINE_S)
        assert got == {number: b"BODY %d" % number for number in range(20)}
        answering.allowed.clear()
        with pytest.raises(RequestTimeout, match="it is stored") as caught:
            producer.request(Message("asked", b"late"), 500)
        answering.allowed.set()
        await_(lambda: producer.late_replies == 1, DEADLINE_S, "the late reply comes")
        assert answering.requests[-1].properties["CORRELATION_ID"] == caught.value.correlation_id
        assert producer.request(Message("asked", b"next"), DEADLINE_MS).body == b"NEXT"
        answering.stop()


def test_the_reply_topic_holds_what_rocketmq_would(node: TestNode) -> None:
    with Consumer(ipc_endpoint(node.runtime, "serve"), "DefaultCluster_REPLY_TOPIC") as consumer:
        (message, *_) = consumer.poll(DEADLINE_MS)
    assert message.properties["MSG_TYPE"] == "reply"
    assert message.properties.keys() >= {"CORRELATION_ID", "REPLY_TO_CLIENT", "TTL", "UNIQ_KEY"}
    assert message.queue_id == 0
