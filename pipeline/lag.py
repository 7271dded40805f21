"""How far consumer groups are behind: committed offsets against the ends of the queues, of a store that runs or rests.

No JVM is started: it is one small file, two entries of each queue and as many records. What a running node has not yet
written of its offsets (a few seconds) counts as unread.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from towline.arrow.decode import decode
from towline.format.files.consume_queue import FILLER_RECORD_SIZE
from towline.format.files.groups import OffsetTable, read_offsets
from towline.format.record.columns import Integers
from towline.log.files.config_file import ConfigFile
from towline.spark.stores import QueueBounds, StoreFacts, StoreView

from .errors import IllegalOption, NoOffsets
from .job import Column, Job, Plot, Result, many
from .options import option, store_option
from .progress import Progress

GROUPS_DRAWN: Final = 20
Queue = tuple[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    store: str = store_option()
    group: tuple[str, ...] = option("Only this consumer group; give it several times.", default=(), metavar="NAME")
    topic: tuple[str, ...] = option("Only this topic; give it several times.", default=(), metavar="NAME")
    fail_above: int | None = option(
        "Exit status 1 when a group lags more messages than this, all its queues together.", default=None, least=0
    )


COLUMNS: Final = (
    Column("group", "string", "consumer group"),
    Column("topic", "string", "topic"),
    Column("queueId", "int", "queue of the topic"),
    Column("minOffset", "bigint", "lowest queue offset that can be read"),
    Column("committed", "bigint", "the group's next offset; null where it never committed one"),
    Column("maxOffset", "bigint", "queue offset after the newest message"),
    Column("lag", "bigint", "messages that can be read and were not"),
    Column("removed", "bigint", "messages that were deleted before the group came to them"),
    Column("behindSeconds", "double", "store time from the group's next message to the newest of the queue"),
)


def run(spark: None, options: Options, progress: Progress) -> Result:
    with StoreView.open(options.store) as view:
        table = _offsets(view.facts())
        bounds = {(queue.topic, queue.queue_id): queue for queue in view.queues}
        wanted = [
            (group, topic, offsets)
            for (topic, group), offsets in sorted(table.offsets.items(), key=lambda pair: pair[0][::-1])
            if _is_wanted(group, options.group) and _is_wanted(topic, options.topic)
        ]
        _check(options, table)
        found = [row for group, topic, offsets in wanted for row in _rows(group, topic, offsets, bounds)]
        rows = _with_times(view.facts(), found)
    lags: dict[str, int] = defaultdict(int)
    for row in rows:
        lags[row[0]] += row[6]
    return _result(options, rows, lags)


JOB: Final = Job(options=Options, columns=COLUMNS, run=run, jvm=False)


def _offsets(facts: StoreFacts) -> OffsetTable:
    """Raises NoOffsets, MalformedFile."""
    path = facts.store.config / "consumerOffset.json"
    content = ConfigFile(path).load()
    if content is None:
        raise NoOffsets(str(path))
    return read_offsets(content, str(path))


def _check(options: Options, table: OffsetTable) -> None:
    known = {group for _, group in table.offsets}
    for group in options.group:
        if group not in known:
            raise IllegalOption("group", f"no offset of {group!r} is known; there are {', '.join(sorted(known))}")


def _is_wanted(name: str, names: tuple[str, ...]) -> bool:
    return not names or name in names


def _rows(
    group: str, topic: str, offsets: Mapping[int, int], bounds: Mapping[Queue, QueueBounds]
) -> Iterable[list[Any]]:
    """One for every queue of the topic, and for offsets of queues that are gone. The time is missing yet."""
    queues = sorted({queue for of, queue in bounds if of == topic} | offsets.keys())
    for queue_id in queues:
        queue = bounds.get((topic, queue_id), QueueBounds(topic, queue_id, 0, 0))
        committed = offsets.get(queue_id)
        low, high = queue.min_offset, queue.max_offset
        following = low if committed is None else min(max(committed, low), high)
        removed = 0 if committed is None else min(max(0, low - committed), low)
        yield [group, topic, queue_id, low, committed, high, high - following, removed, 0.0]


def _with_times(facts: StoreFacts, rows: list[list[Any]]) -> list[tuple[Any, ...]]:
    behind = [(number, row) for number, row in enumerate(rows) if row[6]]
    places = np.zeros(2 * len(behind), dtype=np.int64)
    files = facts.queue_files()
    try:
        for at, (_, row) in enumerate(behind):
            topic, queue_id, high, lag = row[1], row[2], row[5], row[6]
            for step, offset in enumerate((high - lag, high - 1)):
                entries = files.read(topic, queue_id, offset, 1)
                there = len(entries) and entries["record_size"][0] != FILLER_RECORD_SIZE
                places[2 * at + step] = entries["physical_offset"][0] if there else -1
    finally:
        files.close()
    times = _store_times(facts, places)
    for at, (_, row) in enumerate(behind):
        first, last = int(times[2 * at]), int(times[2 * at + 1])
        row[8] = None if min(first, last) < 0 else max(0, last - first) / 1_000_000
    return [tuple(row) for row in rows]


def _store_times(facts: StoreFacts, places: Integers) -> Integers:
    """Store times in microseconds of the records at these physical offsets; -1 where there is none."""
    times = np.full(len(places), -1, dtype=np.int64)
    bases = places - places % facts.segment_size if facts.segment_size else places
    for base in np.unique(bases[places >= facts.log_min]).tolist():
        chosen = np.flatnonzero(bases == base)
        found = decode(facts.array(base), base, places[chosen] - base, ("storeTimestamp",)).column(0)
        times[chosen] = found.cast("int64").to_numpy()
    return times


def _result(options: Options, rows: list[tuple[Any, ...]], lags: Mapping[str, int]) -> Result:
    worst = sorted(lags, key=lambda group: (-lags[group], group))
    total = sum(lags.values())
    above = [group for group in worst if options.fail_above is not None and lags[group] > options.fail_above]
    sentence = f"{many(total, 'message')} not read by {many(len(lags), 'group')}"
    if worst and lags[worst[0]]:
        sentence += f", {worst[0]} most of all with {lags[worst[0]]:,}"
    if above:
        sentence += f"; above {options.fail_above:,}: {', '.join(above)}"
    drawn = worst[:GROUPS_DRAWN]
    plot = Plot(
        title="messages that groups have not read",
        kind="bars",
        x=drawn,
        series={"lag": [float(lags[group]) for group in drawn]},
        y_label="messages",
    )
    summary: dict[str, Any] = {
        "lag": total,
        "groups": dict(sorted(lags.items())),
        "above": above,
        "removed": sum(row[7] for row in rows),
        "never_committed": sum(row[4] is None for row in rows),
    }
    return Result(
        rows=rows, summary=summary, sentence=sentence, plots=[plot] if drawn else [], status=1 if above else 0
    )
