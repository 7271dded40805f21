"""The put process: takes batches from producers, stamps and appends them, answers when the promise is kept."""

import gc
import time
from typing import Any, ClassVar, Final

from towline.errors import MalformedFrame, TowlineError
from towline.format.frames import ANSWER, Kind, encode_put_answer, json_part, read_json
from towline.format.refusals import Cause
from towline.limits import MIB, REQUEST_SIZE_MAX, SLEEP_MAX_MS
from towline.link.context import close_context, new_context
from towline.link.poller import Poller
from towline.link.server import Greet, Sent, Server
from towline.log.config_file import ConfigFile
from towline.node.context import Node
from towline.node.endpoints import endpoints_of
from towline.node.greeting import own_facts, welcome
from towline.node.secret import guarded, make_secret
from towline.node.transient import pool_of
from towline.runtime.doorbell import Doorbell
from towline.runtime.failpoints import ARMED, reach
from towline.runtime.positions import Counter, Duty, Position
from towline.runtime.settings import Settings
from towline.runtime.settings_model import BrokerRole, FlushDiskType

from .acks import Progress, Promise, Stored, Waiting
from .admission import Gate, Limits, Refusal, expired, waited_too_long
from .append import Appender
from .front import Front
from .intake import Arrived, Intake, Question
from .statistics import PutStatistics
from .topic_questions import TopicQuestions
from .topics import Topics

# Then answers go out and doorbells ring, so that clients, flush and the sender work while put goes on. With 16 MiB a
# client's whole window was appended before it heard of any of it, and both sides took turns in waiting.
REQUESTS_PER_TURN: Final = 64
BYTES_PER_TURN: Final = MIB // 2
NS_PER_MS: Final = 1_000_000
GRACE_MS: Final = 100  # a link outlives its last answer so long: a client loses what it has not read when it ends
DRAIN_MS: Final = 3000
FRAME_SIZE_MAX: Final = 2 * REQUEST_SIZE_MAX  # what is too large by less gets a refusal with a sentence, not a cut link


