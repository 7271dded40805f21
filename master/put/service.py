"""The put process: takes batches from producers, stamps and appends them, answers when the promise is kept."""

import gc
import os
import time
from typing import Any, ClassVar, Final

from towline.errors import MalformedFrame, TowlineError
from towline.format.wire.frames import ANSWER, Kind, encode_put_answer, json_part, read_json
from towline.format.wire.refusals import Cause
from towline.format.wire.status import PutStatus
from towline.kernels.put.put_ring import KEPT_SIZE, STORED_END
from towline.limits import MIB, REQUEST_SIZE_MAX, REST_MAX_MS
from towline.link.context import close_context, new_context
from towline.link.keys import PUT_ROLES, check_ask
from towline.link.poller import Poller
from towline.link.put_ring import NodeRing
from towline.link.server import Greet, Sent, Server
from towline.log.state.topics_file import TopicsConfig
from towline.node.peers.handshake import own_facts, welcome
from towline.node.process.context import Node
from towline.node.process.curve_keys import ring_of
from towline.node.process.endpoints import endpoints_of
from towline.node.process.secret import guarded, make_secret
from towline.node.store.transient import pool_of
from towline.runtime.doorbell import Doorbell
from towline.runtime.failpoints import ARMED, reach
from towline.runtime.positions import Counter, Duty, Position
from towline.runtime.resting import Rest
from towline.runtime.settings import Settings
from towline.runtime.settings_model import BrokerRole, FlushDiskType

from .acks import Progress, Promise, Stored, Waiting
from .admission import Gate, Limits, Refusal, expired, lease_over_ms, waited_too_long
from .append import Appender, Served
from .put_request import Arrived
from .request_queue import Intake, Question, Sending
from .rings import KeptAnswers, Spin, Terms
from .stall_responder import Front
from .statistics import PutStatistics
from .topic_changes import TopicChanges
from .topic_questions import TopicQuestions
from .topics import Topics

