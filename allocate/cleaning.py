"""CleanCommitLogService: publishes where the log begins, waits for who still reads, unlinks (spec 8.7).

What `towline.log.commitlog.cleaning` chooses is done in this order; a kill between any two steps leaves a whole store:

1. LOG_MIN is published: readers see it at once, reput moves the queues' minima.
2. flush writes LOG_MIN into the durable file. Only then anything is deleted, here and by reput, so a start never
   begins below what is gone.
3. A connected slave that has not the segment yet is waited for, `destroy_mapped_file_interval_forcibly` at most.
4. The segment is unlinked, one per turn. It is never shortened: who has mapped it keeps its bytes.

Who reads, and what it meets when segments go:

| reader | cleaning waits | its answer |
|---|---|---|
| flush, reput (queues and index) | always: nothing goes that is not synced, dispatched and indexed, durably | - |
| put at its restart | always: it reads from DISPATCHED on | - |
| connected slave (ha) | until it has the segment, the forcible time at most | its link is cut: LinkRefused OFFSET |
| slave that comes back too late | no | LinkRefused OFFSET, with what it must do |
| pull | no | OFFSET_TOO_SMALL with the minimum, or MESSAGE_WAS_REMOVING; an answer under way keeps its bytes |
| lookup by id or offset | no | NotInLog |
| lookup by key, search by time | no | what is gone is passed over |
| schedule | where only age is against a segment: until it is delivered, the longest delay at most | it counts losses |
| archive, with `keep_until_archived` | until it is archived, unless the disk is full | `status` counts what went |
| verify, Spark, any reader of files | no | NotInLog; segments that it has mapped stay readable to their end |
"""

import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Final

from towline.errors import MalformedFile
from towline.format.files.durable import Durable
from towline.log.commitlog.cleaning import (
    CleanRules,
    CleanState,
    DeleteReason,
    Deletion,
    DiskUse,
    SteadyTime,
    choose,
    hours_of,
    kept_shorter,
    lengthened,
    removable,
)
from towline.log.files.segment_files import segment_base, segment_name, sync_directory
from towline.log.queues.consume_queue import ConsumeQueueFiles
from towline.log.state.archived import NAME, archived_until
from towline.log.state.durable_file import DurableFile
from towline.log.state.floors import undelivered_from
from towline.log.state.topics_file import NAME as TOPICS
from towline.log.state.topics_file import TopicsFile
from towline.node.process.context import Node
from towline.runtime.failpoints import ARMED, reach
from towline.runtime.positions import Counter, Position
from towline.runtime.settings import Settings

from .space import DiskSpace

PRESSED_MS: Final = 250  # between two checks while the disk is too full, or the log too large
STEP_MS: Final = 50  # between two checks of what a deletion waits for
RETURN_MS: Final = 1000  # before more goes, after a deletion that freed nothing yet: its last reader has to close it
MANUAL_ROUNDS: Final = 20
MS_PER_HOUR: Final = 3_600_000
QUEUE_FILES_OPEN_MAX: Final = 8


_NO_ARCHIVE: Final = (0, 0)
_FOREVER: Final = 1 << 62  # ms
_NAMED_MAX: Final = 5  # topics of one sentence


class ArchiveKeeper:
    """Keeps segments that are in no archive, where `keep_until_archived` is set.

    `refresh` is called before a choice; then `keeps` decides by each segment's base.
    """

    def __init__(self, node: Node) -> None:
        self._node = node
        self._size = node.settings.mapped_file_size_commit_log
        self._seen = _NO_ARCHIVE
        self._until = 0
        self._logged = -1  # the segment of which it was logged last that it is kept

    def refresh(self) -> None:
        """Reads how far the archive has come, when its file changed. A log is never truncated while this process
        runs."""
        if not self._node.settings.keep_until_archived:
            return
        path = self._node.store.config / NAME
        try:
            found = path.stat()
            seen = found.st_mtime_ns, found.st_ino
        except FileNotFoundError:  # nothing is archived, or the job is just replacing it
            seen = _NO_ARCHIVE
        if seen == self._seen:
            return
        self._seen = seen
        try:
            self._until = archived_until(self._node.store, self._size)
        except MalformedFile as error:
            self._until = 0
            self._node.log.error("no segment counts as archived, all are kept until the disk is full: %s", error)

    def keeps(self, base: int) -> bool:
        """Whether the segment has to stay; logged once per segment."""
        if not self._is_missing(base):
            return False
        if base != self._logged:
            self._node.log.warning(
                "segment %s is kept until it is archived (keep_until_archived), the archive ends at %d: run `towline "
                "pipeline archive --out LOCATION`; only a full disk takes it before",
                segment_name(base),
                self._until,
            )
            self._logged = base
        return True

    def count(self, chosen: list[Deletion]) -> None:
        """Logs and counts segments that are deleted although they are in no archive."""
        lost = [doomed for doomed in chosen if self._is_missing(doomed.base)]
        for doomed in lost:
            message = "segment %s goes although it is in no archive: %s"
            self._node.log.error(message, segment_name(doomed.base), doomed.why.value)
        self._node.line.count(Counter.FALLBACKS, len(lost))

    def _is_missing(self, base: int) -> bool:
        return self._node.settings.keep_until_archived and base + self._size > self._until


