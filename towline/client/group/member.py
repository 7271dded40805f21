"""The I/O thread of a group member: joins the group, watches its members, pulls queues, commits offsets, renews locks.

The thread alone uses the link, and waits for nothing but events. When the node or the link fails, it joins the group
again and reads on from the committed offsets.

No message is skipped: a queue starts at its committed offset, and an offset is committed only when the application has
finished every message before it. A message is delivered twice when its queue is reassigned before its offset is
committed, or when the node evicts a member that it has not heard of for too long.
"""

import logging
import threading
from collections import deque
from collections.abc import Callable
from typing import Any, Final

from towline.client.errors import AskRefused, ClientClosed
from towline.client.link.connection import Connection, own_facts
from towline.client.link.endpoints import Endpoints
from towline.client.link.rpc import AskedNoMaster, PendingCall, Reply
from towline.client.read.reader import to_ms
from towline.clock import boottime_s
from towline.errors import LinkRefused, MalformedFrame, NoAnswer, TowlineError, UnknownTopic
from towline.format.wire.allocation import allocate
from towline.link.wire import Link

from .coordinator_rpc import CoordinatorRpc, Question, Task
from .errors import CONSUME_DISABLED, ConsumeDisabled, MemberTaken
from .fetch_buffer import FetchBuffer
from .offsets import Offsets, OffsetsFile, first_offsets
from .puller import Puller
from .queue import UNKNOWN, Claims, GroupQueue, Rebalance, Stage
from .subscription import MemberRules

log = logging.getLogger(__name__)

GREETING_STEP_MS: Final = 50
SLEEP_MAX_S: Final = 1.0
AGAIN_S: Final = 0.5  # between attempts to join, to lock, to begin
HAND_OVER_S: Final = 0.1  # whoever gives a queue away commits first; it usually manages in this time
WATCH_S: Final = 10.0
REBALANCES_MAX: Final = 1_000
COMMIT: Final = "group_commit"
_PATIENT: Final = ("STARTING", "MEMBER_TAKEN")  # refusals that may end by themselves


