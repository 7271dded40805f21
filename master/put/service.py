"""The put process: receives batches of producers, appends them, and acknowledges them when disk and slaves allow."""

import gc
import os
import time
from typing import Any, ClassVar, Final

from towline.errors import MalformedFrame, TowlineError
from towline.format.wire.frames import ANSWER, Kind, json_part, read_json
from towline.format.wire.refusals import error_facts
from towline.format.wire.status import PutStatus
from towline.limits import LOOK_MS, MIB, REQUEST_SIZE_MAX
from towline.link.context import close_context, new_context
from towline.link.poller import Poller
from towline.link.put_ring import NodeRing
from towline.link.server import Greet, Sent, Server
from towline.log.state.queue_minima import offsets_of, read_minima
from towline.log.state.topics_file import TopicsConfig
from towline.node.peers.handshake import own_facts, welcome
from towline.node.process.context import Node
from towline.node.process.endpoints import local_endpoint
from towline.node.process.secret import guarded, make_secret
from towline.node.store.put_checks import Refusal, lease_over_ms, limits_of
from towline.node.store.transient_pool import pool_of
from towline.runtime.doorbell import Doorbell
from towline.runtime.failpoints import ARMED, reach
from towline.runtime.idle_sleep import IdleSleep
from towline.runtime.positions import Counter, Duty, Position
from towline.runtime.settings import Settings
from towline.runtime.settings_model import BrokerRole, FlushDiskType
from towline.runtime.spin_wait import SpinWait
from towline.runtime.stage_times import APPENDS_TIMED, Stage, StageTimes

from .acks import Answers, PendingAcks, PendingBatch, Progress, ack_policy
from .admission import Gate
from .append import NOTHING, Appended, Appender
from .request_queue import DetachedAnswers, Question, RequestQueue
from .rings import SPINS, KeptAnswers, RingTerms
from .sequences import Repeat
from .stall_responder import StallResponder
from .statistics import PutStatistics
from .topic_changes import TopicChanges, TopicQuestions
from .topics import Topics

# Then answers go out and doorbells ring, so that clients, flush and the sender work while put goes on. With 16 MiB a
# client's whole window was appended before it heard of any of it, and both sides took turns in waiting.
REQUESTS_PER_TURN: Final = 64
BYTES_PER_TURN: Final = MIB // 2
NS_PER_MS: Final = 1_000_000
# A process that is woken for each message takes a core from those who put them; a consumer that waits does not notice.
WAKE_EVERY_NS: Final = NS_PER_MS
WAKE_UNHEARD_NS: Final = 5 * NS_PER_MS  # where no pull is held, nobody waits for queue entries
SLAVE_CHECK_EVERY_NS: Final = 5 * NS_PER_MS  # between two looks whether a slave is connected
SOCKET_SPINS: Final = 60  # at an empty socket, each some 0.7 us
GRACE_MS: Final = 100  # a link outlives its last answer so long: a client loses what it has not read when it ends
DRAIN_MS: Final = 3000
FRAME_SIZE_MAX: Final = 2 * REQUEST_SIZE_MAX  # what is too large by less gets a refusal with a sentence, not a cut link


