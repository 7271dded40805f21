"""The producer's I/O thread: it alone uses the link, and waits for nothing but events.

It keeps at most `in_flight_max` requests without an answer. After a lost link, or a missing answer, it sends them again
with the same bytes: the outcome of the first attempt is unknown, and the unique keys show duplicates.
"""

import logging
import math
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from towline.client.errors import ClientClosed, ClientForked
from towline.client.link.connection import Connection
from towline.client.link.endpoints import Endpoints, masters
from towline.client.link.rpc import AskedNoMaster, PendingCall, Reply, encode_ask, read_answer
from towline.errors import LinkRefused, MalformedFrame, NoAnswer, TowlineError
from towline.format.wire.frames import (
    ANSWER,
    Buffer,
    Group,
    Kind,
    PutAnswer,
    decode_put_answer,
    encode_put,
    expect,
    kind_of,
)
from towline.format.wire.refusals import read_sentence
from towline.format.wire.status import PutStatus
from towline.limits import CLIENT_SHARE_MAX, REQUEST_GROUPS_MAX
from towline.link.context import close_context, new_context
from towline.link.poller import Poller
from towline.link.unclosed import call_at_exit, call_in_child
from towline.link.waker import Waker
from towline.link.wire import Link

from .accumulator import Accumulator, closed, refused, timed_out
from .futures import MS, Batch
from .retrying import Fate, fate_of, goes_again
from .statistics import Statistics
from .transport import Transport
from .turn import FOR_EVER_S, Turn

log = logging.getLogger(__name__)

Told: TypeAlias = Callable[[Reply | None, TowlineError | None], None]

GREETING_STEP_MS: Final = 50  # the thread looks up this often while nobody answers
SLEEP_MAX_S: Final = 1.0
BACKOFF_S: Final = 0.01
BACKOFF_MAX_S: Final = 1.0
ABANDON_S: Final = 0.2  # a node that is no master any more has so long to answer what is under way
CHECK_AGAIN_S: Final = 1.0
UNPROMISED_S: Final = 0.5  # the processes of a deposed master end before
SILENT_S: Final = 1.0  # without an answer, before the other nodes are asked who is master
LOOKING_S: Final = 0.05
TURN_S: Final = 0.001  # longer than a cycle of the thread
NAP_S: Final = 0.002  # an answer that no sender takes waits no longer
NS: Final = 1_000_000_000
IDLE_PAUSE_S: Final = 0.2  # between attempts to reach a node for which there is nothing yet
# What a master says that its slaves have left: they may have another one.
_LEFT_ALONE: Final = frozenset({PutStatus.IN_SYNC_REPLICAS_NOT_ENOUGH, PutStatus.SERVICE_NOT_AVAILABLE})


@dataclass(frozen=True, slots=True)
class SendRules:
    """The producer's rules of sending. Times are ms, sizes bytes of records."""

    in_flight_max: int
    request_bytes_max: int
    send_timeout_ms: int
    retries: int
    retry_unpromised: bool
    take_timeout_ms: int | None = None  # a node takes a request no later; None: as long as its answer is waited for


@dataclass(slots=True)
class InFlight:
    """A request without an answer. `groups` hold the batches of one queue each, in the order of their records."""

    request_id: int
    groups: list[list[Batch]]
    sent_ns: int
    deadline: float
    expires_ms: int  # by the node's clock, as it was known

    @property
    def batches(self) -> list[Batch]:
        return [batch for group in self.groups for batch in group]


@dataclass(slots=True)
class Unpromised:
    """Batches that a master stored without a promise, held back for UNPROMISED_S.

    The master may be deposed just now, and its tail cut off. If a later master is found, the batches go there;
    otherwise they are finished with their status.
    """

    batches: list[Batch]
    status: PutStatus
    epoch: int
    until: float


