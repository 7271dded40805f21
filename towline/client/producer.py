"""The producer: messages in, promises out."""

import os
import socket
import threading
from collections.abc import Iterable, Iterator, Sequence
from types import TracebackType
from typing import Any, Final, Self

import numpy as np

from towline.errors import TopicExists
from towline.format.forms import FORM_TOPICS
from towline.format.record import Host
from towline.limits import KIB, MESSAGE_BODY_MAX, MIB, REQUEST_SIZE_MAX
from towline.link.endpoints import Endpoint, parse

from .accumulator import Accumulator, Bounds
from .compression import COMPRESS_ABOVE, Compressor
from .connection import own_facts
from .encoding import BODIES_MAX, TopicEncoder
from .errors import AskRefused, PutRefused, ResultPending
from .forms import Bounds as FormBounds
from .forms import Handle, StoredForm, cancelling, handle_of, stored_form
from .keys import KeySource
from .message import Message, ReceivedMessage
from .neighbours import neighbour
from .request import Replies, Requester, reply_topic
from .sending import Rules, Sender
from .sends import SendFuture, SendResult, TopicRoute
from .statistics import Statistics

RECORD_OVERHEAD: Final = 256  # bytes of a record beside its body, roughly; only for cutting bulk calls into batches
LOOPBACK: Final = "127.0.0.1"