class PutAgent:
    """The duty cycle of put."""

    duty: ClassVar[Duty] = Duty.PUT

    def __init__(self, node: Node) -> None:
        self._node = node
        settings = node.settings
        self._policy = ack_policy(settings)
        self._pending = PendingAcks(self._policy)
        self._counters = node.line
        self._times, self._untimed = StageTimes(node.positions, Stage.APPEND), 0
        self._stall_responder = StallResponder(
            node.line,
            busy_ms=settings.os_page_cache_busy_time_out_mills,
            waited_ms=settings.wait_time_mills_in_send_queue,
        )
        self._slave_seen_ms = node.clock.monotonic_ms()
        self._answered_ms = 0
        self._drain_until: int | None = None
        self._at_once = acknowledges_at_once(settings)
        self._schedule_due = False  # something was stored that schedule has to see
        self._stored = False  # something was, of which nobody was told
        self._wake_owed = False  # reput was not woken for what was stored
        self._woke_ns = self._slaves_checked_ns = 0
        self._slave_connected = False
        self._socket_wait = SpinWait(SOCKET_SPINS)
        self._spins = 0  # at the socket, in the turn that comes
        self._prepared: tuple[int, int] | None = None  # APPENDED and ALLOCATED for which nothing is left to populate

    def on_start(self, bell: Doorbell) -> None:
        self._bell = bell
        node, settings = self._node, self._node.settings
        self._topics = Topics(
            TopicsConfig(node.store.config / "topics.json"),
            node.clock,
            auto_create=settings.auto_create_topic_enable,
            queue_nums_default=settings.default_topic_queue_nums,
            queues_max=settings.queues_max,
            long_names=settings.auto_message_version_on_topic_len,
            dots=settings.dots_in_topic_names,
        )
        for sentence in self._topics.load():
            node.log.warning("%s", sentence)
        woken = woken_by_put(settings, pooled=pool_of(node) is not None)
        sender = () if pool_of(node) is not None else (Duty.SEND,)
        self._doorbells = node.ringer(*woken)
        self._serve_line = node.positions.duty(Duty.SERVE)
        self._sender_doorbell = node.ringer(*sender)
        self._statistics = PutStatistics(node)
        self._schedule_doorbell = node.ringer(Duty.SCHEDULE)
        self._gate = Gate(node.positions, limits_of(settings))
        # Slaves are the longest way to PUT_OK: it begins before this turn goes on.
        early_doorbells = node.ringer(*((*woken, *sender) if self._policy.replicated else ()))
        self._appender = Appender(node, self._topics, self._gate, self._check_gate, early_doorbells)
        self._appender.resume(self._topics.floors(), offsets_of(read_minima(node.store)))
        adopted = self._topics.adopt(self._appender.ends(), followed=bool(settings.ha_peers))
        if adopted:
            node.log.warning("topics that only the queues show are taken over: %s", ", ".join(adopted))
        log_min = node.positions.get(Position.LOG_MIN)
        self._topics.purge_deleted(log_min, {topic for topic, _ in self._appender.queues()})
        self._topic_questions = TopicQuestions(
            self._topics, self._appender, lambda: node.positions.get(Position.APPENDED), self._wake_others
        )
        self._changes = TopicChanges(
            self._topics,
            self._topic_questions,
            self._answer_question,
            appending=lambda: self._counters.turn_began_ns > 0,
            ended=node.ringer(Duty.PUT).ring,
        )
        self._context = new_context()
        terms = RingTerms.of(node)
        self._server = self._listen(terms)
        self._poller = Poller(self._server, bell.fileno())
        self._requests = RequestQueue(node, self._server, self._handle_question, terms, self._changes.cycle)
        self._rings = self._requests.rings
        self._ring_wait = SpinWait(SPINS)
        self._last_ring: NodeRing | None = None  # the ring that was served last
        self._stall_responder.begin(self._server, self._requests)
        # Nothing here makes cycles, and a collection in the middle of a turn is a pause for every producer (H10).
        gc.disable()

    def adjust(self) -> None:
        settings = self._node.settings
        self._gate.limits = limits_of(settings)
        self._topics.auto_create, self._topics.dots = settings.auto_create_topic_enable, settings.dots_in_topic_names
        self._stall_responder.adjust(
            busy_ms=settings.os_page_cache_busy_time_out_mills,
            waited_ms=settings.wait_time_mills_in_send_queue,
        )

    def _listen(self, terms: RingTerms) -> Server:
        """Binds the socket; its welcome states the limits of a producer and offers rings."""
        node, settings = self._node, self._node.settings
        return Server(
            self._context,
            [local_endpoint(node.runtime, "put")],
            own=own_facts(node, "put"),
            greet=self._greet(
                request_limit=settings.request_limit,
                max_message_size=settings.max_message_size,
                store_host_ipv6=int(":" in settings.broker_ip1),
                store_host=self._appender.store_host,
                append_property_crc=int(settings.enabled_append_prop_crc),
                delay_levels=len(settings.delay_levels_ms),
                timer_max_delay_sec=settings.timer_max_delay_sec,
                answer_ms=max(settings.sync_flush_timeout, settings.slave_timeout),
                idempotent=1,  # it judges the batches of such producers
                **terms.offer(),
            ),
            counted=lambda: self._requests.peer_cut(),
            frame_size_max=FRAME_SIZE_MAX,
        )

    def do_work(self) -> int:
        waits = self._policy.flushed or self._policy.replicated
        done = self._answer_stored() if waits else 0  # first: nothing of this turn can be promised yet
        done += 0 if self._poller.was_silent(self._server) else self._receive()
        done += self._append_rings() + self._append_socket()
        done += 0 if waits else self._answer_stored()
        if self._stored or self._wake_owed:  # answers that are due go first
            self._wake_others()
        done += self._requests.answer()
        if not done:
            return self._prepare()
        self._rings.wake()
        self._spins = self._socket_wait.spins() if self._at_once and not len(self._rings) else 0
        # Where everything was done that is there, another turn would only find that out.
        return done if self._spins or not self._has_finished() else self._prepare()

    def _receive(self) -> int:
        spins, self._spins = self._spins, 0
        taken = self._requests.receive(spins)
        if spins:
            self._socket_wait.found(taken > 0)
        return taken

    def _has_finished(self) -> bool:
        """Whether no work can be left from before this cycle's end, so that the next one may begin with a sleep.

        Rings are checked once more before that. A process that moved FLUSHED or REPLICATED meanwhile has rung the
        doorbell.
        """
        if not self._requests.is_empty or self._drain_until is not None:
            return False
        return not self._at_once or not len(self._rings) or (len(self._rings) == 1 and not self._ring_wait.is_worth)

    def sleep_ms(self) -> int:
        if self._wake_owed:
            return 1
        return min(LOOK_MS, self._pending.due_ms(self._node.clock.monotonic_ms()))

    def wait(self, timeout_ms: int, rest: IdleSleep | None) -> bool:
        self._rings.reap()
        if not self._rings.arm():
            return False
        woken = self._poller.poll(timeout_ms, rest) and self._poller.ready(self._bell.fileno())
        self._rings.disarm()
        return woken

    def drain(self) -> bool:
        """Drains until every stored request is acknowledged and its client had time to read that; new requests are
        refused.

        A write of topics.json takes as long as it takes.
        """
        now = self._node.clock.monotonic_ms()
        if self._drain_until is None:
            self._drain_until = now + DRAIN_MS
        late = now >= self._drain_until
        if late:
            self._changes.stop()
        left = len(self._pending) or len(self._requests) or len(self._changes)
        return (late or not left) and not self._changes.is_writing and now - self._answered_ms >= GRACE_MS

    def on_close(self) -> None:
        if hasattr(self, "_server"):
            self._stall_responder.close()
            self._changes.close()
            self._requests.close()
            self._server.close()
            close_context(self._context)

    # --- requests

    def _check_gate(self) -> Refusal | None:
        return self._gate.check(len(self._pending), stopping=self._drain_until is not None)

    def _append_socket(self) -> int:
        """Appends or refuses the socket's oldest requests, as many as one slice holds before answers go out; returns
        how many."""
        done = size = 0
        while len(self._requests) and done < REQUESTS_PER_TURN and size < BYTES_PER_TURN:
            appended = self._append_rows(REQUESTS_PER_TURN - done)
            if not appended.handled:
                break
            done += appended.handled
            size += appended.size
        return done

    def _append_rows(self, count: int) -> Appended:
        """Appends the socket's oldest requests up to the first that is refused."""
        table = self._requests.socket_table
        first, lent = table.lend(count)
        if not lent:
            return NOTHING
        began_ns = self._enter()
        try:
            appended = self._appender.append_rows(table, first, lent, self._statistics)
        finally:
            self._stall_responder.exit()
        table.take_back(appended.requests, appended.memory)
        if appended.requests:
            self._count_stored(began_ns, appended)
            self._acknowledge_rows(appended.requests)
        if isinstance(appended.unstored, Repeat):
            self._acknowledge_repeat(appended.unstored, self._requests.repeat_next(appended.unstored))
        elif appended.unstored is not None:
            self._requests.refuse_next(appended.unstored)
        return appended

    def _acknowledge_rows(self, count: int) -> None:
        """Acknowledges the socket's first requests, which are in the log: now, or when disk and slaves have them."""
        table, now_ms = self._requests.socket_table, self._node.clock.monotonic_ms()
        if ARMED:
            reach("put.before_answer")
        if self._at_once:
            came = table.received_ms(count)
            table.answer(count)
            self._statistics.all_answered(came, now_ms)
            self._answered_ms = now_ms
            return
        rows = table.detach(count)
        self._pending.add(PendingBatch(rows.ends, now_ms, DetachedAnswers(self._requests, rows), rows.received_ms))

    def _acknowledge_repeat(self, repeat: Repeat, answers: Answers | None) -> None:
        """Acknowledges a batch that was in the log already: by its first place, and not before disk and slaves have
        that."""
        now_ms = self._node.clock.monotonic_ms()
        if answers is None:
            return  # there is nobody any more
        if self._at_once:
            answers.send(0, 1, PutStatus.PUT_OK)
            self._answered_ms = now_ms
        else:
            self._pending.add(PendingBatch([max(repeat.end, self._pending.end)], now_ms, answers, [now_ms]))

    def _append_rings(self) -> int:
        """Appends or refuses the requests of all rings, and answers them where that is due at once; returns how
        many."""
        if not len(self._rings):
            return 0
        waiting = [ring for ring in self._rings if ring.requests.waits]
        spins = self._ring_wait.spins() if self._at_once and len(waiting) <= 1 and self._drain_until is None else 0
        there = len(waiting)
        if not waiting and spins and self._last_ring is not None and not self._last_ring.is_closed:
            waiting = [self._last_ring]
        done = sum(self._append_ring(ring, spins) for ring in waiting)
        if spins and waiting:
            self._ring_wait.found(done > there)
        return done

    def _append_ring(self, ring: NodeRing, spins: int) -> int:
        done = 0
        while done < REQUESTS_PER_TURN and not ring.is_closed:
            appended = self._append_entries(ring, spins)
            done += appended.handled
            if isinstance(appended.unstored, Repeat):
                answers = self._rings.repeat(ring, appended.requests, appended.unstored)
                self._acknowledge_repeat(appended.unstored, answers)
            elif appended.unstored is not None:
                self._requests.refuse_in_ring(ring, appended.requests, appended.unstored)
            else:
                break
            spins = 0
        self._last_ring = ring
        return done

    def _append_entries(self, ring: NodeRing, spins: int) -> Appended:
        """Appends a ring's requests up to the first that is refused."""
        table = self._rings.table
        table.begin(ring, spins, keeps=not self._at_once)
        self._rings.lent = ring
        began_ns = self._enter()
        try:
            appended = self._appender.append_ring(table, self._statistics)
        finally:
            self._stall_responder.exit()
            self._rings.lent = None
        table.end(ring, appended.requests)
        if appended.requests:
            self._count_stored(began_ns, appended)
            self._acknowledge_ring(ring, appended.requests)
        self._rings.judge(ring)
        return appended

    def _acknowledge_ring(self, ring: NodeRing, count: int) -> None:
        """Acknowledges the requests of a ring that were stored last."""
        table, now_ms = self._rings.table, self._node.clock.monotonic_ms()
        written = list(table.written(ring, count, now_ms))
        if self._at_once:
            for latency_from_ms, requests in written:
                self._statistics.answered(latency_from_ms, now_ms, requests)
            self._answered_ms = now_ms
            self._rings.wake()
            return
        kept = table.kept(count)
        came = [latency_from_ms for latency_from_ms, requests in written for _ in range(requests)]
        ends: list[int] = kept.rows["log_end"].tolist()
        self._pending.add(PendingBatch(ends, now_ms, KeptAnswers(self._rings, ring, kept), came))

    def _enter(self) -> int:
        """Begins an append, which uses the mapping: the stall responder watches it. Returns the monotonic time, ns."""
        if ARMED:
            reach("put.before_append")
        began_ns = time.monotonic_ns()
        self._stall_responder.enter(began_ns)
        return began_ns

    def _count_stored(self, began_ns: int, appended: Appended) -> None:
        """Counts what an append has stored."""
        self._schedule_due = self._schedule_due or appended.scheduled
        # Where slaves have to acknowledge, the appender has rung already, but not for schedule.
        self._stored = self._stored or appended.scheduled or not self._policy.replicated
        took_ns = time.monotonic_ns() - began_ns
        self._untimed += 1
        if self._untimed == APPENDS_TIMED:
            self._untimed = 0
            self._times.add(took_ns, APPENDS_TIMED)
        self._counters.count(Counter.BUSY_NS, took_ns)
        self._counters.count(Counter.BATCHES, appended.requests)
        self._counters.count(Counter.MESSAGES, appended.records)
        self._counters.count(Counter.BYTES, appended.size)

    def _wake_others(self) -> None:
        """Rings the doorbells of processes that wait for stored messages; reput's at most once per WAKE_EVERY_NS, or
        WAKE_UNHEARD_NS."""
        now_ns = time.monotonic_ns()
        every_ns = WAKE_EVERY_NS if self._serve_line.sleeping else WAKE_UNHEARD_NS
        self._wake_owed = self._at_once and now_ns - self._woke_ns < every_ns
        if not self._wake_owed:
            self._woke_ns = now_ns
            self._doorbells.ring()
        if not self._stored:
            return
        self._stored = False
        if now_ns - self._slaves_checked_ns >= SLAVE_CHECK_EVERY_NS:
            self._slaves_checked_ns = now_ns
            self._slave_connected = any(slave.connected for slave in self._node.positions.slaves())
        if self._policy.replicated or self._slave_connected:
            self._sender_doorbell.ring()
        if self._schedule_due:
            self._schedule_due = False
            self._schedule_doorbell.ring()

    def _prepare(self) -> int:
        """Populates pages ahead while put is idle; this touches the mapping, so the stall responder takes over the
        socket.

        Requests that it received meanwhile are not in the socket any more, and would not wake the main thread.
        """
        positions = self._node.positions
        ends = positions.get(Position.APPENDED), positions.get(Position.ALLOCATED)
        if ends == self._prepared:
            return 0
        self._stall_responder.enter(time.monotonic_ns())
        try:
            done = self._appender.prepare()
        finally:
            self._stall_responder.exit()
        self._prepared = None if done else ends
        return int(done) + len(self._requests)

    # --- answers

    def _answer_stored(self) -> int:
        if not len(self._pending):
            return 0
        now = self._node.clock.monotonic_ms()
        done = 0
        for stored, first, count, status in self._pending.release(self._progress(now), now):
            stored.answers.send(first, count, status)
            if not len(self._pending):
                os.sched_yield()  # ZeroMQ's thread sends it
            self._statistics.all_answered(stored.received_ms[first : first + count], now)
            done += count
        if done:
            self._rings.wake()
            self._answered_ms = now
        return done

    def _progress(self, now_ms: int) -> Progress:
        positions = self._node.positions
        flushed = positions.get(Position.FLUSHED)
        if positions.get(Position.SYNC_FAILED):
            flushed = -1  # after a failed sync nothing is promised any more (H5)
        replicated = self._replicated()
        # Behind the others: whatever was replicated by now was so before a promise was given, or the lease ran out.
        fenced = positions.get(Position.PROMISED) > positions.get(Position.EPOCH)
        leads = not self._node.settings.etcd_endpoints or not lease_over_ms(positions.get(Position.LEASE_UNTIL))
        fenced = fenced or (not leads and self._drain_until is not None)  # its successor waits for us to end
        if not self._policy.replicated:
            return Progress(flushed, 0, 0, leads, fenced)
        there = replicated >= self._pending.end or self._is_alone_in_sync()
        if there or self._is_followed():
            self._slave_seen_ms = now_ms
        return Progress(flushed, replicated, now_ms - self._slave_seen_ms, leads, fenced)

    def _replicated(self) -> int:
        """The end of the log that everybody has who holds a put before PUT_OK: the in-sync set, brokers of RocketMQ."""
        positions, settings = self._node.positions, self._node.settings
        waits_for_set = settings.broker_role is BrokerRole.SYNC_MASTER
        replicated = positions.get(Position.REPLICATED if waits_for_set else Position.APPENDED)
        brokers = settings.rocketmq_ha_acks
        return min(replicated, positions.rocketmq_reported(brokers)) if brokers else replicated

    def _is_followed(self) -> bool:
        """Whether anybody is connected whom a put may wait for."""
        positions = self._node.positions
        if self._node.settings.rocketmq_ha_acks:
            return any(broker.connected for broker in positions.rocketmq_slaves())
        return any(slave.connected for slave in positions.slaves())

    def _is_alone_in_sync(self) -> bool:
        """Whether the in-sync set may be, and is, this node alone: then missing slaves are no reason to time out."""
        settings = self._node.settings
        if settings.rocketmq_ha_acks:
            return False
        may_be = settings.enable_auto_in_sync_replicas and settings.min_in_sync_replicas <= 1
        return may_be and self._node.positions.get(Position.IN_SYNC).bit_count() == 1

    # --- greetings

    def _greet(self, **limits: object) -> Greet:
        """Accepts any client; a process of this node has to show the node's secret."""
        secret = make_secret(self._node.runtime.secret)
        return guarded(welcome(self._node, **limits), lambda: secret)

    # --- questions about topics

    def _handle_question(self, question: Question) -> None:
        try:
            asked = read_json(question.text)
            facts = self._facts_for(asked)
        except TowlineError as error:
            self._answer_question(question, error)
            return
        if facts is not None:
            self._answer_question(question, facts)
        else:
            self._changes.add(question, asked)

    def _answer_question(self, question: Question, found: dict[str, Any] | TowlineError) -> None:
        refused = isinstance(found, TowlineError)
        facts = error_facts(found) if isinstance(found, TowlineError) else found
        head = ANSWER.pack(Kind.ANSWER, int(refused), question.request_id, 0)
        if self._server.send(question.peer, [head, json_part(facts)]) is Sent.PAUSED:
            self._server.cut_unread(question.peer)
        self._answered_ms = self._node.clock.monotonic_ms()

    def _facts_for(self, question: dict[str, Any]) -> dict[str, Any] | None:
        """The answer to a question, or None when topics have to be changed first."""
        if question.get("op") == "open_ring":
            return self._rings.open(question)
        if question.get("op") == "begin_producer":
            return self._appender.producers.begin(question)
        facts = self._topic_questions.answer(question)
        if facts is None and not self._topic_questions.changes(question):
            raise MalformedFrame(f"the put process does not answer {question.get('op')!r}")
        return facts


