"""Group questions of a master: joins the pure parts, answers now, later, or when a group changes.

Nothing is checked while nothing is due: `due_ms` says when `cycle` has work.
"""

import logging
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from towline.clock import Clock
from towline.errors import MalformedFile, MalformedFrame, TowlineError, UnknownTopic
from towline.filter.subscriptions import FilterData
from towline.format.files.groups import SubscriptionGroup, group_members
from towline.format.files.topics import GROUP_PREFIXES
from towline.limits import RETRY_TOPIC_PREFIX
from towline.link.server import Sent
from towline.places import Store
from towline.runtime.settings import Settings

from . import questions
from .describing import describe, listed, membership_facts
from .epochs import EpochBounds
from .errors import GroupRefused, Refusal
from .files import backups_of, clamped_at_start
from .filters import GroupFilters, check, still_filtered
from .locks import QueueLocks
from .members import Group, JoinRequest, Member, Membership
from .offsets import NONE, Offsets
from .request_modes import RequestModes
from .store import GroupStore
from .table import Groups, check_allowed, check_group
from .watching import MemberKey, MemberWatches, ReplyAddress

HOLD_MAX_MS: Final = 10_000
CATCH_UP_MAX_MS: Final = 5_000  # how long a start waits for reput to show what was visible before
REJOIN_MS: Final = 1_000  # after a start, so that all who come back are there when queues are divided
CHECK_EVERY_MS: Final = 250  # at topics, while there are members
CHECK_ALONE_MS: Final = 2_000
RELEASE_EVERY_MS: Final = 10_000  # of what can be forgotten
SAVING_POLL_MS: Final = 5  # while somebody waits for a file
CONFIRMED_LOOK_MS: Final = 50  # at what reput evaluates, while a subscription waits for it
PENDING_MAX: Final = 4_096

Facts = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Queues:
    """The topics and queues of serve. `read_queues` is 0 for an unknown topic; `topics` is None where unknown.

    `search` returns the offset of a topic and queue by store time, `settled` whether reput has dispatched the log of
    the start. `epoch` is the master's, `end_of` a queue's end in an earlier one; None for the newest. `leads`: no other
    node can be master now; `succeeds`: the previous master was another node.
    """

    read_queues: Callable[[str], int]
    topics: Callable[[], Mapping[str, object] | None]
    bounds: Callable[[str, int], tuple[int, int]]
    search: Callable[[str, int, int], int]
    settled: Callable[[], bool]
    epoch: Callable[[], int]
    end_of: Callable[[str, int, int], int | None]
    leads: Callable[[], bool]
    succeeds: Callable[[], bool]


@dataclass(frozen=True, slots=True)
class ReplyChannel:
    """Sends answers. `send` returns whether the peer is still connected; `refuse` answers with an error."""

    send: Callable[[ReplyAddress, Facts], Sent]
    refuse: Callable[[ReplyAddress, TowlineError], Sent]


