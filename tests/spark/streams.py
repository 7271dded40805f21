"""Drives a stream reader as Spark's micro-batches do, without a JVM: offsets go through JSON, tasks are copies."""

import json
import pickle
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pyspark.sql.datasource import CaseInsensitiveDict
from pyspark.sql.streaming.datasource import ReadLimit

from towline.spark.source import TowlineDataSource
from towline.spark.streaming import TowlineStreamReader

from .reads import Rows, readable
from .stores import MadeStore

SEEN = ("topic", "queueId", "queueOffset", "body", "commitLogOffset", "size")

Offset = dict[str, Any]


_OPEN: list[TowlineStreamReader] = []


def stop_readers() -> None:
    """Of a test that has ended, however it did."""
    while _OPEN:
        _OPEN.pop().stop()


def stream(store: Path | None = None, **options: str) -> TowlineStreamReader:
    """As the data source makes it for a query."""
    if store is not None:
        options["path"] = str(store)
    options.setdefault("columns", ",".join(SEEN))
    source = TowlineDataSource(CaseInsensitiveDict(options))
    made = source.streamReader(source.schema())
    assert isinstance(made, TowlineStreamReader)
    _OPEN.append(made)
    return made


@dataclass
class Query:
    """A query with its checkpoint: `log` holds the offset of each batch, the first one where the query began."""

    reader: TowlineStreamReader
    log: list[Offset] = field(default_factory=list)
    batches: list[Rows] = field(default_factory=list)

    def restart(self, reader: TowlineStreamReader) -> "Query":
        """Another driver that has the checkpoint: it does not know where the first batch began."""
        self.reader.stop()
        return Query(reader, list(self.log))

    @property
    def start(self) -> Offset:
        return self.log[-1] if self.log else through_json(self.reader.initialOffset())

    def trigger(self, limit: ReadLimit | None = None) -> Rows | None:
        """One batch; None when there is nothing new."""
        start = self.start
        end = through_json(self.reader.latestOffset(start, limit or self.reader.getDefaultReadLimit()))
        if end == start:
            return None
        self.log.append(end)
        self.batches.append(self.rows(start, end))
        return self.batches[-1]

    def run(self) -> list[Rows]:
        """AvailableNow: every batch up to what is there when it is called."""
        self.reader.prepareForTriggerAvailableNow()
        found = []
        while (rows := self.trigger()) is not None:
            found.append(rows)
            assert len(found) < 10_000, "a stream that does not end"
        return found

    def replay(self) -> Rows:
        """The last batch again, by a driver that died in it."""
        before = self.log[-2] if len(self.log) > 1 else through_json(self.reader.initialOffset())
        return self.rows(before, self.log[-1])

    def rows(self, start: Offset, end: Offset) -> Rows:
        copied = pickle.dumps(self.reader)
        found: Rows = []
        for partition in self.reader.partitions(start, end):
            for batch in pickle.loads(copied).read(pickle.loads(pickle.dumps(partition))):
                found += readable(batch.to_pylist())
        return found


def begun(made: MadeStore, mode: str = "auto", **options: str) -> Query:
    """A new query from the beginning of a store."""
    return Query(stream(made.root, **{"readMode": mode, "startingOffsets": "earliest"} | options))


def joined(batches: list[Rows]) -> Rows:
    return [row for batch in batches for row in batch]


def through_json(offset: Offset) -> Offset:
    found: Offset = json.loads(json.dumps(offset))
    return found
