"""Offsets of config/ go back with the ends of their queues, when what they spoke of is not in the log (H15, H17).

A start does it before put: whoever comes later finds queues that have new messages under the numbers that were lost.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

from towline.errors import MalformedFile
from towline.format.forms import CANCEL_QUEUE, SCHEDULE_TOPIC, TIMER_QUEUE, TIMER_TOPIC
from towline.places import Store

from .commit_log import CommitLogReader
from .config_file import ConfigFile, read_config
from .recover_derived import Queue, Tail
from .recovery import Recovered
from .undelivered import DELAY_OFFSETS, EARLIER, GROUP_OFFSETS, LOG_END, TIMER_OFFSETS, TRANSACTION_OFFSETS

_TIMERS: Final = {"upTo": TIMER_QUEUE, "from": TIMER_QUEUE, "cancelsFrom": CANCEL_QUEUE}  # of the timer topic
_AT: Final = "@"
_NEVER: Final = (1 << 63) - 1
_NAMED_MAX: Final = 10  # offsets that are told one by one

Ends: TypeAlias = Mapping[Queue, int]
Clamp: TypeAlias = Callable[[dict[str, Any], Ends], list[str]]


@dataclass(frozen=True, slots=True)
class Clamped:
    """`counts`: file -> offsets that went back. `notes`: sentences for the log."""

    counts: dict[str, int] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)


def clamp_offsets(store: Store, ends: Ends) -> Clamped:
    """What lies beyond the end of its queue goes back to it; a queue that `ends` does not name has no record.

    For a log that is cut; the start that follows settles them with `clamp_to_recovered`. Raises StoreNotWritable,
    SyncFailed, DiskFull.
    """
    clamps: dict[str, Clamp] = {GROUP_OFFSETS: _groups, DELAY_OFFSETS: _levels, TIMER_OFFSETS: _timers}
    return _clamp(store, ends, clamps | {TRANSACTION_OFFSETS: _transactions})


def clamp_to_recovered(
    store: Store, recovered: Recovered, floors: Mapping[tuple[bytes, int], int], segment_size: int
) -> Clamped:
    """The same for the start of a master, whose log ends where it was recovered. `floors` of deleted topics hold too.

    Raises StoreNotWritable, SyncFailed, DiskFull. Files that nobody can read are left to those who refuse them.
    """
    ends = {(queue.topic, queue.queue_id): queue.end_offset for queue in recovered.queues}
    for (topic, queue_id), floor in floors.items():
        key = topic.decode("utf-8", "replace"), queue_id
        ends[key] = max(floor, ends.get(key, 0))
    spoken_of = max(_number(_load(store, name)[0], LOG_END) for name in (DELAY_OFFSETS, TIMER_OFFSETS))
    longer = spoken_of > recovered.end

    def timers(content: dict[str, Any], ends: Ends) -> list[str]:
        lows = {(queue.topic, queue.queue_id): queue.min_offset for queue in recovered.queues}
        return _timers_anew(content, ends, lows, recovered, longer=longer)

    clamps: dict[str, Clamp] = {GROUP_OFFSETS: _groups, DELAY_OFFSETS: _levels, TIMER_OFFSETS: timers}
    if not any(clamp(content, ends) for name, clamp in clamps.items() if (content := _load(store, name)[0])):
        return Clamped()
    log = CommitLogReader(store.commitlog, segment_size)  # reput has not dispatched all of it
    try:
        log.load()
        for queue, end in Tail.of(log, recovered.dispatched, recovered.end).ends.items():
            ends[queue] = max(end, ends.get(queue, 0))
    finally:
        log.close()
    return _clamp(store, ends, clamps)


def _clamp(store: Store, ends: Ends, clamps: Mapping[str, Clamp]) -> Clamped:
    done = Clamped()
    for name, clamp in clamps.items():
        content, is_backup = _load(store, name)
        said = clamp(content, ends) if content else []
        if not said:
            continue
        file = ConfigFile(store.config / name)
        for _ in range(2):  # the generation before too: a later start may have to believe it
            file.save(content)
        done.counts[name] = len(said)
        done.notes.append(f"{len(said)} offsets of {name} went back to the ends of their queues")
        done.notes.extend(said[:_NAMED_MAX])
        if is_backup:
            done.notes.append(f"{file.backup} is used: {name} cannot be read")
    return done


def _load(store: Store, name: str) -> tuple[dict[str, Any], bool]:
    """Empty where there is none, or whoever owns it will refuse it; whether it is the generation before."""
    file = ConfigFile(store.config / name)
    try:
        content = file.load() or {}
    except MalformedFile:
        return {}, False
    return content, bool(content) and read_config(file.path) is None


def _groups(content: dict[str, Any], ends: Ends) -> list[str]:
    said = []
    for table in ("offsetTable", "pullOffsetTable"):
        for key, queues in _tables(content.get(table)):
            topic, _, group = key.partition(_AT)
            for queue in queues:
                end = ends.get((topic, _int(queue)), 0)
                if _number(queues, queue) > end:
                    said.append(
                        f"group {group}: its offset {queues[queue]} of queue {queue} of {topic} is beyond "
                        f"the queue's end and becomes {end}"
                    )
                    queues[queue] = end
    return said


def _levels(content: dict[str, Any], ends: Ends) -> list[str]:
    said = []
    found = content.get("offsetTable")
    offsets: dict[str, Any] = found if isinstance(found, dict) else {}
    for level in offsets:
        end = ends.get((SCHEDULE_TOPIC, _int(level) - 1), 0)
        if _number(offsets, level) > end:
            said.append(f"of level {level} {offsets[level]} count as delivered, and the log holds {end}")
            offsets[level] = end
    return said


def _transactions(content: dict[str, Any], ends: Ends) -> list[str]:
    """With the cut went op records, of halves that may be left: they are open again, so everything is read."""
    said = [f"{name} was {value}: transactions are read from the beginning" for name, value in content.items() if value]
    content.update(dict.fromkeys(content, 0))
    return said


def _timers(content: dict[str, Any], ends: Ends) -> list[str]:
    said = []
    for mark in (content, *_marks(content)):
        for name, queue in _TIMERS.items():
            end = ends.get((TIMER_TOPIC, queue), 0)
            if _number(mark, name) > end:
                said.append(f"{name} is {mark[name]}, and the queue ends at {end}")
                mark[name] = end
    return said


def _marks(timers: Mapping[str, Any]) -> list[dict[str, Any]]:
    """What was through before a clock went back."""
    found = timers.get(EARLIER)
    return [mark for mark in found if isinstance(mark, dict)] if isinstance(found, list) else []


def _timers_anew(content: dict[str, Any], ends: Ends, lows: Ends, recovered: Recovered, *, longer: bool) -> list[str]:
    """What a longer log delivered need not stand in this one. A delivery is stored when its time has come, so nothing
    that is due after the newest record was delivered here; all of it is looked at again, with what cancels it.
    """
    said = _timers(content, ends)
    if not (said or longer):
        return []
    for name in ("from", "cancelsFrom"):
        content[name] = lows.get((TIMER_TOPIC, _TIMERS[name]), 0)
    for mark in (content, *_marks(content)):
        delivered = _number(mark, "deliveredDue"), mark.get("deliveredOffset", -1)
        mark["deliveredDue"], mark["deliveredOffset"] = min(delivered, (recovered.last_store_timestamp, _NEVER))
    content |= {LOG_END: min(_number(content, LOG_END), recovered.end)}
    return said or [f"it speaks of a log that is longer than {recovered.end} bytes"]


def _tables(found: Any) -> list[tuple[str, dict[str, Any]]]:
    return [(key, table) for key, table in found.items() if isinstance(table, dict)] if isinstance(found, dict) else []


def _number(content: Mapping[str, Any], name: str) -> int:
    """0 for what is no number: whoever owns the file refuses it."""
    value = content.get(name, 0)
    return value if type(value) is int else 0


def _int(text: str) -> int:
    return int(text) if text.isdecimal() else -1
