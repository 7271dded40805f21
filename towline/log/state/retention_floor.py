"""From where on the log still holds what is to be delivered: delayed messages, and halves that nobody ended.

Told from the offsets that were written last, which are never ahead of what was delivered (0020), so master and slave
tell the same, and nobody has to run for it.
"""

from collections.abc import Callable, Iterator
from typing import Any, Final

import numpy as np

from towline.format.record.forms import HALF_QUEUE, HALF_TOPIC, SCHEDULE_TOPIC, TIMER_QUEUE, TIMER_TOPIC
from towline.format.record.transactions import TRANSACTION_GROUP
from towline.log.files.config_file import ConfigFile
from towline.log.queues.consume_queue import ConsumeQueueFiles, is_filler, is_queue_id, queue_directory
from towline.places import Store

DELAY_OFFSETS: Final = "delayOffset.json"
TIMER_OFFSETS: Final = "timerOffset.json"
GROUP_OFFSETS: Final = "consumerOffset.json"
EARLIER: Final = "earlier"  # of TIMER_OFFSETS: what was through before a clock went back
TRANSACTION_OFFSETS: Final = "transactionOffset.json"
HALF_FLOOR: Final = "halfOffset"  # its members
OP_FLOOR: Final = "opOffset"
LOG_END: Final = "towlineLogEnd"  # Towline's own member of these: before it the log holds all that counts as through
_LOOK: Final = 4096  # entries, of which fillers may be the first

Bounds = Callable[[bytes, int], tuple[int, int]]  # lowest offset and end of a queue, (0, 0) of one that is not there


def undelivered_from(store: Store, files: ConsumeQueueFiles, bounds: Bounds, levels: int) -> int | None:
    """The log offset of the first record that may be to be delivered yet; None when no queue shows one.

    `levels`: of the settings. Raises MalformedFile when offsets cannot be read.
    """
    found = []
    for topic, queue_id, offset in _offsets(store, levels_of(files, levels)):
        low, high = bounds(topic.encode(), queue_id)
        offset = max(offset, low)
        if offset < high:
            entries = files.read(topic, queue_id, offset, min(_LOOK, high - offset))
            records = np.flatnonzero(~is_filler(entries))
            if len(records):
                found.append(int(entries["physical_offset"][records[0]]))
    return min(found, default=None)


def levels_of(files: ConsumeQueueFiles, configured: int) -> int:
    """How many delay levels may have something to deliver: also those of which the settings know no more."""
    directory = queue_directory(files.root, SCHEDULE_TOPIC, 0).parent
    queues = (int(path.name) for path in directory.iterdir() if is_queue_id(path.name)) if directory.is_dir() else ()
    return max(configured, 1 + max(queues, default=-1))


def _offsets(store: Store, levels: int) -> Iterator[tuple[str, int, int]]:
    """Topic, queue id, and the first offset that is not known to be through."""
    delays = _member(store, DELAY_OFFSETS, "offsetTable")
    for level in range(1, levels + 1):
        yield SCHEDULE_TOPIC, level - 1, int(delays.get(str(level), 0))
    timers = ConfigFile(store.config / TIMER_OFFSETS).load() or {}
    yield TIMER_TOPIC, TIMER_QUEUE, int(timers.get("from", 0))
    yield HALF_TOPIC, HALF_QUEUE, _half_floor(store)


def _half_floor(store: Store) -> int:
    """A store that only a real broker wrote has it among the offsets of its groups."""
    found = ConfigFile(store.config / TRANSACTION_OFFSETS).load()
    if found is not None:
        return int(found.get(HALF_FLOOR, 0))
    halves = _member(store, GROUP_OFFSETS, "offsetTable").get(f"{HALF_TOPIC}@{TRANSACTION_GROUP}", {})
    return int(halves.get(str(HALF_QUEUE), 0))


def _member(store: Store, name: str, member: str) -> dict[str, Any]:
    content = ConfigFile(store.config / name).load() or {}
    found = content.get(member, {})
    return found if isinstance(found, dict) else {}
