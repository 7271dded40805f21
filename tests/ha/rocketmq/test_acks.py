"""With rocketmq_ha_acks a put is acknowledged when so many brokers of RocketMQ have reported it."""

import contextlib
import socket
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.processes.nodes import SEGMENT, TestNode, ending
from tests.processes.waiting import await_
from towline.client.errors import PutRefused
from towline.client.message import Message
from towline.client.producer import Producer, SendResult
from towline.errors import BadSetting
from towline.format.wire.refusals import Cause
from towline.format.wire.status import PutStatus
from towline.runtime.positions import Position

from .raw_slave import WAIT_S, RawSlave, followed, port_of

SLAVE_TIMEOUT_MS = 5_000  # one test waits for it; a busy machine may be slow with the others


@pytest.fixture(params=["ASYNC_MASTER", "SYNC_MASTER"])
def node(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[TestNode]:
    waits = {"rocketmq_ha_acks": 1, "rocketmq_ha_from_oldest": True, "slave_timeout": SLAVE_TIMEOUT_MS}
    own = {"in_sync_replicas": 2, "total_replicas": 2} if request.param == "SYNC_MASTER" else {}
    own |= {"enable_auto_in_sync_replicas": True} if own else {}
    made = followed(tmp_path / "store", broker_role=request.param, flush_disk_type="SYNC_FLUSH", **waits, **own)
    with ending(made):
        made.start()
        yield made
        assert made.stop()


class Broker:
    """A slave that reports what it has until it is told to be silent."""

    def __init__(self, node: TestNode) -> None:
        self._slave = RawSlave(port_of(node))
        self._slave.report(0)
        self.reports = True
        self._thread = threading.Thread(target=self._follow)
        self._thread.start()
        await_(lambda: any(line.connected for line in node.positions.rocketmq_slaves()), WAIT_S, "it has joined")

    def _follow(self) -> None:
        try:
            while True:
                if self._slave.frame().body and self.reports:
                    self._slave.report(self._slave.end)
        except (OSError, ValueError):
            return

    @property
    def end(self) -> int:
        return self._slave.end

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._slave.sock.shutdown(socket.SHUT_RDWR)
        self._thread.join()
        self._slave.close()


@pytest.fixture
def broker(node: TestNode) -> Iterator[Broker]:
    made = Broker(node)
    yield made
    made.close()


def send(node: TestNode, body: bytes) -> SendResult:
    with Producer(node.endpoint, retries=0) as producer:
        return producer.send(Message("orders", body))


def test_without_a_broker_puts_are_refused_before_anything_is_written(node: TestNode) -> None:
    with pytest.raises(PutRefused) as error:
        send(node, b"alone")
    assert error.value.status == PutStatus.IN_SYNC_REPLICAS_NOT_ENOUGH.name
    assert "cause=replicas rocketmq=0 limit=1" in str(error.value)
    assert "rocketmq_ha_acks" in Cause.REPLICAS.remedy
    assert node.at(Position.APPENDED) == 0


def test_a_put_is_acknowledged_when_the_broker_has_it(node: TestNode, broker: Broker) -> None:
    for number in range(20):
        assert send(node, b"%d" % number).acknowledged
        assert broker.end == node.at(Position.APPENDED)


def test_what_the_broker_does_not_report_is_stored_and_not_promised(node: TestNode, broker: Broker) -> None:
    assert send(node, b"held").acknowledged
    broker.reports = False
    found = send(node, b"unreported")
    assert (found.status, found.acknowledged) == (PutStatus.FLUSH_SLAVE_TIMEOUT, False)
    assert broker.end == node.at(Position.APPENDED)


def test_a_broker_that_leaves_and_comes_again_is_counted_again(node: TestNode, broker: Broker) -> None:
    assert send(node, b"first").acknowledged
    broker.close()
    await_(lambda: not any(line.connected for line in node.positions.rocketmq_slaves()), WAIT_S, "it has left")
    with pytest.raises(PutRefused):
        send(node, b"alone")
    again = Broker(node)
    try:
        assert send(node, b"again").acknowledged
    finally:
        again.close()


def test_a_broker_that_comes_with_all_of_it_acknowledges_what_waits(node: TestNode, broker: Broker) -> None:
    broker.reports = False
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(send, node, b"held")
        await_(lambda: node.at(Position.APPENDED) > 0, WAIT_S, "it is stored")
        broker.close()
        slave = RawSlave(port_of(node))
        slave.report(node.at(Position.APPENDED))
        try:
            assert waiting.result().acknowledged
        finally:
            slave.close()


@pytest.mark.parametrize(
    ("flags", "rule"),
    [
        (("rocketmq_ha_from_oldest=false",), "needs rocketmq_ha_from_oldest=true"),
        (("rocketmq_ha_port=0", "rocketmq_ha_from_oldest=true"), "needs rocketmq_ha_port"),
    ],
)
def test_settings_that_cannot_hold_are_refused(tmp_path: Path, flags: tuple[str, ...], rule: str) -> None:
    made = followed(tmp_path / "store", rocketmq_ha_acks=1)
    with pytest.raises(BadSetting, match=rule):
        made.start(*(word for flag in flags for word in ("--set", flag)))


def test_an_empty_broker_holds_nothing_of_what_waits(node: TestNode, broker: Broker) -> None:
    """It is given the log from its beginning, however many segments there are."""
    with Producer(node.endpoint) as producer:
        results = producer.send_batch(Message("orders", bytes(1000)) for _ in range(2 * SEGMENT // 1000))
    assert {result.status for result in results} <= {PutStatus.PUT_OK, PutStatus.FLUSH_SLAVE_TIMEOUT}
    assert node.at(Position.APPENDED) > 2 * SEGMENT
    late = Broker(node)
    try:
        await_(lambda: late.end == node.at(Position.APPENDED), WAIT_S, "it has all")
    finally:
        late.close()
