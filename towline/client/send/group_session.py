"""A producer's session with one group of nodes: an I/O thread, its batches, and the routes of topics."""

import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from towline.client.errors import ClientClosed, PutRefused
from towline.client.link.endpoints import neighbour
from towline.client.link.keys import KeySource
from towline.client.link.routes import GroupRoute
from towline.client.link.rpc import Reply
from towline.errors import LinkRefused, NoAnswer, TowlineError
from towline.format.record.compression import Compressor
from towline.format.record.record import Host
from towline.limits import MESSAGE_BODY_MAX, REQUEST_SIZE_MAX
from towline.link.endpoints import parse
from towline.link.unclosed import call_in_child, renew

from .accumulator import Accumulator, BatchLimits
from .encoding import TopicEncoder
from .futures import TopicRoute
from .io_thread import IoThread, SendRules
from .sequencing import SequencedAccumulator

LOOK_MS: Final = 10_000  # for the answer about routes
FOLLOW_MS: Final = 200  # whoever follows to a neighbour asks again so soon


@dataclass(frozen=True, slots=True)
class Origin:
    """What every record of a producer has in common; the port of `born_host` is that of the link, 0 where it has none:
    over a socket of Unix, or beside a ring. `idempotent`: the name of an idempotent producer, "" for one without, None
    for any other."""

    born_host: Host
    keys: KeySource
    compressor: Compressor
    idempotent: str | None = None


class GroupSession:
    """A producer's session with one group of nodes. Any thread may use it.

    `sessions` is how many the producer has; `linked` is called when a node has welcomed us, `found` with the brokers
    that there are, whenever that is looked at.
    """

    def __init__(
        self,
        way: GroupRoute,
        origin: Origin,
        facts: dict[str, str],
        rules: SendRules,
        limits: BatchLimits,
        sessions: int = 1,
        linked: Callable[[], None] | None = None,
        found: Callable[[list[str]], None] | None = None,
    ) -> None:
        self.name = way.name
        self.routes: dict[str, TopicRoute] = {}
        self.form_routes: dict[str, TopicRoute] = {}
        self._origin, self._sessions, self._found = origin, sessions, found
        self._born_host = origin.born_host
        self._is_local = isinstance(way.endpoints, tuple) and len(way.endpoints) == 1
        self._is_local = self._is_local and parse(way.first).scheme == "ipc"
        self._timeout_ms = limits.delivery_timeout_ms
        self._lock = threading.Lock()
        call_in_child(self)
        self.io_thread = IoThread(way.endpoints, facts, rules, self._evict, linked, self._born_at, self._look)
        wake, push = self.io_thread.wake, self.io_thread.push
        if origin.idempotent is None:
            self.accumulator = Accumulator(limits, wake, push)
        else:
            thread = self.io_thread
            self.accumulator = SequencedAccumulator(
                limits, wake, push, origin.idempotent, thread.tell, lambda: thread.welcome
            )
        self.io_thread.begin(self.accumulator)

    @property
    def welcome(self) -> dict[str, Any]:
        return self.io_thread.welcome

    @property
    def is_idempotent(self) -> bool:
        return self._origin.idempotent is not None

    def route(self, topic: str, timeout_ms: int | None = None) -> TopicRoute:
        """The queues of the topic, which the node may create when asked. Raises what `Producer.route` does.

        Within `timeout_ms`, else the time of a delivery.
        """
        with self._lock:
            known = self.routes.get(topic)
        if known is not None:
            return known
        # Without the lock: where the topic has to be made first, other threads' topics do not wait for the node's disk.
        facts = self.io_thread.ask("route", {"topic": topic}, self._within(timeout_ms)).facts
        if int(facts["write_queues"]) < 1:
            raise PutRefused("NO_PERMISSION", f"the topic {topic!r} has no queue that may be written to")
        self.accumulator.limit_batches(int(self.welcome.get("request_limit", REQUEST_SIZE_MAX)))
        with self._lock:
            made = TopicRoute(topic, facts, self._encoder(topic), self.name, self._sessions)
            return self.routes.setdefault(topic, made)

    def share_with(self, sessions: int) -> None:
        """The producer has so many sessions from now on."""
        with self._lock:
            self._sessions = sessions
            for route in self.routes.values():
                route.groups = sessions

    def form_route(self, topic: str) -> TopicRoute:
        """The route of a system topic, for records in a form. No node is asked about it."""
        with self._lock:
            queues = {"write_queues": 1, "read_queues": 1}  # a form names its queue
            if "form_batch_max" in self.welcome:
                queues["records_max"] = int(self.welcome["form_batch_max"])
            self.form_routes[topic] = route = TopicRoute(topic, queues, self._encoder(topic), self.name)
            return route

    def neighbour(self, service: str, timeout_ms: int | None = None) -> str:
        """The endpoint of another service of the node that is master now.

        Raises within `timeout_ms`, or the time of a delivery, what `route` raises.
        """
        if not self._is_local and not self.io_thread.is_linked:
            self.io_thread.ask("topics", {}, self._within(timeout_ms))
        return neighbour(self.io_thread.endpoint, service)

    def follow(self, service: str) -> Callable[[], str]:
        """A function that names the endpoint of a service of the node that is master at the call.

        It raises NoAnswer.
        """

        def now() -> str:
            try:
                return self.neighbour(service, FOLLOW_MS)
            except (LinkRefused, ClientClosed) as error:
                raise NoAnswer(self.io_thread.endpoint, FOLLOW_MS, error.describe()) from None

        return now

    def forked(self) -> None:
        renew(self._lock)

    def _look(self) -> None:
        """On the I/O thread: topics may have other queues by now, and the cluster more brokers."""
        self.io_thread.tell("routes", {"topics": list(self.routes)}, LOOK_MS, self._looked)

    def _looked(self, reply: Reply | None, _: TowlineError | None) -> None:
        if reply is None:
            return  # the next look may see more
        with self._lock:
            for topic, facts in reply.facts["topics"].items():
                route = self.routes.get(topic)
                if route is not None and int(facts["write_queues"]) > 0:
                    route.resize(facts)
        if self._found is not None:
            self._found(reply.facts["brokers"])

    def _within(self, timeout_ms: int | None) -> int:
        return self._timeout_ms if timeout_ms is None else timeout_ms

    def _encoder(self, topic: str) -> TopicEncoder:
        return TopicEncoder(
            topic,
            self._born_host,
            self._origin.keys,
            self._origin.compressor,
            store_host_ipv6=bool(self.welcome.get("store_host_ipv6", False)),
            body_size_max=int(self.welcome.get("max_message_size", MESSAGE_BODY_MAX)),
            append_property_crc=bool(self.welcome.get("append_property_crc", False)),
            sequenced=self.is_idempotent,
        )

    def _born_at(self, port: int) -> None:
        """A new link: what is encoded from here on says our port there."""
        with self._lock:
            self._born_host = Host(self._origin.born_host.address, port)
            for route in (*self.routes.values(), *self.form_routes.values()):
                route.encoder.born_from(self._born_host)

    def _evict(self, topic: str) -> None:
        if self.form_routes.pop(topic, None) is not None:
            self.routes.clear()  # a refused form may be for any of them
        self.routes.pop(topic, None)