class Producer:
    """Sends messages to one node. Any number of threads may use it.

    endpoint             of the node's put process: tcp://host:port or ipc://path
    name, cluster        for the greeting; an empty cluster fits any
    linger_ms            how long `send_async` waits for company in a batch
    batch_bytes_max      bytes of one batch, and of one request (`batch_bytes_max` or a single larger record)
    in_flight_max        requests without an answer; 1 keeps the order of a queue through retries
    buffer_bytes_max     bytes without an outcome; beyond it senders wait up to `send_timeout_ms`, then ProducerFull
    send_timeout_ms      how long one attempt waits for its answer (longer if the node says it may need longer)
    delivery_timeout_ms  no further attempt begins after this
    retries              further attempts after the first; every one sends the same bytes with the same unique keys.
                         A refusal that says when to come back stored nothing and costs no attempt; with 0 it ends there
    retry_unpromised     send again what was stored, but not promised (FLUSH_DISK_TIMEOUT, ...): makes doubles
    compression          zlib, lz4, zstd, or None; for bodies above `compress_above` bytes
    serve                endpoint that replies to requests are read from; found through the node by default

    Raises InvalidEndpoint, ValueError. Nothing is connected before the first message.
    """

    def __init__(
        self,
        endpoint: str,
        *,
        name: str = "",
        cluster: str = "",
        linger_ms: float = 2.0,
        batch_bytes_max: int = 256 * KIB,
        in_flight_max: int = 16,
        buffer_bytes_max: int = 64 * MIB,
        send_timeout_ms: int = 3_000,
        delivery_timeout_ms: int = 30_000,
        retries: int = 16,
        retry_unpromised: bool = False,
        compression: str | None = "zlib",
        compress_above: int = COMPRESS_ABOVE,
        serve: str = "",
    ) -> None:
        parsed = parse(endpoint)
        self._serve = str(parse(serve)) if serve else ""
        if not 0 < batch_bytes_max <= REQUEST_SIZE_MAX:
            raise ValueError(f"batch_bytes_max is {batch_bytes_max}; 1 to {REQUEST_SIZE_MAX} are allowed")
        if in_flight_max < 1 or buffer_bytes_max < 1 or retries < 0 or linger_ms < 0:
            raise ValueError("in_flight_max and buffer_bytes_max are at least 1, retries and linger_ms at least 0")
        self._compressor = Compressor(compression, compress_above)
        self._born_host = Host(_own_address(parsed), 0)
        self._keys = KeySource(self._born_host.address)
        self._timeout_ms = delivery_timeout_ms
        self._batch_bytes_max = batch_bytes_max
        self._routes: dict[str, TopicRoute] = {}
        self._own_routes: dict[str, TopicRoute] = {}
        self._routes_lock = threading.Lock()
        rules = Rules(in_flight_max, batch_bytes_max, send_timeout_ms, retries, retry_unpromised)
        facts = own_facts("producer", name or f"producer-{os.getpid()}", cluster)
        self._endpoint = str(parsed)
        self._sender = Sender(self._endpoint, facts, rules, self._forget_route)
        bounds = Bounds(linger_ms, batch_bytes_max, buffer_bytes_max, send_timeout_ms, delivery_timeout_ms)
        self._accumulator = Accumulator(bounds, self._sender.wake)
        self._sender.begin(self._accumulator)
        self._requester = Requester(self._begin_replies, self._send_request)

    # --- one message

    def send(self, message: Message) -> SendResult:
        """Sends at once and waits for the outcome.

        The result's `status` says what is promised: only PUT_OK is an acknowledgement. Raises what `send_async` raises,
        PutRefused (StoreBusy when time or attempts ran out), DeliveryTimeout, LinkRefused.
        """
        return self._add(message, urgent=True).result()

    def send_async(self, message: Message) -> SendFuture:
        """Sends in a batch with others. Waits only for room in the buffer, and for the node when a topic is new.

        Raises MessageTooLarge, IllegalProperty, MalformedRecord (topic), UnknownTopic, ProducerFull, NoAnswer,
        LinkRefused, ClientClosed.
        """
        return self._add(message, urgent=False)

    def _add(self, message: Message, *, urgent: bool) -> SendFuture:
        route = self._routes.get(message.topic) or self.route(message.topic)
        queue_id = message.queue_id
        if queue_id is None:
            queue_id = route.sticky if message.sharding_key is None else route.queue_of(message.sharding_key)
        if message.delay_level is not None or message.deliver_at is not None:
            form = stored_form(message, queue_id, FormBounds.of(self._sender.welcome), self._sender.server_now_ms())
            if form is not None:
                route.rotate()  # the batch is the form's, and says nothing of when the next queue's turn comes
                future = self.add_form(message, form, urgent=urgent)
                future.handle = handle_of(message, queue_id, future.unique_key)
                return future
        record, unique_key = route.encoder.encode(message, queue_id)
        return self._accumulator.add(route, queue_id, record, unique_key, urgent)

    def cancel(self, handle: str) -> SendResult:
        """Takes back a message with `deliver_at`: `handle` is that of its result. PUT_OK: it is not delivered.

        Raises IllegalHandle, PutRefused (its sentence names CANCEL_TOO_LATE when the time has come), and what `send`
        raises. Cancelling twice, or what nobody sent, is no error.
        """
        read = Handle.read(handle)
        return self.add_form(Message(read.topic, b""), cancelling(read), urgent=True).result()

    def add_form(self, message: Message, form: StoredForm, *, urgent: bool) -> SendFuture:
        """Sends a message in a form of `towline.client.forms`. Raises what `send_async` raises."""
        self.route(message.topic)  # it exists from here on, and the node's welcome is known
        route = self._own_routes.get(form.topic) or self._own_route(form.topic)
        record, unique_key = route.encoder.encode(message, form.queue_id, form.pairs)
        return self._accumulator.add(route, form.queue_id, record, unique_key, urgent)

    # --- a message and its reply

    def request(self, message: Message, timeout_ms: int = 3_000) -> ReceivedMessage:
        """Sends a message and waits for the reply that its consumer makes with `towline.client.request.reply`.

        The first request makes the reply topic `<cluster>_REPLY_TOPIC` where there is none, and a thread that reads it.
        Raises RequestTimeout, NoNeighbour, IllegalProperty, and what `send` raises.
        """
        return self._requester.request(message, timeout_ms)

    @property
    def late_replies(self) -> int:
        """Replies that came when nobody waited for them any more."""
        return self._requester.late

    def _begin_replies(self, message: Message) -> Replies:
        self.route(message.topic)  # the node's welcome comes before its answer
        cluster = str(self._sender.welcome.get("cluster", ""))
        try:
            self._sender.ask("create_topic", {"topic": reply_topic(cluster), "queues": 1}, self._timeout_ms)
        except AskRefused as refused:
            if refused.error != TopicExists.__name__:
                raise
        return Replies(self._serve or self.neighbour("serve"), cluster)

    def _send_request(self, message: Message, timeout_ms: int) -> bool:
        try:
            return self._add(message, urgent=True).result(timeout_ms).acknowledged
        except ResultPending:
            return False

    # --- many messages

    def send_batch(self, messages: Iterable[Message]) -> list[SendResult]:
        """Sends all together and waits for every outcome. The first error is raised when all outcomes are there."""
        futures = [self.send_async(message) for message in messages]
        self._accumulator.hurry()
        return _results(futures)

    def send_bodies(
        self,
        topic: str,
        bodies: Sequence[bytes],
        *,
        tags: str | None = None,
        queue_id: int | None = None,
        flag: int = 0,
    ) -> list[SendResult]:
        """The cheap way for many bodies without keys: one result for each batch they were sent in, in order.

        Each body gets a unique key. Without `queue_id` the batches take turns through the queues.
        """
        return _results(self.send_bodies_async(topic, bodies, tags=tags, queue_id=queue_id, flag=flag))

    def send_bodies_async(
        self,
        topic: str,
        bodies: Sequence[bytes],
        *,
        tags: str | None = None,
        queue_id: int | None = None,
        flag: int = 0,
    ) -> list[SendFuture]:
        """Likewise, without waiting for the outcomes."""
        route = self._routes.get(topic) or self.route(topic)
        futures = []
        for chunk in _chunks(bodies, self._batch_bytes_max):
            queue = route.sticky if queue_id is None else queue_id
            records, unique_key = route.encoder.encode_bodies(chunk, queue, tags=tags, flag=flag)
            futures.append(self._accumulator.add_many(route, queue, records, len(chunk), unique_key))
        return futures

    def send_records(self, topic: str, queue_id: int, records: bytes, count: int) -> SendFuture:
        """Sends `count` records that are encoded already, back to back, all of this topic and queue.

        The topic may be one of `towline.format.forms`, when a topic's `route` was asked for before.
        """
        route = self._routes.get(topic) or self._own_routes.get(topic)
        if route is None:
            route = self._own_route(topic) if topic in FORM_TOPICS and self._sender.welcome else self.route(topic)
        return self._accumulator.add_many(route, queue_id, records, count, "")

    # --- the rest

    def route(self, topic: str) -> TopicRoute:
        """How many queues the topic has; the node may create it for the asking.

        Raises UnknownTopic, AskRefused, PutRefused, NoAnswer, LinkRefused, MalformedRecord, ClientClosed.
        """
        with self._routes_lock:
            known = self._routes.get(topic)
            if known is not None:
                return known
            facts = self._sender.ask("route", {"topic": topic}, self._timeout_ms).facts
            if int(facts["write_queues"]) < 1:
                raise PutRefused("NO_PERMISSION", f"the topic {topic!r} has no queue that may be written to")
            welcome = self._sender.welcome
            self._accumulator.limit_batches(int(welcome.get("request_limit", REQUEST_SIZE_MAX)))
            self._routes[topic] = route = TopicRoute(topic, facts, self._encoder(topic))
            return route

    def _own_route(self, topic: str) -> TopicRoute:
        """Of a topic of the broker's own, for records in a form. Nobody can be asked about it."""
        with self._routes_lock:
            queues = {"write_queues": 1, "read_queues": 1}  # a form names its queue
            self._own_routes[topic] = route = TopicRoute(topic, queues, self._encoder(topic))
            return route

    def _encoder(self, topic: str) -> TopicEncoder:
        welcome = self._sender.welcome
        return TopicEncoder(
            topic,
            self._born_host,
            self._keys,
            self._compressor,
            store_host_ipv6=bool(welcome.get("store_host_ipv6", False)),
            body_size_max=int(welcome.get("max_message_size", MESSAGE_BODY_MAX)),
            append_property_crc=bool(welcome.get("append_property_crc", False)),
        )

    def neighbour(self, service: str) -> str:
        """The endpoint of another service of the node. Raises NoNeighbour, and what `route` raises."""
        if parse(self._endpoint).scheme != "ipc" and not self._sender.welcome:
            self._sender.ask("topics", {}, self._timeout_ms)
        return neighbour(self._endpoint, service, self._sender.welcome)

    def flush(self, timeout_ms: int | None = None) -> None:
        """Waits until every message sent so far has its outcome. Raises ResultPending after `timeout_ms`."""
        if not self._accumulator.flush(timeout_ms):
            raise ResultPending(timeout_ms or 0)

    @property
    def welcome(self) -> dict[str, Any]:
        """What the put process said of itself when the link began; empty before."""
        return self._sender.welcome

    @property
    def statistics(self) -> Statistics:
        return self._sender.statistics

    def close(self, *, flush: bool = True) -> None:
        """Waits for the outcomes (`flush`), or gives up what has none: its futures raise ClientClosed."""
        try:
            if flush:
                self._accumulator.flush(None)
        finally:
            self._requester.close()
            self._sender.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close(flush=kind is None)

    def _forget_route(self, topic: str) -> None:
        if self._own_routes.pop(topic, None) is not None:
            self._routes.clear()  # a refused form may be for any of them
        self._routes.pop(topic, None)


def _results(futures: Sequence[SendFuture]) -> list[SendResult]:
    for error in [future.exception() for future in futures]:
        if error is not None:
            raise error
    return [future.result() for future in futures]


def _chunks(bodies: Sequence[bytes], bytes_max: int) -> Iterator[Sequence[bytes]]:
    """Runs of bodies whose records make a batch of about `bytes_max` bytes; at least one body each."""
    ends = np.cumsum(np.fromiter(map(len, bodies), dtype=np.int64, count=len(bodies)) + RECORD_OVERHEAD)
    start = 0
    while start < len(bodies):
        before = int(ends[start - 1]) if start else 0
        fitting = int(np.searchsorted(ends, before + bytes_max, side="right"))
        end = min(max(fitting, start + 1), start + BODIES_MAX)
        yield bodies[start:end]
        start = end


def _own_address(endpoint: Endpoint) -> bytes:
    """The IPv4 address by which this machine reaches the node; loopback when it has none."""
    if endpoint.scheme == "tcp":
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
            try:
                probe.connect((endpoint.host, endpoint.port or 1))
                return socket.inet_aton(probe.getsockname()[0])
            except OSError:
                return socket.inet_aton(LOOPBACK)
    return socket.inet_aton(LOOPBACK)