class GroupService:
    """The `Groups` of a master."""

    def __init__(
        self,
        store: Store,
        settings: Settings,
        clock: Clock,
        log: logging.Logger,
        queues: Queues,
        line: ReplyChannel,
        filters: GroupFilters | None = None,
    ) -> None:
        """`filters` where reput computes bitmaps."""
        self._settings, self._clock, self._log, self._queues, self._line = settings, clock, log, queues, line
        self._offsets = Offsets(queues.bounds)
        self._epochs = EpochBounds(queues.epoch, queues.end_of, log)
        self._groups = Groups(auto_create=settings.auto_create_subscription_group)
        self._expires_ms = settings.consumer_expires_ms
        self._members = Membership(
            queues.read_queues,
            expires_ms=self._expires_ms,
            first_generation=self._first_generation,
            locks_of=self._locks_of,
        )
        interval = settings.flush_consumer_offset_interval
        self._filters = filters
        self._recovery = store.recovery
        self._modes = RequestModes()
        self._store = GroupStore(store, self._offsets, self._groups, filters, self._modes, clock, log, interval)
        self._watches = MemberWatches()
        self._links: dict[MemberKey, bytes] = {}
        self._rejoining: deque[tuple[MemberKey, ReplyAddress]] = deque()
        self._pending: deque[tuple[ReplyAddress, dict[str, Any]]] = deque()
        self._damaged: MalformedFile | None = None
        self._backups: list[str] = []  # files of which the generation before was used
        self._topics: Mapping[str, object] | None = None
        self._missing: set[str] = set()
        self._started_ms = clock.monotonic_ms()
        self._locked_before: frozenset[str] = frozenset()  # groups that may have locked queues before this start
        self._recorded: set[str] = set()  # groups that the start after this one will know
        self._open = False  # questions are answered
        self._settled = False
        self._check_at_ms = self._sweep_ms = self._started_ms
        self.due_ms = self._started_ms
        self._ops: dict[str, Callable[[ReplyAddress, dict[str, Any]], Facts | None]] = {
            "group_join": self._join,
            "group_watch": self._watch,
            "group_leave": self._leave,
            "group_commit": self._commit,
            "group_offsets": self._stored,
            "group_lock": self._lock,
            "group_unlock": self._unlock,
            "group_list": self._list,
            "group_describe": self._describe,
            "group_reset": self._reset,
            "group_delete": self._delete,
            "group_configure": self._configure,
            "group_mode": self._mode,
            "group_set_mode": self._set_mode,
        }

    def load(self) -> None:
        """Loads the files. Damaged files refuse group questions by name, and nothing else of the node."""
        try:
            self._store.load()
        except MalformedFile as error:
            self._damaged = error
            self._log.error("groups are refused: %s", error)
        self._offsets.clamped = clamped_at_start(self._recovery)
        self._backups = backups_of(self._store.files, self._recovery)
        self._locked_before = frozenset({*self._groups.names(), *self._offsets.groups()})
        self._recorded = set(self._locked_before)

    def ask(self, peer: bytes, request_id: int, question: dict[str, Any]) -> None:
        """Answers a question whose `op` begins with group_."""
        reply_to = ReplyAddress(peer, request_id)
        if self._damaged is not None:
            sentence = f"the offsets of consumer groups cannot be read: {self._damaged.describe()}"
            self._refuse(reply_to, GroupRefused(Refusal.OFFSETS_UNREADABLE, sentence))
        elif self._open:
            self._answer(reply_to, question)
        elif len(self._pending) < PENDING_MAX:
            self._pending.append((reply_to, question))
            self.due_ms = 0
        else:
            sentence = "the queues are not dispatched yet to where they were"
            self._refuse(reply_to, GroupRefused(Refusal.STARTING, sentence, SAVING_POLL_MS))

    def subscription(self, topic: str, group: str) -> FilterData | None:
        """The subscription that the bitmaps of messages stand for; None where there are none."""
        return None if self._filters is None else self._filters.get(topic, group)

    def cycle(self, now_ms: int) -> int:
        """Does everything that is due; returns the number of answers."""
        if not self._settled:
            self._settle(now_ms)
        done = 0
        while self._rejoining and self._open and now_ms >= self._started_ms + REJOIN_MS:
            place, reply_to = self._rejoining.popleft()
            done += self._answer_member(place, reply_to)
        for place, reply_to in self._watches.overdue(now_ms):
            done += self._answer_member(place, reply_to)
        for place in self._members.expire(now_ms):
            self._log.warning("member %s left group %s: it was silent for %d ms", *reversed(place), self._expires_ms)
            self._clean_up(place)
        if now_ms >= self._check_at_ms:
            self._check_at_ms = now_ms + (CHECK_EVERY_MS if self._links else CHECK_ALONE_MS)
            self._check(now_ms)
        done += self._wake()
        if self._filters is not None:
            self._filters.cycle(now_ms)
        if self._damaged is None:
            self._store.cycle(now_ms)
        self.due_ms = 0 if self._members.changed else self._next_ms(now_ms)
        return done

    def adjust(self, settings: Settings) -> None:
        self._settings = settings
        self._groups.auto_create = settings.auto_create_subscription_group

    def gone(self, peer: bytes) -> None:
        """Stops waiting for members whose peer has disconnected."""
        places = [place for place, link in self._links.items() if link == peer]
        for place in places:  # all of them first: telling somebody may show that a link has ended, which leads here
            del self._links[place]
        for place in places:
            self._log.info("member %s left group %s: its link ended", *reversed(place))
            self._members.gone(*place)
            reply_to = self._watches.take(place)
            if reply_to is not None and reply_to.peer != peer:
                self._answer_member(place, reply_to)
            self.due_ms = 0

    def close(self) -> None:
        """Answers every watch; the last offsets are on disk when this returns."""
        for place, reply_to in self._watches.take_all():
            self._answer_member(place, reply_to)
        for reply_to, _ in self._pending:
            self._refuse(reply_to, GroupRefused(Refusal.STARTING, "the node is being stopped", HOLD_MAX_MS))
        self._pending.clear()
        if self._damaged is None:
            self._store.close()

    # --- by the clock

    def _next_ms(self, now_ms: int) -> int:
        if not self._open or self._store.awaited:
            return now_ms + SAVING_POLL_MS
        times = [self._check_at_ms]
        if self._filters is not None and self._filters.waiting:
            times.append(now_ms + CONFIRMED_LOOK_MS)
        if self._damaged is None:
            times.append(self._store.due_ms)
        times += [at for at in (self._watches.due_ms(), self._members.next_expiry_ms()) if at is not None]
        if self._rejoining:
            times.append(self._started_ms + REJOIN_MS)
        return min(times)

    def _settle(self, now_ms: int) -> None:
        """Waits until queues are as long as they were before bounds are believed: reput may still be at work."""
        settled = self._queues.settled()
        late = now_ms - self._started_ms >= CATCH_UP_MAX_MS
        self._settled = settled
        if late and not (settled or self._open):
            self._log.warning("groups are served before the queues are dispatched to where they were")
        if (settled or late) and not self._open:
            self._open = True
            for reply_to, question in self._pending:
                self._answer(reply_to, question)
            self._pending.clear()

    def _check(self, now_ms: int) -> None:
        if now_ms >= self._sweep_ms:
            self._sweep_ms = now_ms + RELEASE_EVERY_MS
            self._members.evict_empty(now_ms)
        topics = self._queues.topics()
        if topics is not self._topics:
            self._topics = topics
            self._members.recount()
        elif not self._missing:
            return
        if not topics or not self._settled:
            return
        # Twice missing: between two renames of its owner, the file of topics is the generation before.
        missing = self._offsets.topics() - topics.keys()
        for topic in sorted(self._offsets.drop_topics(missing & self._missing)):
            self._log.info("the offsets of topic %s are dropped: it was deleted", topic)
        self._missing = missing - self._missing

    def _wake(self) -> int:
        """Answers the watches of changed groups. Sending may reveal a departed member, which changes its group
        again."""
        done = 0
        while changed := self._members.take_changed():
            for name in changed:
                group = self._members.get(name)
                if self._filters is not None:
                    self._filters.left(name, still_filtered(group))
                for place, reply_to in self._watches.take_of(name, list(group.members) if group is not None else ()):
                    done += self._answer_member(place, reply_to)
        return done

    # --- answers

    def _answer(self, reply_to: ReplyAddress, question: dict[str, Any]) -> None:
        try:
            op = self._ops.get(question["op"])
            if op is None:
                raise MalformedFrame(f"the serve process does not answer {question['op']!r}")
            facts = op(reply_to, question)
        except TowlineError as error:
            self._refuse(reply_to, error)
            return
        if facts is not None:
            self._send(reply_to, facts)

    def _send(self, reply_to: ReplyAddress, facts: Facts) -> bool:
        sent = self._line.send(reply_to, facts)
        if sent is Sent.GONE:
            self.gone(reply_to.peer)
        return sent is Sent.SENT

    def _refuse(self, reply_to: ReplyAddress, error: TowlineError) -> None:
        if self._line.refuse(reply_to, error) is Sent.GONE:
            self.gone(reply_to.peer)

    def _answer_member(self, place: MemberKey, reply_to: ReplyAddress) -> int:
        """Answers a member with the state of its group."""
        try:
            return int(self._send(reply_to, self._facts(place)))
        except GroupRefused as error:
            self._refuse(reply_to, error)
            return 1

    def _facts(self, place: MemberKey) -> Facts:
        """Raises GroupRefused UNKNOWN_MEMBER, CONSUME_DISABLED."""
        group, member = self._members.member(*place)
        settings = self._allowed(group, member)
        timing = {
            "heartbeat_ms": self._expires_ms // 3,
            "expires_ms": self._expires_ms,
            "lock_ms": self._settings.rebalance_lock_max_live_time,
        }
        return {
            **membership_facts(group, place[1], self._offsets.resets_of(group.name)),
            **timing,
            "settings": group_members(settings),
            "warnings": self._members.warnings(group, place[1]),
        }

    def _clean_up(self, place: MemberKey) -> None:
        """Cleans up after a member that left its group."""
        self._links.pop(place, None)
        reply_to = self._watches.take(place)
        if reply_to is not None:
            self._answer_member(place, reply_to)

    # --- members

    def _join(self, reply_to: ReplyAddress, question: dict[str, Any]) -> Facts | None:
        name, join_request = questions.text(question, "group"), questions.join_request(question)
        beginning = questions.beginning(question)
        now, place = self._clock.monotonic_ms(), (name, join_request.member)
        check(join_request.topics, enabled=self._settings.enable_property_filter)
        known = self._members.get(name)
        before = known.members.get(join_request.member) if known is not None else None
        before_topics = before.topics if before is not None else None
        self._check_topics(name, join_request, new=before is None)
        check_allowed(self._groups.joined(name), join_request.model)
        self._probe(place, join_request)
        group = self._members.join(name, join_request, now)
        self._links[place] = reply_to.peer
        self._check_at_ms = min(self._check_at_ms, now + CHECK_EVERY_MS)
        if self._filters is not None and group.members[join_request.member].topics != before_topics:
            self._filters.subscribed(group, join_request.topics)
        if join_request.model == questions.CLUSTERING and beginning != questions.NOWHERE:
            self._begin(name, join_request, beginning)
        self.due_ms = 0
        if join_request.generation and now < self._started_ms + REJOIN_MS:
            self._rejoining.append((place, reply_to))
            return None
        return self._facts(place)

    def _allowed(self, group: Group, member: Member) -> SubscriptionGroup:
        """The group's settings. Raises GroupRefused CONSUME_DISABLED, also when that was set while the member read."""
        settings = self._groups.joined(group.name)
        check_allowed(settings, member.model)
        return settings

    def _check_topics(self, name: str, join_request: JoinRequest, *, new: bool) -> None:
        for topic in join_request.topics:
            if new and not self._queues.read_queues(topic) and topic != RETRY_TOPIC_PREFIX + name:
                raise UnknownTopic(topic)

    def _probe(self, place: MemberKey, join_request: JoinRequest) -> None:
        """Probes the owner of a member id that somebody else wants: answering its watch shows whether it is
        connected."""
        group = self._members.get(place[0])
        member = group.members.get(place[1]) if group is not None else None
        if member is not None and member.instance != join_request.instance:
            reply_to = self._watches.take(place)
            if reply_to is not None:
                self._answer_member(place, reply_to)

    def _begin(self, name: str, join_request: JoinRequest, beginning: str | int) -> None:
        for topic in join_request.topics:
            where = questions.FIRST if topic == RETRY_TOPIC_PREFIX + name else beginning

            def first(queue: int, topic: str = topic, where: str | int = where) -> int:
                low, end = self._queues.bounds(topic, queue)
                if isinstance(where, int):
                    return self._queues.search(topic, queue, where)
                return low if where == questions.FIRST else end

            self._offsets.begin(topic, name, self._queues.read_queues(topic), first)

    def _watch(self, reply_to: ReplyAddress, question: dict[str, Any]) -> Facts | None:
        place, instance = self._own(question)
        group, member = self._members.own(*place, instance)
        self._allowed(group, member)
        now = self._clock.monotonic_ms()
        self._members.heard(*place, now)
        self._links[place] = reply_to.peer
        if questions.generation(question) != group.generation:
            return self._facts(place)
        due = now + min(HOLD_MAX_MS, self._expires_ms // 2)
        self.due_ms = min(self.due_ms, due)
        before = self._watches.hold(place, reply_to, due)
        if before is not None:
            self._answer_member(place, before)
        return None

    def _leave(self, reply_to: ReplyAddress, question: dict[str, Any]) -> Facts:
        place, instance = self._own(question)
        self._members.own(*place, instance)
        self._members.leave(*place, set(questions.queues(question, "busy", [])))
        self._clean_up(place)
        self.due_ms = 0
        return {}

    def _own(self, question: dict[str, Any]) -> tuple[MemberKey, str]:
        place = (questions.text(question, "group"), questions.text(question, "member"))
        return place, questions.text(question, "instance", "")

    # --- offsets

    def _commit(self, reply_to: ReplyAddress, question: dict[str, Any]) -> Facts:
        """Commits offsets. A member that was removed may still commit what it has done, but moves nothing back."""
        name, by = questions.text(question, "group"), questions.text(question, "member", "")
        asked, epoch = questions.commits(question), self._epochs.asked(question)
        self._groups.joined(name)
        group = self._members.get(name)
        member = group.members.get(by) if group is not None else None
        if member is not None and member.model == questions.BROADCASTING:
            raise GroupRefused(Refusal.BROADCASTING, f"{by!r} of group {name!r} is broadcasting; nothing is committed")
        now_at = group.generation if group is not None else 0
        generation = questions.generation(question, now_at) if by else now_at
        stranger = bool(by) and member is None
        found: dict[str, dict[str, Any]] = {"clamped": {}, "kept": {}, "unknown": {}}
        for topic, offsets in asked.items():
            count = self._queues.read_queues(topic)
            # A queue that is not read any more was, up to now: its reader says how far, should it be read again.
            good = {
                queue: at
                for queue, at in offsets.items()
                if queue < count or self._offsets.get(topic, name, queue) != NONE
            }
            if len(good) < len(offsets):
                found["unknown"][topic] = [str(queue) for queue in offsets if queue not in good]
            if not good:
                continue
            if by and generation < self._offsets.last_reset(topic, name):
                kept = {queue: self._offsets.get(topic, name, queue) for queue in good}
                found["kept"][topic] = _texts(kept)
                continue
            clamp = self._epochs.clamp(name, topic, good, epoch)
            self._offsets.clamped += len(clamp)
            good |= clamp
            done = self._offsets.commit(topic, name, good, forward_only=stranger or generation < now_at)
            if clamp or done.clamped:
                found["clamped"][topic] = _texts(clamp | done.clamped)
            if done.kept:
                found["kept"][topic] = _texts(done.kept)
        return {what: topics for what, topics in found.items() if topics}

    def _stored(self, reply_to: ReplyAddress, question: dict[str, Any]) -> Facts:
        name = questions.text(question, "group")
        self._known(name)
        found, resets = {}, {}
        for topic in questions.names(question, "topics"):
            count = self._queues.read_queues(topic)
            if not count and topic != RETRY_TOPIC_PREFIX + name:
                raise UnknownTopic(topic)
            found[topic] = {str(queue): self._offsets.get(topic, name, queue) for queue in range(count)}
            resets[topic] = self._offsets.last_reset(topic, name)
        settings = self._groups.get(name)
        enabled = settings is None or settings.consume_enable
        return {"offsets": found, "resets": resets, "consume_enable": enabled}

    def _reset(self, reply_to: ReplyAddress, question: dict[str, Any]) -> None:
        name, topic = questions.text(question, "group"), questions.text(question, "topic")
        to = questions.target(question)
        self._known(name)
        count = self._queues.read_queues(topic)
        if not count:
            raise UnknownTopic(topic)
        only = question.get("queue")
        queues = range(count) if only is None else [self._queue(topic, questions.number(question, "queue"))]
        asked = {}
        for queue in queues:
            low, end = self._queues.bounds(topic, queue)
            match to:
                case "first":
                    asked[queue] = low
                case "last":
                    asked[queue] = end
                case ("timestamp", at):
                    asked[queue] = self._queues.search(topic, queue, int(at))
                case (_, at):
                    asked[queue] = int(at)
        self._offsets.commit(topic, name, asked)
        self._offsets.was_reset(topic, name, self._members.reset(name))
        self._log.info("group %s: its offsets of %s are set to %s", name, topic, to)
        now_at = {str(queue): self._offsets.get(topic, name, queue) for queue in queues}
        self._when_saved(reply_to, {"offsets": now_at})

    def _queue(self, topic: str, queue: int) -> int:
        count = self._queues.read_queues(topic)
        if queue >= count:
            sentence = f"topic {topic!r} has no queue {queue}, but {count} queues"
            raise GroupRefused(Refusal.UNKNOWN_QUEUE, sentence, about=topic)
        return queue

    # --- locks

    def _lock(self, reply_to: ReplyAddress, question: dict[str, Any]) -> Facts | None:
        name, by = questions.text(question, "group"), questions.text(question, "member")
        group, member = self._members.own(name, by, questions.text(question, "instance", ""))
        self._allowed(group, member)
        if not self._queues.leads():  # another master may have granted them to somebody else
            raise GroupRefused(Refusal.NOT_MASTER, "this node was deposed, or its lease is over: it locks no queue")
        wanted = [(topic, self._queue(topic, queue)) for topic, queue in questions.queues(question)]
        claims = set(questions.queues(question, "claims", []))
        now = self._clock.monotonic_ms()
        self._members.heard(name, by, now)
        locked = group.locks.lock((by, member.instance), wanted, now, claims)
        facts = {"locked": [list(queue) for queue in locked]}
        if name in self._recorded:
            return facts
        self._when_saved(reply_to, facts, lambda: self._recorded.add(name))  # so that a start knows of locks
        return None

    def _locks_of(self, name: str) -> QueueLocks:
        """The locks of a group. Whoever held a lock renewed it before this start, so none of them outlives this
        time."""
        live = self._settings.rebalance_lock_max_live_time
        before = name in self._locked_before or self._queues.succeeds()  # its newest groups may not have come here
        return QueueLocks(live, self._started_ms + live if before else 0)

    def _first_generation(self, name: str) -> int:
        return max(self._clock.now_ms() // 1000, *self._offsets.resets_of(name).values(), 0)

    def _unlock(self, reply_to: ReplyAddress, question: dict[str, Any]) -> Facts:
        name, by = questions.text(question, "group"), questions.text(question, "member")
        group, member = self._members.own(name, by, questions.text(question, "instance", ""))
        there = [queue for queue in questions.queues(question) if queue[1] < self._queues.read_queues(queue[0])]
        group.locks.unlock((by, member.instance), there, set(questions.queues(question, "claims", [])))
        return {}

    # --- administration

    def _known(self, name: str) -> None:
        """Raises GroupRefused for a group that nobody has ever joined."""
        check_group(name)
        if self._groups.get(name) is None and name not in self._offsets.groups():
            raise GroupRefused(Refusal.UNKNOWN_GROUP, f"there is no group {name!r}")

    def _list(self, reply_to: ReplyAddress, question: dict[str, Any]) -> Facts:
        found, lag = [], question.get("lag") is True
        stored = self._offsets.by_group()
        for name in sorted({*self._groups.names(), *stored}):
            group = self._members.get(name)
            topics = stored.get(name, set()) | (group.topics() if group is not None else set())
            queues, bounds = self._queues.read_queues, self._queues.bounds
            found.append(listed(name, group, topics, self._offsets, queues, bounds, lag=lag))
        return {"groups": found, "clamped": self._offsets.clamped, "backups": self._backups}

    def _describe(self, reply_to: ReplyAddress, question: dict[str, Any]) -> Facts:
        name = questions.text(question, "group")
        self._known(name)
        settings = self._groups.get(name)
        return describe(
            name,
            self._members.get(name),
            {} if settings is None else group_members(settings),
            self._offsets,
            self._queues.read_queues,
            self._queues.bounds,
            self._clock.monotonic_ms(),
            self._members.warnings,
        )

    def _delete(self, reply_to: ReplyAddress, question: dict[str, Any]) -> None:
        name = questions.text(question, "group")
        self._known(name)
        group = self._members.get(name)
        if group is not None and group.members:
            raise GroupRefused(Refusal.GROUP_IN_USE, f"group {name!r} has {len(group.members)} members", about=name)
        self._offsets.drop_group(name)
        self._groups.delete(name)
        self._modes.drop_group(name)
        self._recorded.discard(name)
        self._log.info("group %s is deleted", name)
        left = [prefix + name for prefix in GROUP_PREFIXES if self._queues.read_queues(prefix + name)]
        self._when_saved(reply_to, {"topics": left})

    def _configure(self, reply_to: ReplyAddress, question: dict[str, Any]) -> None:
        name = questions.text(question, "group")
        changed = self._groups.configure(name, questions.table(question, "settings"))
        self._members.touch(name)
        self._when_saved(reply_to, {"settings": group_members(changed)})

    def _mode(self, reply_to: ReplyAddress, question: dict[str, Any]) -> Facts:
        """How a group reads a topic; `mode` "" where nobody has said."""
        found = self._modes.get(questions.text(question, "topic"), questions.text(question, "group"))
        return {"mode": "", "share": 0} if found is None else {"mode": found.mode, "share": found.share}

    def _set_mode(self, reply_to: ReplyAddress, question: dict[str, Any]) -> None:
        name, topic = questions.text(question, "group"), questions.text(question, "topic")
        self._groups.joined(name)
        if not self._queues.read_queues(topic):
            raise UnknownTopic(topic)
        self._modes.set(topic, name, questions.mode(question))
        self._when_saved(reply_to, {})

    def _when_saved(self, reply_to: ReplyAddress, facts: Facts, done: Callable[[], None] = lambda: None) -> None:
        def then(error: TowlineError | None) -> None:
            if error is None:
                done()
                self._send(reply_to, facts)
            else:
                self._refuse(reply_to, error)

        self._store.save(then)
        self.due_ms = 0


def _texts(offsets: Mapping[int, int]) -> dict[str, int]:
    """Offsets with text keys, as JSON has no others."""
    return {str(queue): at for queue, at in offsets.items()}
