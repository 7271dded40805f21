"""Decisions on deleting segments of the CommitLog: which, and for which reason (spec 8.7). Pure.

A segment may go when a synced mark covers all of it, for log, queues and index alike, and when it is not the one with
the log's last byte. Of those the oldest go first, and the first that is not due ends the list: a log has no gaps.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from typing import Final

JUMP_MS: Final = 60_000  # a clock that gains so much at once has jumped
DOUBT_MS: Final = 3_600_000  # before a jump forward is believed


class DeleteReason(Enum):
    """The reason for deleting a segment. The value continues a sentence."""

    NO_ROOM = "no room for the next segment"
    FORCED = "the disk is above disk_space_clean_forcibly_ratio"
    BYTES = "the log is above file_reserved_bytes"
    RATIO = "it is older than file_reserved_time and the disk is above disk_max_used_space_ratio"
    ASKED = "it is older than file_reserved_time and somebody asked for it"
    HOUR = "it is older than file_reserved_time and this is an hour of delete_when"
    LEFT_OVER = "the log begins behind it"

    @property
    def by_age(self) -> bool:
        """The segment is expired; else it goes whatever its age."""
        return self in (DeleteReason.RATIO, DeleteReason.ASKED, DeleteReason.HOUR)

    @property
    def presses(self) -> bool:
        """The disk is full: nothing but what is not synced is kept then."""
        return self in (DeleteReason.NO_ROOM, DeleteReason.FORCED)


@dataclass(frozen=True, slots=True)
class DiskUse:
    """A file system in bytes. `used` and `available` (to this user) are less than all of it where some is reserved."""

    used: int
    available: int

    @property
    def percent(self) -> int:
        """The used share, rounded up to whole percent."""
        return -(-100 * self.used // max(1, self.used + self.available))

    def excess(self, percent: int) -> int:
        """Bytes that have to go until `percent` is no longer exceeded."""
        return max(0, self.used - percent * (self.used + self.available) // 100)


@dataclass(frozen=True, slots=True, kw_only=True)
class CleanRules:
    """Sizes in bytes, ratios in percent. `reserved_bytes` 0: the log may have any size.

    `waits_ms`: so much longer a segment is kept for what is not delivered yet, where nothing but its age is against it.
    """

    segment_size: int
    hours: frozenset[int]  # local hours of delete_when
    reserved_ms: int
    waits_ms: int = 0
    reserved_bytes: int
    max_used: int
    forcibly: int
    forced: bool  # clean_file_forcibly_enable
    batch_max: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CleanState:
    """What a decision depends on. `lacking`: bytes that the next segment lacks, 0 while there is room; `hour`: local.

    `asked`: an operator wants what is expired to go at once.
    """

    now_ms: int
    hour: int
    disk: DiskUse
    log_bytes: int
    lacking: int = 0
    asked: bool = False


@dataclass(frozen=True, slots=True)
class Deletion:
    """A segment to delete, and why."""

    base: int
    why: DeleteReason
    age_ms: int


def removable(bases: Iterable[int], size: int, *, synced: int, appended: int) -> list[int]:
    """The leading segments that nothing of the store needs: all of them synced, and not the one with the last byte."""
    found = []
    for base in bases:
        if base + size > synced or base + size >= appended:
            break
        found.append(base)
    return found


def lengthened(rules: CleanRules, retention_ms: Mapping[str, int]) -> CleanRules:
    """Rules under which no segment is expired before the messages of any topic are. `retention_ms` by topic."""
    return replace(rules, reserved_ms=max(rules.reserved_ms, *retention_ms.values(), 0))


def kept_shorter(doomed: Deletion, retention_ms: Mapping[str, int]) -> list[str]:
    """Topics whose messages in this segment go before their time, for want of room."""
    if doomed.why.by_age or doomed.why is DeleteReason.LEFT_OVER:
        return []
    return sorted(topic for topic, kept_ms in retention_ms.items() if doomed.age_ms < kept_ms)


def choose(
    rules: CleanRules,
    state: CleanState,
    candidates: Sequence[int],
    modified_ms: Callable[[int], int],
    is_waited_for: Callable[[int], bool] = lambda base: False,
    is_kept: Callable[[int], bool] = lambda base: False,
) -> list[Deletion]:
    """The segments to delete now, of `candidates`, oldest first. `modified_ms` gives the mtime; it is called for few.

    What a full disk or the limit of bytes demands goes whatever its age, just enough of it; then what is expired, if
    this is the time for it, and not waited for. What is kept goes for a full disk alone. At most `batch_max`.
    """
    demands = _demands(rules, state)
    expired = _when_expired(rules, state)
    chosen: list[Deletion] = []
    for number, base in enumerate(candidates[: rules.batch_max]):
        why = next((why for why, count in demands if number < count), None)
        age = state.now_ms - modified_ms(base) if why or expired else 0
        if why is None and age >= rules.reserved_ms and expired:
            why = expired if age >= rules.reserved_ms + rules.waits_ms or not is_waited_for(base) else None
        if why is None or (not why.presses and is_kept(base)):
            break
        chosen.append(Deletion(base, why, age))
    return chosen


def _demands(rules: CleanRules, state: CleanState) -> list[tuple[DeleteReason, int]]:
    """How many segments have to go whatever their age, by reason."""
    bytes_over = max(0, state.log_bytes - rules.reserved_bytes) if rules.reserved_bytes else 0
    pressing = ((DeleteReason.NO_ROOM, state.lacking), (DeleteReason.FORCED, state.disk.excess(rules.forcibly)))
    found = [*(pressing if rules.forced else ()), (DeleteReason.BYTES, bytes_over)]
    return [(why, -(-size // rules.segment_size)) for why, size in found if size]


def _when_expired(rules: CleanRules, state: CleanState) -> DeleteReason | None:
    """The reason for which expired segments go at this moment; None if it is not the time."""
    if state.disk.percent > min(rules.max_used, rules.forcibly):
        return DeleteReason.RATIO
    if state.asked:
        return DeleteReason.ASKED
    return DeleteReason.HOUR if state.hour in rules.hours else None


def hours_of(delete_when: str) -> frozenset[int]:
    """`04;16` -> {4, 16}."""
    return frozenset(map(int, delete_when.split(";")))


class SteadyTime:
    """Wall-clock time for ages. A clock that jumps forward makes nothing old: it is believed only after DOUBT_MS.

    A jump back is believed at once, since it makes files younger. Before the first `believe` there is nothing to
    compare with: a clock that was wrong already when the process started is taken as it is.
    """

    def __init__(self) -> None:
        self._ahead: int | None = None  # wall clock less monotonic clock, as believed
        self._doubted_ms: int | None = None

    @property
    def doubted(self) -> bool:
        return self._doubted_ms is not None

    def believe(self, now_ms: int, monotonic_ms: int) -> int:
        """`now_ms`, or what it would be had the clock not jumped."""
        ahead = now_ms - monotonic_ms
        if self._ahead is None or ahead <= self._ahead + JUMP_MS:
            self._ahead, self._doubted_ms = ahead, None
        elif self._doubted_ms is None:
            self._doubted_ms = monotonic_ms
        elif monotonic_ms - self._doubted_ms >= DOUBT_MS:
            self._ahead, self._doubted_ms = ahead, None
        return monotonic_ms + self._ahead


def full_in_s(disk: DiskUse, level: int, log_bytes: int, log_ms: int) -> int | None:
    """Seconds until the disk passes `level` percent if the log goes on growing as it did; None if that is unknown.

    `log_bytes` were written in `log_ms`.
    """
    if log_bytes <= 0 or log_ms <= 0:
        return None
    left = max(0, level * (disk.used + disk.available) // 100 - disk.used)
    return left * log_ms // log_bytes // 1000
