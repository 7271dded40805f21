"""What was acknowledged and shown, over the whole history, and what must hold of it after each step."""

from typing import Any, Final, NoReturn, TypeAlias

from towline.format.files.epochs import node_of
from towline.runtime.positions import Position
from towline.runtime.settings_model import BrokerRole

from .disk import Log, records_of
from .once import Once
from .world import World

Machine: TypeAlias = Any  # of `machine`, which stands above this
RULES: Final = {
    "acknowledged": "nothing acknowledged is lost",
    "visible": "what was once visible never disappears or changes",
    "epochs": "an epoch has one master",
    "offsets": "the offset of a group never passes what stands",
    "cut": "what a node has shown or acknowledged is not cut off without an operator's word",
    "positions": "positions say no more than there is",
    "once": "a message of an idempotent producer stands in a confirmed log once",
    "order": "messages of an idempotent producer stand in the order of their numbers",
    "place": "an acknowledged batch of an idempotent producer stands where its answer says",
}


class Broken(Exception):
    """An invariant does not hold. `rule` is one of RULES."""

    def __init__(self, rule: str, what: str) -> None:
        super().__init__(f"{RULES[rule]}: {what}")
        self.rule, self.what = rule, what


class AllCopiesLost(Exception):
    """Every member of the in-sync set has lost bytes with its power: the settings promise nothing more of them."""


