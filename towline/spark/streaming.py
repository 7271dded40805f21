"""`spark.readStream.format("towline")`: what Spark asks of a stream, answered by `towline.spark.streams`."""

import time
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)

from . import reading
from .batch import Part, typed
from .daemons import keep_loaded
from .options import SourceOptions
from .streams import Limits, QueueStream, Stream, open_stream


class TowlineStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """One object on the driver answers for offsets as long as the query runs; tasks get copies of it to read with."""

    def __init__(self, options: SourceOptions, schema: pa.Schema) -> None:
        """Raises BadOption."""
        self._options, self._schema = options, schema
        self._stream: Stream | None = None
        self._batch_at = time.monotonic()  # when the last batch was given, or the reader made
        self._aims = False
        open_stream(options, tuple(schema.names))  # what is wrong with the options is said at once

    def initialOffset(self) -> dict[str, Any]:
        return self._opened.initial()

    def getDefaultReadLimit(self) -> ReadLimit:
        """Of the limits Spark hands back the one that it is given, `latestOffset` keeps to all; or, for a trigger that
        runs once, ReadAllAvailable."""
        rows, size = self._options.max_messages_per_trigger, self._options.max_bytes_per_trigger
        least = self._options.min_messages_per_trigger
        if rows is not None:
            return ReadMaxRows(rows)
        if size is not None:
            return ReadMaxBytes(size)
        return ReadAllAvailable() if least is None else ReadMinRows(least)

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        if self._waits_for_more(start, limit):
            return start
        end = self._opened.latest(start, self._limits(limit))
        if end != start:
            self._batch_at = time.monotonic()
        return end

    def reportLatestOffset(self) -> dict[str, Any] | None:
        return self._opened.newest()

    def prepareForTriggerAvailableNow(self) -> None:
        self._aims = True
        self._opened.aim()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        stream = self._opened
        return [Part(partition, stream.how) for partition in stream.partitions(start, end)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, Part)
        yield from typed(reading.read(partition.partition, partition.how), self._schema)
        keep_loaded()

    def commit(self, end: dict[str, Any]) -> None:
        """Nothing is kept for it: the checkpoint says where the stream stands."""

    def stop(self) -> None:
        if self._stream is not None:
            self._stream.close()
            self._stream = None

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_stream": None}  # what the driver has open is no task's

    @property
    def _opened(self) -> Stream:
        if self._stream is None:
            self._stream = open_stream(self._options, tuple(self._schema.names))
        return self._stream

    def _waits_for_more(self, start: dict[str, Any], limit: ReadLimit) -> bool:
        """Whether too few messages are there for a batch, and the last one is not too long ago. A query that is to end
        with what is there waits for nothing."""
        least = self._options.min_messages_per_trigger
        if least is None or self._aims or isinstance(limit, ReadAllAvailable):
            return False
        is_late = (time.monotonic() - self._batch_at) * 1000 >= self._options.max_trigger_delay_ms
        stream = self._opened
        assert isinstance(stream, QueueStream), "open_stream refuses the option for others"
        return not is_late and stream.count(start) < least

    def _limits(self, limit: ReadLimit) -> Limits:
        if isinstance(limit, ReadAllAvailable):
            return Limits()
        rows, size = self._options.max_messages_per_trigger, self._options.max_bytes_per_trigger
        if isinstance(limit, ReadMaxRows):
            rows = limit.max_rows
        elif isinstance(limit, ReadMaxBytes):
            size = limit.max_bytes
        return Limits(rows, size)
