"""config/queueMinima.json: to which message each queue was cut by its topic's retention.

A queue's minimum never goes back: not with a start, and not when the topic is to keep its messages longer. Nothing else
tells where it was, so it is written down, by reput alone, before anybody sees it. An entry names the number, and the
log offset before which everything that was cut stands. It goes when the log begins behind that offset.
"""

import contextlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from towline.errors import MalformedFile
from towline.log.files.config_file import ConfigFile
from towline.places import Store

NAME: Final = "queueMinima.json"
MINIMA: Final = "minima"  # its member
_OFFSET: Final = "offset"
_LOG_OFFSET: Final = "logOffset"

Queue = tuple[str, int]


@dataclass(frozen=True, slots=True)
class QueueMinimum:
    """The number of the first message that is read; those before it stand in the log before `log_offset`."""

    offset: int
    log_offset: int


def load_minima(store: Store) -> dict[Queue, QueueMinimum]:
    """By topic and queue id. Raises MalformedFile when neither generation of the file can be read."""
    file = ConfigFile(store.config / NAME)
    content = file.load() or {}
    try:
        return {
            (str(topic), int(queue_id)): QueueMinimum(int(row[_OFFSET]), int(row[_LOG_OFFSET]))
            for topic, queues in content.get(MINIMA, {}).items()
            for queue_id, row in queues.items()
        }
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise MalformedFile(str(file.path), f"it names no queues: {error!r}") from None


def read_minima(store: Store) -> dict[Queue, QueueMinimum]:
    """The same for readers; none where the file cannot be read, which its owner refuses by name."""
    with contextlib.suppress(MalformedFile):
        return load_minima(store)
    return {}


def still_needed(minima: Mapping[Queue, QueueMinimum], log_min: int) -> dict[Queue, QueueMinimum]:
    """Those that a log which begins at `log_min` does not imply."""
    return {queue: minimum for queue, minimum in minima.items() if minimum.log_offset > log_min}


def minima_content(minima: Mapping[Queue, QueueMinimum]) -> dict[str, Any]:
    """The object that the file holds."""
    rows: dict[str, dict[str, dict[str, int]]] = {}
    for (topic, queue_id), minimum in sorted(minima.items()):
        rows.setdefault(topic, {})[str(queue_id)] = {_LOG_OFFSET: minimum.log_offset, _OFFSET: minimum.offset}
    return {MINIMA: rows}


def offsets_of(minima: Mapping[Queue, QueueMinimum]) -> dict[tuple[bytes, int], int]:
    """(topic, queue id) -> the least number that may be read, as the table of queue ends has its queues."""
    return {(topic.encode(), queue_id): minimum.offset for (topic, queue_id), minimum in minima.items()}
