"""Offsets of config/ go back with the ends of their queues, when what they spoke of was cut off the log (H15, H17)."""

from typing import Any, Final

from towline.format.forms import SCHEDULE_TOPIC, TIMER_TOPIC
from towline.places import Store

from .config_file import ConfigFile, read_config
from .recover_derived import Queue

_TIMERS: Final = {"upTo": 0, "from": 0, "cancelsFrom": 1}  # member -> queue of the timer topic
_AT: Final = "@"


def clamp_offsets(store: Store, ends: dict[Queue, int]) -> list[str]:
    """What lies beyond the end of its queue goes back to it; a queue that `ends` does not name has no record.

    A sentence for each file that was changed. Raises StoreNotWritable, SyncFailed, DiskFull.
    """
    said = []
    for name, clamp in (
        ("consumerOffset.json", _groups),
        ("delayOffset.json", _levels),
        ("timerOffset.json", _timers),
    ):
        file = ConfigFile(store.config / name)
        content = read_config(file.path)
        if content is None:
            continue  # a start reads the generation before, or refuses: not for us to decide
        count = clamp(content, ends)
        if count:
            file.save(content)
            said.append(f"{count} offsets of {name} went back to the ends of their queues")
    return said


def _groups(content: dict[str, Any], ends: dict[Queue, int]) -> int:
    count = 0
    for table in ("offsetTable", "pullOffsetTable"):
        for key, queues in content.get(table, {}).items():
            topic = key.split(_AT)[0]
            for queue, offset in queues.items():
                end = ends.get((topic, int(queue)), 0)
                if offset > end:
                    queues[queue] = end
                    count += 1
    return count


def _levels(content: dict[str, Any], ends: dict[Queue, int]) -> int:
    offsets = content.get("offsetTable", {})
    beyond = {level: end for level, offset in offsets.items() if offset > (end := _level_end(level, ends))}
    offsets.update(beyond)
    return len(beyond)


def _level_end(level: str, ends: dict[Queue, int]) -> int:
    return ends.get((SCHEDULE_TOPIC, int(level) - 1), 0)


def _timers(content: dict[str, Any], ends: dict[Queue, int]) -> int:
    found = {name: ends.get((TIMER_TOPIC, queue), 0) for name, queue in _TIMERS.items()}
    beyond = {name: end for name, end in found.items() if content.get(name, 0) > end}
    content.update(beyond)
    return len(beyond)