class History:
    """The acknowledged log and the visible log, as bytes from offset 0 on; each is what every later one begins with.

    `keeps_all`: no failover may take back what was acknowledged. Else only what a node itself showed is compared.
    `on_disk`: nor may a loss of power.
    """

    def __init__(self, world: World, *, keeps_all: bool, on_disk: bool) -> None:
        self._world, self._keeps_all, self._on_disk = world, keeps_all, on_disk
        self.acked, self.seen = bytearray(), bytearray()
        self.masters: dict[int, int] = {}  # by epoch
        self.own: dict[int, bytearray] = {}  # by node: what it showed or acknowledged itself
        self._looked: dict[int, tuple[int, int]] = {}  # by node: (generation, up to where it was compared)
        self._holders = 0  # the in-sync set under which the newest was acknowledged or shown: each has all of it
        self._lost_power = 0  # the nodes of which a power cut took bytes
        self._serial = 0
        self._once = Once()  # of the log that all begin with
        self._once_of: dict[int, tuple[int, Once]] = {}  # where there is none: by node, with its generation
        self.acknowledgements = self.promotions = self.cuts = self.repeats = 0

    def next_serial(self) -> int:
        self._serial += 1
        return self._serial

    # --- what nodes do

    def acknowledged(self, machine: Machine, end: int) -> None:
        """The node tells a producer that its log stands up to `end`."""
        log = machine.disk.log.data
        self.acknowledgements += 1
        self._extend_own(machine, end)
        if not self._keeps_all:
            return
        both = min(end, len(self.acked))
        if log[:both] != self.acked[:both]:
            self._judge("acknowledged", machine, self.acked)
        if end > both:
            self.acked += log[both:end]
            self._holders = _counted(machine)
            self._look_for_doubles(self._once, self.acked, len(self.acked), machine)

    def placed(self, machine: Machine, start: int, records: bytes) -> None:
        """The node tells an idempotent producer that its records are acknowledged, and stand there."""
        log = machine.disk.log.data
        sent = [(each.message, each.size) for each in records_of(records, 0, len(records))]
        found = [(each.message, each.size) for each in records_of(log, start, start + len(records))]
        if sent != found:
            raise Broken("place", f"node {machine.number} says that {sent} stand at {start}; there stand {found}")

    def _look_for_doubles(self, once: Once, log: bytes | bytearray, end: int, machine: Machine) -> None:
        for rule, what in once.look(log, end):
            raise Broken(rule, f"node {machine.number}: {what}")

    def opened(self, machine: Machine, epoch: int, *, promoted: bool) -> None:
        """The node opens an epoch. Of a promoted one the log has all that was acknowledged or seen; a master that
        merely comes back may lack it, and then has nobody who acknowledges or shows anything with it (H19)."""
        self.promotions += 1
        before = self.masters.setdefault(epoch, machine.number)
        if before != machine.number or node_of(epoch) != machine.number:
            raise Broken("epochs", f"node {machine.number} opens epoch {epoch}, which node {before} has opened")
        # One that a later epoch has overtaken on its way has lost its promises: it acknowledges and shows nothing.
        if promoted and self._keeps_all and epoch == max(self.masters):
            for rule, kept in (("acknowledged", self.acked), ("visible", self.seen)):
                if held(machine, kept) < len(kept):
                    self._judge(rule, machine, kept)

    def _judge(self, rule: str, machine: Machine, kept: bytearray) -> NoReturn:
        """The node is about to go on without some of `kept`. Raises Broken where a member of the set under which that
        was acknowledged still has it, or none of them may have lost it, else AllCopiesLost."""
        here = held(machine, kept)
        members = [each for each in machine.group.machines if self._holders >> each.number & 1]
        best = max(members, key=lambda each: held(each, kept), default=machine)
        what = f"node {machine.number} goes on with the log up to {here} of {len(kept)}"
        if (there := held(best, kept)) > here:
            raise Broken(rule, f"{what}; node {best.number} holds it up to {there}")
        if self._on_disk or not self._lost_power & self._holders:
            raise Broken(rule, f"{what}; no node holds more, and no power cut may have taken it")
        raise AllCopiesLost

    def cut(self, machine: Machine, point: int, *, accepted: bool) -> None:
        """The node cuts its log off, as its master does not have the rest."""
        self.cuts += 1
        counts = self._keeps_all and self._holders >> machine.number & 1
        if counts and point < (known := held(machine, self.acked)):
            raise Broken("acknowledged", f"node {machine.number} cuts its log at {point}, and it was so up to {known}")
        own = self.own.get(machine.number, b"")
        shown = held(machine, own)
        if point < shown and not accepted:
            raise Broken("cut", f"node {machine.number} cuts its log at {point}, and has shown it up to {shown}")

    def power_cut(self, machine: Machine, known: int, *, sole: bool, took: bool) -> None:
        """Of what was shown less than a second ago a start may know nothing; a sole master's takes its whole log for
        confirmed. `known`: the marks on its disk (decision 0050); `took`: whether bytes went."""
        self._lost_power |= took << machine.number
        if not sole and machine.number in self.own:
            del self.own[machine.number][known:]

    def _extend_own(self, machine: Machine, end: int) -> None:
        own, log = self.own.setdefault(machine.number, bytearray()), machine.disk.log.data
        if end > len(own):
            both = common(log, own)
            own[both:] = log[both:end]

    # --- after each step

    def look(self, machine: Machine) -> None:
        """Compares what the node shows with what was shown before."""
        shown, end, log = machine.shown, machine.disk.log.end, machine.disk.log.data
        if shown > end:
            raise Broken("positions", f"node {machine.number} shows its log up to {shown}, and it ends at {end}")
        generation, before = self._looked.get(machine.number, (-1, 0))
        if generation != machine.generation:
            before = 0
        if shown <= before:
            return
        shown = machine.disk.log.whole(shown)  # of a record that is there in part nobody sees anything
        if shown <= before:
            return
        self._looked[machine.number] = machine.generation, shown
        self._extend_own(machine, shown)
        if not self._keeps_all:
            known, once = self._once_of.get(machine.number, (-1, self._once))
            if known != machine.generation:
                known, once = self._once_of[machine.number] = machine.generation, Once()
            self._look_for_doubles(once, log, shown, machine)
            return
        both = min(shown, len(self.seen))
        if log[before:both] != self.seen[before:both]:
            self._judge("visible", machine, self.seen)
        if shown > both:
            self.seen += log[both:shown]
            self._look_for_doubles(self._once, self.seen, shown, machine)
            if machine.is_master:
                self._holders = _counted(machine)

    def look_at_offset(self, machine: Machine, offset: int, end: int) -> None:
        if offset > end:
            raise Broken(
                "offsets", f"node {machine.number} has the offset {offset} of a group, its queue ends at {end}"
            )


def _counted(machine: Machine) -> int:
    """The nodes of which each holds what this master acknowledges: alone it does without SYNC_MASTER."""
    waits = machine.settings.broker_role is BrokerRole.SYNC_MASTER
    return int(1 << machine.number | (machine.positions.get(Position.IN_SYNC) if waits else 0))


def held(machine: Machine, kept: bytes | bytearray) -> int:
    """Up to which of its records the machine's disk holds those bytes."""
    log: Log = machine.disk.log
    return log.whole(common(log.data, kept))


def common(one: bytes | bytearray, other: bytes | bytearray) -> int:
    """Up to where both have the same bytes."""
    low, high = 0, min(len(one), len(other))
    if one[:high] == other[:high]:
        return high
    while high - low > 1:
        middle = (low + high) // 2
        if one[:middle] == other[:middle]:
            low = middle
        else:
            high = middle
    return low
