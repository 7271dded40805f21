"""Brokers of RocketMQ that follow this node as slaves: they register with it as with a name server, and ask it where
the master is and where its log is handed on (`towline.ha.rocketmq`)."""

import time
from collections.abc import Mapping
from dataclasses import dataclass
from logging import Logger
from typing import Final

from towline.errors import MalformedFrame
from towline.format.remoting.broker_bodies import member_group
from towline.format.remoting.codes import RequestCode, RequestRefused, ResponseCode
from towline.format.remoting.command import Command
from towline.format.remoting.headers import OfGroupOfBrokers, OfOneBroker, read_header
from towline.format.remoting.routes import Broker, slave_id
from towline.limits import ROCKETMQ_SLAVES_MAX
from towline.node.process.context import Node
from towline.runtime.positions import Position

from .connections import Answer, Connection
from .requests import Handler, alone

FORGET_S: Final = 120.0  # a broker registers every 30 s
ADDRESS_MAX: Final = 255
_PORT_MAX: Final = 65_535


@dataclass(frozen=True, slots=True)
class Registered:
    """A broker: `address` is where its clients reach it, `heard` is monotonic."""

    address: str
    connection: Connection
    heard: float


class SlaveBrokers:
    """Handles what a slave of RocketMQ asks name server and master about brokers. It is forgotten with its connection,
    and after FORGET_S of silence."""

    def __init__(self, node: Node, where: str) -> None:
        """`where`: `host:port` at which clients reach this node."""
        self._node, self._where = node, where
        self._known: dict[int, Registered] = {}

    def handlers(self) -> dict[int, Handler]:
        """By request code; none on a node that no broker can follow."""
        if not self._node.settings.rocketmq_ha_port:
            return {}
        return {
            RequestCode.REGISTER_BROKER: self._register,
            RequestCode.UNREGISTER_BROKER: self._unregister,
            RequestCode.QUERY_DATA_VERSION: self._version,
            RequestCode.BROKER_HEARTBEAT: self._heartbeat,
            RequestCode.GET_BROKER_MEMBER_GROUP: alone(self._members),
            RequestCode.EXCHANGE_BROKER_HA_INFO: alone(self._ha_info),
        }

    @property
    def addresses(self) -> Mapping[int, str]:
        """Where they are, by broker id."""
        now = time.monotonic()
        self._known = {number: each for number, each in self._known.items() if now - each.heard <= FORGET_S}
        return {number: each.address for number, each in self._known.items()}

    def ended(self, connection: Connection) -> None:
        self._known = {number: each for number, each in self._known.items() if each.connection is not connection}

    @property
    def _ha_address(self) -> str:
        settings = self._node.settings
        return f"{settings.broker_ip1}:{settings.rocketmq_ha_port}"

    def _register(self, connection: Connection, request: Command, answer: Answer) -> None:
        """REGISTER_BROKER: the answer names the master. Raises MalformedFrame, RequestRefused."""
        self._keep(connection, read_header(OfOneBroker, request.fields), self._node.log)
        answer(ResponseCode.SUCCESS, {"masterAddr": self._where, "haServerAddr": self._ha_address})

    def _heartbeat(self, connection: Connection, request: Command, answer: Answer) -> None:
        """BROKER_HEARTBEAT. Raises MalformedFrame, RequestRefused."""
        self._keep(connection, read_header(OfOneBroker, request.fields), self._node.log)
        answer(ResponseCode.SUCCESS)

    def _version(self, connection: Connection, request: Command, answer: Answer) -> None:
        """QUERY_DATA_VERSION: nothing is kept of a slave's topics, so it had better register. Raises MalformedFrame,
        RequestRefused."""
        self._check(read_header(OfOneBroker, request.fields))
        answer(ResponseCode.SUCCESS, {"changed": "true"})

    def _unregister(self, _: Connection, request: Command, answer: Answer) -> None:
        """UNREGISTER_BROKER. Raises MalformedFrame."""
        broker = read_header(OfOneBroker, request.fields)
        known = self._known.get(broker.broker_id)
        if known is not None and known.address == broker.broker_addr:
            del self._known[broker.broker_id]
        answer(ResponseCode.SUCCESS)

    def _members(self, request: Command, answer: Answer) -> None:
        """GET_BROKER_MEMBER_GROUP: the master and its slaves of RocketMQ. Raises MalformedFrame."""
        header, settings = read_header(OfGroupOfBrokers, request.fields), self._node.settings
        ours = header.cluster_name == settings.broker_cluster_name and header.broker_name == settings.broker_name
        addresses = {0: self._where, **self.addresses} if ours else {}
        answer(ResponseCode.SUCCESS, body=member_group(Broker(header.broker_name, header.cluster_name, addresses)))

    def _ha_info(self, _: Command, answer: Answer) -> None:
        """EXCHANGE_BROKER_HA_INFO: where the log is handed on, and how far it is on disk here."""
        flushed = self._node.positions.get(Position.FLUSHED)
        fields = {
            "masterHaAddress": self._ha_address,
            "masterFlushOffset": str(flushed),
            "masterAddress": self._where,
        }
        answer(ResponseCode.SUCCESS, fields)

    def _keep(self, connection: Connection, broker: OfOneBroker, log: Logger) -> None:
        self._check(broker)
        known = self.addresses
        if broker.broker_id not in known and len(known) >= ROCKETMQ_SLAVES_MAX:
            why = f"{len(known)} slaves have registered, and no more may"
            raise RequestRefused(ResponseCode.SYSTEM_BUSY, why)
        if known.get(broker.broker_id) != broker.broker_addr:
            log.info("a broker of RocketMQ registers as slave %d: %s", broker.broker_id, broker.broker_addr)
        self._known[broker.broker_id] = Registered(broker.broker_addr, connection, time.monotonic())

    def _check(self, broker: OfOneBroker) -> None:
        """Raises MalformedFrame, RequestRefused for one that cannot be a slave of this node."""
        settings, number = self._node.settings, broker.broker_id
        _check_address(broker.broker_addr)
        own = settings.broker_cluster_name, settings.broker_name
        if (broker.cluster_name, broker.broker_name) != own:
            why = f"brokers of {own[0]!r} named {own[1]!r} follow this node: set brokerClusterName and brokerName so"
            raise RequestRefused(ResponseCode.SYSTEM_ERROR, why)
        taken = {slave_id(node): f"node {node} of this group" for node in settings.peers} | {0: "the master"}
        if number in taken or number < 0:
            free = max(taken) + 1
            why = (
                f"brokerId {number} is that of {taken.get(number, 'nobody')}: set brokerId={free} and brokerRole=SLAVE"
            )
            raise RequestRefused(ResponseCode.SYSTEM_ERROR, why)


def _check_address(address: str) -> None:
    """Raises MalformedFrame unless it is a `host:port`: routes tell it."""
    host, _, port = address.rpartition(":")
    if not (host and len(address) <= ADDRESS_MAX and address.isascii() and address.isprintable()):
        raise MalformedFrame("brokerAddr is no host:port")
    if not (port.isdecimal() and 0 < int(port) <= _PORT_MAX):
        raise MalformedFrame("brokerAddr has no port")