class PutAgent:
    duty: ClassVar[Duty] = Duty.PUT

    def __init__(self, node: Node) -> None:
        self._node = node
        self._settings = node.settings
        settings = node.settings
        self._promise = Promise(
            flushed=settings.flush_disk_type is FlushDiskType.SYNC_FLUSH,
            replicated=settings.broker_role is BrokerRole.SYNC_MASTER,
            flush_timeout_ms=settings.sync_flush_timeout,
            slave_timeout_ms=settings.slave_timeout,
        )
        self._waiting = Waiting(self._promise)
        self._line = node.line
        self._waited_max_ms = settings.wait_time_mills_in_send_queue
        self._front = Front(
            node.line, busy_ms=settings.os_page_cache_busy_time_out_mills, waited_ms=self._waited_max_ms
        )
        self._slave_seen_ms = node.clock.monotonic_ms()
        self._answered_ms = 0
        self._told = Cause.REQUEST
        self._drain_until: int | None = None
        self._formed = False  # something was stored that schedule has to see
        self._prepared: tuple[int, int] | None = None  # APPENDED and ALLOCATED for which nothing is left to populate

    def on_start(self, bell: Doorbell) -> None:
        self._bell = bell
        node, settings = self._node, self._settings
        self._topics = Topics(
            ConfigFile(node.store.config / "topics.json"),
            node.clock,
            auto_create=settings.auto_create_topic_enable,
            queue_nums_default=settings.default_topic_queue_nums,
            queues_max=settings.queues_max,
            long_names=settings.auto_message_version_on_topic_len,
        )
        self._topics.load()
        self._ringer = node.ringer(*woken_by_put(settings, pooled=pool_of(node) is not None))
        self._sender_ringer = node.ringer(*(() if pool_of(node) is not None else (Duty.SEND,)))
        self._statistics = PutStatistics(node)
        self._schedule_ringer = node.ringer(Duty.SCHEDULE)
        self._appender = Appender(node, self._topics)
        self._appender.resume(self._topics.floors())
        self._topics.adopt(self._appender.queues())
        log_min = node.positions.get(Position.LOG_MIN)
        self._topics.forget(log_min, {topic for topic, _ in self._appender.queues()})
        self._topic_questions = TopicQuestions(
            self._topics, self._appender, lambda: node.positions.get(Position.APPENDED), self._ring
        )
        limits = Limits(
            waiting_max=settings.put_waiting_max,
            flush_backlog_max=settings.flush_backlog_max,
            replicated=self._promise.replicated,
            in_sync_min=settings.min_in_sync_replicas,
            gap_max=settings.ha_max_gap_not_in_sync,
            permission=settings.broker_permission,
        )
        self._gate = Gate(node.positions, limits)
        self._context = new_context()
        self._server = Server(
            self._context,
            endpoints_of(settings, node.runtime, "master")["put"],
            own=own_facts(node, "put"),
            greet=self._greet(
                request_limit=settings.request_limit,
                max_message_size=settings.max_message_size,
                store_host_ipv6=int(":" in settings.broker_ip1),
                append_property_crc=int(settings.enabled_append_prop_crc),
                delay_levels=len(settings.delay_levels_ms),
                timer_max_delay_sec=settings.timer_max_delay_sec,
                serve_port=settings.serve_port,
                schedule_port=settings.schedule_port,
                answer_ms=max(settings.sync_flush_timeout, settings.slave_timeout),
            ),
            frame_size_max=FRAME_SIZE_MAX,
        )
        self._poller = Poller(self._server, bell.fileno())
        self._intake = Intake(node, self._server, self._ask)
        self._front.begin(self._server, self._intake)
        # Nothing here makes cycles, and a collection in the middle of a turn is a pause for every producer (H10).
        gc.disable()

    def do_work(self) -> int:
        taken = 0 if self._poller.was_silent() else self._intake.take()
        done = taken + self._append_slice()
        done += self._answer_stored() + self._intake.answer()
        return done or self._prepare()

    def sleep_ms(self) -> int:
        return min(SLEEP_MAX_MS, self._waiting.due_ms(self._node.clock.monotonic_ms()))

    def wait(self, timeout_ms: int) -> bool:
        return self._poller.poll(timeout_ms) and self._poller.ready(self._bell.fileno())

    def drain(self) -> bool:
        """Until every stored request is answered and its client had time to read that; new ones are refused."""
        now = self._node.clock.monotonic_ms()
        if self._drain_until is None:
            self._drain_until = now + DRAIN_MS
        answered = not len(self._waiting) and not len(self._intake) and now - self._answered_ms >= GRACE_MS
        return answered or now >= self._drain_until

    def on_close(self) -> None:
        if hasattr(self, "_server"):
            self._front.close()
            self._server.close()
            close_context(self._context)

    # --- requests

    def _append_slice(self) -> int:
        """Appends or refuses the oldest requests that wait, as many as may go before answers leave; how many."""
        if not len(self._intake):
            return 0
        closed = self._gate.look(len(self._waiting), stopping=self._drain_until is not None)
        done = taken = 0
        while len(self._intake) and done < REQUESTS_PER_TURN and taken < BYTES_PER_TURN:
            done += 1
            taken += self._put(self._intake.next(), closed)
        if taken:
            self._ring()
        return done

    def _ring(self) -> None:
        self._ringer.ring()
        if any(slave.connected for slave in self._node.positions.slaves()):
            self._sender_ringer.ring()
        if self._formed:
            self._formed = False
            self._schedule_ringer.ring()

    def _put(self, arrived: Arrived, closed: Refusal | None) -> int:
        """Bytes appended for this request."""
        now = self._node.clock.now_ms()
        began_ns = time.monotonic_ns()
        waited_ms = began_ns // NS_PER_MS - arrived.arrived_ms
        if arrived.deadline < now:
            closed = expired(now - arrived.deadline)
        elif waited_ms > self._waited_max_ms:
            closed = waited_too_long(waited_ms, self._waited_max_ms)
        if closed is not None:
            self._intake.refuse(arrived, closed)
            return 0
        if ARMED:
            reach("put.before_append")
        self._front.enter(began_ns)
        try:
            result = self._appender.append(arrived.groups, arrived.records, now, trusted=arrived.trusted)
        finally:
            self._front.leave()
        ended_ns = time.monotonic_ns()
        self._line.count(Counter.BUSY_NS, ended_ns - began_ns)
        if isinstance(result, Refusal):
            self._tell(result)
            self._intake.refuse(arrived, result)
            return 0
        self._told = Cause.REQUEST
        self._formed = self._formed or result.formed
        self._line.count(Counter.BATCHES)
        self._line.count(Counter.MESSAGES, sum(group.count for group in arrived.groups))
        self._line.count(Counter.BYTES, len(arrived.records))
        stored_ms = ended_ns // NS_PER_MS
        self._statistics.stored(arrived.groups)
        self._waiting.add(
            Stored(result.end, stored_ms, arrived.peer, arrived.request_id, result.places, arrived.arrived_ms)
        )
        return len(arrived.records)

    def _prepare(self) -> int:
        """Populates ahead while there is nothing else to do: into the mapping, so the front stands by."""
        positions = self._node.positions
        ends = positions.get(Position.APPENDED), positions.get(Position.ALLOCATED)
        if ends == self._prepared:
            return 0
        self._front.enter(time.monotonic_ns())
        try:
            done = self._appender.prepare()
        finally:
            self._front.leave()
        self._prepared = None if done else ends
        return int(done)

    def _tell(self, refusal: Refusal) -> None:
        """The log hears once of what an operator has to look at, until a put is stored again."""
        if refusal.cause not in (Cause.REQUEST, self._told):
            self._told = refusal.cause
            self._node.log.error("puts are refused: %s", refusal.sentence)

    # --- answers

    def _answer_stored(self) -> int:
        if not len(self._waiting):
            return 0
        now = self._node.clock.monotonic_ms()
        done = 0
        for stored, status in self._waiting.release(self._progress(now), now):
            answer = encode_put_answer(stored.request_id, status, stored.places)
            if self._server.send(stored.peer, [answer]) is Sent.PAUSED:
                self._server.forget(stored.peer)  # it does not read its answers: it has to greet again (H20)
            self._statistics.answered(stored.arrived_ms, now)
            done += 1
        if done:
            self._answered_ms = now
        return done

    def _progress(self, now_ms: int) -> Progress:
        positions = self._node.positions
        flushed = positions.get(Position.FLUSHED)
        if positions.get(Position.SYNC_FAILED):
            flushed = -1  # after a failed sync nothing is promised any more (H5)
        if not self._promise.replicated:
            return Progress(flushed, 0, 0)
        if any(slave.connected for slave in positions.slaves()):
            self._slave_seen_ms = now_ms
        return Progress(flushed, positions.get(Position.REPLICATED), now_ms - self._slave_seen_ms)

    # --- greetings

    def _greet(self, **limits: int) -> Greet:
        """Anybody may come as a client; as a piece of this node only who shows the secret."""
        secret = make_secret(self._node.runtime.secret)
        return guarded(welcome(self._node, **limits), lambda: secret)

    # --- questions about topics

    def _ask(self, question: Question) -> None:
        try:
            facts, status = self._answer(read_json(question.text)), 0
        except TowlineError as error:
            facts, status = {"error": type(error).__name__, "sentence": str(error)}, 1
        head = ANSWER.pack(Kind.ANSWER, status, question.request_id, 0)
        self._server.send(question.peer, [head, json_part(facts)])

    def _answer(self, question: dict[str, Any]) -> dict[str, Any]:
        facts = self._topic_questions.answer(question)
        if facts is None:
            raise MalformedFrame(f"the put process does not answer {question.get('op')!r}")
        return facts


def woken_by_put(settings: Settings, *, pooled: bool) -> tuple[Duty, ...]:
    """Who finds something to do when bytes were appended. Under ASYNC_FLUSH flush looks by the clock, unless told.

    With a transient pool nobody can read before flush has committed, and flush then wakes the others.
    """
    if pooled:
        return (Duty.FLUSH,) if settings.wake_commit_when_put_message else ()
    synced = settings.flush_disk_type is FlushDiskType.SYNC_FLUSH
    return (Duty.REPUT, Duty.FLUSH) if synced or settings.wake_flush_when_put_message else (Duty.REPUT,)


def build(node: Node) -> PutAgent:
    return PutAgent(node)
