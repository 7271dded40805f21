"""The duty cycle of remoting on a slave: what a name server is asked, with the master's address in the answers.

Clients are given the addresses of all nodes as name servers. So whichever of them is left after a failover says where
the master is now. With `slave_read_enable` consumers read here too; our own clients always do. Everything else is
refused: it is the master's.
"""

import gc
import time
from functools import partial
from typing import ClassVar, Final, TypeAlias

from towline.format.remoting.codes import RequestCode, RequestRefused, ResponseCode
from towline.format.remoting.command import Command
from towline.format.remoting.routes import Broker
from towline.link.context import close_context, new_context
from towline.link.poller import Poller
from towline.log.state.topics_file import TopicsFile
from towline.node.process.context import Node
from towline.node.process.curve_keys import key_ring_of
from towline.node.process.endpoints import local_endpoint
from towline.runtime.doorbell import Doorbell
from towline.runtime.idle_sleep import IdleSleep
from towline.runtime.positions import Duty, Position
from towline.runtime.remoting_counts import RemotingCounts

from .access import Access
from .connections import Answer, Connection, Connections
from .group_offsets import COMMIT_MS
from .group_search import GroupSearch
from .names import Names
from .refused import ABSENT, refuse
from .replica import Replica
from .requests import Handle, Handler, Requests, alone
from .tls import Security
from .topics import EVERY_MS, TopicRoutes
from .tunnels import PUT, SERVE, SOCKETS_MAX, Tunnels

SEARCH_MS: Final = 5  # between looks while the master is searched
WAITING_MAX: Final = 4_096

Question: TypeAlias = tuple[Handle, Command, Answer]


class NameServerAgent:
    """The duty cycle of a slave's remoting."""

    duty: ClassVar[Duty] = Duty.REMOTING

    def __init__(self, node: Node) -> None:
        self._node = node
        self._silent_at = 0.0
        self._topics_at = 0
        self._log_min = 0
        self._waiting: list[Question] = []  # for the master to be found

    def on_start(self, bell: Doorbell) -> None:
        node, settings = self._node, self._node.settings
        self._bell = bell
        counts = RemotingCounts(node.positions)
        self._connections = Connections(
            settings.remoting_addresses,
            lambda connection, data: self._requests.take(connection, data),
            lambda: False,
            Security.of(settings),
            counts,
        )
        self._poller = Poller(bell.fileno(), self._connections.fileno())
        self._search = GroupSearch(node)
        self._topics = TopicRoutes(TopicsFile(node.store.config / "topics.json"), self._broker, settings)
        self._access = Access(key_ring_of(node))
        names = Names(self._topics, settings)
        handlers: dict[int, Handler] = {code: alone(handle) for code, handle in names.handlers().items()}
        handlers |= {code: alone(partial(self._ask, tell)) for code, tell in names.placed().items()}
        self._replica = None
        if settings.slave_read_enable:
            self._replica = Replica(node, self._poller, self._search, self._topics, counts)
            handlers |= self._replica.handlers()
        self._tunnels = self._make_tunnels()
        handlers[RequestCode.TOWLINE] = self._tunnels.handle
        self._requests = Requests(self._connections, node.line, self._access, handlers, self._refuse)
        gc.freeze()

    def _make_tunnels(self) -> Tunnels:
        node = self._node
        self._context = new_context(SOCKETS_MAX)
        endpoints = {process: local_endpoint(node.runtime, process) for process in (PUT, SERVE)}
        keys, clock = key_ring_of(node), node.clock.now_ms
        return Tunnels(
            self._context,
            self._poller,
            endpoints,
            None,
            self._connections,
            keys,
            clock,
            node.log,
            self._topics,
        )

    def adjust(self) -> None:
        self._topics.adjust(self._node.settings)

    def do_work(self) -> int:
        now_ms = self._node.clock.monotonic_ms()
        if now_ms >= self._topics_at:
            self._topics_at = now_ms + EVERY_MS
            self._topics.refresh()
            self._look_for_deleted()
        done = self._connections.cycle()
        if self._replica is not None:
            done += self._replica.cycle(now_ms)
        self._requests.look_for_changes(now_ms)
        done += self._tunnels.cycle(now_ms)
        if self._waiting and self._search.is_over:
            waiting, self._waiting = self._waiting, []
            done += len(waiting)
            for tell, request, answer in waiting:
                self._requests.attempt(partial(tell, request, answer), answer)
        self._connections.flush()
        done += self._tunnels.go_on()
        now = time.monotonic()
        if now >= self._silent_at:
            self._silent_at = now + 1
            self._connections.drop_silent(now)
        while self._connections.dropped:
            connection, why = self._connections.dropped.popleft()
            self._tunnels.ended(connection)
            if self._replica is not None:
                self._replica.ended(connection)
            self._node.log.info("the connection of %s:%d ends: %s", *connection.peer, why)
        return done

    def _look_for_deleted(self) -> None:
        log_min = self._node.positions.get(Position.LOG_MIN)
        if log_min != self._log_min:
            self._log_min = log_min
            self._tunnels.close_files()

    def sleep_ms(self) -> int:
        if self._waiting or self._tunnels.are_greeting:
            return SEARCH_MS
        return COMMIT_MS if self._replica is not None and self._replica.is_due else self._access.look_ms

    def wait(self, timeout_ms: int, rest: IdleSleep | None) -> bool:
        return self._poller.poll(timeout_ms, rest) and self._poller.ready(self._bell.fileno())

    def drain(self) -> bool:
        return True

    def on_close(self) -> None:
        if hasattr(self, "_search"):
            self._search.close()
            if self._replica is not None:
                self._replica.close()
        if hasattr(self, "_tunnels"):
            self._tunnels.close()
            close_context(self._context)
        if hasattr(self, "_connections"):
            self._connections.close()

    # --- requests

    def _ask(self, tell: Handle, request: Command, answer: Answer) -> None:
        """Answers when it is known who the master is now."""
        if len(self._waiting) >= WAITING_MAX:
            raise RequestRefused(ResponseCode.SYSTEM_BUSY, "too many ask for the master at once; try again")
        self._waiting.append((tell, request, answer))
        self._search.begin()

    def _refuse(self, connection: Connection, request: Command, answer: Answer) -> None:
        if request.code in ABSENT:  # nor does the master know it
            refuse(connection, request, answer)
        own, where = self._node.settings.broker_id, self._search.master
        known = f"; the master was found at {where}" if where else ""
        also = " and serves readers" if self._replica is not None else ""
        why = f"node {own} is a slave, which answers what a name server is asked{also}, and not {request.code}{known}"
        raise RequestRefused(ResponseCode.SERVICE_NOT_AVAILABLE, why)

    def _broker(self) -> Broker:
        """Raises RequestRefused while nobody is known who could be asked: a client keeps the route that it has."""
        found = self._search.broker
        if not found.addresses:
            raise RequestRefused(ResponseCode.SYSTEM_ERROR, "no master is known; try again")
        return found
