"""The duty cycle of remoting on a slave: what a name server is asked, with the master's address in the answers.

Clients are given the addresses of all nodes as name servers. So whichever of them is left after a failover says where
the master is now. Everything else is refused: it is the master's.
"""

import gc
import threading
import time
from collections.abc import Callable
from functools import partial
from queue import SimpleQueue
from typing import ClassVar, Final, TypeAlias

from towline.format.remoting.codes import RequestCode, RequestRefused, ResponseCode
from towline.format.remoting.command import Command
from towline.format.remoting.routes import Broker
from towline.limits import LOOK_MS
from towline.link.poller import Poller
from towline.log.state.topics_file import TopicsFile
from towline.node.peers.find_master import MasterFinder
from towline.node.process.context import Node
from towline.node.process.curve_keys import key_ring_of
from towline.runtime.doorbell import Doorbell
from towline.runtime.idle_sleep import IdleSleep
from towline.runtime.positions import Duty

from .access import Access
from .connections import Answer, Connection, Connections
from .requests import Handler, Requests, alone
from .tls import Security
from .topics import TopicRoutes

SEARCH_MS: Final = 5  # between looks while the master is searched
WAITING_MAX: Final = 4_096

Question: TypeAlias = tuple[Callable[[Command, Answer], None], Command, Answer]


class NameServerAgent:
    """The duty cycle of a slave's remoting."""

    duty: ClassVar[Duty] = Duty.REMOTING

    def __init__(self, node: Node) -> None:
        self._node = node
        self._silent_at = 0.0
        self._waiting: list[Question] = []  # for the master to be found

    def on_start(self, bell: Doorbell) -> None:
        node, settings = self._node, self._node.settings
        self._bell = bell
        self._connections = Connections(
            [(settings.listen_host, settings.remoting_port)],
            lambda connection, data: self._requests.take(connection, data),
            lambda: False,
            Security.of(settings),
        )
        self._poller = Poller(bell.fileno(), self._connections.fileno())
        self._search = MasterSearch(node)
        self._topics = TopicRoutes(TopicsFile(node.store.config / "topics.json"), self._broker, settings)
        handlers: dict[int, Handler] = {
            RequestCode.GET_ROUTEINFO_BY_TOPIC: alone(lambda *asked: self._ask(self._topics.route, *asked)),
            RequestCode.GET_BROKER_CLUSTER_INFO: alone(lambda *asked: self._ask(self._topics.cluster, *asked)),
        }
        self._requests = Requests(self._connections, node.line, Access(key_ring_of(node)), handlers, self._refuse)
        gc.freeze()

    def do_work(self) -> int:
        done = self._connections.cycle()
        if self._waiting and self._search.is_over:
            waiting, self._waiting = self._waiting, []
            done += len(waiting)
            for tell, request, answer in waiting:
                self._requests.attempt(partial(tell, request, answer), answer)
        self._connections.flush()
        now = time.monotonic()
        if now >= self._silent_at:
            self._silent_at = now + 1
            self._connections.drop_silent(now)
        self._connections.dropped.clear()
        return done

    def sleep_ms(self) -> int:
        return SEARCH_MS if self._waiting else LOOK_MS

    def wait(self, timeout_ms: int, rest: IdleSleep | None) -> bool:
        return self._poller.poll(timeout_ms, rest) and self._poller.ready(self._bell.fileno())

    def drain(self) -> bool:
        return True

    def on_close(self) -> None:
        if hasattr(self, "_search"):
            self._search.close()
        if hasattr(self, "_connections"):
            self._connections.close()

    # --- requests

    def _ask(self, tell: Callable[[Command, Answer], None], request: Command, answer: Answer) -> None:
        """Answers when it is known who the master is now."""
        if len(self._waiting) >= WAITING_MAX:
            raise RequestRefused(ResponseCode.SYSTEM_BUSY, "too many ask for the master at once; try again")
        self._waiting.append((tell, request, answer))
        self._search.begin()

    def _refuse(self, _: Connection, request: Command, answer: Answer) -> None:
        own, where = self._node.settings.broker_id, self._search.where
        known = f"; the master was found at {where}" if where else ""
        why = f"node {own} is a slave, which answers what a name server is asked, and not {request.code}{known}"
        raise RequestRefused(ResponseCode.SERVICE_NOT_AVAILABLE, why)

    def _broker(self) -> Broker:
        """Raises RequestRefused while no master is known: a client keeps the route that it has."""
        settings, where = self._node.settings, self._search.where
        if not where:
            raise RequestRefused(ResponseCode.SYSTEM_ERROR, "no master is known; try again")
        return Broker(settings.broker_name, settings.broker_cluster_name, {0: where})


class MasterSearch:
    """A thread that asks the peers, so that no connection waits. `where`: the master's `host:port` for remoting, or "".

    `is_over`: nobody searches. `begin` and `close` are for one thread.
    """

    def __init__(self, node: Node) -> None:
        self.where = ""
        self._log = node.log
        self._stopping = threading.Event()
        self._finder = MasterFinder(node, self._stopping)
        self._wanted: SimpleQueue[bool] = SimpleQueue()
        self.is_over = True
        self._thread = threading.Thread(target=self._run, name="master-search", daemon=True)
        self._thread.start()

    def begin(self) -> None:
        """Begins a search, unless one is under way."""
        if self.is_over:
            self.is_over = False
            self._wanted.put(True)

    def close(self) -> None:
        self._stopping.set()
        self._wanted.put(False)
        self._thread.join()

    def _run(self) -> None:
        while self._wanted.get():
            try:
                found = self._finder.find().get("remoting", [])
                self.where = found[0].removeprefix("tcp://") if found else ""
            except Exception:  # else all who ask afterwards would wait for ever
                self._log.exception("the master could not be searched")
            finally:
                self.is_over = True
