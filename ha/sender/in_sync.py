"""The in-sync set of a master (H14): who joins, who leaves, what is replicated. Pure: time and offsets are arguments.

A change is proposed, recorded elsewhere, and only then committed. Until then the members of both sets are waited for,
so that a node promoted under either set holds everything that was acknowledged:

    cycle -> a record to be recorded   acknowledged, recorded -> it stands there   commit -> it is the set
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final, Protocol

from towline.log.state.in_sync_file import InSyncRecord, Outside, ids_of, mask_of

JOIN_MS: Final = 1000  # so long acknowledgements may wait for a slave that is about to join
PAUSE_MS: Final = 1000  # before a slave that left, or did not manage to join, is tried again
START_MS: Final = 5000  # a member has so long to connect for the first time to a master that was just started
PROMOTION_MS: Final = 5000  # within that time a member that was ordered to become master asks for promises
STOOD_MS: Final = 1000  # turns that are further apart were a pause of this process: no slave's fault
VERSIONS: Final = 1 << 20  # of one life of the sender: what an earlier one asked for has never the same version
_ETCD: Final = -1  # in the place of a node that has to record a set


class SlaveState(Protocol):
    """A connected slave. `held` is the end of its log that counts: on disk under SYNC_FLUSH, else in memory."""

    learner: bool

    @property
    def held(self) -> int: ...

    @property
    def caught_up_ms(self) -> int:
        """Since when it lacks something that the master had then; recent, where it lacks nothing for long."""
        ...


@dataclass(frozen=True, slots=True)
class InSyncRules:
    """The rules of membership. `own` is the master's id; `floor`, `least` and `enough` count the master; sizes are
    bytes.

    `floor`: the set never shrinks below it. `least`: so many of a group have to be silent before a promotion that does
    not ask them is refused. A late slave leaves after `catch_up_ms`, after `late_ms` already while `enough` members
    remain without it.
    """

    own: int
    floor: int
    least: int
    enough: int
    gap_max: int
    near: int
    catch_up_ms: int
    late_ms: int
    in_etcd: bool = False  # then a set is recorded there, else on every member that remains


def first_record(rules: InSyncRules, epoch: int, stored: InSyncRecord | None) -> InSyncRecord:
    """The record a master begins with: the set it had itself, or, promoted or new, itself alone (H16.6).

    It is recorded on the members with the current floor before anything counts, so that they learn the floor.
    """
    own = rules.own
    version = (stored.version // VERSIONS + 1) * VERSIONS if stored is not None and stored.epoch == epoch else 0
    recorded = stored is not None and stored.master == own and own in stored
    members = stored.members if recorded and stored is not None else 1 << own
    return InSyncRecord(epoch, version, own, members, rules.least)


def began_with(rules: InSyncRules, record: InSyncRecord | None, epoch_start: int) -> int:
    """The end up to which a master alone in its set may show the log it began with; 0: nothing for that reason.

    With `least` of 2 or more another node may be promoted without its word, and lack what it has for itself: then only
    what as many nodes hold is shown (H15). With 1 each node has to give its word, or an operator accepts the loss
    (H16.6).
    """
    alone = record is not None and record.members == 1 << rules.own
    return epoch_start if alone and rules.least < 2 else 0


class InSync:
    """The set and a change of it."""

    def __init__(self, rules: InSyncRules, first: InSyncRecord | None, now_ms: int) -> None:
        """`first` is recorded on its members before anything is replicated; None: etcd holds the set."""
        self._rules = rules
        self.record: InSyncRecord | None = None
        self.asked = first
        self._missing = self._others(first.members) if first is not None else set()  # who has not recorded `asked`
        self._open = first.members if first is not None else 0  # members of what was asked for and is not settled
        self._near: dict[int, int] = {}  # about to join: since when acknowledgements wait for them
        self._not_before: dict[int, int] = {}
        self._grace_until = now_ms + START_MS
        self._promoting: dict[int, int] = {}  # about to be promoted: until when it may be away
        self._seen: set[int] = set()  # who was connected in this life of the sender
        self._turned_ms = now_ms
        self._waited_for: tuple[int, ...] = ()
        self._count()

    @property
    def counted(self) -> int:
        """Every node that may stand in a record: nothing is replicated before all of them hold it."""
        return (self.record.members if self.record else 0) | self._open

    @property
    def complete(self) -> bool:
        """Whether `asked` stands wherever it has to, except in the master's own file."""
        return self.asked is not None and not self._missing

    def paused_ms(self, now_ms: int) -> int:
        """Begins a cycle; returns for how long this process was paused since the last one, 0 if it was not."""
        paused_ms, self._turned_ms = now_ms - self._turned_ms, now_ms
        return paused_ms if paused_ms > STOOD_MS else 0

    def replicated(self, slaves: Mapping[int, SlaveState], end: int) -> int:
        """The offset up to which every member holds the log, at most `end`; 0 while that is unknown."""
        if self.record is None or self.record.members.bit_count() < self._rules.floor:
            return 0
        for node in self._waited_for:
            slave = slaves.get(node)
            if slave is None:
                return 0
            end = min(end, slave.held)
        return end

    def cycle(
        self, slaves: Mapping[int, SlaveState], *, replicated: int, end: int, epoch_start: int, now_ms: int
    ) -> InSyncRecord | None:
        """The next set to be recorded, unless it is being recorded already."""
        last = self.asked or self.record
        self._seen |= slaves.keys()
        if last is None or (self.asked is not None and self._rules.in_etcd):
            return None
        leaving = self._leaving(slaves, end, now_ms) | self._lost_members(slaves, replicated)
        wanted = self.counted & ~leaving
        for node in ids_of(leaving):
            self._not_before[node] = now_ms + PAUSE_MS
        if not leaving and self.asked is None:
            wanted |= self._joining(slaves, max(replicated, epoch_start), end, now_ms)
        if wanted == last.members or (self.asked is not None and not leaving):
            return None
        return self._ask(wanted)

    def promoting(self, node: int, now_ms: int) -> None:
        """Notes that a connected slave is about to be promoted, which ends its link first.

        It stays in the set, as nobody outside of it may become master; nothing is acknowledged without it meanwhile.
        """
        self._promoting[node] = now_ms + PROMOTION_MS

    def acknowledged(self, node: int, order: tuple[int, int]) -> None:
        """Notes that the node has durably recorded the set of that order."""
        if self.asked is not None and order == self.asked.order:
            self._missing.discard(node)

    def recorded(self, members: int, begin: InSyncRecord, wanted: int) -> None:
        """Adopts a set that etcd has recorded. The first is where a master begins; `wanted` is under way already."""
        if self.record is None:
            self.record = replace(begin, members=members)
            if wanted and wanted != members:
                self._ask(wanted)
            self._count()
        elif self.asked is not None and members == self.asked.members:
            self._missing.clear()

    def commit(self) -> InSyncRecord:
        """Makes the recorded proposal the set."""
        assert self.asked is not None
        assert self.complete
        self.record, self.asked, self._open = self.asked, None, 0
        self._near = {node: since for node, since in self._near.items() if node not in self.record}
        self._count()
        return self.record

    def outside(self, node: int, slave: SlaveState, end: int) -> Outside:
        """Why a connected slave is no member."""
        if self.record is not None and node in self.record:
            return Outside.MEMBER
        if slave.learner:
            return Outside.LEARNER
        if self.counted >> node & 1 or node in self._near:
            return Outside.JOINING
        return Outside.FAR_BEHIND if end - slave.held > self._rules.gap_max else Outside.CATCHING_UP

    def _ask(self, members: int) -> InSyncRecord:
        last = self.asked or self.record
        assert last is not None
        grows = self.asked is None and not last.members & ~members
        # A larger set is known to those who join; a smaller one to all that remain, or a member could be promoted
        # that does not know that others went on without it.
        who = self._others(members & ~last.members if grows else members)
        self._missing = {_ETCD} if self._rules.in_etcd else who
        self.asked = InSyncRecord(last.epoch, last.version + 1, self._rules.own, members, self._rules.least)
        self._open |= members
        self._count()
        return self.asked

    def _others(self, members: int) -> set[int]:
        return set(ids_of(members & ~(1 << self._rules.own)))

    def _lost_members(self, slaves: Mapping[int, SlaveState], replicated: int) -> int:
        """Members that hold less than they acknowledged: their machine was restored, or their disk lied.

        No floor keeps them. A set below it may be recorded, as nothing is acknowledged or shown under such a set.
        """
        return mask_of(node for node in ids_of(self.counted) if node in slaves and slaves[node].held < replicated)

    def _leaving(self, slaves: Mapping[int, SlaveState], end: int, now_ms: int) -> int:
        rules, counted = self._rules, self.counted
        nodes = [node for node in ids_of(counted) if node != rules.own]
        size = counted.bit_count()
        gone = [node for node in nodes if node not in slaves]
        awaited = now_ms < self._grace_until and any(node not in self._seen for node in gone)
        awaited |= any(now_ms < self._promoting.get(node, 0) for node in gone)
        if awaited or (gone and size - len(gone) < rules.floor):
            return 0  # nobody else may go then either: a smaller set is recorded on all that remain
        size -= len(gone)
        left = mask_of(gone)
        present = sorted((slaves[node].caught_up_ms, node) for node in nodes if node in slaves)
        for caught_up_ms, node in present:
            slave = slaves[node]
            patience = rules.late_ms if size - 1 >= rules.enough else rules.catch_up_ms
            late = now_ms - caught_up_ms > patience or end - slave.held > rules.gap_max or slave.learner
            if late and size - 1 >= rules.floor:
                left, size = left | 1 << node, size - 1
        return left

    def _joining(self, slaves: Mapping[int, SlaveState], least: int, end: int, now_ms: int) -> int:
        """Slaves that hold everything confirmed. For a slave that is near, confirming waits a moment."""
        rules, joining, counted = self._rules, 0, self.counted
        near = {}
        for node, slave in slaves.items():
            if counted >> node & 1 or slave.learner or now_ms < self._not_before.get(node, 0):
                continue
            gap = end - slave.held
            if slave.held >= least and gap <= rules.gap_max:
                joining |= 1 << node
            elif gap <= rules.near:
                since = self._near.get(node, now_ms)
                if now_ms - since <= JOIN_MS:
                    near[node] = since
                else:
                    self._not_before[node] = now_ms + PAUSE_MS
        if near.keys() != self._near.keys():
            self._near = near
            self._count()
        return joining

    def _count(self) -> None:
        mask = (self.counted | mask_of(self._near)) & ~(1 << self._rules.own)
        self._waited_for = tuple(ids_of(mask))
