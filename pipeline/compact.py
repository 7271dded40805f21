"""`compact`: the newest message of every key of a topic, as Parquet files or into a topic of a running node.

Only keys and offsets are shuffled: bodies are read a second time, by the tasks that write or send them.
"""

import pickle
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Final, Literal

import pyarrow as pa

from towline.arrow.columns import COLUMNS as ALL
from towline.spark.sink import REPLAY_WAIT_MS

from .compacting import DDL, Key, Work, newest_in, send_kept, write_kept
from .copying import READ, prepared_target, stem_of
from .errors import IllegalOption
from .job import Column, Job, Result, many
from .options import option
from .output import Output, Written, output
from .progress import Progress
from .replay import check_attempts, source_of, source_of_archive
from .scanning import over
from .sources import FromEither, Messages, messages_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_DONE: Final = pa.schema([pa.field("done", pa.binary(), nullable=False)])
SUFFIX: Final = ".parquet"


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactOptions(FromEither):
    by: Literal["keys", "uniqKey", "property"] = option(
        "What a message's key is: all its KEYS as one text, its UNIQ_KEY, or a property.", default="keys"
    )
    property: str | None = option("Name of that property.", default=None, metavar="NAME")
    tombstones: Literal["drop", "keep"] = option(
        "A key whose newest message has an empty body is gone, or is kept with it.", default="drop"
    )
    out: str | None = option(
        "For Parquet files, new or empty: a directory, or s3://BUCKET/PREFIX and the like.",
        default=None,
        metavar="DIR|URI",
    )
    into: str | None = option("Or a topic of a running node to send to.", default=None, metavar="TOPIC")
    endpoint: str | None = option("Where that node takes puts: tcp://host:port, ipc://path.", default=None)
    serve: str = option("Where it answers questions; found through the node by default.", default="")
    wait_ms: int = option("As that of replay.", default=REPLAY_WAIT_MS, least=0)


COLUMNS: Final = (
    Column("file", "string", "name below the directory; null for messages that were sent"),
    Column("messages", "bigint", "messages that were written, or sent by this run"),
    Column("there", "bigint", "messages that the topic held already; 0 of files"),
    Column("bytes", "bigint", "size of the file"),
)


def run(spark: "SparkSession", options: CompactOptions, progress: Progress) -> Result:
    _check(options)
    check_attempts(spark)
    key = Key("properties", options.property) if options.property else Key(options.by)
    with output(options.out) if options.out is not None else nullcontext() as made:
        messages = messages_of(options, key.columns)
        count = len(messages.partitions)
        with progress.stage(spark, "keys"):
            newest = _newest(over(spark, count, partial(newest_in, messages, key), DDL)).persist()
            counts = _counts(newest)
        try:
            offsets = _offsets(newest, options.tombstones == "keep", count)
            with progress.stage(spark, "messages"):
                if made is None:
                    done = _sent(options, messages, offsets)
                else:
                    done = _written(made, options.topic[0], messages, offsets)
        finally:
            newest.unpersist()
    return _result(done, counts, options)


def _check(options: CompactOptions) -> None:
    """Raises IllegalOption."""
    if len(options.topic) != 1:
        raise IllegalOption("topic", "give the one topic that is compacted")
    if (options.out is None) == (options.into is None):
        raise IllegalOption("out", "give --out, or --into, and not both")
    if (options.by == "property") != (options.property is not None):
        raise IllegalOption("property", "it goes with --by property, and that with it")
    if options.into is not None and options.endpoint is None:
        raise IllegalOption("endpoint", "--into needs it")
    if options.into == options.topic[0]:
        raise IllegalOption("into", "it is the topic that is read")


def _newest(parts: "DataFrame") -> "DataFrame":
    return parts.sparkSession.sql(
        """select key, max(struct(newest, part)) as newest, sum(messages) as messages from {parts} group by key""",
        parts=parts,
    )


def _counts(newest: "DataFrame") -> dict[str, int]:
    found = newest.sparkSession.sql(
        """select count(key) as keys, coalesce(sum(messages), 0) as messages,
            coalesce(sum(messages) filter (where key is null), 0) as without_key,
            count_if(key is not null and newest.newest % 2 = 1) as gone
        from {newest}""",
        newest=newest,
    ).collect()[0]
    return {name: int(found[name]) for name in ("keys", "messages", "without_key", "gone")}


def _offsets(newest: "DataFrame", tombstones: bool, tasks: int) -> "DataFrame":
    """Those that are kept, each at the task of its part."""
    chosen = newest.sparkSession.sql(
        f"""select newest.part as part, newest.newest div 2 as offset from {{newest}}
        where key is not null and ({str(tombstones).lower()} or newest.newest % 2 = 0)""",
        newest=newest,
    )
    return chosen.repartition(max(1, tasks), "part")


def _written(made: Output, topic: str, messages: Messages, offsets: "DataFrame") -> list[Written]:
    done = _run(partial(write_kept, _with(messages, ALL), made.staging), offsets)
    facts = {"job": "compact", "topic": topic, "rows": sum(each.rows for each in done)}
    return made.publish(done, SUFFIX, facts)


def _sent(options: CompactOptions, messages: Messages, offsets: "DataFrame") -> list[Written]:
    assert options.into is not None
    assert options.endpoint is not None
    source = source_of(options.store) if options.store is not None else source_of_archive(str(options.archive))
    stem = stem_of(source, options.topic[0], options.into)
    target, _ = prepared_target(options.endpoint, options.serve, options.into, stem, options.wait_ms)
    return _run(partial(send_kept, _with(messages, READ), target), offsets)


def _with(messages: Messages, columns: tuple[str, ...]) -> Messages:
    """The same messages, of which these columns are read."""
    return Messages(messages.partitions, replace(messages.reading, columns=columns))


def _run(work: Work, offsets: "DataFrame") -> list[Written]:
    rows = offsets.mapInArrow(partial(_task, work), "done binary").collect()
    return [pickle.loads(row.done) for row in rows]


def _task(work: Work, rows: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for written in work(rows):
        yield pa.record_batch([pa.array([pickle.dumps(written)], pa.binary())], schema=_DONE)


def _result(done: Sequence[Written], counts: Mapping[str, int], options: CompactOptions) -> Result:
    if options.into is not None:
        sent, there = sum(each.rows for each in done), sum(each.size for each in done)
        return Result(
            rows=[(None, sent, there, 0)],
            summary={**counts, "sent": sent, "there": there, "into": options.into},
            sentence=f"{_told(counts)}: {sent:,} sent to {options.into}, {there:,} were there",
        )
    kept = sum(each.rows for each in done)
    return Result(
        rows=[(each.name, each.rows, 0, each.size) for each in done],
        summary={**counts, "kept": kept, "files": len(done), "out": options.out},
        sentence=f"{_told(counts)}: {kept:,} kept in {many(len(done), 'file')}",
    )


def _told(counts: Mapping[str, int]) -> str:
    left = f", {counts['without_key']:,} messages without a key are left out" if counts["without_key"] else ""
    return f"{counts['messages']:,} messages of {counts['keys']:,} keys, {counts['gone']:,} of them gone{left}"


JOB: Final = Job(options=CompactOptions, columns=COLUMNS, run=run)
