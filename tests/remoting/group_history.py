"""What a producer and a group of RocketMQ's members say they did, held against what RocketMQ promises: at least once.

A message is doubled where the contract allows it, and nowhere else:

- It was *stored* more than once: it lies in the log at most as often as it was sent. A producer repeats what was not
  answered.
- It was *delivered* more than once: by another turn. A turn is one member's reading of one queue, from the offset that
  the broker told it to where it gives the queue up; within it each message comes once. A turn may begin before what the
  group has consumed, since a commit may not have come to the broker, or not to the slave that is master now. It may not
  begin before what all nodes had on their disks when the group was last calm. And a turn begins where members or
  masters change: while the group is calm nothing comes again.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(slots=True)
class Turn:
    """`seen` are the offsets of the messages that came."""

    begin: int
    seen: set[int] = field(default_factory=set)

    @property
    def end(self) -> int:
        """The offset behind the messages that came without a gap, where there is no gap."""
        return self.begin + len(self.seen)


@dataclass(slots=True)
class Change:
    """A change of members or masters, and how many messages came again from then on until the group was calm."""

    what: str
    again: int = 0


class History:
    """Hears the lines of the program Failover, in their order. `breaches` are sentences: none while all is well."""

    def __init__(self) -> None:
        self.acknowledged: set[str] = set()
        self.members: set[str] = set()
        self.consumed_by: Counter[str] = Counter()
        self.changes = [Change("the members come")]
        self.breaches: list[str] = []
        self.is_calm = False
        self._tries: Counter[str] = Counter()
        self._bodies: dict[tuple[int, int], str] = {}  # by queue and offset
        self._ends: dict[int, int] = {}  # of what was consumed, by queue
        self._turns: dict[tuple[str, int], Turn] = {}  # by member and queue: the last one
        self._open: set[tuple[str, int]] = set()
        self._committed: Mapping[int, int] = {}

    def hear(self, line: str) -> None:
        """Lines of other kinds are passed over: the client's own logs."""
        match line.split():
            case ["tried", body]:
                self._tries[body] += 1
            case ["acknowledged", body]:
                self.acknowledged.add(body)
            case ["joined", member]:
                self.members.add(member)
            case ["left", member]:
                self.members.discard(member)
                self._open = {(who, queue) for who, queue in self._open if who != member}
            case ["began", member, queue, offset]:
                self._begin(member, int(queue), int(offset))
            case ["ended", member, queue]:
                self._open.discard((member, int(queue)))
            case ["consumed", member, queue, offset, body]:
                self._consume(member, int(queue), int(offset), body)

    def calm(self, committed: Mapping[int, int]) -> None:
        """Members and masters are settled, and every node has these offsets of the group on its disk."""
        self.is_calm, self._committed = True, committed

    def change(self, what: str) -> None:
        """From here on messages may come again, until the group is calm."""
        self.is_calm = False
        self.changes.append(Change(what))

    def is_divided(self) -> bool:
        """Whether each queue is read by one member, each member reads one at least, and whoever began a queue anew has
        come to where the group is."""
        readers = {member for member, _ in self._open}
        queues = sorted(queue for _, queue in self._open)
        level = all(self._turns[member, queue].end == self._ends.get(queue, 0) for member, queue in self._open)
        return level and bool(readers) and readers == self.members and queues == sorted(self._ends)

    def ends(self) -> dict[int, int]:
        """The offset behind what was consumed of each queue."""
        return dict(self._ends)

    def lost(self) -> set[str]:
        """What was acknowledged, and not consumed so far."""
        return self.acknowledged - set(self._bodies.values())

    def stored_again(self) -> dict[str, int]:
        """By body: in how many places more than one a message lies. Notes a breach where it was not sent so often."""
        places = Counter(self._bodies.values())
        for body, count in places.items():
            if count > self._tries[body]:
                self.breaches.append(f"{body} was sent {self._tries[body]} times, and stored {count} times")
        return {body: count - 1 for body, count in places.items() if count > 1}

    def _begin(self, member: str, queue: int, offset: int) -> None:
        self._turns[member, queue] = Turn(offset)
        self._open.add((member, queue))
        if offset < (committed := self._committed.get(queue, 0)):
            self.breaches.append(f"{member} began queue {queue} at {offset}, though {committed} was committed")

    def _consume(self, member: str, queue: int, offset: int, body: str) -> None:
        what = f"{body}, at {offset} of queue {queue}, came to {member}"
        turn = self._turns.get((member, queue))
        if turn is None or offset < turn.begin:
            self.breaches.append(f"{what}, who had not begun there")
            return
        if offset in turn.seen:
            self.breaches.append(f"{what} twice in one turn")
        turn.seen.add(offset)
        self.consumed_by[member] += 1
        if (queue, offset) in self._bodies:
            self._come_again(what, queue, offset, body)
        self._bodies.setdefault((queue, offset), body)
        self._ends[queue] = max(self._ends.get(queue, 0), offset + 1)

    def _come_again(self, what: str, queue: int, offset: int, body: str) -> None:
        self.changes[-1].again += 1
        if (before := self._bodies[queue, offset]) != body:
            self.breaches.append(f"{what}, and {before} was there before")
        if self.is_calm:
            self.breaches.append(f"{what} again, and nothing had changed")
        if offset < (committed := self._committed.get(queue, 0)):
            self.breaches.append(f"{what} again, though {committed} was committed")