def woken_by_put(settings: Settings, *, pooled: bool) -> tuple[Duty, ...]:
    """The processes that put wakes after an append. Under ASYNC_FLUSH flush goes by the clock, unless a setting says
    otherwise.

    With a transient pool nothing can be read before flush has committed it, and flush then wakes the others. Reput
    continues when the end is confirmed: where that takes a sync or a slave, flush or the sender wakes it.
    """
    if pooled:
        return (Duty.FLUSH,) if settings.wake_commit_when_put_message else ()
    synced = settings.flush_disk_type is FlushDiskType.SYNC_FLUSH
    flush = (Duty.FLUSH,) if synced or settings.wake_flush_when_put_message else ()
    confirmed = not synced and settings.broker_role is not BrokerRole.SYNC_MASTER
    return (Duty.REPUT, *flush) if confirmed else flush


def acknowledges_at_once(settings: Settings) -> bool:
    """Whether PUT_OK is due as soon as a request is appended, with no sync, slave or lease to wait for."""
    synced = settings.flush_disk_type is FlushDiskType.SYNC_FLUSH
    replicated = settings.waits_for_slaves or settings.min_in_sync_replicas > 1
    return not (synced or replicated or settings.etcd_endpoints)


def build(node: Node) -> PutAgent:
    return PutAgent(node)
