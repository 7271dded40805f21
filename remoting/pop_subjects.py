"""What groups pop from: of each group and topic the queues, with a ledger each, and the offsets that serve keeps.

A group's offsets are asked for when it begins to pop from a topic, and told as they grow, ten times a second. Nobody is
remembered who has nothing out and does not pop for a while. Who sets the offsets of a group anew is not overruled:
serve keeps those, and the subject begins there.
"""

import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final

from towline.format.remoting.codes import RequestRefused, ResponseCode
from towline.format.remoting.pops import NORMAL, RETRY, retry_topic
from towline.format.wire.frames import PULL_ANSWER, Buffer, Pull, expect

from .pop_ledger import PopLedger
from .questions import Facts, Questions, refusal_in
from .readers import SERVE_AWAY
from .topics import TopicDesk

SUBJECTS_MAX: Final = 16_384
IDLE_MS: Final = 30_000  # without a pop, and with nothing out
IDLE_EVERY_MS: Final = 5_000
COMMIT_EVERY_MS: Final = 100
AT_END: Final = 1  # where a group begins that has no offset: INIT_MODE of a pop
MEMBER: Final = "pops"  # by whom the offsets of a group are committed
_BEHIND: Final = 1  # bit of a pull's answer: the record is far behind the log's end
_NONE: Final = -1
_UNKNOWN_GROUP: Final = "UNKNOWN_GROUP"

Then = Callable[[RequestRefused | None], None]
Begins = Callable[[tuple[str, int], int], None]  # topic and number of a queue, and where a group begins there


@dataclass(slots=True, eq=False)
class PopQueue:
    """One queue as a group pops from it. `is_empty`: nothing was there when it was looked at, and a pull is held that
    will tell."""

    topic: str
    number: int
    retry: str
    ledger: PopLedger
    end: int = 0  # as it was seen last
    is_empty: bool = False
    not_before_ms: int = 0  # it is not looked at again until then

    @property
    def rest(self) -> int:
        return max(0, self.end - self.ledger.next)


@dataclass(slots=True, eq=False)
class Subject:
    """A group and a topic. `queues` are those of the topic, then the one of the retry topic, once there is one."""

    group: str
    topic: str
    queues: dict[tuple[str, int], PopQueue] = field(default_factory=dict)
    resets: dict[str, int] = field(
        default_factory=dict
    )  # by topic: the generation of the reset that its offsets follow
    waiting: list[Any] = field(default_factory=list)  # pops, in the order in which they came
    opens: list[Then] = field(default_factory=list)  # who waits for offsets
    reads: bool = False  # a pull for a pop is under way
    is_dropped: bool = False
    turn: int = 0
    used_ms: int = 0
    again_ms: int = 0  # when it is to be looked at again; 0: at no certain time

    @property
    def retry_topic(self) -> str:
        return retry_topic(self.group, self.topic)

    @property
    def out(self) -> int:
        return sum(len(queue.ledger) for queue in self.queues.values())

    @property
    def uncommitted(self) -> Iterator[PopQueue]:
        return (queue for queue in self.queues.values() if queue.ledger.done != queue.ledger.committed)