class LongestRetention:
    """How long topics keep their messages (`retention.ms`): what is younger than the longest of that is not expired.

    put owns the topics; the file is read when it has changed, as often as something is chosen.
    """

    def __init__(self, node: Node) -> None:
        self._node = node
        self._topics = TopicsFile(node.store.config / TOPICS)
        self._unreadable = False
        self._by_topic: dict[str, int] = {}

    def apply(self, rules: CleanRules) -> CleanRules:
        """The rules with the times of all topics that exist. While these cannot be read at all, nothing is expired."""
        try:
            if self._topics.refresh():
                topics = self._topics.table.topics.items()
                self._by_topic = {name: topic.retention_ms for name, topic in topics if topic.retention_ms}
            self._unreadable = False
        except MalformedFile as error:
            if not self._unreadable:
                self._node.log.error("no segment counts as expired: how long topics are kept is unknown: %s", error)
            self._unreadable = True
        return replace(rules, reserved_ms=_FOREVER) if self._unreadable else lengthened(rules, self._by_topic)

    def log_shorter(self, chosen: list[Deletion]) -> None:
        """Logs segments that go although topics are to be kept for longer."""
        for doomed in chosen:
            topics = kept_shorter(doomed, self._by_topic)
            if topics:
                named = ", ".join(topics[:_NAMED_MAX]) + (", ..." if len(topics) > _NAMED_MAX else "")
                message = "segment %s goes when it is %.1f h old, before the time of %d topics (%s): %s"
                hours = doomed.age_ms / MS_PER_HOUR
                name = segment_name(doomed.base)
                self._node.log.warning(message, name, hours, len(topics), named, doomed.why.value)


