"""The reader of a batch: Spark asks it for partitions on the driver and hands copies of it to the tasks.

Apart from the data source, so that a task needs nothing of a client or a sink.
"""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from datetime import datetime
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSourceReader,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    InputPartition,
    LessThan,
    LessThanOrEqual,
)

from towline.arrow.selection import Selection
from towline.filter.tags import ALL
from towline.filter.tags import parse as parse_tags

from . import planning, reading
from .options import SourceOptions
from .reading import Partition, Reading


class Part(InputPartition):
    """A partition and how it is read, as Spark hands them to a task. The reader itself is copied before it plans."""

    def __init__(self, partition: Partition, how: Reading) -> None:
        super().__init__(None)
        self.partition, self.how = partition, how


def typed(found: Iterator[pa.RecordBatch], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """The batches under the schema that Spark compares them with: of nulls it may know less than we do."""
    if not schema.names:  # an array is what counts rows
        return found
    return (pa.RecordBatch.from_arrays(batch.columns, schema=schema) for batch in found)


class TowlineReader(DataSourceReader):
    """Made and asked for partitions on the driver, copied to the tasks."""

    def __init__(self, options: SourceOptions, schema: pa.Schema) -> None:
        self._options, self._schema = options, schema
        self._selection: Selection | None = None  # what pushed filters make of the options'

    def partitions(self) -> list[InputPartition]:
        plan = planning.plan(self._options, tuple(self._schema.names), self._selection)
        return [Part(partition, plan.reading) for partition in plan.partitions]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Spark asks for one partition of nothing where there is none."""
        if isinstance(partition, Part):
            yield from typed(reading.read(partition.partition, partition.how), self._schema)


class FilteringReader(TowlineReader):
    """Spark evaluates every filter again: here they only narrow what is read."""

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:
        self._selection = narrowed(planning.selection_of(self._options), filters)
        return filters


# --- filters


def narrowed(selection: Selection, filters: Iterable[Filter]) -> Selection:
    """The selection with what the filters say; a filter that cannot be said so changes nothing."""
    for one in filters:
        match one:
            case EqualTo(attribute=(column,), value=value):
                selection = _among(selection, column, _values([value]))
            case In(attribute=(column,), value=values):
                selection = _among(selection, column, _values(values))
            case GreaterThan(attribute=(column,), value=value) | GreaterThanOrEqual(attribute=(column,), value=value):
                selection = _from(selection, column, value)
            case LessThan(attribute=(column,), value=value) | LessThanOrEqual(attribute=(column,), value=value):
                selection = _up_to(selection, column, value)
    return selection


def _values(values: Iterable[Any]) -> frozenset[Any]:
    """A null equals nothing, so nothing can match it."""
    return frozenset(value for value in values if value is not None)


def _among(selection: Selection, column: str, found: frozenset[Any]) -> Selection:
    match column:
        case "topic":  # a topic that is named by a filter is no less hidden
            shown = frozenset(filter(selection.wants_topic, found))
            return replace(selection, topics=_both(selection.topics, shown))
        case "queueId":
            return replace(selection, queue_ids=_both(selection.queue_ids, found))
        case "uniqKey":
            return replace(selection, uniq_keys=_both(selection.uniq_keys, found))
        case "tags" if selection.tags == ALL and len(found) == 1 and _is_one_tag(next(iter(found))):
            return replace(selection, tags=next(iter(found)))
        case "commitLogOffset" | "storeTimestamp" if found:
            return _up_to(_from(selection, column, min(found)), column, max(found))
    return selection


def _both(before: frozenset[Any] | None, found: frozenset[Any]) -> frozenset[Any]:
    return found if before is None else before & found


def _is_one_tag(text: str) -> bool:
    """Whether an expression of tags reads the text as this one tag."""
    return parse_tags(text).names == (text,)


def _from(selection: Selection, column: str, value: Any) -> Selection:
    if column == "commitLogOffset":
        return replace(selection, start_offset=max(value, selection.start_offset or 0))
    if column == "storeTimestamp":
        return replace(selection, start_ms=max(_ms(value), selection.start_ms or 0))
    return selection


def _up_to(selection: Selection, column: str, value: Any) -> Selection:
    """`value` itself is still compared: Spark leaves it out where it does not belong."""
    if column == "commitLogOffset":
        ends = (value + 1, selection.end_offset)
        return replace(selection, end_offset=min(end for end in ends if end is not None))
    if column == "storeTimestamp":
        ends = (_ms(value) + 1, selection.end_ms)
        return replace(selection, end_ms=min(end for end in ends if end is not None))
    return selection


def _ms(value: datetime) -> int:
    """Stored times have whole milliseconds: the one that a time of microseconds lies in."""
    return int(value.timestamp() * 1_000_000) // 1_000