# Then answers go out and doorbells ring, so that clients, flush and the sender work while put goes on. With 16 MiB a
# client's whole window was appended before it heard of any of it, and both sides took turns in waiting.
REQUESTS_PER_TURN: Final = 64
BYTES_PER_TURN: Final = MIB // 2
NS_PER_MS: Final = 1_000_000
# A process that is woken for each message takes a core from those who put them; a consumer that waits does not notice.
WAKE_EVERY_NS: Final = NS_PER_MS
FOLLOWED_EVERY_NS: Final = 5 * NS_PER_MS  # between two looks whether a slave is connected
SOCKET_LOOKS: Final = 60  # at an empty socket, each some 0.7 us
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
        self._at_once = acknowledges_at_once(settings)
        self._formed = False  # something was stored that schedule has to see
        self._stored = False  # something was, of which nobody was told
        self._owed = False  # reput was not woken for what was stored
        self._rang_ns = self._looked_ns = 0
        self._followed = False
        self._socket_spin = Spin(SOCKET_LOOKS)
        self._looks = 0  # at the socket, in the turn that comes
        self._prepared: tuple[int, int] | None = None  # APPENDED and ALLOCATED for which nothing is left to populate

    def on_start(self, bell: Doorbell) -> None:
        self._bell = bell
        node, settings = self._node, self._settings
        self._topics = Topics(
            TopicsConfig(node.store.config / "topics.json"),
            node.clock,
            auto_create=settings.auto_create_topic_enable,
            queue_nums_default=settings.default_topic_queue_nums,
            queues_max=settings.queues_max,
            long_names=settings.auto_message_version_on_topic_len,
        )
        for sentence in self._topics.load():
            node.log.warning("%s", sentence)
        woken = woken_by_put(settings, pooled=pool_of(node) is not None)
        sender = () if pool_of(node) is not None else (Duty.SEND,)
        self._ringer = node.ringer(*woken)
        self._sender_ringer = node.ringer(*sender)
        self._statistics = PutStatistics(node)
        self._schedule_ringer = node.ringer(Duty.SCHEDULE)
        limits = Limits(
            waiting_max=settings.put_waiting_max,
            flush_backlog_max=settings.flush_backlog_max,
            replicated=self._promise.replicated,
            in_sync_min=settings.min_in_sync_replicas,
            gap_max=settings.ha_max_gap_not_in_sync,
            permission=settings.broker_permission,
            leased=bool(settings.etcd_endpoints),
        )
        self._gate = Gate(node.positions, limits)
        # Slaves are the longest way to PUT_OK: it begins before this turn goes on.
        waited_for = node.ringer(*((*woken, *sender) if self._promise.replicated else ()))
        self._appender = Appender(node, self._topics, self._gate, waited_for)
        self._appender.resume(self._topics.floors())
        adopted = self._topics.adopt(self._appender.ends(), followed=bool(settings.ha_peers))
        if adopted:
            node.log.warning("topics that only the queues show are taken over: %s", ", ".join(adopted))
        log_min = node.positions.get(Position.LOG_MIN)
        self._topics.forget(log_min, {topic for topic, _ in self._appender.queues()})
        self._topic_questions = TopicQuestions(
            self._topics, self._appender, lambda: node.positions.get(Position.APPENDED), self._ring
        )
        self._changes = TopicChanges(
            self._topics,
            self._topic_questions,
            self._say,
            appending=lambda: self._line.turn_began_ns > 0,
            ended=node.ringer(Duty.PUT).ring,
        )
        self._context = new_context()
        terms = Terms.of(node)
        self._server = self._listen(terms)
        self._poller = Poller(self._server, bell.fileno())
        self._intake = Intake(node, self._server, self._ask, terms, self._changes.turn)
        self._rings = self._intake.rings
        self._rings.express = settings.shared_memory_puts and not ARMED
        self._spin = Spin()
        self._served: NodeRing | None = None  # the ring that was served last
        self._front.begin(self._server, self._intake)
        # Nothing here makes cycles, and a collection in the middle of a turn is a pause for every producer (H10).
        gc.disable()

    def _listen(self, terms: Terms) -> Server:
        """The socket; its welcome says what a producer has to keep to, and that it may make a ring."""
        node, settings = self._node, self._settings
        return Server(
            self._context,
            endpoints_of(settings, node.runtime, "master")["put"],
            own=own_facts(node, "put"),
            keys=ring_of(node),
            roles=PUT_ROLES,
            greet=self._greet(
                request_limit=settings.request_limit,
                max_message_size=settings.max_message_size,
                store_host_ipv6=int(":" in settings.broker_ip1),
                store_host=self._appender.store_host,
                append_property_crc=int(settings.enabled_append_prop_crc),
                delay_levels=len(settings.delay_levels_ms),
                timer_max_delay_sec=settings.timer_max_delay_sec,
                serve_port=settings.serve_port,
                schedule_port=settings.schedule_port,
                answer_ms=max(settings.sync_flush_timeout, settings.slave_timeout),
                **terms.offer(),
            ),
            counted=lambda: self._intake.peer_cut(),
            frame_size_max=FRAME_SIZE_MAX,
        )

    def do_work(self) -> int:
        waits = self._promise.flushed or self._promise.replicated
        done = self._answer_stored() if waits else 0  # first: nothing of this turn can be promised yet
        done += 0 if self._poller.was_silent(self._server) else self._take()
        done += self._serve_rings() + self._append_slice()
        done += 0 if waits else self._answer_stored()
        if self._stored or self._owed:  # answers that are due go first
            self._ring()
        done += self._intake.answer()
        if not done:
            return self._prepare()
        self._rings.wake()
        self._looks = self._socket_spin.looks() if self._at_once and not len(self._rings) else 0
        # Where everything was done that is there, another turn would only find that out.
        return done if self._looks or not self._is_through() else self._prepare()

    def _take(self) -> int:
        looks, self._looks = self._looks, 0
        taken = self._intake.take(looks)
        if looks:
            self._socket_spin.found(taken > 0)
        return taken

    def _is_through(self) -> bool:
        """Whether nothing can be left of what came before this turn's end: the next one may begin with a sleep.

        Rings are looked at once more before that. What moved FLUSHED or REPLICATED meanwhile has rung.
        """
        if not self._intake.is_empty or self._drain_until is not None:
            return False
        return not self._at_once or not len(self._rings) or (len(self._rings) == 1 and not self._spin.is_worth)

    def sleep_ms(self) -> int:
        if self._owed:
            return 1
        return min(REST_MAX_MS, self._waiting.due_ms(self._node.clock.monotonic_ms()))

    def wait(self, timeout_ms: int, rest: Rest | None) -> bool:
        self._rings.tend()
        if not self._rings.arm():
            return False
        woken = self._poller.poll(timeout_ms, rest) and self._poller.ready(self._bell.fileno())
        self._rings.disarm()
        return woken

    def drain(self) -> bool:
        """Until every stored request is answered and its client had time to read that; new ones are refused.

        A write of topics takes as long as it takes.
        """
        now = self._node.clock.monotonic_ms()
        if self._drain_until is None:
            self._drain_until = now + DRAIN_MS
        late = now >= self._drain_until
        if late:
            self._changes.stop()
        left = len(self._waiting) or len(self._intake) or len(self._changes)
        return (late or not left) and not self._changes.writes and now - self._answered_ms >= GRACE_MS

    def on_close(self) -> None:
        if hasattr(self, "_server"):
            self._front.close()
            self._changes.close()
            self._intake.close()
            self._server.close()
            close_context(self._context)

    # --- requests

    def _append_slice(self) -> int:
        """Appends or refuses the oldest requests that wait, as many as may go before answers leave; how many."""
        if not len(self._intake):
            return 0
        closed = self._look()
        done = taken = 0
        while len(self._intake) and done < REQUESTS_PER_TURN and taken < BYTES_PER_TURN:
            if closed is None:
                requests, size = self._serve_arrivals(REQUESTS_PER_TURN - done)
                done += requests
                taken += size
                if not len(self._intake) or done == REQUESTS_PER_TURN or taken >= BYTES_PER_TURN:
                    break
                closed = self._look()  # the kernel leaves what is not plain, and all when something has changed
            done += 1
            arrived = self._intake.next()
            if arrived is not None:
                taken += self._put(arrived, closed)
                self._intake.done(arrived)
        return done

    def _look(self) -> Refusal | None:
        return self._gate.look(len(self._waiting), stopping=self._drain_until is not None)

    def _serve_arrivals(self, count: int) -> tuple[int, int]:
        """Stores the first of the socket's requests, as far as they are plain; how many, and their bytes."""
        if ARMED:
            return 0, 0
        arrivals = self._intake.arrivals
        first, lent = self._intake.lend(count)
        if not lent:
            return 0, 0
        began_ns = time.monotonic_ns()
        oldest_ms = began_ns // NS_PER_MS - self._waited_max_ms
        self._front.enter(began_ns)
        try:
            served = self._appender.serve_arrivals(
                arrivals, first, lent, self._node.clock.now_ms(), oldest_ms, self._statistics
            )
        finally:
            self._front.leave()
        arrivals.returned(served.requests, served.memory)
        if served.requests:
            self._note(began_ns, served)
            self._tell_served(served.requests, time.monotonic_ns() // NS_PER_MS)
        return served.requests, served.size

    def _tell_served(self, count: int, now_ms: int) -> None:
        """The first of the socket's requests are in the log: they are answered, now or in their time."""
        arrivals = self._intake.arrivals
        if self._at_once:
            came = arrivals.arrived_ms(count)
            arrivals.answer(count)
            self._statistics.all_answered(came, now_ms)
            self._answered_ms = now_ms
            return
        found = arrivals.release(count)
        sending = Sending(self._intake, [(peer, answer, 0) for peer, answer, _, _ in found])
        ends, came = [end for _, _, end, _ in found], [arrived_ms for *_, arrived_ms in found]
        self._waiting.add(Stored(ends, now_ms, sending, came))

    def _note(self, began_ns: int, served: Served) -> None:
        """What a kernel has stored."""
        self._told = Cause.REQUEST
        self._stored = self._stored or not self._promise.replicated  # else the appender has rung
        self._line.count(Counter.BUSY_NS, time.monotonic_ns() - began_ns)
        self._line.count(Counter.BATCHES, served.requests)
        self._line.count(Counter.MESSAGES, served.records)
        self._line.count(Counter.BYTES, served.size)

    def _serve_rings(self) -> int:
        """What is plain in the rings goes into the log, and is answered where that is due at once; how many."""
        if not self._rings.express or not len(self._rings) or self._drain_until is not None:
            return 0
        waiting = [ring for ring in self._rings if ring.requests.waits and not ring.special]
        looks = self._spin.looks() if self._at_once and len(waiting) <= 1 else 0
        there = len(waiting)
        if not waiting and looks and self._served is not None and not self._served.is_closed:
            waiting = [self._served]
        if not waiting:
            return 0
        if self._gate.look(len(self._waiting), stopping=False) is not None:
            for ring in waiting:
                ring.special = 1  # it is refused where everything is
            return 0
        done = sum(self._serve(ring, looks) for ring in waiting)
        if looks:
            self._spin.found(done > there)
        return done

    def _serve(self, ring: NodeRing, looks: int) -> int:
        began_ns = time.monotonic_ns()
        self._rings.lent = True
        self._front.enter(began_ns)
        try:
            now_ms = self._node.clock.now_ms()
            served = self._appender.serve_ring(ring, now_ms, looks, self._statistics, keeps=not self._at_once)
        finally:
            self._front.leave()
            self._rings.lent = False
        self._served = ring
        if served.requests:
            self._note(began_ns, served)
            self._tell_ring(ring, began_ns // NS_PER_MS)
        return served.requests

    def _tell_ring(self, ring: NodeRing, began_ms: int) -> None:
        """Some of its requests are in the log, since a call that began then."""
        now_ms = self._node.clock.monotonic_ms()
        written = self._appender.written(ring, now_ms, began_ms)
        if self._at_once:
            for came_ms, count in written:
                self._statistics.answered(came_ms, now_ms, count)
            self._answered_ms = now_ms
            self._rings.wake()
            return
        kept = self._appender.kept()
        ends = kept[1][STORED_END::KEPT_SIZE].tolist()
        came = [came_ms for came_ms, count in written for _ in range(count)]
        self._waiting.add(Stored(ends, now_ms, KeptAnswers(self._rings, ring, kept), came))

    def _ring(self) -> None:
        """Whoever waits for what was stored. Reput hears of messages that follow one another closely now and then."""
        now_ns = time.monotonic_ns()
        self._owed = self._at_once and now_ns - self._rang_ns < WAKE_EVERY_NS
        if not self._owed:
            self._rang_ns = now_ns
            self._ringer.ring()
        if not self._stored:
            return
        self._stored = False
        if now_ns - self._looked_ns >= FOLLOWED_EVERY_NS:
            self._looked_ns = now_ns
            self._followed = any(slave.connected for slave in self._node.positions.slaves())
        if self._promise.replicated or self._followed:
            self._sender_ringer.ring()
        if self._formed:
            self._formed = False
            self._schedule_ringer.ring()

    def _put(self, arrived: Arrived, closed: Refusal | None) -> int:
        """Bytes appended for this request."""
        began_ns = time.monotonic_ns()
        waited_ms = began_ns // NS_PER_MS - arrived.arrived_ms
        late_ms = self._node.clock.now_ms() - arrived.deadline
        if late_ms > 0:
            closed = expired(late_ms)
        elif waited_ms > self._waited_max_ms:
            closed = waited_too_long(waited_ms, self._waited_max_ms)
        if closed is not None:
            self._intake.refuse(arrived, closed)
            return 0
        if ARMED:
            reach("put.before_append")
        self._front.enter(began_ns)
        try:
            # No sooner: what begins after schedule looked at our turn is of a later time.
            now = self._node.clock.now_ms()
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
        self._stored = True
        self._formed = self._formed or result.formed
        self._line.count(Counter.BATCHES)
        self._line.count(Counter.MESSAGES, sum(group.count for group in arrived.groups))
        self._line.count(Counter.BYTES, len(arrived.records))
        stored_ms = ended_ns // NS_PER_MS
        self._statistics.stored(arrived.groups)
        answer = encode_put_answer(arrived.request_id, PutStatus.PUT_OK, result.places)
        sending = Sending(self._intake, [(arrived.peer, answer, len(result.places))])
        self._waiting.add(Stored([result.end], stored_ms, sending, [arrived.came_ms]))
        return len(arrived.records)

    def _prepare(self) -> int:
        """Populates ahead while there is nothing else to do: into the mapping, so the front stands by.

        What the front took meanwhile is not in the socket any more, and would not wake us.
        """
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
        return int(done) + len(self._intake)

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
        for stored, first, count, status in self._waiting.release(self._progress(now), now):
            stored.answers.send(first, count, status)
            if not len(self._waiting):
                os.sched_yield()  # ZeroMQ's thread sends it
            self._statistics.all_answered(stored.arrived_ms[first : first + count], now)
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
        replicated = positions.get(Position.REPLICATED)
        # Behind the others: whatever was replicated by now was so before a promise was given, or the lease ran out.
        fenced = positions.get(Position.PROMISED) > positions.get(Position.EPOCH)
        leads = not self._settings.etcd_endpoints or not lease_over_ms(positions.get(Position.LEASE_UNTIL))
        fenced = fenced or (not leads and self._drain_until is not None)  # its successor waits for us to end
        if not self._promise.replicated:
            return Progress(flushed, 0, 0, leads, fenced)
        there = replicated >= self._waiting.end or self._waits_for_nobody()
        if there or any(slave.connected for slave in positions.slaves()):
            self._slave_seen_ms = now_ms
        return Progress(flushed, replicated, now_ms - self._slave_seen_ms, leads, fenced)

    def _waits_for_nobody(self) -> bool:
        """The in-sync set may be this node alone, and is: then the absence of slaves is no reason to give up."""
        settings = self._settings
        may_be = settings.enable_auto_in_sync_replicas and settings.min_in_sync_replicas <= 1
        return may_be and self._node.positions.get(Position.IN_SYNC).bit_count() == 1

    # --- greetings

    def _greet(self, **limits: object) -> Greet:
        """Anybody may come as a client; as a piece of this node only who shows the secret."""
        secret = make_secret(self._node.runtime.secret)
        return guarded(welcome(self._node, **limits), lambda: secret)

    # --- questions about topics

    def _ask(self, question: Question) -> None:
        try:
            asked = read_json(question.text)
            check_ask(asked.get("op"), question.key, question.role)
            facts = self._answer(asked)
        except TowlineError as error:
            self._say(question, error)
            return
        if facts is not None:
            self._say(question, facts)
        else:
            self._changes.add(question, asked)

    def _say(self, question: Question, found: dict[str, Any] | TowlineError) -> None:
        refused = isinstance(found, TowlineError)
        facts = {"error": type(found).__name__, "sentence": str(found)} if isinstance(found, TowlineError) else found
        head = ANSWER.pack(Kind.ANSWER, int(refused), question.request_id, 0)
        if self._server.send(question.peer, [head, json_part(facts)]) is Sent.PAUSED:
            self._server.cut_unread(question.peer)
        self._answered_ms = self._node.clock.monotonic_ms()

    def _answer(self, question: dict[str, Any]) -> dict[str, Any] | None:
        """None when topics have to be changed first."""
        if question.get("op") == "open_ring":
            return self._rings.open(question)
        facts = self._topic_questions.answer(question)
        if facts is None and not self._topic_questions.changes(question):
            raise MalformedFrame(f"the put process does not answer {question.get('op')!r}")
        return facts


def woken_by_put(settings: Settings, *, pooled: bool) -> tuple[Duty, ...]:
    """Who finds something to do when bytes were appended. Under ASYNC_FLUSH flush looks by the clock, unless told.

    With a transient pool nobody can read before flush has committed, and flush then wakes the others. Reput goes on
    when the end is confirmed: where that takes a sync or a slave, flush or the sender wakes it.
    """
    if pooled:
        return (Duty.FLUSH,) if settings.wake_commit_when_put_message else ()
    synced = settings.flush_disk_type is FlushDiskType.SYNC_FLUSH
    flush = (Duty.FLUSH,) if synced or settings.wake_flush_when_put_message else ()
    confirmed = not synced and settings.broker_role is not BrokerRole.SYNC_MASTER
    return (Duty.REPUT, *flush) if confirmed else flush


def acknowledges_at_once(settings: Settings) -> bool:
    """Whether PUT_OK is due as soon as a request is appended, and nothing else is to be asked first."""
    synced = settings.flush_disk_type is FlushDiskType.SYNC_FLUSH
    replicated = settings.broker_role is BrokerRole.SYNC_MASTER or settings.min_in_sync_replicas > 1
    return not (synced or replicated or settings.etcd_endpoints)


def build(node: Node) -> PutAgent:
    return PutAgent(node)
