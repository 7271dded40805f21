"""Whether queues that were built in parts are whole: every number from the first to the end, and each of one record."""

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import groupby

from towline.errors import QueueGap
from towline.format.files.topics import TopicTable

from .consume_queue import ConsumeQueueFiles
from .queue_build import LeadingHole, Stretch

Part = Stretch | LeadingHole


@dataclass(frozen=True, slots=True)
class Missing:
    """Numbers [first, end) of a queue are to be holes: they were lost with the stretch at `at`."""

    first: int
    end: int
    at: int


@dataclass(frozen=True, slots=True)
class Whole:
    """A queue that holds [first, end) when its holes are written."""

    built: Stretch
    holes: tuple[Missing, ...]


def cover(stretches: Iterable[Stretch], holes: Iterable[LeadingHole]) -> list[Whole]:
    """Puts the parts of each queue together, in the order in which they stand in the log.

    Raises QueueGap for a number that nobody wrote, and for one that two records claim.
    """
    parts: list[Part] = [*stretches, *holes]
    parts.sort(key=lambda part: (part.topic, part.queue_id, part.at, part.first))
    return [_whole(list(queue)) for _, queue in groupby(parts, key=lambda part: (part.topic, part.queue_id))]


def _whole(parts: list[Part]) -> Whole:
    first = due = parts[0].first
    missing: list[Missing] = []
    for part in parts:
        if part.first > due or (part.first < due and isinstance(part, Stretch)):
            topic = part.topic.decode("utf-8", "replace")
            raise QueueGap(topic, part.queue_id, part.first, due, part.at)
        if isinstance(part, LeadingHole) and part.end > due:
            missing.append(Missing(due, part.end, part.at))
        due = max(due, part.end)
    return Whole(Stretch(parts[0].topic, parts[0].queue_id, parts[0].at, first, due), tuple(missing))


def remove_deleted(
    files: ConsumeQueueFiles, table: TopicTable, log_min: int, end: int, wholes: Iterable[Stretch]
) -> None:
    """What reput removes of queues of deleted topics, once the log is dispatched to `end`: nobody reads it any more."""
    ends = {(whole.topic, whole.queue_id): whole.end for whole in wholes}
    for (topic, queue_id), floor in table.floors().items():
        name = topic.decode()
        deleted_at = table.deleted[name].log_offset
        if end < deleted_at or (topic, queue_id) not in ends:
            continue
        files.delete_below(name, queue_id, floor)
        if deleted_at <= log_min and name not in table.topics and ends[topic, queue_id] <= floor:
            files.delete(name, queue_id)