class IoThread(threading.Thread):
    """The thread that sends a producer's batches. It survives whatever the node and the network do.

    `close` ends it at once, `close_when_idle` as soon as every batch has its outcome.

    `evict_route` is called with a topic whose queues are not what they were, `born_at` with the port that our end of
    a new link has, `look` whenever the node wants to be asked for its routes again.
    """

    def __init__(
        self,
        endpoints: Endpoints | Callable[[], Endpoints],
        facts: dict[str, str],
        rules: SendRules,
        evict_route: Callable[[str], None],
        linked: Callable[[], None] | None = None,
        born_at: Callable[[int], object] = int,
        look: Callable[[], None] | None = None,
    ) -> None:
        """With `linked` a link is kept also while there is nothing to send, and that is called whenever one is made."""
        super().__init__(name=f"towline producer {facts['name']}", daemon=True)
        self._rules = rules
        self._evict_route, self._born_at = evict_route, born_at
        self._linked, self._look = linked, look
        self._look_at = math.inf  # for the routes
        self._waker = Waker()
        self._zmq_context = new_context()
        self._poller = Poller(self._waker.fileno())
        self._connection = Connection(self._zmq_context, endpoints, facts, self._poller, masters)
        self._in_flight: dict[int, InFlight] = {}
        self._calls: deque[PendingCall] = deque()
        self._transport = Transport(self._poller, self._calls)
        self._pending: dict[int, PendingCall] = {}
        self._next_id = 1
        self._paused_until = 0.0
        self._failures = 0  # lost links in a row, without an answer between
        self._abandon_at = math.inf  # another master is searched for: what is not answered by then is unknown
        self._deposed = False  # the node has said that it is no master any more
        self._unpromised: list[Unpromised] = []
        self._check_at = 0.0  # when it is worth while to see whether another node is master
        self._trouble = "it was not sent yet"
        self._stopping = self._closes_when_idle = False
        self._is_sending = False  # a sender has the turn
        self._pushed = self._naps = False  # a sender has pushed since this thread went to sleep; it sleeps lightly
        self._gone: ClientClosed = closed()
        self._turn = Turn()  # whoever uses the link has it; this thread lets others have it while it polls
        self.wake = self._waker.wake
        self.statistics = Statistics()
        call_in_child(self)

    def begin(self, accumulator: Accumulator) -> None:
        """Starts the thread for the batches of `accumulator`."""
        self._accumulator = accumulator
        call_at_exit(self)
        self.start()

    @property
    def welcome(self) -> dict[str, Any]:
        """The node's welcome; empty before the first link."""
        return self._connection.welcome

    @property
    def endpoint(self) -> str:
        """The endpoint of the node that welcomed us last."""
        return self._connection.endpoint

    @property
    def is_linked(self) -> bool:
        """Whether there is a link to a node."""
        return self._connection.is_alive

    def server_now_ms(self) -> int:
        """The node's clock, ms since 1970."""
        return self._connection.server_now_ms()

    def ask(self, op: str, facts: dict[str, Any], timeout_ms: int) -> Reply:
        """Asks a question from another thread. Raises NoAnswer, LinkRefused, ClientClosed and the answer's error."""
        call = self._call(op, facts, timeout_ms, None)
        # The I/O thread ends every question by its deadline; this checks whether there is such a thread.
        while not call.answered.wait(SLEEP_MAX_S if self.is_alive() else 0):
            if not self.is_alive() and not call.answered.is_set():
                raise self._gone
        if call.error is not None:
            raise call.error
        assert call.reply is not None
        return call.reply

    def tell(self, op: str, facts: dict[str, Any], timeout_ms: int, told: Told) -> None:
        """Asks a question for which nobody waits: `told` gets the reply, or the error, on this thread."""
        self._call(op, facts, timeout_ms, told)

    def _call(self, op: str, facts: dict[str, Any], timeout_ms: int, told: Told | None) -> PendingCall:
        call = PendingCall(op, facts, timeout_ms, time.monotonic() + timeout_ms / MS, told=told)
        self._calls.append(call)
        self.wake()
        return call

    def deliver(self, batch: Batch) -> None:
        """Sends an urgent batch and takes its answer on the caller's thread, where a ring is there and nothing else is
        under way; else it is this thread's."""
        if not (batch.done or self._turn.is_mine):
            try:
                if self._turn.take() or self._await_turn():
                    self._is_sending = True
                    self._exchange(batch)
            finally:
                if self._turn.is_mine:
                    self._is_sending = False
                self._turn.give_back()
        if not batch.done:
            self.wake()

    def _await_turn(self) -> bool:
        """Waits while this thread is in the middle of a cycle: else it would do the work of the next sends too, at the
        price of two changes of thread for each. Another sender is not waited for."""
        return not self._is_sending and self._turn.take(TURN_S)

    def _exchange(self, batch: Batch) -> None:
        link, transport = self._connection.link, self._transport
        alone = not (self._in_flight or self._unpromised or self._calls or self._stopping)
        if link is None or not (alone and transport.takes_alone(link) and self._may_send):
            return
        if not self._accumulator.take_only(batch):
            return
        transport.stay_awake()
        try:
            if self._send_request(link, [batch]) and transport.await_answer(link):
                if transport.is_ring:
                    self._receive_ring()
                else:
                    self._receive(link)
        except (MalformedFrame, LinkRefused) as error:
            self._disconnect(error.describe())
        if not transport.arm_ring():
            self.wake()

    def push(self) -> bool:
        """Sends what is ready through the ring, on the caller's thread, and takes answers. False without a ring, and
        while this thread is at it."""
        if self._turn.is_mine:
            return False
        try:
            if not self._turn.take():
                return False
            busy = self._calls or self._unpromised or self._stopping or not self._connection.is_open
            if busy or not self._transport.is_ring:
                return False
            if not self._pushed:
                self._pushed = True
                self._transport.stay_awake()
                if not self._naps:
                    self.wake()  # to sleep lightly
            try:
                self._receive_ring()
                self._send_batches(None)
            except MalformedFrame as error:
                self._disconnect(error.describe())
            if self._has_work:
                self.wake()
            return True
        finally:
            self._turn.give_back()

    @property
    def _has_work(self) -> bool:
        """Whether there is something for this thread that no answer will wake it for."""
        if self._accumulator.calls_back or self._unpromised or self._abandon_at < math.inf:
            return True
        waits = not self._in_flight or self._paused_until > time.monotonic()
        return not self._connection.is_open or (waits and self._accumulator.is_ready)

    def close(self) -> None:
        """Gives up what has no outcome yet, and ends the thread."""
        self.stop()
        if threading.current_thread() is not self:
            self.join()

    def stop(self) -> None:
        """Starts what `close` does, without waiting for it."""
        self._stopping = True
        self.wake()

    def close_when_idle(self) -> None:
        """Ends the thread when everything has its outcome, without waiting for that."""
        self._closes_when_idle = True
        self.wake()

    def leave(self, deadline: float) -> None:
        """At the end of the program: where the producer was dropped, what it left has its outcome first."""
        if self._closes_when_idle:
            self.join(max(0.0, deadline - time.monotonic()))

    def forked(self) -> None:
        """The child of a fork has no such thread: `ask` raises ClientForked."""
        self._gone = ClientForked.here("producer")

    # --- the thread

    def run(self) -> None:
        self._turn.take(FOR_EVER_S)
        try:
            while not (self._stopping or (self._closes_when_idle and self._is_done)):
                self._cycle()
        except Exception:
            log.exception("the producer's I/O thread failed")
        finally:
            self._give_up(closed(), self._accumulator.close(closed()))
            self._accumulator.call_back()
            self._transport.end()
            self._connection.close()
            self._waker.close()
            close_context(self._zmq_context)

    @property
    def _is_done(self) -> bool:
        return self._accumulator.idle and not (self._is_asked or self._unpromised)

    @property
    def _is_asked(self) -> bool:
        """Whether somebody waits for a reply."""
        return any(call.told is None for call in (*self._calls, *self._pending.values()))

    def _cycle(self) -> None:
        self._accumulator.call_back()
        if self._closes_when_idle:
            self._accumulator.seal_all()  # nobody gives an open batch company any more
        self._end_late(time.monotonic())
        if self._unpromised:
            self._release(time.monotonic())
        self._transport.check_offer()
        link = self._connection.link
        if not self._connection.is_open or link is None:
            self._reopen()
            return
        if self._look is not None and time.monotonic() >= self._look_at:
            self._plan_look()
            self._look()
        try:
            self._send_calls(link)
            self._send_batches(link)
            self._sleep()
            self._receive(link)
        except LinkRefused as error:
            if self._connection.has_choice:
                self._disconnect(error.describe(), elsewhere=True)
            else:
                self._give_up(error, self._accumulator.drain())
            return
        except MalformedFrame as error:
            self._disconnect(error.describe())
            return
        if link.lost:
            self._disconnect("the connection was lost")
        elif self._overdue():
            self._disconnect("the node did not answer in time", elsewhere=True)
        elif self._must_abandon():
            self._disconnect("the node is no master any more", elsewhere=True)
        elif self._is_replaced():
            self._disconnect(f"{self._held or 'the node is silent'}, and another one is master", elsewhere=True)

    def _reopen(self) -> None:
        """Waits for something to do, then for the node, in short steps."""
        now = time.monotonic()
        idle = self._accumulator.idle and not self._calls
        if idle and (self._linked is None or now < self._paused_until):
            self._accumulator.plan_sleep(now, True)
            self._wait(now + SLEEP_MAX_S if self._linked is None else min(self._paused_until, now + SLEEP_MAX_S))
        elif now < self._paused_until:
            ends = [self._paused_until, now + SLEEP_MAX_S, *(call.deadline for call in self._calls)]
            self._wait(min(*ends, self._accumulator.plan_sleep(now, False)))
        else:
            try:
                self._connection.open(GREETING_STEP_MS)
            except NoAnswer as error:
                self._trouble = error.trouble
                self._pause(IDLE_PAUSE_S if idle else BACKOFF_S)
            except LinkRefused as error:
                waited_for = not self._accumulator.idle or self._is_asked
                self._give_up(error, self._accumulator.drain())
                self._pause(0.0 if waited_for else IDLE_PAUSE_S)
            else:
                self._born_at(self._connection.own_port)
                self._transport.begin(self._connection)
                self._plan_look()
                if self._linked is not None:
                    self._linked()

    def _plan_look(self) -> None:
        every_ms = self._connection.welcome.get("routes_ms")
        self._look_at = math.inf if every_ms is None else time.monotonic() + every_ms / MS

    # --- sending

    def _send_calls(self, link: Link) -> None:
        while self._calls and self._abandon_at == math.inf:
            call = self._calls.popleft()
            call.request_id = self._new_id()
            call.asked_at = time.monotonic()
            self._pending[call.request_id] = call
            if not link.send(encode_ask(call.request_id, call.op, call.facts)):
                self._calls.append(self._pending.pop(call.request_id))
                return

    def _send_batches(self, link: Link | None) -> None:
        """What is ready, while it may go. Without a `link`: through the ring alone."""
        limit = int(self._connection.welcome.get("request_limit", self._rules.request_bytes_max))
        size_max = min(limit, self._rules.request_bytes_max)
        count_max = int(self._connection.welcome.get("request_batches_max", REQUEST_GROUPS_MAX))
        while self._may_send:
            batches = self._accumulator.next_request(time.monotonic(), size_max, count_max)
            if not batches:
                return
            if not self._send_request(link, batches):
                if link is not None and not self._transport.is_full:
                    self._pause(BACKOFF_S)
                return

    @property
    def _may_send(self) -> bool:
        # What is held may go again: with one request at a time nothing of its queue may pass it.
        if len(self._in_flight) + len(self._unpromised) >= self._rules.in_flight_max or self._abandon_at < math.inf:
            return False
        if self._transport.is_full or self._fills_its_share:
            return False
        return time.monotonic() >= self._paused_until

    @property
    def _fills_its_share(self) -> bool:
        """A node cuts off who has it keep much more."""
        if len(self._in_flight) * self._rules.request_bytes_max < CLIENT_SHARE_MAX:
            return False
        return sum(batch.size for request in self._in_flight.values() for batch in request.batches) >= CLIENT_SHARE_MAX

    def _send_request(self, link: Link | None, batches: list[Batch]) -> bool:
        """False, and the batches wait again, where they could not be sent. Raises MalformedFrame likewise."""
        groups = _by_queue(batches)
        heads = [
            Group(
                group[0].route.name,
                group[0].queue_id,
                sum(batch.count for batch in group),
                sum(batch.size for batch in group),
            )
            for group in groups
        ]
        answer_ms = self._connection.answer_ms(self._rules.send_timeout_ms)
        request_id = self._new_id()
        epoch = int(self._connection.welcome.get("epoch", 0))
        taken_ms = min(answer_ms, self._rules.take_timeout_ms or answer_ms)
        expires_ms = self._connection.server_now_ms() + taken_ms
        head = encode_put(request_id, epoch, expires_ms, heads)
        records = [record for group in groups for batch in group for record in batch.records]
        sent = False
        try:
            sent = self._transport.put(link, head, records[0] if len(records) == 1 else b"".join(records))
        finally:
            if not sent:
                self._accumulator.requeue(batches)
        if not sent:
            return False
        for batch in batches:
            batch.attempts += 1
        self._in_flight[request_id] = InFlight(
            request_id, groups, time.perf_counter_ns(), time.monotonic() + answer_ms / MS, expires_ms
        )
        self.statistics.requests += 1
        self.statistics.through_ring += self._transport.uses_ring
        return True

    # --- answers

    def _receive_ring(self) -> None:
        while (parts := self._transport.receive()) is not None:
            self._handle_answer(decode_put_answer(parts[0]))

    def _receive(self, link: Link) -> None:
        self._receive_ring()
        while (parts := link.receive()) is not None:
            kind = kind_of(parts[0])
            if kind == Kind.PUT_ANSWER:
                self._transport.answered()
                self._handle_answer(decode_put_answer(parts[0]))
            elif kind == Kind.ANSWER:
                self._handle_reply(parts)
            else:
                raise MalformedFrame(f"the node sent a message of kind {kind}")

    def _handle_answer(self, answer: PutAnswer) -> None:
        request = self._in_flight.pop(answer.request_id, None)
        if request is None:
            return
        self._failures = 0
        self.statistics.latency.add(time.perf_counter_ns() - request.sent_ns)
        try:
            status = PutStatus(answer.status)
        except ValueError:
            status = PutStatus.UNKNOWN_ERROR
        batches = request.batches
        trouble = f"{status.name}: {answer.sentence}"
        if status.stored:
            self._handle_stored(request, answer, status)
        elif self._accumulator.may_pass(batches, status, answer.retry_after):
            if status is PutStatus.EXPIRED:  # it was late, or the node's clock has gone forward
                late_ms = read_sentence(answer.sentence)[1].get("late_ms")
                if late_ms is not None:
                    self._connection.set_clock(request.expires_ms + late_ms)
            self._handle_refusal(batches, answer, status)
            self._retry(batches, trouble)
        elif len(batches) > 1:
            # One of them is bad. Nothing of the request was stored, so each goes alone and only the bad one fails.
            for batch in batches:
                batch.alone = True
            self._retry(batches, trouble)
        else:
            self._evict_route(batches[0].route.topic)
            batches[0].trouble = trouble
            error = refused(batches[0], status, answer.sentence)
            self._fail(batches, error, status)

    def _handle_refusal(self, batches: list[Batch], answer: PutAnswer, status: PutStatus) -> None:
        """Nothing was stored, and it may go better later or elsewhere."""
        elsewhere = status is PutStatus.NOT_MASTER
        for batch in batches:
            batch.refusal = status.name, answer.sentence
            batch.refusals += bool(answer.retry_after) or elsewhere
        now = time.monotonic()
        if self._connection.has_choice and (elsewhere or (status in _LEFT_ALONE and now >= self._check_at)):
            self._deposed = self._deposed or elsewhere
            self._abandon_node(now)
        else:
            self._pause(answer.retry_after / MS or _backoff_s(batches[0].attempts))

    def _handle_stored(self, request: InFlight, answer: PutAnswer, status: PutStatus) -> None:
        batches = request.batches
        if len(answer.places) == batches[0].count and len(batches) == 1:
            batches[0].places = answer.places  # of each record; the first is the group's as well
        elif len(answer.places) != len(request.groups):
            self._in_flight[request.request_id] = request
            raise MalformedFrame(f"{len(answer.places)} places for {len(request.groups)} groups")
        epoch = self._connection.epoch
        fate = fate_of(
            status,
            answer.retry_after,
            insists=self._rules.retry_unpromised or self._deposed,
            has_later=bool(epoch and self._connection.has_choice),
        )
        if fate is Fate.AGAIN:
            for batch in batches:
                batch.unknown = True
            self._retry(batches, f"{status.name}: stored, but not promised")
            return
        store_host = str(self._connection.welcome.get("store_host", ""))
        for group, (queue_offset, physical_offset) in zip(request.groups, answer.places, strict=False):
            for batch in group:
                batch.store_host = store_host
                batch.queue_offset, batch.physical_offset = queue_offset, physical_offset
                queue_offset += batch.count
                physical_offset += batch.size
        if fate is Fate.DONE:
            self._finish(batches, status)
        else:
            self._unpromised.append(Unpromised(batches, status, epoch, time.monotonic() + UNPROMISED_S))

    def _finish(self, batches: list[Batch], status: PutStatus) -> None:
        count = sum(batch.count for batch in batches)
        if status.acknowledged:
            self.statistics.acknowledged += count
            self.statistics.bytes_acknowledged += sum(batch.size for batch in batches)
        else:
            self.statistics.unpromised += count
        self._accumulator.finish(batches, status)

    def _release(self, now: float) -> None:
        """What is held goes again to a later master; where there is none, its outcome is what was answered."""
        unpromised, self._unpromised = self._unpromised, []
        for each in unpromised:
            linked = self._connection.is_open
            if self._deposed or (linked and self._connection.epoch > each.epoch):
                for batch in each.batches:
                    batch.unknown = True
                self._retry(each.batches, f"{each.status.name} by a master that is none any more")
            elif (linked and now >= each.until) or any(batch.deadline <= now for batch in each.batches):
                self._finish(each.batches, each.status)
            else:
                self._unpromised.append(each)

    def _handle_reply(self, parts: list[Buffer]) -> None:
        call = self._pending.pop(int(expect(ANSWER, parts[0])[2]), None)
        if call is None:
            return
        self._failures = 0
        try:
            call.finish(read_answer(call.op, call.facts, parts), None)
        except AskedNoMaster as error:
            self._connection.learn(self._connection.led_to(error.facts))
            if not self._connection.has_choice:
                call.finish(None, error)
                return
            self._calls.append(call)  # for the node that is
            self._abandon_node(time.monotonic())
        except TowlineError as error:
            call.finish(None, error)

    # --- what goes wrong

    def _retry(self, batches: Iterable[Batch], trouble: str) -> None:
        """With the same bytes, while attempts and time are left. A refusal that says when to come back costs none."""
        retries = self._rules.retries
        now = time.monotonic()
        again: list[Batch] = []
        over: list[Batch] = []
        for batch in batches:
            batch.trouble = trouble
            left = goes_again(batch.attempts, batch.refusals, retries, batch.deadline, now)
            (again if left else over).append(batch)
        self.statistics.retried += sum(batch.count for batch in again)
        self._accumulator.requeue(again)
        for batch in over:
            self._fail([batch], timed_out(batch, now))

    def _disconnect(self, trouble: str, *, elsewhere: bool = False) -> None:
        """`elsewhere`: another node is tried before this one."""
        self.statistics.links_lost += 1
        self._pending.pop(self._transport.end(), None)
        self._abandon_at, self._deposed = math.inf, False
        if elsewhere:
            self._connection.move_on()
        else:
            self._connection.close()
        lost = [batch for request in self._in_flight.values() for batch in request.batches]
        for batch in lost:
            batch.unknown = True
        self._in_flight.clear()
        self._calls.extend(self._pending.values())
        self._pending.clear()
        if lost:
            self._failures += 1
            self._pause(_backoff_s(self._failures))
        self._trouble = trouble
        self._retry(lost, trouble)

    def _overdue(self) -> bool:
        oldest = next(iter(self._in_flight.values()), None)
        return oldest is not None and oldest.deadline <= time.monotonic()

    def _abandon_node(self, now: float) -> None:
        self._check_at = now + CHECK_AGAIN_S
        self._abandon_at = min(self._abandon_at, now + ABANDON_S)

    def _must_abandon(self) -> bool:
        """What is under way may still be answered: known is better than unknown."""
        return self._abandon_at < math.inf and (not self._in_flight or time.monotonic() >= self._abandon_at)

    def _is_replaced(self) -> bool:
        """A node that is stopped, or cut off, breaks no link. While it is silent the others are tried, and while it may
        not be sent what is ready."""
        if not self._connection.has_choice:
            return False
        if not (self._held or self._is_silent(time.monotonic())):
            self._connection.stop_search()
            return False
        return self._connection.finds_later_master()

    @property
    def _held(self) -> str:
        """Why what is ready may not go to the node that there is a link to; "" where it may."""
        return self._accumulator.held if self._accumulator.is_ready and self._connection.is_open else ""

    def _is_silent(self, now: float) -> bool:
        oldest = next(iter(self._in_flight.values()), None)
        if oldest is not None and time.perf_counter_ns() - oldest.sent_ns > SILENT_S * NS:
            return True
        return any(now - call.asked_at > SILENT_S for call in self._pending.values())

    def _end_late(self, now: float) -> None:
        held = self._held
        for batch in self._accumulator.expired(now):
            if not batch.attempts:
                batch.trouble = held or self._trouble
            elif held:
                batch.trouble = f"{batch.trouble}; then {held}"
            self._fail([batch], timed_out(batch, now))
        for call in [call for call in (*self._calls, *self._pending.values()) if call.deadline <= now]:
            if self._pending.pop(call.request_id, None) is None:
                self._calls.remove(call)
            call.finish(None, NoAnswer(self._connection.endpoint, call.timeout_ms, self._trouble))

    def _give_up(self, error: TowlineError, left: list[Batch]) -> None:
        """Nothing that is under way has a chance any more."""
        for unpromised in self._unpromised:
            self._finish(unpromised.batches, unpromised.status)
        self._unpromised.clear()
        left += [batch for request in self._in_flight.values() for batch in request.batches]
        self._in_flight.clear()
        self._fail(left, error)
        asked = [*self._calls, *self._pending.values()]
        self._calls.clear()
        self._pending.clear()
        for call in asked:
            call.finish(None, error)

    def _fail(self, batches: list[Batch], error: TowlineError, status: PutStatus = PutStatus.UNKNOWN_ERROR) -> None:
        self.statistics.failed += sum(batch.count for batch in batches)
        self._accumulator.finish(batches, status, error)

    # --- waiting

    def _sleep(self) -> None:
        now = time.monotonic()
        until = self._accumulator.plan_sleep(now, self._may_send)
        if self._in_flight:
            until = min(until, next(iter(self._in_flight.values())).deadline)
        if now < self._paused_until:
            until = min(until, self._paused_until)
        until = min([until, self._abandon_at, *(unpromised.until for unpromised in self._unpromised)])
        held = bool(self._held)
        if self._connection.has_choice and (self._in_flight or self._pending or held):
            until = min(until, now + (LOOKING_S if held or self._is_silent(now) else SILENT_S))
        if self._pending:
            until = min(until, min(call.deadline for call in self._pending.values()))
        self._wait(min(until, now + SLEEP_MAX_S))

    def _wait(self, until: float) -> None:
        """While senders push, they take the answers, and put rings for none: this thread naps until they do not."""
        self._accumulator.call_back()
        now = time.monotonic()
        self._naps, self._pushed = self._pushed, False
        if self._naps:
            until = min(until, now + NAP_S)
        if self._naps or self._transport.arm():
            idle = not (self._in_flight or self._pending or self._calls)
            muted = idle and self._connection.mute()  # whoever sends next takes the answer
            self._turn.give_back()
            try:
                self._poller.poll(max(0, math.ceil((until - now) * MS)))
            finally:
                self._turn.take(FOR_EVER_S)
                if muted:
                    self._connection.unmute()
        self._naps = False
        self._transport.disarm()
        self._waker.drain()

    def _pause(self, seconds: float) -> None:
        self._paused_until = max(self._paused_until, time.monotonic() + seconds)

    def _new_id(self) -> int:
        self._next_id += 1
        return self._next_id


def _by_queue(batches: list[Batch]) -> list[list[Batch]]:
    """Batches of one queue together: a request has one group for each queue."""
    groups: dict[tuple[bytes, int], list[Batch]] = {}
    for batch in batches:
        groups.setdefault((batch.route.name, batch.queue_id), []).append(batch)
    return list(groups.values())


def _backoff_s(attempt: int) -> float:
    return min(BACKOFF_MAX_S, BACKOFF_S * float(2 ** min(attempt, 16)))
