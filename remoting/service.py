"""The duty cycle of remoting: connections, what they ask for, the way to put."""

import gc
import time
from collections.abc import Callable
from typing import Any, ClassVar, Final

from towline.errors import MalformedFrame
from towline.format.files.topics import TopicConfig
from towline.format.record.record import Host
from towline.format.remoting.codes import RequestCode, ResponseCode
from towline.format.remoting.command import Command
from towline.format.remoting.headers import RouteOfTopic, read_header
from towline.limits import REST_MAX_MS
from towline.link.context import close_context, new_context
from towline.link.poller import Poller
from towline.log.state.topics_file import TopicsFile
from towline.node.peers.handshake import own_facts
from towline.node.peers.local_links import LocalLink
from towline.node.process.context import Node
from towline.node.process.endpoints import endpoints_of
from towline.runtime.doorbell import Doorbell
from towline.runtime.idle_sleep import IdleSleep
from towline.runtime.positions import Counter, Duty

from .connections import Connection, Connections
from .producers import Producers
from .put_client import PutClient
from .routes import cluster_of, route_of

SILENT_EVERY_S: Final = 1.0
CHECK_EVERY_MS: Final = 100  # a change of the topics is known this late at most
DRAIN_MS: Final = 1_000

Handler = Callable[[Connection, Command], None]


class RemotingAgent:
    """The duty cycle of remoting."""

    duty: ClassVar[Duty] = Duty.REMOTING

    def __init__(self, node: Node) -> None:
        self._node = node
        self._line = node.line
        self._silent_at = 0.0
        self._checked_ms = 0
        self._drain_until: int | None = None

    def on_start(self, bell: Doorbell) -> None:
        node, settings = self._node, self._node.settings
        self._bell = bell
        self._topics = TopicsFile(node.store.config / "topics.json")
        self._topics.refresh()
        self._context = new_context()
        self._connections = Connections([(settings.listen_host, settings.remoting_port)], self._handle)
        self._poller = Poller(bell.fileno(), self._connections.fileno())
        endpoint = endpoints_of(settings, node.runtime, "master")["put"][0]
        link = LocalLink(self._context, endpoint, self._facts, self._poller, node.log)
        self._put = PutClient(link, self._poller, node.clock.now_ms)
        self._producers = Producers(self._put, self._topic_of, self._connections.answer, self._store_host)
        self._handlers: dict[int, Handler] = {
            RequestCode.GET_ROUTEINFO_BY_TOPIC: self._route,
            RequestCode.GET_BROKER_CLUSTER_INFO: self._cluster,
            RequestCode.HEART_BEAT: self._heartbeat,
            RequestCode.UNREGISTER_CLIENT: self._unregister,
            RequestCode.SEND_MESSAGE: self._producers.send,
            RequestCode.SEND_MESSAGE_V2: self._producers.send,
            RequestCode.SEND_BATCH_MESSAGE: self._producers.send,
            RequestCode.UPDATE_AND_CREATE_TOPIC: self._producers.make_topic,
        }
        gc.freeze()

    def do_work(self) -> int:
        now_ms = self._node.clock.monotonic_ms()
        if now_ms - self._checked_ms >= CHECK_EVERY_MS:
            self._checked_ms = now_ms
            self._topics.refresh()
        self._put.disarm()
        done = self._put.cycle(now_ms) + self._connections.cycle() + self._put.cycle(now_ms)
        self._connections.flush()
        now = time.monotonic()
        if now >= self._silent_at:
            self._silent_at = now + SILENT_EVERY_S
            self._connections.drop_silent(now)
        while self._connections.dropped:
            connection, why = self._connections.dropped.popleft()
            self._node.log.info("the connection of %s:%d ends: %s", *connection.peer, why)
        return done

    def sleep_ms(self) -> int:
        return min(REST_MAX_MS, CHECK_EVERY_MS)

    def wait(self, timeout_ms: int, rest: IdleSleep | None) -> bool:
        if not self._put.arm():
            return False
        return self._poller.poll(timeout_ms, rest) and self._poller.ready(self._bell.fileno())

    def drain(self) -> bool:
        now = self._node.clock.monotonic_ms()
        if self._drain_until is None:
            self._drain_until = now + DRAIN_MS
        return True

    def on_close(self) -> None:
        if hasattr(self, "_connections"):
            self._put.close()
            self._connections.close()
            close_context(self._context)

    # --- requests

    def _handle(self, connection: Connection, request: Command) -> None:
        if request.is_answer:
            return
        self._line.count(Counter.MESSAGES)
        handler = self._handlers.get(request.code)
        try:
            if handler is not None:
                handler(connection, request)
                return
            self._say(
                connection,
                request,
                ResponseCode.REQUEST_CODE_NOT_SUPPORTED,
                f"request type {request.code} not supported",
            )
        except MalformedFrame as error:
            self._line.count(Counter.REFUSED)
            self._say(connection, request, ResponseCode.SYSTEM_ERROR, error.describe())

    def _say(self, connection: Connection, request: Command, code: int, remark: str = "", body: bytes = b"") -> None:
        if not request.is_one_way:
            self._connections.answer(connection, request.answer(code, {}, body, remark))

    def _route(self, connection: Connection, request: Command) -> None:
        name = read_header(RouteOfTopic, request.fields).topic
        topic = self._topic_of(name)
        if topic is None:
            why = f"No topic route info in name server for the topic: {name}"
            self._say(connection, request, ResponseCode.TOPIC_NOT_EXIST, why)
            return
        settings = self._node.settings
        body = route_of(topic, settings.broker_name, settings.broker_cluster_name, self._addresses())
        self._say(connection, request, ResponseCode.SUCCESS, "", body)

    def _cluster(self, connection: Connection, request: Command) -> None:
        settings = self._node.settings
        body = cluster_of(settings.broker_name, settings.broker_cluster_name, self._addresses())
        self._say(connection, request, ResponseCode.SUCCESS, "", body)

    def _heartbeat(self, connection: Connection, request: Command) -> None:
        self._say(connection, request, ResponseCode.SUCCESS)

    def _unregister(self, connection: Connection, request: Command) -> None:
        self._say(connection, request, ResponseCode.SUCCESS)

    # --- the node

    def _topic_of(self, name: str) -> TopicConfig | None:
        found = self._topics.table.topics.get(name)
        if found is None and self._topics.refresh():
            found = self._topics.table.topics.get(name)
        return found

    def _addresses(self) -> dict[int, str]:
        return {0: f"{self._node.settings.broker_ip1}:{self._node.settings.remoting_port}"}

    def _store_host(self) -> Host:
        from ipaddress import ip_address

        return Host(ip_address(self._node.settings.broker_ip1).packed, self._node.settings.remoting_port)

    def _facts(self) -> dict[str, Any]:
        return own_facts(self._node, "producer")


def build(node: Node) -> RemotingAgent:
    return RemotingAgent(node)