class Cleaner:
    """Deletes expired segments, one per cycle at most. `local_hour` returns the hour of a time in ms."""

    def __init__(self, node: Node, space: DiskSpace, local_hour: Callable[[int], int] | None = None) -> None:
        settings = node.settings
        self._node = node
        self._space = space
        self._local_hour = local_hour or _local_hour
        self._rules = clean_rules(settings)
        self._size = settings.mapped_file_size_commit_log
        self._log_min = node.writer(Position.LOG_MIN)
        self._steady = SteadyTime()
        self._archive = ArchiveKeeper(node)
        self._retention = LongestRetention(node)
        self._since: dict[int, int] = {}  # segments that the log begins behind: since when that is known here
        self._why: dict[int, Deletion] = {}
        self._logged: set[int] = set()  # segments of which it was logged that they wait
        self._stuck = False
        self._seen_min = -1
        self._seen_wanted = -1
        self._check_at = self._pressed_at = self._ask_at = 0
        self._settled_at = 0  # until then the disk may not show yet what was deleted last
        self._kept_logged = -1  # the segment of which it was logged last that it is kept for what is not delivered
        self._rounds = 0  # that are left of what an operator asked for
        self._step_at = 0

    @property
    def pending(self) -> bool:
        """Whether segments wait for their deletion, or the disk needs room whatever their age."""
        return bool(self._since) or self._rounds > 0 or self._is_disk_short()

    def cycle(self, now_ms: int) -> int:
        """Does a check that is due, or one deletion; returns how much was done."""
        if self._seen_min < self._log_min.get():
            self._schedule_deletions(self._bases(), now_ms)
        if self._since and now_ms >= self._step_at and self._delete_one(now_ms):
            return 1
        asked, due = self._is_requested(now_ms), now_ms >= self._check_at
        if not due and now_ms >= self._pressed_at:
            due = asked or self._is_disk_short() or self._has_log_grown()
        return self._check(now_ms) if due else 0

    def adjust(self) -> None:
        """Chooses by the settings as they are now, in the next cycle."""
        self._rules = clean_rules(self._node.settings)
        self._check_at = 0

    def rescan(self) -> None:
        """Looks for segments below the log's beginning again, after some were made there."""
        self._seen_min = -1

    # --- choosing

    def _has_log_grown(self) -> bool:
        """Whether the log has a segment more, where its size is limited."""
        return self._rules.reserved_bytes > 0 and self._node.positions.get(Position.WANTED) != self._seen_wanted

    def _is_disk_short(self) -> bool:
        """Whether segments may be deleted whatever their age."""
        over = self._space.lacking > 0 or self._space.use.percent > self._rules.forcibly
        return over and self._rules.forced

    def _is_requested(self, now_ms: int) -> bool:
        """Whether an operator asked for expired segments to be deleted: so many rounds, as in RocketMQ."""
        if now_ms >= self._ask_at:
            self._ask_at = now_ms + PRESSED_MS
            if self._node.store.clean.exists():
                self._node.store.clean.unlink()
                self._rounds = MANUAL_ROUNDS
        return self._rounds > 0

    def _check(self, now_ms: int) -> int:
        self._check_at, self._pressed_at = now_ms + self._node.settings.clean_resource_interval, now_ms + PRESSED_MS
        bases = self._bases()
        log_min = self._log_min.get()
        chosen = self._choose([base for base in bases if base >= log_min], now_ms)
        if not chosen:
            return 0
        self._archive.count(chosen)
        self._retention.log_shorter(chosen)
        self._why |= {doomed.base: doomed for doomed in chosen}
        self._log_min.advance(chosen[-1].base + self._size)
        if ARMED:
            reach("allocate.after_minimum")
        self._node.log.warning(
            "the log begins at %d from now on: segments %d to %d go, the first because %s",
            self._log_min.get(),
            chosen[0].base,
            chosen[-1].base,
            chosen[0].why.value,
        )
        self._schedule_deletions(bases, now_ms)
        return 1

    def _choose(self, bases: list[int], now_ms: int) -> list[Deletion]:
        """The segments to delete now. Those below the log's beginning count as free: their last readers close them
        soon."""
        durable = self._durable()
        if durable is None:
            return []
        going = len(self._since) * self._size
        use, appended = self._space.use, self._node.positions.get(Position.APPENDED)
        believed = self._steady.believe(self._node.clock.now_ms(), now_ms)
        moment = CleanState(
            now_ms=believed,
            hour=self._local_hour(believed),
            disk=DiskUse(max(0, use.used - going), use.available + going),
            log_bytes=len(bases) * self._size,
            lacking=max(0, self._space.lacking - going),
            asked=self._rounds > 0,
        )
        self._rounds = max(0, self._rounds - 1)
        synced = min(durable.flushed, durable.queues_durable)
        free = removable(bases, self._size, synced=synced, appended=appended)
        settled = now_ms >= self._settled_at
        rules = self._retention.apply(self._rules if settled else replace(self._rules, forced=False))
        self._archive.refresh()
        chosen = choose(rules, moment, free, self._modified_ms, self._retention_check(), self._archive.keeps)
        if not self._is_over(moment):
            self._seen_wanted = self._node.positions.get(Position.WANTED)
        self._log_stuck(settled and not chosen and not going and self._is_disk_short(), synced, appended)
        return chosen

    def _retention_check(self) -> Callable[[int], bool]:
        """A predicate on a segment's base: whether undelivered messages need it. Their floor is read once, at the first
        call."""
        known: list[int | None] = []

        def asked(base: int) -> bool:
            if not known:
                known.append(self._undelivered_from())
            begins = known[0]
            if begins is None or base + self._size <= begins:
                return False
            if base != self._kept_logged:
                message = "segment %d is expired; it is kept %.1f h longer at most, for delayed messages or open halves"
                self._node.log.warning(message, base, self._rules.waits_ms / MS_PER_HOUR)
                self._kept_logged = base
            return True

        return asked

    def _undelivered_from(self) -> int | None:
        node, settings = self._node, self._node.settings
        files = ConsumeQueueFiles(
            node.store.consumequeue, settings.mapped_file_size_consume_queue, QUEUE_FILES_OPEN_MAX
        )
        ends = node.queue_ends()

        def bounds(topic: bytes, queue_id: int) -> tuple[int, int]:
            place = ends.find(topic, queue_id)
            return (0, 0) if place < 0 else ends.bounds(place)

        try:
            return undelivered_from(node.store, files, bounds, len(settings.delay_levels_ms))
        except MalformedFile as error:
            node.log.error("no expired segment is removed before it must be: %s", error)
            return 0
        finally:
            files.close()
            ends.close()

    def _is_over(self, moment: CleanState) -> bool:
        """Whether the log exceeds its limit, and may do so until flush has synced more: it is checked again soon."""
        return moment.log_bytes > self._rules.reserved_bytes > 0

    def _log_stuck(self, stuck: bool, synced: int, appended: int) -> None:
        if stuck and not self._stuck:
            message = (
                "the disk is too full and no segment can go: of %d bytes %d are flushed, queued and indexed on disk"
            )
            self._node.log.error(message, appended, synced)
        self._stuck = stuck

    def _modified_ms(self, base: int) -> int:
        return self._path(base).stat().st_mtime_ns // 1_000_000

    # --- deleting

    def _schedule_deletions(self, bases: list[int], now_ms: int) -> None:
        self._seen_min = self._log_min.get()
        for base in bases:
            if base + self._size <= self._seen_min:
                self._since.setdefault(base, now_ms)

    def _delete_one(self, now_ms: int) -> int:
        """Deletes the oldest segment below the log's beginning, unless a reader is waited for."""
        base = min(self._since)
        self._step_at = now_ms + STEP_MS
        durable = self._durable()
        if durable is not None and durable.log_min < base + self._size:
            return 0
        if self._waits_for_slave(base, now_ms):
            return 0
        if ARMED:
            reach("allocate.before_unlink")
        before = self._space.available()
        try:
            self._path(base).unlink(missing_ok=True)
            sync_directory(self._node.store.commitlog)
        except OSError as error:
            again = self._node.settings.redelete_hanged_file_interval
            self._step_at = now_ms + again
            self._node.log.error("segment %d cannot be removed, it is tried again in %d ms: %s", base, again, error)
            return 0
        if ARMED:
            reach("allocate.after_unlink")
        self._step_at = now_ms + self._node.settings.delete_commit_log_files_interval
        if self._space.available() - before < self._size // 2:  # a reader has it mapped, and closes it soon
            self._settled_at = now_ms + RETURN_MS
        self._pressed_at = self._settled_at
        del self._since[base]
        self._logged.discard(base)
        doomed = self._why.pop(base, Deletion(base, DeleteReason.LEFT_OVER, 0))
        hours = doomed.age_ms / MS_PER_HOUR
        self._node.log.info("removed segment %s, %.1f h old: %s", segment_name(base), hours, doomed.why.value)
        return 1

    def _waits_for_slave(self, base: int, now_ms: int) -> bool:
        forcible = self._node.settings.destroy_mapped_file_interval_forcibly
        end, slaves = base + self._size, enumerate(self._node.positions.slaves())
        behind = [place for place, slave in slaves if slave.connected and slave.appended < end]
        if not behind:
            return False
        waits = now_ms - self._since[base] < forcible
        if waits != (base in self._logged):
            places = ", ".join(map(str, behind))
            message = "waits at most %d ms" if waits else "goes after %d ms"
            self._node.log.warning("segment %d " + message + ", slave %s has not got it yet", base, forcible, places)
            self._logged ^= {base}
        return waits

    # --- files

    def _durable(self) -> Durable | None:
        """The state that a start would use; None before flush has written it."""
        try:
            return DurableFile(self._node.store.root).load()
        except MalformedFile as error:
            self._node.log.error("nothing is removed while %s", error)
            return Durable()

    def _bases(self) -> list[int]:
        """Every segment file in order; other files are ignored."""
        paths = self._node.store.commitlog.iterdir()
        return sorted(base for path in paths if (base := segment_base(path.name)) is not None)

    def _path(self, base: int) -> Path:
        return self._node.store.commitlog / segment_name(base)


def clean_rules(settings: Settings) -> CleanRules:
    return CleanRules(
        segment_size=settings.mapped_file_size_commit_log,
        hours=hours_of(settings.delete_when),
        reserved_ms=settings.file_reserved_time * MS_PER_HOUR,
        waits_ms=max(*settings.delay_levels_ms, 1000 * settings.timer_max_delay_sec),
        reserved_bytes=settings.file_reserved_bytes,
        max_used=settings.disk_max_used_space_ratio,
        forcibly=settings.disk_space_clean_forcibly_ratio,
        forced=settings.clean_file_forcibly_enable,
        batch_max=settings.delete_file_batch_max,
    )


def _local_hour(now_ms: int) -> int:
    return time.localtime(now_ms / 1000).tm_hour
