"""The producer: sends messages and returns what the node promises of each."""

import os
import socket
import threading
import time
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from types import TracebackType
from typing import Any, Final, Literal, Self

import numpy as np

from towline.client.link.connection import own_facts, remaining_ms
from towline.client.link.endpoints import Endpoints
from towline.client.link.keys import KeySource
from towline.client.link.routes import broker_route, group_routes, is_broker, is_whole_cluster, serve_of
from towline.client.send.accumulator import BatchLimits
from towline.client.send.bodies import Bodies
from towline.client.send.encoding import BODIES_MAX
from towline.client.send.forms import DelayLimits, Handle
from towline.client.send.futures import MS, SendFuture, SendResult, TopicRoute, UnplacedFuture
from towline.client.send.group_session import GroupSession, Origin
from towline.client.send.io_thread import SendRules
from towline.client.send.placing import Told, put, put_form
from towline.client.send.spread import Place, Spread
from towline.client.send.statistics import Statistics
from towline.client.send.unplaced import Unplaced
from towline.errors import TopicExists, TowlineError
from towline.format.record.compression import COMPRESS_ABOVE, Compressor
from towline.format.record.forms import FORM_TOPICS, StoredForm, cancelling
from towline.format.record.record import Host
from towline.limits import KIB, MIB, REQUEST_SIZE_MAX
from towline.link.endpoints import parse
from towline.link.unclosed import on_drop

from .errors import AskRefused, NotIdempotent, ResultPending, UnknownGroup
from .message import Message, ReceivedMessage
from .request import PendingReply, PushedReplies, ReadReplies, Replies, Requester, reply_topic
from .values import Propagator, Serializer, prepared, serializer_of, tracer_of

LOOPBACK: Final = "127.0.0.1"

Callback = Callable[[SendResult | None, TowlineError | None], object]


