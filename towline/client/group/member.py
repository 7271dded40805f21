"""The I/O thread of a group's member: it joins, watches the membership, pulls its queues, commits, and keeps locks.

It alone touches the link, and waits for nothing but events. Whatever happens to the node or the link, the thread goes
on: it joins anew and reads on at the committed offsets.

Nothing is skipped: a queue is begun at its committed offset, only what the application has finished is committed, and
that without gaps. Messages come twice when a queue changes hands while some of them are finished but not committed, or
in the application's hands; and when the thread was out of touch with the node for so long that it is taken for dead.
"""

import logging
import threading
from collections import deque
from collections.abc import Callable
from typing import Any, Final

from towline.client.errors import AskRefused, ClientClosed
from towline.client.link.connection import Connection, own_facts
from towline.client.link.endpoints import Endpoints
from towline.client.link.rpc import AskedNoMaster, Reply
from towline.client.link.waking import Asking
from towline.client.read.reader import to_ms
from towline.clock import boottime_s
from towline.errors import LinkRefused, MalformedFrame, NoAnswer, TowlineError, UnknownTopic
from towline.format.wire.allocation import allocate
from towline.link.dealer import Link

from .claims import Claims
from .coordinator_rpc import Question, Talk, Task
from .errors import CONSUME_DISABLED, ConsumeDisabled, MemberTaken
from .fetch_buffer import Shelf
from .offsets import OffsetsFile
from .places import Places, first_offsets
from .pulling import Pulling
from .queue import UNKNOWN, GroupQueue, Rebalance, Stage
from .rules import Rules

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
        rules: Rules,
        shelf: Shelf,
        offsets: OffsetsFile | None,
    ) -> None:
        super().__init__(name=f"towline member {rules.member} of {rules.group}", daemon=True)
        self.rules = rules
        self.rebalances: deque[Rebalance] = deque(maxlen=REBALANCES_MAX)
        self.generation = 0
        self.members: list[str] = []
        self.settings: dict[str, Any] = {}
        self.warnings: list[str] = []
        self._shelf = shelf
        self._offsets = offsets
        self._talk = Talk(endpoints, own_facts("consumer", rules.member, rules.cluster))
        self.pulling = Pulling(rules, shelf, self._talk)
        self._questions: deque[Asking] = deque()
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
        self._parted = False
        self.gone = ClientClosed("consumer")  # what is told once the thread is no more

    # --- other threads

    @property
    def connection(self) -> Connection:
        """Any thread may ask what it knows of the nodes."""
        return self._talk.connection

    def ring(self) -> None:
        """There is room for another answer, or something else to do."""
        self._talk.bell.ring()

    def ask(self, op: str, facts: dict[str, Any], timeout_ms: int) -> Reply:
        """Waits for the reply. Raises NoAnswer, ClientClosed and what the answer says."""
        asking = Asking(op, facts, timeout_ms, boottime_s() + timeout_ms / 1000)
        self._questions.append(asking)
        self.ring()
        while not asking.answered.wait(max(0.0, min(SLEEP_MAX_S, asking.deadline - boottime_s())) * self.is_alive()):
            if not self.is_alive():
                raise self.gone
            if boottime_s() >= asking.deadline:
                raise NoAnswer(self.connection.endpoint, timeout_ms, f"the question {op!r} was not answered")
        if asking.error is not None:
            raise asking.error
        assert asking.reply is not None
        return asking.reply

    def commit(self, timeout_ms: int) -> None:
        """Everything that is finished; waits for it. Raises what `ask` raises."""
        generation, offsets = self.generation, self._shelf.handled()
        if offsets and self._offsets is not None:
            self._offsets.save(offsets)
        elif offsets:
            self.ask(COMMIT, self._commit_facts(offsets, generation), timeout_ms)
        self._shelf.committed(offsets)

    def close(self, timeout_ms: int) -> None:
        """Commits what is finished, gives back locks, leaves the group, ends the thread."""
        self.leave(timeout_ms)
        if self.is_alive():
            self.join()

    def leave(self, timeout_ms: int) -> None:
        """The same, without waiting for it."""
        self._closing = boottime_s() + timeout_ms / 1000
        end = self._talk.close if self.ident is None else self.ring  # it may never have begun
        end()

    # --- the thread

    def run(self) -> None:
        try:
            while not self._over():
                self._turn(boottime_s())
        except Exception as error:
            log.exception("the I/O thread of the member %s failed", self.rules.member)
            known = error if isinstance(error, TowlineError) else MalformedFrame(f"the I/O thread failed: {error!r}")
            self._shelf.fail(known, fatal=True)
        finally:
            self._talk.close()
            for asking in self._questions:
                asking.finish(None, ClientClosed("consumer"))

    def _over(self) -> bool:
        if self._closing is None:
            return False
        if not self.generation:
            return True  # it was never in
        if not self._parted and boottime_s() >= self._closing:
            log.warning("%s left %s without a word: the node is out of reach", self.rules.member, self.rules.group)
            return True
        return self._parted

    def _turn(self, now: float) -> None:
        if self.is_joined and now - self._talk.heard > self._expires_s:
            self._forget("out of touch with the node for longer than it keeps silent members")
        try:
            link = self._reach(now)
            if link is None:
                return
            self._start_tasks(now)
            wake = self._next(now)
            if self.is_joined and self._closing is None:
                wake = self.pulling.send(link, now, wake)
            self._talk.wait(wake - now)
            for parts in self._talk.receive(link):
                self.pulling.came(parts)
            self.pulling.look_aside(now)
            if link.lost or self._talk.is_late(now) or self.pulling.are_late(now):
                self._lose()
        except (LinkRefused, MalformedFrame) as error:
            self._lose()
            self._try_at = now + AGAIN_S
            self._shelf.fail(error)
        except TowlineError as error:
            self._refused(error, now)

    def _reach(self, now: float) -> Link | None:
        link = self._talk.link
        if link is not None:
            return link
        self._lose()
        if now < self._try_at:
            self._talk.wait(min(self._try_at - now, SLEEP_MAX_S))
            return None
        try:
            return self._talk.connection.open(GREETING_STEP_MS)
        except NoAnswer as error:
            self._trouble(NoAnswer(error.endpoint, self.rules.timeout_ms, error.trouble), now)
            self._try_at = now + GREETING_STEP_MS / 1000
            return None

    def _lose(self, learned: tuple[str, ...] = ()) -> None:
        self._talk.lose(learned)
        self.is_joined = False
        self._join_at = 0.0
        self.pulling.lose()
        self._shelf.uncommitted()

    def _trouble(self, error: TowlineError, now: float) -> None:
        """Told to the application when it lasts, then again each time it has lasted as long."""
        since = self._troubled = now if self._troubled is None else self._troubled
        if now - since >= self.rules.timeout_ms / 1000:
            self._troubled = None
            self._shelf.fail(error)

    def _refused(self, error: TowlineError, now: float) -> None:
        """A question was answered with an error that its task did not expect."""
        if self._closing is not None:
            return  # such as a watch that ends because we have left
        if isinstance(error, AskedNoMaster) and self._may_move(error):
            self._lose(error.masters)
            self._trouble(error, now)
        elif isinstance(error, AskRefused) and error.error == "UNKNOWN_MEMBER":
            self._forget("the node does not know it any more")
        elif isinstance(error, AskRefused) and error.error == CONSUME_DISABLED:
            self._switched_off(ConsumeDisabled(error.op, error.error, error.sentence), now)
        elif isinstance(error, AskRefused) and error.error in _PATIENT:
            taken = error.error == "MEMBER_TAKEN"
            if taken and self._shelf.queues:
                self._forget("another consumer has this member's name")
            self.is_joined, self._join_at = False, now + AGAIN_S
            self._trouble(MemberTaken(self.rules.group, self.rules.member) if taken else error, now)
        else:
            self._join_at = self._watch_at = self._begin_at = now + AGAIN_S
            self._shelf.fail(error)

    def _switched_off(self, error: ConsumeDisabled, now: float) -> None:
        """Nothing is read until the group is switched on, which joining again shows."""
        if self._shelf.queues:
            if self.rules.auto_commit:
                self._talk.start("commit", self._commit(self._shelf.handled()))
            self._forget(error.sentence)
        self.is_joined, self._join_at = False, now + AGAIN_S
        self._shelf.fail(error)

    def _may_move(self, error: AskedNoMaster) -> bool:
        """Whether there is another node that may be the master."""
        return self._talk.connection.has_choice or bool(error.masters)

    # --- what is due

    def _start_tasks(self, now: float) -> None:
        talk = self._talk
        if now >= self._bury_at:
            self._bury_at = now + SLEEP_MAX_S
            self._shelf.bury()
        for _ in range(len(self._questions)):  # what cannot be sent now goes back to the end
            asking = self._questions.popleft()
            if asking.op == COMMIT and not self.is_joined and self._closing is None:
                self._questions.append(asking)
            elif now < asking.deadline:
                talk.start(f"asking {id(asking)}", self._put(asking))
        if self._closing is not None:
            talk.start("part", self._part())
            return
        if not self.is_joined:
            if now >= self._join_at:
                talk.start("join", self._join())
            return
        if now >= self._watch_at:
            talk.start("watch", self._watch())
        if self.rules.ordered and now >= self._lock_at:
            talk.start("lock", self._lock())
        if now >= self._begin_at and self._starting():
            talk.start("begin", self._begin())
        if self.rules.ordered:
            self._let_go()
        if self.rules.auto_commit and now >= self._commit_at:
            self._commit_at = now + self.rules.commit_interval_ms / 1000
            talk.start("commit", self._commit(self._shelf.handled()))

    def _next(self, now: float) -> float:
        dues = [now + SLEEP_MAX_S]
        if not self.is_joined:
            dues.append(self._join_at)
        else:
            dues += [self._commit_at] if self.rules.auto_commit else []
            dues += [self._lock_at] if self.rules.ordered else []
            dues += [self._begin_at] if self._starting() else []
        return min(due if due > now else now + AGAIN_S for due in dues)

    def _put(self, asking: Asking) -> Task:
        """A question of another thread; asked again when its link is lost."""
        try:
            reply = yield Question(asking.op, asking.facts)
        except AskedNoMaster as error:
            if not self._may_move(error):
                asking.finish(None, error)
                return
            self._questions.append(asking)  # for the node that is
            raise
        except TowlineError as error:
            asking.finish(None, error)
        except GeneratorExit:
            self._questions.append(asking)
            raise
        else:
            asking.finish(reply, None)

    # --- membership

    def _join(self) -> Task:
        rules = self.rules
        start = rules.start if isinstance(rules.start, str) else to_ms(rules.start)
        yield from self._settle()
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
        self._told(reply.facts)

    def _settle(self) -> Task:
        """Under another master than before: what it does not have of what we read comes again under the same numbers,
        as other messages, and is not passed over (H15)."""
        epoch = self._talk.connection.epoch
        if self.generation and epoch > self._epoch:
            with self._shelf.lock:
                topics = {topic for topic, _ in (*self._shelf.queues, *self._finished)}
            ends: Places = {}
            for topic in sorted(topics):
                try:
                    reply = yield Question("epoch_ends", {"topic": topic, "epoch": self._epoch})
                except UnknownTopic:
                    continue
                ends |= {(topic, int(queue_id)): int(end) for queue_id, end in reply.facts["ends"].items()}
            self._take_back(ends)
        self._epoch = max(epoch, self._epoch)

    def _take_back(self, ends: Places) -> None:
        self._finished |= {key: min(offset, ends.get(key, offset)) for key, offset in self._finished.items()}
        with self._shelf.lock:
            for key, end in ends.items():
                queue = self._shelf.queues.get(key)
                if queue is not None and queue.stage is Stage.READING and queue.fetch > end:
                    self.pulling.took_back(queue, end)
                    self._finished[key] = min(queue.handled, end)
                    self._restart(queue)

    def _watch(self) -> Task:
        facts = {"group": self.rules.group, "member": self.rules.member, "instance": self.rules.instance}
        reply = yield Question("group_watch", {**facts, "generation": self.generation}, held_s=WATCH_S)
        self._told(reply.facts)

    def _told(self, facts: dict[str, Any]) -> None:
        """What the node says of the group: who is in it, and how many queues each topic has."""
        self._troubled = None
        self._shelf.well()
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
        subscribers = facts.get("subscribers", {})
        wanted = {
            (topic, queue_id)
            for topic in self.rules.subscriptions
            for queue_id in self._share(
                str(facts["strategy"]), queues.get(topic, 0), subscribers.get(topic, self.members)
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
        with self._shelf.lock:
            for queue in list(self._shelf.queues.values()):
                if not first and resets.get(queue.topic, 0) > self._resets.get(queue.topic, 0):
                    self._restart(queue)
        for key in [key for key in self._finished if resets.get(key[0], 0) > self._resets.get(key[0], 0)]:
            del self._finished[key]
        self._resets.update(resets)

    def _divide(self, wanted: set[tuple[str, int]], generation: int) -> None:
        self._finished = {key: offset for key, offset in self._finished.items() if key in wanted}
        with self._shelf.lock:
            held = self._shelf.queues
            for key in wanted & held.keys():
                if held[key].stage is Stage.LEAVING:
                    held[key].stage = Stage.READING
                    self._shelf.list(held[key])
            gone = [held[key] for key in held.keys() - wanted if held[key].stage is not Stage.LEAVING]
            lost = {queue.key: queue.handled for queue in gone if queue.stage is Stage.READING}
            for queue in gone:
                if self.rules.ordered and queue.stage is Stage.READING:
                    queue.stage = Stage.LEAVING
                else:
                    queue.leave()
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
                self._talk.start(f"give up {self.generation}", self._commit(lost, generation))
        if new:
            now = boottime_s()
            self._lock_at = now
            self._begin_at = now + (HAND_OVER_S if len(self.members) > 1 else 0.0)

    def _forget(self, why: str) -> None:
        """The queues may have been others' meanwhile: they begin anew, where we are, or where others are further on."""
        log.warning("member %s of %s starts anew: %s", self.rules.member, self.rules.group, why)
        with self._shelf.lock:
            queues = self._shelf.queues
            lost = {key: queue.handled for key, queue in queues.items() if queue.stage is not Stage.STARTING}
            for queue in queues.values():
                queue.leave()
            queues.clear()
        self._finished |= lost
        self._talk.heard = boottime_s()
        self.is_joined, self._join_at = False, 0.0
        if lost:
            self.rebalances.append(Rebalance(self.generation, lost=lost))

    def _restart(self, queue: GroupQueue) -> None:
        """Under the shelf's lock: the queue begins anew at its committed offset."""
        queue.go(UNKNOWN)
        queue.committed = UNKNOWN
        queue.stage = Stage.STARTING

    # --- beginning a queue

    def _starting(self) -> list[GroupQueue]:
        now = boottime_s()
        with self._shelf.lock:
            return [
                queue
                for queue in self._shelf.queues.values()
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
            first: Places = {}
            for topic in {topic for topic, _ in missing}:
                # A queue that came later, to a topic that is read already, is read from its first message on.
                start = self.rules.start if self._offsets is not None and topic not in known else "first"
                first |= yield from first_offsets([key for key in missing if key[0] == topic], start)
            found |= first
            if self._offsets is not None:
                self._offsets.save(first)  # "last" is where the group began, not where it is when it comes back
        gained = {}
        with self._shelf.lock:
            for queue, serial in zip(starting, serials, strict=True):
                as_it_was = queue.stage is Stage.STARTING and queue.serial == serial  # no reset came meanwhile
                if self._shelf.queues.get(queue.key) is queue and as_it_was and queue.key in found:
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
        with self._shelf.lock:
            keys = list(self._shelf.queues)
        if not keys:
            return
        facts = {"queues": [list(key) for key in keys], "claims": self._claims.of(keys, asked)}
        reply = yield Question("group_lock", self.rules.identity | facts)
        locked = {(str(topic), int(queue_id)) for topic, queue_id in reply.facts["locked"]}
        self._claims.answered(keys, locked, asked + self._lock_s)
        now = boottime_s()
        with self._shelf.lock:
            ours = [self._shelf.queues[key] for key in keys if key in self._shelf.queues]
            for queue in ours:
                lapsed = now >= queue.locked_until
                if queue.stage is Stage.READING and (lapsed or queue.key not in locked):
                    self._finished[queue.key] = queue.handled
                    self._restart(queue)  # somebody else may have had it meanwhile
                queue.locked_until = asked + self._lock_s / 2 if queue.key in locked else 0.0
                self._shelf.list(queue)
            if all(queue.key in locked for queue in ours):
                self._lock_at = asked + self._lock_s / 6

    def _let_go(self) -> None:
        """Queues that others wait for, as soon as nobody has a message of theirs in hand."""
        with self._shelf.lock:
            idle = [queue for queue in self._shelf.queues.values() if queue.stage is Stage.LEAVING]
            idle = [queue for queue in idle if not self._shelf.is_busy(queue)]
            offsets = {queue.key: queue.handled for queue in idle if queue.handled != UNKNOWN}
            for queue in idle:
                queue.leave()
                del self._shelf.queues[queue.key]
        if idle:
            keys = [queue.key for queue in idle]
            self._talk.start(f"let go {keys}", self._give_back(keys, offsets if self.rules.auto_commit else {}))

    def _give_back(self, keys: list[tuple[str, int]], offsets: dict[tuple[str, int], int]) -> Task:
        try:
            yield from self._commit(offsets)
        except AskRefused as error:  # whoever locks them next reads again what was not committed
            log.warning("group %s: %s", self.rules.group, error.describe())
        with self._shelf.lock:
            given = [key for key in keys if key not in self._shelf.queues]  # the others are ours again
        if given:
            yield self._unlock(given)

    def _unlock(self, keys: list[tuple[str, int]]) -> Question:
        """To be asked at once."""
        claims = self._claims.give_back(keys, boottime_s())
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
        self._shelf.committed(offsets)

    def _part(self) -> Task:
        try:
            if self.rules.auto_commit:
                yield from self._commit(self._shelf.handled())
            with self._shelf.lock:
                queues = list(self._shelf.queues.values())
                busy = [list(queue.key) for queue in queues if self._shelf.is_busy(queue)]
            if self.rules.ordered:
                yield self._unlock([queue.key for queue in queues if list(queue.key) not in busy])
            yield Question("group_leave", self.rules.identity | {"busy": busy})
        except TowlineError as error:
            log.warning("member %s leaves %s: %s", self.rules.member, self.rules.group, error.describe())
        self._parted = True