class Member(threading.Thread):
    def __init__(
        self,
        endpoints: Endpoints | Callable[[], Endpoints],
        rules: MemberRules,
        buffer: FetchBuffer,
        offsets: OffsetsFile | None,
    ) -> None:
        super().__init__(name=f"towline member {rules.member} of {rules.group}", daemon=True)
        self.rules = rules
        self.rebalances: deque[Rebalance] = deque(maxlen=REBALANCES_MAX)
        self.generation = 0
        self.members: list[str] = []
        self.settings: dict[str, Any] = {}
        self.warnings: list[str] = []
        self._buffer = buffer
        self._offsets = offsets
        self._rpc = CoordinatorRpc(endpoints, own_facts("consumer", rules.member, rules.cluster))
        self.puller = Puller(rules, buffer, self._rpc)
        self._calls: deque[PendingCall] = deque()
        self._epoch = 0  # of the master under which the positions were read
        self._resets: dict[str, int] = {}
        self._finished: dict[tuple[str, int], int] = {}  # of queues that are to begin anew; everything before is done
        self._claims = Claims()
        self.is_joined = False
        self._expires_s = self._lock_s = 60.0
        self._join_at = self._watch_at = self._begin_at = self._lock_at = self._try_at = 0.0
        self._bury_at = 0.0
        self._commit_at = boottime_s() + rules.commit_interval_ms / 1000
        self._troubled: float | None = None  # since when the node is out of reach, or does not let us in
        self._closing: float | None = None
        self._left = False
        self.gone = ClientClosed("consumer")  # what callers get once the thread is no more

    # --- other threads

    @property
    def connection(self) -> Connection:
        """The connection to the node. Any thread may read what it knows of the nodes."""
        return self._rpc.connection

    def wake(self) -> None:
        """Wakes the thread: there is room for another answer, or something else to do."""
        self._rpc.waker.wake()

    def ask(self, op: str, facts: dict[str, Any], timeout_ms: int) -> Reply:
        """Asks a question from another thread and waits for the reply.

        Raises NoAnswer, ClientClosed and the answer's error.
        """
        call = PendingCall(op, facts, timeout_ms, boottime_s() + timeout_ms / 1000)
        self._calls.append(call)
        self.wake()
        while not call.answered.wait(max(0.0, min(SLEEP_MAX_S, call.deadline - boottime_s())) * self.is_alive()):
            if not self.is_alive():
                raise self.gone
            if boottime_s() >= call.deadline:
                raise NoAnswer(self.connection.endpoint, timeout_ms, f"the question {op!r} was not answered")
        if call.error is not None:
            raise call.error
        assert call.reply is not None
        return call.reply

    def commit(self, timeout_ms: int) -> None:
        """Commits everything that is finished, and waits for it. Raises what `ask` raises."""
        generation, offsets = self.generation, self._buffer.committable()
        if offsets and self._offsets is not None:
            self._offsets.save(offsets)
        elif offsets:
            self.ask(COMMIT, self._commit_facts(offsets, generation), timeout_ms)
        self._buffer.committed(offsets)

    def close(self, timeout_ms: int) -> None:
        """Commits what is finished, releases locks, leaves the group, ends the thread."""
        self.leave(timeout_ms)
        if self.is_alive():
            self.join()

    def leave(self, timeout_ms: int) -> None:
        """Starts what `close` does, without waiting for it."""
        self._closing = boottime_s() + timeout_ms / 1000
        end = self._rpc.close if self.ident is None else self.wake  # it may never have begun
        end()

    # --- the thread

    def run(self) -> None:
        try:
            while not self._is_done():
                self._cycle(boottime_s())
        except Exception as error:
            log.exception("the I/O thread of the member %s failed", self.rules.member)
            known = error if isinstance(error, TowlineError) else MalformedFrame(f"the I/O thread failed: {error!r}")
            self._buffer.fail(known, fatal=True)
        finally:
            self._rpc.close()
            for call in self._calls:
                call.finish(None, ClientClosed("consumer"))

    def _is_done(self) -> bool:
        if self._closing is None:
            return False
        if not self.generation:
            return True  # it was never in
        if not self._left and boottime_s() >= self._closing:
            log.warning("%s left %s without a word: the node is out of reach", self.rules.member, self.rules.group)
            return True
        return self._left

    def _cycle(self, now: float) -> None:
        if self.is_joined and now - self._rpc.heard > self._expires_s:
            self._reset_membership("out of touch with the node for longer than it keeps silent members")
        try:
            link = self._reach(now)
            if link is None:
                return
            self._start_tasks(now)
            wake = self._next(now)
            if self.is_joined and self._closing is None:
                wake = self.puller.send(link, now, wake)
            self._rpc.wait(wake - now)
            for parts in self._rpc.receive(link):
                self.puller.on_answer(parts)
            self.puller.check_replica(now)
            if link.lost or self._rpc.is_late(now) or self.puller.are_late(now):
                self._disconnect()
        except (LinkRefused, MalformedFrame) as error:
            self._disconnect()
            self._try_at = now + AGAIN_S
            self._buffer.fail(error)
        except TowlineError as error:
            self._handle_refusal(error, now)

    def _reach(self, now: float) -> Link | None:
        link = self._rpc.link
        if link is not None:
            return link
        self._disconnect()
        if now < self._try_at:
            self._rpc.wait(min(self._try_at - now, SLEEP_MAX_S))
            return None
        try:
            return self._rpc.connection.open(GREETING_STEP_MS)
        except NoAnswer as error:
            self._report_trouble(NoAnswer(error.endpoint, self.rules.timeout_ms, error.trouble), now)
            self._try_at = now + GREETING_STEP_MS / 1000
            return None

    def _disconnect(self, learned: tuple[str, ...] = ()) -> None:
        self._rpc.disconnect(learned)
        self.is_joined = False
        self._join_at = 0.0
        self.puller.disconnect()
        self._buffer.uncommitted()

    def _report_trouble(self, error: TowlineError, now: float) -> None:
        """Told to the application when it lasts, then again each time it has lasted as long."""
        since = self._troubled = now if self._troubled is None else self._troubled
        if now - since >= self.rules.timeout_ms / 1000:
            self._troubled = None
            self._buffer.fail(error)

    def _handle_refusal(self, error: TowlineError, now: float) -> None:
        """A question was answered with an error that its task did not expect."""
        if self._closing is not None:
            return  # such as a watch that ends because we have left
        if isinstance(error, AskedNoMaster) and self._may_move(error):
            self._disconnect(self._rpc.connection.led_to(error.facts))
            self._report_trouble(error, now)
        elif isinstance(error, AskRefused) and error.error == "UNKNOWN_MEMBER":
            self._reset_membership("the node does not know it any more")
        elif isinstance(error, AskRefused) and error.error == CONSUME_DISABLED:
            of = self.rules.group, self.rules.broadcasting
            disabled = ConsumeDisabled(error.op, error.error, error.sentence, error.advised, *of)
            self._switched_off(disabled, now)
        elif isinstance(error, AskRefused) and error.error in _PATIENT:
            taken = error.error == "MEMBER_TAKEN"
            if taken and self._buffer.queues:
                self._reset_membership("another consumer has this member's name")
            self.is_joined, self._join_at = False, now + AGAIN_S
            self._report_trouble(MemberTaken(self.rules.group, self.rules.member) if taken else error, now)
        else:
            self._join_at = self._watch_at = self._begin_at = now + AGAIN_S
            self._buffer.fail(error)

    def _switched_off(self, error: ConsumeDisabled, now: float) -> None:
        """Nothing is read until the group is switched on, which joining again shows."""
        if self._buffer.queues:
            if self.rules.auto_commit:
                self._rpc.start("commit", self._commit(self._buffer.committable()))
            self._reset_membership(error.sentence)
        self.is_joined, self._join_at = False, now + AGAIN_S
        self._buffer.fail(error)

    def _may_move(self, error: AskedNoMaster) -> bool:
        """Whether there is another node that may be the master."""
        connection = self._rpc.connection
        return connection.has_choice or bool(connection.led_to(error.facts))

    # --- what is due

    def _start_tasks(self, now: float) -> None:
        rpc = self._rpc
        if now >= self._bury_at:
            self._bury_at = now + SLEEP_MAX_S
            self._buffer.reclaim()
        for _ in range(len(self._calls)):  # what cannot be sent now goes back to the end
            call = self._calls.popleft()
            if call.op == COMMIT and not self.is_joined and self._closing is None:
                self._calls.append(call)
            elif now < call.deadline:
                rpc.start(f"call {id(call)}", self._forward(call))
        if self._closing is not None:
            rpc.start("leave", self._leave_group())
            return
        if not self.is_joined:
            if now >= self._join_at:
                rpc.start("join", self._join())
            return
        if now >= self._watch_at:
            rpc.start("watch", self._watch())
        if self.rules.ordered and now >= self._lock_at:
            rpc.start("lock", self._lock())
        if now >= self._begin_at and self._starting():
            rpc.start("begin", self._begin())
        if self.rules.ordered:
            self._release_queues()
        if self.rules.auto_commit and now >= self._commit_at:
            self._commit_at = now + self.rules.commit_interval_ms / 1000
            rpc.start("commit", self._commit(self._buffer.committable()))

    def _next(self, now: float) -> float:
        dues = [now + SLEEP_MAX_S]
        if not self.is_joined:
            dues.append(self._join_at)
        else:
            dues += [self._commit_at] if self.rules.auto_commit else []
            dues += [self._lock_at] if self.rules.ordered else []
            dues += [self._begin_at] if self._starting() else []
        return min(due if due > now else now + AGAIN_S for due in dues)

    def _forward(self, call: PendingCall) -> Task:
        """A question of another thread; asked again when its link is lost."""
        try:
            reply = yield Question(call.op, call.facts)
        except AskedNoMaster as error:
            if not self._may_move(error):
                call.finish(None, error)
                return
            self._calls.append(call)  # for the node that is
            raise
        except TowlineError as error:
            call.finish(None, error)
        except GeneratorExit:
            self._calls.append(call)
            raise
        else:
            call.finish(reply, None)

    # --- membership

    def _join(self) -> Task:
        rules = self.rules
        start = rules.start if isinstance(rules.start, str) else to_ms(rules.start)
        yield from self._reconcile()
        reply = yield Question(
            "group_join",
            {
                "group": rules.group,
                "member": rules.member,
                "instance": rules.instance,
                "model": "broadcasting" if rules.broadcasting else "clustering",
                "topics": {topic: wanted.facts for topic, wanted in rules.subscriptions.items()},
                "from": start,
                "strategy": rules.strategy,
                "generation": self.generation,
            },
            held_s=WATCH_S,
        )
        self._update_group(reply.facts)

    def _reconcile(self) -> Task:
        """Under another master than before: what it does not have of what we read comes again under the same numbers,
        as other messages, and is not passed over (H15)."""
        epoch = self._rpc.connection.epoch
        if self.generation and epoch > self._epoch:
            with self._buffer.lock:
                topics = {topic for topic, _ in (*self._buffer.queues, *self._finished)}
            ends: Offsets = {}
            for topic in sorted(topics):
                try:
                    reply = yield Question("epoch_ends", {"topic": topic, "epoch": self._epoch})
                except UnknownTopic:
                    continue
                ends |= {(topic, int(queue_id)): int(end) for queue_id, end in reply.facts["ends"].items()}
            self._roll_back(ends)
        self._epoch = max(epoch, self._epoch)

    def _roll_back(self, ends: Offsets) -> None:
        self._finished |= {key: min(offset, ends.get(key, offset)) for key, offset in self._finished.items()}
        with self._buffer.lock:
            for key, end in ends.items():
                queue = self._buffer.queues.get(key)
                if queue is not None and queue.stage is Stage.READING and queue.fetch > end:
                    self.puller.rolled_back(queue, end)
                    self._finished[key] = min(queue.committable, end)
                    self._restart(queue)

    def _watch(self) -> Task:
        facts = {"group": self.rules.group, "member": self.rules.member, "instance": self.rules.instance}
        reply = yield Question("group_watch", {**facts, "generation": self.generation}, held_s=WATCH_S)
        self._update_group(reply.facts)

    def _update_group(self, facts: dict[str, Any]) -> None:
        """What the node says of the group: who is in it, and how many queues each topic has."""
        self._troubled = None
        self._buffer.clear_error()
        queues = {str(topic): int(count) for topic, count in facts["queues"].items()}
        if not self.generation:
            for topic in self.rules.subscriptions.keys() - self.rules.optional:
                if not queues.get(topic):
                    raise UnknownTopic(topic)
        self._expires_s, self._lock_s = int(facts["expires_ms"]) / 1000, int(facts.get("lock_ms", 60_000)) / 1000
        self.settings = dict(facts.get("settings", {}))
        for warning in facts.get("warnings", []):
            if warning not in self.warnings:
                log.warning("group %s: %s", self.rules.group, warning)
                self.warnings.append(warning)
        before = self.generation
        self._reset({str(topic): int(number) for topic, number in facts.get("resets", {}).items()}, first=not before)
        self.generation = int(facts["generation"])  # last: what was read before a reset is committed as of before it
        self.members = [str(member) for member in facts["members"]]
        subscribers, shares = facts.get("subscribers", {}), facts.get("shares", {})
        wanted = {
            (topic, queue_id)
            for topic in self.rules.subscriptions
            for queue_id in (
                shares[topic]
                if topic in shares
                else self._share(str(facts["strategy"]), queues.get(topic, 0), subscribers.get(topic, self.members))
            )
        }
        self._divide(wanted, before)
        if not self.is_joined:
            self.is_joined, self._lock_at = True, boottime_s()  # another process may not know of our locks

    def _share(self, strategy: str, count: int, members: list[str]) -> list[int]:
        everything = list(range(count))
        # In every group of nodes another member comes first, so that few queues of many groups have many readers.
        first = self.rules.place % max(1, len(members))
        members = members[first:] + members[:first]
        return everything if self.rules.broadcasting else allocate(strategy, everything, members, self.rules.member)

    def _reset(self, resets: dict[str, int], *, first: bool) -> None:
        """Somebody set the offsets: the queues of these topics begin anew, and nothing read before is committed."""
        with self._buffer.lock:
            for queue in list(self._buffer.queues.values()):
                if not first and resets.get(queue.topic, 0) > self._resets.get(queue.topic, 0):
                    self._restart(queue)
        for key in [key for key in self._finished if resets.get(key[0], 0) > self._resets.get(key[0], 0)]:
            del self._finished[key]
        self._resets.update(resets)

    def _divide(self, wanted: set[tuple[str, int]], generation: int) -> None:
        self._finished = {key: offset for key, offset in self._finished.items() if key in wanted}
        with self._buffer.lock:
            held = self._buffer.queues
            for key in wanted & held.keys():
                if held[key].stage is Stage.LEAVING:
                    held[key].stage = Stage.READING
                    self._buffer.enqueue(held[key])
            gone = [held[key] for key in held.keys() - wanted if held[key].stage is not Stage.LEAVING]
            lost = {queue.key: queue.committable for queue in gone if queue.stage is Stage.READING}
            for queue in gone:
                if self.rules.ordered and queue.stage is Stage.READING:
                    queue.stage = Stage.LEAVING
                else:
                    queue.drop()
                    del held[queue.key]
            for topic, queue_id in sorted(wanted - held.keys()):
                made = GroupQueue(topic, queue_id, self.rules.subscriptions[topic])
                if self.rules.ordered:
                    made.locked_until = 0.0
                held[made.key] = made
            new = any(queue.stage is Stage.STARTING for queue in held.values())
        if lost:
            self.rebalances.append(Rebalance(self.generation, lost=lost))
            if self.rules.auto_commit and not self.rules.ordered:
                self._rpc.start(f"give up {self.generation}", self._commit(lost, generation))
        if new:
            now = boottime_s()
            self._lock_at = now
            self._begin_at = now + (HAND_OVER_S if len(self.members) > 1 else 0.0)

    def _reset_membership(self, why: str) -> None:
        """The queues may have been others' meanwhile: they begin anew, where we are, or where others are further on."""
        log.warning("member %s of %s starts anew: %s", self.rules.member, self.rules.group, why)
        with self._buffer.lock:
            queues = self._buffer.queues
            lost = {key: queue.committable for key, queue in queues.items() if queue.stage is not Stage.STARTING}
            for queue in queues.values():
                queue.drop()
            queues.clear()
        self._finished |= lost
        self._rpc.heard = boottime_s()
        self.is_joined, self._join_at = False, 0.0
        if lost:
            self.rebalances.append(Rebalance(self.generation, lost=lost))

    def _restart(self, queue: GroupQueue) -> None:
        """Starts the queue again at its committed offset. Under the buffer's lock."""
        queue.seek(UNKNOWN)
        queue.committed = UNKNOWN
        queue.stage = Stage.STARTING

    # --- beginning a queue

    def _starting(self) -> list[GroupQueue]:
        now = boottime_s()
        with self._buffer.lock:
            return [
                queue
                for queue in self._buffer.queues.values()
                if queue.stage is Stage.STARTING and now < queue.locked_until
            ]

    def _begin(self) -> Task:
        """The queues that have no offset yet. A clustering group's were set by the node when the group first joined."""
        starting = self._starting()
        serials = [queue.serial for queue in starting]
        topics = sorted({queue.topic for queue in starting})
        found: dict[tuple[str, int], int] = {}
        if self._offsets is not None:
            found = self._offsets.load()
        else:
            reply = yield Question("group_offsets", {"group": self.rules.group, "topics": topics})
            for topic, offsets in reply.facts["offsets"].items():
                found |= {(topic, int(queue_id)): int(offset) for queue_id, offset in offsets.items()}
        missing = [queue.key for queue in starting if found.get(queue.key, UNKNOWN) == UNKNOWN]
        if missing:
            known = {topic for (topic, _), offset in found.items() if offset != UNKNOWN}
            first: Offsets = {}
            for topic in {topic for topic, _ in missing}:
                # A queue that came later, to a topic that is read already, is read from its first message on.
                start = self.rules.start if self._offsets is not None and topic not in known else "first"
                first |= yield from first_offsets([key for key in missing if key[0] == topic], start)
            found |= first
            if self._offsets is not None:
                self._offsets.save(first)  # "last" is where the group began, not where it is when it comes back
        gained = {}
        with self._buffer.lock:
            for queue, serial in zip(starting, serials, strict=True):
                as_it_was = queue.stage is Stage.STARTING and queue.serial == serial  # no reset came meanwhile
                if self._buffer.queues.get(queue.key) is queue and as_it_was and queue.key in found:
                    offset = max(found[queue.key], self._finished.pop(queue.key, UNKNOWN))
                    queue.begin(offset)
                    queue.committed = found[queue.key]
                    gained[queue.key] = offset
        if gained:
            self.rebalances.append(Rebalance(self.generation, gained=gained))

    # --- locks

    def _lock(self) -> Task:
        """Of all our queues. Deliveries of a queue stop half a lock's life after its last renewal."""
        asked = boottime_s()
        self._lock_at = asked + AGAIN_S
        with self._buffer.lock:
            keys = list(self._buffer.queues)
        if not keys:
            return
        facts = {"queues": [list(key) for key in keys], "claims": self._claims.of(keys, asked)}
        reply = yield Question("group_lock", self.rules.identity | facts)
        locked = {(str(topic), int(queue_id)) for topic, queue_id in reply.facts["locked"]}
        self._claims.answered(keys, locked, asked + self._lock_s)
        now = boottime_s()
        with self._buffer.lock:
            ours = [self._buffer.queues[key] for key in keys if key in self._buffer.queues]
            for queue in ours:
                lapsed = now >= queue.locked_until
                if queue.stage is Stage.READING and (lapsed or queue.key not in locked):
                    self._finished[queue.key] = queue.committable
                    self._restart(queue)  # somebody else may have had it meanwhile
                queue.locked_until = asked + self._lock_s / 2 if queue.key in locked else 0.0
                self._buffer.enqueue(queue)
            if all(queue.key in locked for queue in ours):
                self._lock_at = asked + self._lock_s / 6

    def _release_queues(self) -> None:
        """Queues that others wait for, as soon as nobody has a message of theirs in hand."""
        with self._buffer.lock:
            idle = [queue for queue in self._buffer.queues.values() if queue.stage is Stage.LEAVING]
            idle = [queue for queue in idle if not self._buffer.is_busy(queue)]
            offsets = {queue.key: queue.committable for queue in idle if queue.committable != UNKNOWN}
            for queue in idle:
                queue.drop()
                del self._buffer.queues[queue.key]
        if idle:
            keys = [queue.key for queue in idle]
            self._rpc.start(f"release {keys}", self._return_queues(keys, offsets if self.rules.auto_commit else {}))

    def _return_queues(self, keys: list[tuple[str, int]], offsets: dict[tuple[str, int], int]) -> Task:
        try:
            yield from self._commit(offsets)
        except AskRefused as error:  # whoever locks them next reads again what was not committed
            log.warning("group %s: %s", self.rules.group, error.describe())
        with self._buffer.lock:
            given = [key for key in keys if key not in self._buffer.queues]  # the others are ours again
        if given:
            yield self._unlock(given)

    def _unlock(self, keys: list[tuple[str, int]]) -> Question:
        """To be asked at once."""
        claims = self._claims.release(keys, boottime_s())
        facts = {"queues": [list(key) for key in keys], "claims": claims}
        return Question("group_unlock", self.rules.identity | facts)

    # --- committing and leaving

    def _commit_facts(self, offsets: dict[tuple[str, int], int], generation: int | None = None) -> dict[str, Any]:
        table: dict[str, dict[str, int]] = {}
        for (topic, queue_id), offset in offsets.items():
            table.setdefault(topic, {})[str(queue_id)] = offset
        number = self.generation if generation is None else generation
        return {**self.rules.identity, "generation": number, "epoch": self._epoch, "offsets": table}

    def _commit(self, offsets: dict[tuple[str, int], int], generation: int | None = None) -> Task:
        """`generation` is that of the queues, when they are ours no more."""
        if not offsets:
            return
        if self._offsets is not None:
            self._offsets.save(offsets)
        else:
            yield Question(COMMIT, self._commit_facts(offsets, generation))
        self._buffer.committed(offsets)

    def _leave_group(self) -> Task:
        try:
            if self.rules.auto_commit:
                yield from self._commit(self._buffer.committable())
            with self._buffer.lock:
                queues = list(self._buffer.queues.values())
                busy = [list(queue.key) for queue in queues if self._buffer.is_busy(queue)]
            if self.rules.ordered:
                yield self._unlock([queue.key for queue in queues if list(queue.key) not in busy])
            yield Question("group_leave", self.rules.identity | {"busy": busy})
        except TowlineError as error:
            log.warning("member %s leaves %s: %s", self.rules.member, self.rules.group, error.describe())
        self._left = True
