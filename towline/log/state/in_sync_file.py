"""`ha/in_sync.json`: which nodes of a group hold everything that was acknowledged, as it was recorded last (H14).

Every member keeps one: on the master SEND writes it, on a slave RECEIVE writes what its master says. A set is a bit
mask: bit n is the node with broker_id n.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, Final

from towline.errors import MalformedFile
from towline.limits import NODE_MAX
from towline.log.errors import InSyncLost
from towline.log.files.mirrored_file import MirroredFile
from towline.places import Store

FLOOR_UNKNOWN: Final = 1  # what a floor that is not said is taken for: the one that asks most of a promotion


class Outside(IntEnum):
    """Why a connected slave is no member of the in-sync set; the word stands in its line of the positions file."""

    MEMBER = 0
    LEARNER = 1
    FAR_BEHIND = 2
    CATCHING_UP = 3
    JOINING = 4

    @property
    def sentence(self) -> str:
        return _SAID[self]


_SAID: Final = {
    Outside.MEMBER: "",
    Outside.LEARNER: "async_learner: it follows and never counts",
    Outside.FAR_BEHIND: "further behind than ha_max_gap_not_in_sync",
    Outside.CATCHING_UP: "catching up",
    Outside.JOINING: "about to join: the set with it is being recorded",
}


@dataclass(frozen=True, slots=True)
class InSyncRecord:
    """A set that `master` recorded in `epoch`. `version` counts the records of an epoch.

    `floor`: the master's min_in_sync_replicas as it recorded the set: it may have gone on with so many. A record that
    does not say, of an older version, is taken for 1: with the master alone.
    """

    epoch: int
    version: int
    master: int
    members: int
    floor: int = FLOOR_UNKNOWN

    @property
    def order(self) -> tuple[int, int]:
        """Of two records the one with the greater order is the later one."""
        return self.epoch, self.version

    def stands_beside(self, known: "InSyncRecord | None") -> bool:
        """Whether a node that has recorded `known` records this one, and says so: it is that one, or a later one."""
        return known is None or known == self or self.order > known.order

    @property
    def ids(self) -> list[int]:
        return ids_of(self.members)

    def __contains__(self, node: int) -> bool:
        return bool(self.members >> node & 1)


def ids_of(mask: int) -> list[int]:
    """The broker ids in a set, smallest first."""
    return [node for node in range(mask.bit_length()) if mask >> node & 1]


def mask_of(nodes: Iterable[int]) -> int:
    """The set of these broker ids."""
    return sum(1 << node for node in set(nodes))


class InSyncFile:
    """The file; one process saves it, any process loads it."""

    def __init__(self, store: Store) -> None:
        self._store, self.path = store, store.in_sync
        self._file = MirroredFile(store.in_sync, InSyncLost)

    def load(self) -> InSyncRecord | None:
        """The record; None where there never was one. Raises MalformedFile: an older set may have had other members."""
        content = self._file.load()
        return None if content is None else record_of(content, str(self._store.in_sync))

    def save(self, record: InSyncRecord) -> None:
        """Writes the record durably. Raises StoreNotWritable, SyncFailed, DiskFull."""
        self._file.save(facts_of(record))

    @property
    def is_whole(self) -> bool:
        """Whether both copies hold the same record."""
        return self._file.is_whole

    def heal(self) -> bool:
        """Rewrites a damaged copy; whether there was one. Raises like `load` and `save`."""
        self.load()
        return self._file.heal()


def facts_of(record: InSyncRecord) -> dict[str, Any]:
    numbers = {"epoch": record.epoch, "version": record.version, "master": record.master, "floor": record.floor}
    return numbers | {"members": record.ids}


def record_of(facts: dict[str, Any], where: str) -> InSyncRecord:
    """The record in the JSON object `facts`. Raises MalformedFile naming `where`."""
    try:
        members = [int(node) for node in facts["members"]]
        numbers = [int(facts[name]) for name in ("epoch", "version", "master")]
        floor = int(facts.get("floor", FLOOR_UNKNOWN))
    except (KeyError, TypeError, ValueError, OverflowError) as error:  # JSON may hold 1e999
        raise MalformedFile(where, f"it is no in-sync set: {error!r}") from None
    if not all(0 <= node <= NODE_MAX for node in members) or min(numbers) < 0:
        raise MalformedFile(where, f"no node has one of the ids {members}, or a number is below 0: {numbers}")
    if not 1 <= floor <= NODE_MAX + 1:
        raise MalformedFile(where, f"its floor is {floor}, and a set has 1 to {NODE_MAX + 1} members")
    epoch, version, master = numbers
    return InSyncRecord(epoch, version, master, mask_of(members), floor)