class Subjects:
    """All subjects."""

    def __init__(self, serve: Questions, topics: TopicDesk, log: logging.Logger) -> None:
        self._serve, self._topics, self._log = serve, topics, log
        self._known: dict[tuple[str, str], Subject] = {}
        self._of_queue: dict[tuple[str, str, int], Subject] = {}
        self._busy: dict[Subject, None] = {}  # something of them is out, or to be committed
        self._commit_at = self._idle_at = 0
        self.out = 0  # messages of all of them

    @property
    def busy(self) -> list[Subject]:
        return list(self._busy)

    def of_group(self, group: str) -> list[Subject]:
        return [subject for subject in self._known.values() if subject.group == group]

    def touch(self, subject: Subject) -> None:
        """What is out of it, or done, has changed."""
        if not subject.is_dropped:
            self._busy[subject] = None

    def find(self, group: str, topic: str) -> Subject | None:
        return self._known.get((group, topic))

    def queue(self, group: str, topic: str, number: int) -> tuple[Subject, PopQueue] | None:
        """The queue of a topic or a retry topic, if the group pops from it."""
        subject = self._of_queue.get((group, topic, number))
        return None if subject is None else (subject, subject.queues[topic, number])

    def get(self, group: str, topic: str, now_ms: int) -> Subject:
        """Raises RequestRefused where there are too many."""
        found = self._known.get((group, topic))
        if found is None:
            if len(self._known) >= SUBJECTS_MAX:
                why = f"{SUBJECTS_MAX} groups and topics are popped from; try again later"
                raise RequestRefused(ResponseCode.SYSTEM_BUSY, why)
            found = self._known[group, topic] = Subject(group, topic)
        found.used_ms = now_ms
        return found

    def drop(self, subject: Subject) -> None:
        """Forgets a subject: what is out of it comes again."""
        subject.is_dropped = True
        del self._known[subject.group, subject.topic]
        self._busy.pop(subject, None)
        self._forget_queues(subject)

    def _forget_queues(self, subject: Subject) -> None:
        self.out -= subject.out
        for place in subject.queues:
            del self._of_queue[subject.group, *place]
        subject.queues.clear()

    # --- where a group stands

    def open(self, subject: Subject, init_mode: int, then: Then) -> None:
        """Finds the queues of a subject, and the group's offsets. `then` gets why that failed, or None."""
        subject.opens.append(then)
        if len(subject.opens) > 1:
            return
        names = [name for name in (subject.topic, subject.retry_topic) if self._topics.find(name) is not None]

        def told(facts: Facts | None, _: list[Buffer]) -> None:
            problem = refusal_in(facts, "serve")
            if facts is not None and facts.get("error") == _UNKNOWN_GROUP:
                self._place(subject, {name: {} for name in names}, init_mode)
            elif facts is None or problem:
                _opened(subject, RequestRefused(ResponseCode.SYSTEM_ERROR, problem))
            elif not facts["consume_enable"]:
                why = f"subscription group no permission, {subject.group}"
                _opened(subject, RequestRefused(ResponseCode.NO_PERMISSION, why))
            else:
                subject.resets = {name: int(at) for name, at in facts["resets"].items()}
                self._place(subject, facts["offsets"], init_mode)

        self._ask(subject, "group_offsets", {"group": subject.group, "topics": names}, told)

    def lacks_queues(self, subject: Subject) -> bool:
        """Whether there are queues that it does not know."""
        topic = self._topics.find(subject.topic)
        count = 0 if topic is None else topic.read_queue_nums
        known = sum(queue.retry == NORMAL for queue in subject.queues.values())
        is_known = (subject.retry_topic, 0) in subject.queues
        return known < count or (not is_known and self._topics.find(subject.retry_topic) is not None)

    def _place(self, subject: Subject, offsets: Facts, init_mode: int) -> None:
        """Makes the ledgers of queues that have none."""
        places = {}
        for name in offsets:
            topic = self._topics.find(name)
            count = 0 if topic is None else topic.read_queue_nums if name == subject.topic else 1
            for number in range(count):
                if (name, number) not in subject.queues:
                    places[name, number] = int(offsets[name].get(str(number), _NONE))
        for place in [place for place, at in places.items() if at != _NONE]:
            self._add(subject, place, places.pop(place))
        if not places:
            _opened(subject)
            return
        left = len(places)

        def begins(place: tuple[str, int], at: int) -> None:
            nonlocal left
            left -= 1
            self._add(subject, place, at)
            if not left:
                _opened(subject)

        for name in {name for name, _ in places}:
            numbers = [number for of, number in places if of == name]
            self._begin(subject, name, numbers, init_mode if name == subject.topic else 0, begins)

    def _begin(self, subject: Subject, name: str, numbers: list[int], init_mode: int, begins: Begins) -> None:
        """Finds where a group without offsets begins."""

        def told(facts: Facts | None, _: list[Buffer]) -> None:
            problem = refusal_in(facts, "serve")
            if facts is None or problem:
                _opened(subject, RequestRefused(ResponseCode.SYSTEM_ERROR, problem))
                return
            bounds = {int(row["queue"]): (int(row["min"]), int(row["max"])) for row in facts["queues"]}
            for number in numbers:
                low, end = bounds.get(number, (0, 0))
                if init_mode == AT_END and end:
                    self._near_end(subject, (name, number), low, end, begins)
                else:
                    begins((name, number), low)

        self._ask(subject, "bounds", {"topic": name}, told)

    def _near_end(self, subject: Subject, place: tuple[str, int], low: int, end: int, begins: Begins) -> None:
        """As a broker has it: at the last message, but at the first of a queue that is still in memory as a whole."""
        if low:
            begins(place, end - 1)
            return

        def received(parts: list[Buffer]) -> None:
            if not parts:
                _opened(subject, RequestRefused(ResponseCode.SYSTEM_ERROR, SERVE_AWAY))
                return
            flags = expect(PULL_ANSWER, parts[0])[-1]
            begins(place, end - 1 if flags & _BEHIND else low)

        if not self._serve.pull(Pull(0, place[0].encode(), place[1], low, 1, 1, 0), received):
            _opened(subject, RequestRefused(ResponseCode.SYSTEM_ERROR, SERVE_AWAY))

    def _add(self, subject: Subject, place: tuple[str, int], at: int) -> None:
        if not subject.is_dropped:
            retry = NORMAL if place[0] == subject.topic else RETRY
            subject.queues[place] = PopQueue(*place, retry, PopLedger(at))
            self._of_queue[subject.group, *place] = subject
            self.touch(subject)

    def _ask(
        self, subject: Subject, op: str, facts: dict[str, Any], told: Callable[[Facts | None, list[Buffer]], None]
    ) -> None:
        if not self._serve.ask(op, facts, told):
            _opened(subject, RequestRefused(ResponseCode.SYSTEM_ERROR, SERVE_AWAY))

    # --- what is done

    def cycle(self, now_ms: int) -> None:
        """Commits, and forgets who is idle."""
        if self._serve.link is None:
            return
        if now_ms >= self._commit_at:
            self._commit_at = now_ms + COMMIT_EVERY_MS
            for subject in self.busy:
                changed = list(subject.uncommitted)
                if changed:
                    self._commit(subject, changed)
                elif not subject.out:
                    del self._busy[subject]
        if now_ms >= self._idle_at:
            self._idle_at = now_ms + IDLE_EVERY_MS
            for subject in [each for each in self._known.values() if each not in self._busy]:
                if not (subject.waiting or subject.opens) and now_ms - subject.used_ms > IDLE_MS:
                    self.drop(subject)

    def lost(self) -> None:
        """Serve has ended: it may have forgotten the last commits."""
        for subject in self._known.values():
            self._commit_again(subject)

    def _commit_again(self, subject: Subject) -> None:
        for queue in subject.queues.values():
            queue.ledger.committed = _NONE
        self.touch(subject)

    def _commit(self, subject: Subject, changed: list[PopQueue]) -> None:
        by_topic: dict[str, dict[str, int]] = {}
        for queue in changed:
            queue.ledger.committed = queue.ledger.done
            by_topic.setdefault(queue.topic, {})[str(queue.number)] = queue.ledger.done
        for topic, offsets in by_topic.items():
            facts = {"group": subject.group, "member": MEMBER, "generation": subject.resets.get(topic, 0)}
            if not self._serve.ask("group_commit", {**facts, "offsets": {topic: offsets}}, self._told_of(subject)):
                self._commit_again(subject)

    def _told_of(self, subject: Subject) -> Callable[[Facts | None, list[Buffer]], None]:
        def told(facts: Facts | None, _: list[Buffer]) -> None:
            if subject.is_dropped:
                return
            if facts is None or "error" in facts:
                self._commit_again(subject)
            elif facts.get("kept"):
                self._log.info("group %s: its offsets of %s were set: pops begin there", subject.group, subject.topic)
                self._forget_queues(subject)

        return told


def _opened(subject: Subject, refused: RequestRefused | None = None) -> None:
    opens, subject.opens = subject.opens, []
    for then in opens:
        then(refused)
