"""A topic of a node that runs, exported while messages come: what was acknowledged before is there, as it is read."""

import threading
from collections.abc import Iterator
from types import SimpleNamespace

import pytest

from tests.kafka.samples import Row, rows_in
from tests.processes.nodes import TestNode, ending
from towline.client.admin import AdminClient
from towline.client.consumer import Consumer
from towline.client.message import Message
from towline.client.producer import Producer
from towline.client.transaction import TransactionProducer
from towline.kafka.exchange import export_choice
from towline.kafka.exchange.export_errors import NotDispatched
from towline.kafka.log.partition import Partition
from towline.node.process.context import runtime_of
from towline.runtime.positions import Position
from towline.runtime.settings import Settings
from towline.runtime.settings_model import BrokerRole

from .exports import command

COUNT = 600
QUEUES = 2
LATER_LEVEL = 18  # two hours


@pytest.fixture(scope="module")
def node(tmp_path_factory) -> Iterator[TestNode]:
    """With messages of a topic, two that are delivered later, and a transaction that is open."""
    made = TestNode("master", tmp_path_factory.mktemp("live") / "node")
    with ending(made):
        made.start()
        with AdminClient(made.endpoint) as admin:
            admin.create_topic("orders", QUEUES)
        with Producer(made.endpoint) as producer:
            producer.send_batch([message(number) for number in range(COUNT)])
            for _ in range(2):
                producer.send(Message("orders", b"later", delay_level=LATER_LEVEL))
        with TransactionProducer(made.endpoint, "billing", lambda _: None) as transactions:
            transactions.begin(Message("orders", b"half"))
            yield made


def message(number: int) -> Message:
    properties = {"city": "Zürich", "n": str(number)}
    keys = [f"k{number}"] if number % 3 else []
    return Message(
        "orders", b"body %d" % number * 9, tags="red", keys=keys, properties=properties, queue_id=number % QUEUES
    )


def read(node: TestNode, queue_id: int, end: int) -> list[Row]:
    """As a consumer gets it, by what docs/kafka-exchange.md says of properties."""
    found: list[Row] = []
    serve = f"ipc://{runtime_of(node.store.root).socket('serve')}"
    with Consumer(serve, "orders", queues=[queue_id], start="first") as consumer:
        for one in consumer:
            headers: list[tuple[str, bytes | None]] = [
                (name, value.encode()) for name, value in one.properties.items() if name not in ("KEYS", "WAIT")
            ]
            key = one.properties.get("KEYS")
            found.append((one.queue_offset, one.born_timestamp, key.encode() if key else None, one.body, headers))
            if one.queue_offset + 1 == end:
                return found
    raise AssertionError


def test_what_was_acknowledged_is_exported_while_more_comes(node, tmp_path, capsys):
    stop = threading.Event()

    def more() -> None:
        with Producer(node.endpoint) as producer:
            while not stop.is_set():
                producer.send(message(0))

    sender = threading.Thread(target=more)
    sender.start()
    try:
        status, said = command(capsys, "--store", node.store.root, "--out", tmp_path / "out", "--topic", "orders")
    finally:
        stop.set()
        sender.join()
    assert (status, said["damaged"], said["holes"]) == (0, 0, 0)
    assert said["messages"] >= COUNT
    assert said["left_out"]["undelivered"] == [{"topic": "orders", "delayed": 2, "halves": 1}]
    for queue_id in range(QUEUES):
        found = Partition(tmp_path / "out" / f"orders-{queue_id}")
        assert found.end >= COUNT // QUEUES
        assert rows_in(found.directory) == read(node, queue_id, found.end)


class Stands:
    """Positions that do not move, as of a node whose slave is gone."""

    def __init__(self, **places: int) -> None:
        self._places = places

    def get(self, position: Position) -> int:
        return self._places.get(position.name, 0)

    def close(self) -> None:
        pass


@pytest.mark.parametrize(("role", "end"), [(BrokerRole.SYNC_MASTER, 700), (BrokerRole.ASYNC_MASTER, None)])
def test_what_slaves_have_not_is_not_waited_for_and_queues_are(tmp_path, monkeypatch, role, end):
    of = Settings(broker_role=role, total_replicas=2, in_sync_replicas=2)
    positions = Stands(APPENDED=1000, FLUSHED=900, REPLICATED=700, DISPATCHED=700)
    monkeypatch.setattr(export_choice, "open_node", lambda root: SimpleNamespace(settings=of, positions=positions))
    monkeypatch.setattr(export_choice, "DISPATCH_WAIT_S", 0.0)
    if end is not None:
        assert export_choice._end_of_running(tmp_path) == end
        return
    with pytest.raises(NotDispatched, match="up to 700, and it goes up to 900"):
        export_choice._end_of_running(tmp_path)
