"""What counts as delivered goes back where the log is shorter than that speaks of (H15, H17).

Deliveries stand in the log, and which of them a shorter one still holds nobody has noted. But a delivery is stored when
its time has come, so what is due after the newest record was not delivered in it, and what was due long before was.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from towline.format.files.consume_queue import SIZE
from towline.format.record.forms import CANCEL_QUEUE, SCHEDULE_TOPIC, TIMER_QUEUE, TIMER_TOPIC
from towline.log.queues.consume_queue import ConsumeQueueFiles, is_filler
from towline.log.state.retention_floor import EARLIER, LOG_END

LATE_MS: Final = 10_000  # a delivery that put refused for so long may be in the part of the log that is gone
_TIMERS: Final = {"upTo": TIMER_QUEUE, "from": TIMER_QUEUE, "cancelsFrom": CANCEL_QUEUE}  # of the timer topic
_NEVER: Final = (1 << 63) - 1
_LOOK: Final = 4096  # entries

Ends = Mapping[tuple[str, int], int]


@dataclass(frozen=True, slots=True)
class Shorter:
    """A log that ends at `end`, with the store time of its newest record, or of the first behind it (epoch ms)."""

    end: int
    newest_ms: int

    @property
    def delivered_ms(self) -> int:
        """What was due until then was delivered in it."""
        return max(0, self.newest_ms - LATE_MS)


def clamp_levels(content: dict[str, Any], ends: Ends, log: Shorter, files: ConsumeQueueFiles) -> list[str]:
    """Of delayOffset.json; sentences about what went back."""
    said = []
    found = content.get("offsetTable")
    offsets: dict[str, Any] = found if isinstance(found, dict) else {}
    longer = number(content, LOG_END) > log.end
    for level in offsets:
        told = number(offsets, level)
        end = ends.get((SCHEDULE_TOPIC, queue_id_of(level, 1)), 0)
        holds = min(told, end)
        if longer and holds:
            holds = _first_after(files, queue_id_of(level, 1), holds, log.delivered_ms)
        if told > holds:
            said.append(f"of level {level} {told} count as delivered, and the log holds {holds}")
            offsets[level] = holds
    if longer:
        content[LOG_END] = log.end
        said = said or [f"the delay levels speak of a log that is longer than {log.end} bytes"]
    return said


def clamp_timers(content: dict[str, Any], ends: Ends, log: Shorter) -> list[str]:
    """Of timerOffset.json; the same. All that may be due later is looked at again, with what cancels it."""
    said = []
    earlier = content.get(EARLIER)
    marks = [mark for mark in earlier if isinstance(mark, dict)] if isinstance(earlier, list) else []
    for mark in (content, *marks):
        for name, queue in _TIMERS.items():
            end = ends.get((TIMER_TOPIC, queue), 0)
            if number(mark, name) > end:
                said.append(f"{name} is {mark[name]}, and the queue ends at {end}")
                mark[name] = end
    longer = number(content, LOG_END) > log.end
    if not (said or longer):
        return []
    until = log.delivered_ms if longer else log.newest_ms
    content["from"] = content["cancelsFrom"] = 0
    for mark in (content, *marks):
        delivered = number(mark, "deliveredDue"), mark.get("deliveredOffset", -1)
        mark["deliveredDue"], mark["deliveredOffset"] = min(delivered, (until, _NEVER))
    content[LOG_END] = min(number(content, LOG_END), log.end)
    return said or [f"the times speak of a log that is longer than {log.end} bytes"]


def number(content: Mapping[str, Any], name: str) -> int:
    """0 for what is no number: whoever owns the file refuses it."""
    value = content.get(name, 0)
    return value if type(value) is int else 0


def queue_id_of(text: str, first: int = 0) -> int:
    """The queue that a member of JSON names, where the first one is called `first`; -1 if it names none."""
    return int(text) - first if text.isdecimal() else -1


def _first_after(files: ConsumeQueueFiles, queue_id: int, before: int, time_ms: int) -> int:
    """The first entry before number `before` that is due after `time_ms`, or that nobody can tell: so many are through.

    Backwards, until _LOOK in a row are due sooner: a queue's times go up, unless its delay was changed.
    """
    if queue_id < 0:
        return before
    bases = files.bases(SCHEDULE_TOPIC, queue_id)
    if not bases:  # it is derived again
        return 0
    low, per_file, first = bases[0] // SIZE, files.file_size // SIZE, before
    while before > max(low, first - _LOOK):
        start = max(low, before - _LOOK, (before - 1) // per_file * per_file)
        entries = files.raw(SCHEDULE_TOPIC, queue_id, start, before - start)
        codes = entries["tags_code"].astype(np.int64)
        untold = (entries["record_size"] <= 0) | (codes < 0)  # to be derived again, or an address of ConsumeQueueExt
        later = (untold | (codes > time_ms)) & ~is_filler(entries)
        first = start + int(later.argmax()) if later.any() else first
        before = start
    return first