class Producer:
    """Sends messages. Any number of threads may use it.

    endpoint             of the node: tcp://host:port, tls://host:port?ca=file, or ipc://path of its put. Of several (a
                         text with commas, or a sequence) the one whose node is master is found, and found again when
                         another one is: what had no answer is sent there with the same bytes.
                         Or cluster:PATH of a cluster file: messages go to all its groups of nodes in turns, those of
                         one sharding key to one. Likewise etcd:http://HOST:PORT/NAME of a cluster that etcd knows
    name, cluster        for the greeting; an empty cluster fits any
    linger_ms            how long `send_async` waits for company in a batch
    batch_bytes_max      bytes of one batch, and of one request (`batch_bytes_max` or a single larger record)
    in_flight_max        requests without an answer; 1 keeps the order of a queue through retries
    buffer_bytes_max     bytes without an outcome; beyond it calls that wait for outcomes wait for room, up to
                         `send_timeout_ms`, and `send_async` refuses at once: ProducerFull
    send_timeout_ms      how long one attempt waits for its answer (longer if the node says it may need longer)
    take_timeout_ms      how long a request may wait before the node takes it; by default as long as for its answer
    delivery_timeout_ms  no further attempt begins after this; of a new topic its search may take as long before
    retries              further attempts after the first; every one sends the same bytes with the same unique keys.
                         A refusal that says when to come back stored nothing and costs no attempt; with 0 it ends there
    retry_unpromised     send again what was stored, but not promised (FLUSH_DISK_TIMEOUT, ...): makes doubles
    idempotent           no attempt stores a message twice, whatever became of the ones before; what was not promised
                         is sent again too. One batch of a queue is under way at a time. A producer with a `name`
                         fences an earlier one of that name: ProducerFenced there. It sends nothing that is delivered
                         later, and nothing to brokers of RocketMQ: NotIdempotent
    compression          zlib, lz4, zstd, or None; for bodies above `compress_above` bytes
    serve                endpoint that replies to requests are read from; found through the node by default
    check_crcs           the bodies of replies are compared with their CRC, as a consumer does
    value_serializer     makes bytes of what a message has as its body: "json", or a function. Bulk calls take bytes
    pass_over            of several groups, those without a master are passed over by messages without a sharding key
    tracing              True: each message gets the trace context of its caller (OpenTelemetry; the extra `tracing`)
                         as the properties `traceparent` and `tracestate`, for `towline.client.tracing.extract`, unless
                         it has them. Or a propagator in the place of W3C's. Bulk calls send none

    Raises InvalidEndpoint, NotIdempotent, ValueError, MissingPackage. Nothing is connected before the first message.
    """

    def __init__(
        self,
        endpoint: Endpoints,
        *,
        name: str = "",
        cluster: str = "",
        linger_ms: float = 2.0,
        batch_bytes_max: int = 256 * KIB,
        in_flight_max: int = 16,
        buffer_bytes_max: int = 64 * MIB,
        send_timeout_ms: int = 3_000,
        take_timeout_ms: int | None = None,
        delivery_timeout_ms: int = 30_000,
        retries: int = 16,
        retry_unpromised: bool = False,
        idempotent: bool = False,
        compression: str | None = "zlib",
        compress_above: int = COMPRESS_ABOVE,
        serve: Endpoints = "",
        check_crcs: bool = True,
        value_serializer: Serializer | Literal["json"] | None = None,
        pass_over: bool = True,
        tracing: Propagator | bool = False,
    ) -> None:
        found, self._traced, self._check_crcs = group_routes(endpoint), tracer_of(tracing), check_crcs
        self._serve, self._serialize = serve_of(endpoint, serve), serializer_of(value_serializer)
        self._prepares = self._serialize is not None or self._traced is not None
        self._at_brokers = is_broker(found[0])
        unique, insists = name if idempotent else None, retry_unpromised or idempotent
        _check_limits(batch_bytes_max, min(in_flight_max, buffer_bytes_max), min(retries, linger_ms))
        self._timeout_ms, self._room_ms, self._batch_bytes_max = delivery_timeout_ms, send_timeout_ms, batch_bytes_max
        born_host = Host(_own_address(found[0].first), 0)
        origin = Origin(born_host, KeySource(born_host.address), Compressor(compression, compress_above), unique)
        rules = SendRules(in_flight_max, batch_bytes_max, send_timeout_ms, retries, insists, take_timeout_ms)
        facts = own_facts("producer", name or f"producer-{os.getpid()}", cluster)
        self._client_id = f"{os.getpid()}@{os.urandom(12).hex()}"
        if self._at_brokers:
            facts["client"] = _broker_client(self._client_id, idempotent=idempotent)
        share = max(1, buffer_bytes_max // len(found))
        limits = BatchLimits(linger_ms, batch_bytes_max, share, send_timeout_ms, delivery_timeout_ms)
        self._endpoint, grows = endpoint, is_whole_cluster(endpoint)
        is_single = len(found) == 1 and not grows
        self._spread = None if is_single else Spread(pass_over=pass_over, timeout_ms=delivery_timeout_ms)
        linked = None if self._spread is None else self._spread.linked
        met = partial(_meet, weakref.ref(self)) if grows else None
        self._made = partial(
            GroupSession, origin=origin, facts=facts, rules=rules, limits=limits, linked=linked, found=met
        )
        self._growing, self._closed = threading.Lock(), False
        self._sessions = [self._made(way, sessions=len(found)) for way in found]
        self._session = self._sessions[0]  # the only one, where there is no spread
        if self._spread is not None:
            self._spread.sessions = self._sessions
        self._requester = Requester(self._begin_replies, self._send_request)
        find = partial(_find_in, self._session) if self._spread is None else self._spread.place
        known = partial(_known_in, self._session) if self._spread is None else self._spread.place_if_known
        self._unplaced = Unplaced(find, known, self._sessions, origin.keys, delivery_timeout_ms)
        self._lots = self._unplaced.lots
        on_drop(self, self._unplaced.drop)

    def meet(self, brokers: Iterable[str]) -> None:
        """Uses brokers that have joined the cluster, from now on. Those that left stay: they may come back."""
        with self._growing:
            known = {session.name for session in self._sessions}
            for name in [name for name in brokers if name not in known and not self._closed]:
                session = self._made(broker_route(self._endpoint, name), sessions=len(self._sessions) + 1)
                self._sessions.append(session)
                for each in self._sessions:
                    each.share_with(len(self._sessions))
                if self._closed:
                    session.io_thread.stop()

    # --- one message

    def send(self, message: Message) -> SendResult:
        """Sends at once and waits for the outcome.

        The result's `status` says what is promised: only PUT_OK is an acknowledgement. Raises what `send_async` raises,
        PutRefused (StoreBusy when time or attempts ran out), DeliveryTimeout, LinkRefused; of an idempotent producer
        OutOfOrderSequence, UnknownProducer, ProducerFenced, NotIdempotent.
        """
        if self._spread is not None:
            return self._add(message, True, self._room_ms).result()
        future = self._add(message, True, self._room_ms, None, False)
        if type(future) is SendFuture:
            self._session.io_thread.deliver(future.batch)
        return future.result()

    def send_async(self, message: Message, callback: Callback | None = None, *, max_block_ms: int = 0) -> SendFuture:
        """Sends in a batch with others, and returns at once: what becomes of the message is the future's.

        `callback(result, error)` is called when that is known, one of the two being None: on a thread of the
        producer's, so it must be short and must not wait for the producer. What it raises is logged.

        A topic that is new to the producer is asked for beside the caller; its messages go then, in their order. Where
        the buffer is full (`buffer_bytes_max`), ProducerFull is raised and nothing is sent; `max_block_ms` waits so
        long for room first. A full batch that it cannot send itself it lets the producer's thread send: 2 ms at most.

        Raises what is wrong with the message (UnserializableValue, MessageTooLarge, IllegalProperty, MalformedRecord,
        IllegalDelay), UnknownGroup, ProducerFull, ClientClosed, NotIdempotent. What a node says comes by the future:
        UnknownTopic, NoAnswer, LinkRefused, PutRefused, DeliveryTimeout; for a new topic MessageTooLarge,
        MalformedRecord and IllegalDelay too, and of an idempotent producer OutOfOrderSequence, UnknownProducer,
        ProducerFenced.
        """
        told = None if callback is None else partial(_call_back, callback)
        return self._add(message, False, max_block_ms, told)

    def _add(
        self, message: Message, urgent: bool, room_ms: int, told: Told | None = None, wakes: bool = True
    ) -> SendFuture:
        if message.key is not None or self._prepares:
            message = self.prepared(message)
        if self._spread is None and message.broker_name is None and not self._lots:
            route = self._session.routes.get(message.topic)
            if route is not None:
                try:
                    return put(self._session, route, message, urgent, room_ms, told, wakes)
                except TypeError:
                    prepared(message, None)  # which says what is wrong with a body that is not bytes
                    raise
        if message.body.__class__ is not bytes:
            message = prepared(message, None)
        group, place = self._known_place(message)
        where = message.topic, group
        if place is None or where in self._lots:
            return self._unplaced.add(where, message, urgent, room_ms, told)
        return put(*place, message, urgent, room_ms, told, wakes)

    def prepared(self, message: Message) -> Message:
        """The message with its body as bytes, its `key` as the sharding key, and its trace context, if it gets one.

        Raises UnserializableValue, IllegalProperty.
        """
        ready = prepared(message, self._serialize)
        return ready if self._traced is None else self._traced(ready)

    def _known_place(self, message: Message) -> tuple[str, Place | None]:
        """The group that the message itself chooses, or "", and where it goes if nobody has to be asked."""
        if self._spread is not None:
            chosen = self._spread.chosen(message)
            return "" if chosen is None else chosen.name, self._spread.known_place(message.topic, chosen)
        if message.broker_name not in (None, self._session.name):
            raise UnknownGroup(str(message.broker_name), self._session.name)
        return "", _known_in(self._session, message)

    def cancel(self, handle: str, *, broker_name: str | None = None) -> SendResult:
        """Cancels a message with `deliver_at`; `handle` is that of its result. PUT_OK: it is not delivered any more.

        The node goes by its clock: one that was set back takes it also for what was delivered before that.
        `broker_name` is that of its result too, and needed where there are several groups.
        Raises IllegalHandle, PutRefused (its sentence names CANCEL_TOO_LATE when the time has come), and what `send`
        raises. Cancelling twice, or what nobody sent, is no error.
        """
        if self.has_groups and broker_name is None:
            raise ValueError("cancel needs the broker_name of the message's result: there are several groups")
        read = Handle.read(handle)
        message = Message(read.topic, b"", broker_name=broker_name)
        form = cancelling(read.topic, read.queue_id, read.deliver_at, read.unique_key)
        return self.add_form(message, form).result()

    def add_form(self, message: Message, form: StoredForm) -> SendFuture:
        """Sends a message at once in a form of `towline.format.record.forms`. Waits for its topic and for room, and
        raises what `send` raises until it is under way."""
        session = self._session if self._spread is None else self._spread.place(message)[0]
        session.route(message.topic)  # it exists from here on, and the node's welcome is known
        return put_form(session, message, form, True, self._room_ms)

    # --- a message and its reply

    def request(self, message: Message, timeout_ms: int = 3_000) -> ReceivedMessage:
        """Sends a message and waits for the reply that its consumer makes with `towline.client.request.reply`.

        The first request makes the reply topic `<cluster>_REPLY_TOPIC` where there is none, and a thread that reads it;
        brokers of RocketMQ push replies to who asked.
        Raises RequestTimeout, DamagedMessage, IllegalProperty, and what `send` raises; where the node does
        not answer at all, NoAnswer, within `timeout_ms` as well.
        """
        return self._requester.request(message, timeout_ms)

    def begin_request(self, message: Message, timeout_ms: int) -> tuple[Message, PendingReply]:
        """The first part of `request`, which may wait for the reply topic: what is to be sent, and the reply to come.

        `end_request` is called in the end, whether it came or not. Raises NoAnswer, and what `request` raises for it.
        """
        return self._requester.begin(message, timeout_ms)

    def end_request(self, pending: PendingReply) -> None:
        """A reply is not waited for any more."""
        self._requester.end(pending)

    @property
    def late_replies(self) -> int:
        """How many replies came after their requests had timed out."""
        return self._requester.late

    def _begin_replies(self, message: Message, timeout_ms: int) -> Replies:
        deadline = time.monotonic() + timeout_ms / 1000
        session = self._session if self._spread is None else self._spread.place(message, timeout_ms)[0]
        session.route(message.topic, timeout_ms)  # the node's welcome comes before its answer
        cluster = str(session.welcome.get("cluster", ""))
        if self._at_brokers:
            return PushedReplies(self._sessions, self._client_id, cluster)
        for each in self._sessions:
            if each is session or each.io_thread.is_linked:
                self._make_topic(each, reply_topic(cluster), remaining_ms(deadline))
        if not self._serve:
            session.neighbour("serve", remaining_ms(deadline))  # raises here what the reader could report to nobody
        serve = self._serve or session.follow("serve")
        return ReadReplies(serve, self._client_id, cluster, check_crcs=self._check_crcs)

    def make_topic(self, topic: str) -> None:
        """Makes a topic of one queue in the first group, also where the node makes none by itself; an old one stays.

        Raises what `route` raises, and AskRefused.
        """
        self._make_topic(self._session, topic, self._timeout_ms)

    @staticmethod
    def _make_topic(session: GroupSession, topic: str, timeout_ms: int) -> None:
        try:
            session.io_thread.ask("create_topic", {"topic": topic, "queues": 1}, timeout_ms)
        except AskRefused as refused:
            if refused.error != TopicExists.__name__:
                raise

    def _send_request(self, message: Message, timeout_ms: int) -> bool:
        deadline = time.monotonic() + timeout_ms / 1000
        try:
            return self._add(message, True, timeout_ms).result(remaining_ms(deadline) / MS).acknowledged
        except ResultPending:
            return False

    # --- many messages

    def send_batch(self, messages: Iterable[Message]) -> list[SendResult]:
        """Sends all messages together and waits for every outcome; then raises the first error."""
        futures = [self._add(message, False, self._room_ms) for message in messages]
        for future in futures:
            if isinstance(future, UnplacedFuture):
                future.await_place()
        for session in self._sessions:
            session.accumulator.seal_all()
        return _results(futures)

    def send_bodies(
        self,
        topic: str,
        bodies: Any,
        *,
        tags: str | None = None,
        queue_id: int | None = None,
        flag: int = 0,
    ) -> list[SendResult]:
        """The cheap way for many bodies without keys: one result for each batch they were sent in, in order.

        `bodies` is a sequence of bytes, a numpy array of rows (two dimensions of uint8, or a void dtype), or a binary
        or string column of pyarrow; arrays and columns become no Python objects. Each body gets a unique key. Without
        `queue_id` the batches take turns through the queues. Raises ValueError for other bodies, and what `send` does.
        """
        return _results(self.send_bodies_async(topic, bodies, tags=tags, queue_id=queue_id, flag=flag))

    def send_bodies_async(
        self,
        topic: str,
        bodies: Any,
        *,
        tags: str | None = None,
        queue_id: int | None = None,
        flag: int = 0,
    ) -> list[SendFuture]:
        """Sends like `send_bodies`, without waiting for the outcomes; it waits for a new topic, and for room."""
        given = Bodies.of(bodies)
        session, route = self._next_place(topic)
        futures = []
        overhead = route.encoder.overhead(tags)
        for chunk in _chunks(given, self._batch_bytes_max, overhead):
            session, route = (session, route) if self._spread is None else self._spread.next_place(topic)
            queue = route.sticky if queue_id is None else queue_id
            records, unique_key = route.encoder.encode_bodies(chunk, queue, tags=tags, flag=flag)
            futures.append(session.accumulator.add_many(route, queue, records, len(chunk), unique_key))
        return futures

    def send_records(self, topic: str, queue_id: int, records: bytes, count: int) -> SendFuture:
        """Sends `count` records that are encoded already, back to back, all of this topic and queue.

        The topic may be one of `towline.format.record.forms`, when a topic's `route` was asked for before. Raises
        NotIdempotent.
        """
        if self._session.is_idempotent:
            raise NotIdempotent("records that were encoded elsewhere")
        session, route = (self._session, self.form_route(topic)) if topic in FORM_TOPICS else self._next_place(topic)
        return session.accumulator.add_many(route, queue_id, records, count, "")

    def _next_place(self, topic: str) -> Place:
        if self._lots:
            self._unplaced.await_placed(self._timeout_ms, topic)  # what came before goes before
        if self._spread is not None:
            return self._spread.next_place(topic)
        return self._session, self._session.routes.get(topic) or self._session.route(topic)

    # --- the rest

    def route(self, topic: str) -> TopicRoute:
        """How many queues the topic has in the group whose turn it is; the node may create it for the asking.

        Raises UnknownTopic, AskRefused, PutRefused, NoAnswer, LinkRefused, MalformedRecord, ClientClosed.
        """
        return self._next_place(topic)[1]

    def form_route(self, topic: str) -> TopicRoute:
        """The route of a topic of `towline.format.record.forms`, when a topic's `route` was asked for before."""
        session = self._session
        form = session.form_routes.get(topic)
        if form is None:
            form = session.form_route(topic) if session.welcome else session.route(topic)
        return form

    def delays(self) -> tuple[DelayLimits, int]:
        """The node's limits of delays, and its clock in ms since 1970, when a topic's `route` was asked for before."""
        return DelayLimits.of(self._session.welcome), self._session.io_thread.server_now_ms()

    def neighbour(self, service: str, timeout_ms: int | None = None) -> str:
        """The endpoint of another service of the node that is master now, in the first group.

        Raises within `timeout_ms`, or the time of a delivery, what `route` raises.
        """
        return self._session.neighbour(service, timeout_ms)

    def follow(self, service: str) -> Callable[[], str]:
        """A function that names the endpoint of a service of the node that is master at the call.

        It raises NoAnswer.
        """
        return self._session.follow(service)

    @property
    def has_groups(self) -> bool:
        """Whether there are several groups of nodes."""
        return len(self._sessions) > 1

    @property
    def linked_groups(self) -> list[str]:
        """The groups whose master was there a moment ago. A single one has the name ""."""
        return [session.name for session in self._sessions if session.io_thread.is_linked]

    def flush(self, timeout_ms: int | None = None) -> None:
        """Waits until every message sent so far has its outcome. Raises ResultPending after `timeout_ms`."""
        deadline = None if timeout_ms is None else time.monotonic() + timeout_ms / MS
        if not self._unplaced.await_placed(timeout_ms):
            raise ResultPending(timeout_ms or 0)
        for session in self._sessions:
            left = None if deadline is None else max(0.0, (deadline - time.monotonic()) * MS)
            if not session.accumulator.flush(left):
                raise ResultPending(timeout_ms or 0)

    @property
    def welcome(self) -> dict[str, Any]:
        """The welcome of the first group's put process; empty before the first link."""
        return self._session.welcome

    @property
    def statistics(self) -> Statistics:
        """The statistics of all groups together; a copy where there are several."""
        if self._spread is None:
            return self._session.io_thread.statistics
        return Statistics.sum([session.io_thread.statistics for session in self._sessions])

    def close(self, *, flush: bool = True) -> None:
        """Waits for all outcomes (`flush`), or gives up open ones: their futures raise ClientClosed."""
        try:
            if flush:
                self.flush()
        finally:
            self._requester.close()
            self._closed = True
            for session in list(self._sessions):
                session.io_thread.close()
            if self._spread is not None:
                self._spread.linked()  # whoever waits for a group looks up
            self._unplaced.await_end()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close(flush=kind is None)


def _check_limits(batch_bytes: int, least_positive: int, least: float) -> None:
    """Raises ValueError."""
    if not 0 < batch_bytes <= REQUEST_SIZE_MAX:
        raise ValueError(f"batch_bytes_max is {batch_bytes}; 1 to {REQUEST_SIZE_MAX} are allowed")
    if least_positive < 1 or least < 0:
        raise ValueError("in_flight_max and buffer_bytes_max are at least 1, retries and linger_ms at least 0")


def _broker_client(client_id: str, *, idempotent: bool) -> str:
    """The id by which all brokers know who waits for replies. Raises NotIdempotent."""
    if idempotent:
        raise NotIdempotent("messages to brokers of RocketMQ")
    return client_id


def _meet(known: "weakref.ref[Producer]", brokers: list[str]) -> None:
    """On an I/O thread, which does not keep the producer."""
    producer = known()
    if producer is not None:
        producer.meet(brokers)


def _find_in(session: GroupSession, message: Message, timeout_ms: int) -> Place:
    return session, session.route(message.topic, timeout_ms)


def _known_in(session: GroupSession, message: Message) -> Place | None:
    route = session.routes.get(message.topic)
    return None if route is None else (session, route)


def _call_back(callback: Callback, future: SendFuture) -> None:
    error = future.exception()
    callback(None if error is not None else future.result(), error)


def _results(futures: Sequence[SendFuture]) -> list[SendResult]:
    for error in [future.exception() for future in futures]:
        if error is not None:
            raise error
    return [future.result() for future in futures]


def _chunks(bodies: Bodies, bytes_max: int, overhead: int) -> Iterator[Bodies]:
    """Runs of bodies whose records, each larger by `overhead`, make a batch of at most `bytes_max` bytes; at least one
    body each."""
    ends = np.cumsum(bodies.sizes + overhead)
    start = 0
    while start < len(bodies):
        before = int(ends[start - 1]) if start else 0
        fitting = int(np.searchsorted(ends, before + bytes_max, side="right"))
        end = min(max(fitting, start + 1), start + BODIES_MAX)
        yield bodies.cut(start, end)
        start = end


def _own_address(text: str) -> bytes:
    """The IPv4 address by which this machine reaches the node; loopback when it has none."""
    endpoint = parse(text) if text else None
    if endpoint is not None and endpoint.host:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
            try:
                probe.connect((endpoint.host, endpoint.port or 1))
                return socket.inet_aton(probe.getsockname()[0])
            except OSError:
                return socket.inet_aton(LOOPBACK)
    return socket.inet_aton(LOOPBACK)
