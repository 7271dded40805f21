"""Offsets of config/ go back with the ends of their queues, when what they spoke of is not in the log (H15, H17).

A start does it before put: whoever comes later finds queues that have new messages under the numbers that were lost.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

from towline.errors import MalformedFile
from towline.log.commitlog.commit_log import CommitLogReader
from towline.log.files.config_file import ConfigFile, read_config
from towline.log.queues.consume_queue import ConsumeQueueFiles
from towline.log.state.retention_floor import DELAY_OFFSETS, GROUP_OFFSETS, TIMER_OFFSETS, TRANSACTION_OFFSETS
from towline.places import Store

from .delay_rollback import Shorter, clamp_levels, clamp_timers, number, queue_id_of
from .recover_derived import Queue, Tail
from .recovery import Recovered

_AT: Final = "@"
_FILES_OPEN_MAX: Final = 8
_NAMED_MAX: Final = 10  # offsets that are told one by one

Ends: TypeAlias = Mapping[Queue, int]
Clamp: TypeAlias = Callable[[dict[str, Any], Ends], list[str]]


@dataclass(frozen=True, slots=True)
class Clamped:
    """`counts`: file -> offsets that went back. `notes`: sentences for the log."""

    counts: dict[str, int] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)


def clamp_offsets(store: Store, ends: Ends, log: Shorter, files: ConsumeQueueFiles) -> Clamped:
    """What lies beyond the end of its queue goes back to it; a queue that `ends` does not name has no record.

    For a log that is about to be cut, of which `log` tells and `files` are the queues. It is now or never: a log that
    has grown again does not show what was cut. Raises StoreNotWritable, SyncFailed, DiskFull.
    """
    return _clamp(store, ends, _clamps(log, files) | {TRANSACTION_OFFSETS: _transactions})


def clamp_to_recovered(
    store: Store, recovered: Recovered, floors: Mapping[tuple[bytes, int], int], sizes: tuple[int, int]
) -> Clamped:
    """The same for the start of a master, whose log ends where it was recovered. `floors` of deleted topics hold too.

    `sizes`: of a segment, and of a queue's file. Raises StoreNotWritable, SyncFailed, DiskFull. Files that nobody can
    read are left to those who refuse them.
    """
    ends = {(queue.topic, queue.queue_id): queue.end_offset for queue in recovered.queues}
    for (topic, queue_id), floor in floors.items():
        key = topic.decode("utf-8", "replace"), queue_id
        ends[key] = max(floor, ends.get(key, 0))
    segment_size, queue_file_size = sizes
    files = ConsumeQueueFiles(store.consumequeue, queue_file_size, _FILES_OPEN_MAX)
    log = CommitLogReader(store.commitlog, segment_size)
    clamps = _clamps(Shorter(recovered.end, recovered.last_store_timestamp), files)
    try:
        if not any(clamp(content, ends) for name, clamp in clamps.items() if (content := _load(store, name)[0])):
            return Clamped()
        log.load()  # reput has not dispatched all of it
        for queue, end in Tail.of(log, recovered.dispatched, recovered.end).ends.items():
            ends[queue] = max(end, ends.get(queue, 0))
        return _clamp(store, ends, clamps)
    finally:
        log.close()
        files.close()


def _clamps(log: Shorter, files: ConsumeQueueFiles) -> dict[str, Clamp]:
    return {
        GROUP_OFFSETS: _groups,
        DELAY_OFFSETS: lambda content, ends: clamp_levels(content, ends, log, files),
        TIMER_OFFSETS: lambda content, ends: clamp_timers(content, ends, log),
    }


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
                end = ends.get((topic, queue_id_of(queue)), 0)
                if number(queues, queue) > end:
                    said.append(
                        f"group {group}: its offset {queues[queue]} of queue {queue} of {topic} is beyond "
                        f"the queue's end and becomes {end}"
                    )
                    queues[queue] = end
    return said


def _transactions(content: dict[str, Any], ends: Ends) -> list[str]:
    """With the cut went op records, of halves that may be left: they are open again, so everything is read."""
    said = [f"{name} was {value}: transactions are read from the beginning" for name, value in content.items() if value]
    content.update(dict.fromkeys(content, 0))
    return said


def _tables(found: Any) -> list[tuple[str, dict[str, Any]]]:
    return [(key, table) for key, table in found.items() if isinstance(table, dict)] if isinstance(found, dict) else []
