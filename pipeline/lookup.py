"""`lookup`: finds the messages whose KEYS or unique key is among many that are given."""

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

import pyarrow as pa

from towline.log.files.store_files import IndexShape
from towline.spark.planning import check_topics, plan, selection_of
from towline.spark.reading import Reading
from towline.spark.stores import StoreFacts, StoreView

from .choice import MessageChoice
from .errors import IllegalOption
from .finding import LOOKED_AT, IndexWalk, Scan, Wanted
from .job import Column, Job, Result, many
from .options import option
from .progress import Progress
from .scanning import over

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

MISSING_SHOWN: Final = 100
CUT_SHOWN: Final = 100
MISSING_NAMED: Final = 3  # in the sentence
BATCH_ROWS_MAX: Final = 262_144  # the table of wanted keys is built for each batch: many keys, large batches
FOUND: Final = (
    "asked string, kind string, topic string, queueId int, queueOffset bigint, commitLogOffset bigint, "
    "storeTimestamp timestamp, tags string, keys string, uniqKey string, reconsumeTimes int, size int"
)
Task = Callable[[int], Iterator[pa.RecordBatch]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Options(MessageChoice):
    key: tuple[str, ...] = option("Look for this key, or unique key; give it several times.", default=())
    keys: Path | None = option("File of such keys, one on each line.", default=None, metavar="FILE")
    by: Literal["auto", "index", "scan"] = option(
        "Through the index files, which needs --topic, or by reading the log; auto: the index where it can be.",
        default="auto",
    )
    most: int = option("Messages of a key in the result, the newest; --out has all.", default=32, least=1)
    body: bool = option("The messages' bodies, too.", default=False)
    out: Path | None = option("Write what is found to a new Parquet directory.", default=None, metavar="DIR")
    limit: int = option("Rows of the result at most; --out has all of them.", default=100_000, least=1)


COLUMNS: Final = (
    Column("asked", "string", "the key that was asked for"),
    Column("kind", "string", "key: one of the message's KEYS; uniqueKey: the key that its producer made"),
    Column("topic", "string", "topic"),
    Column("queueId", "int", "queue of the topic"),
    Column("queueOffset", "bigint", "number of the message in its queue"),
    Column("commitLogOffset", "bigint", "where it stands in the log"),
    Column("storeTimestamp", "timestamp", "when it was stored"),
    Column("tags", "string", "its tag"),
    Column("keys", "string", "its keys, with spaces between them"),
    Column("uniqKey", "string", "its unique key"),
    Column("reconsumeTimes", "int", "how often it was consumed again"),
    Column("size", "int", "bytes of its record"),
    Column("body", "binary", "its body with --body, else null"),
)


def run(spark: "SparkSession", options: Options, progress: Progress) -> Result:
    wanted = Wanted(asked_keys(options), options.body)
    if options.out is not None and options.out.exists():
        raise IllegalOption("out", f"{options.out} exists already; name a new directory")
    by, tasks, task = planned(options, wanted)
    found = over(spark, tasks, task, FOUND + (", body binary" if options.body else ""))
    if by == "index":  # a message whose keys stand in two index files is found by both
        found = found.dropDuplicates(["asked", "commitLogOffset"])
    if options.out is None:
        found = found.persist()
    try:
        with progress.stage(spark, f"looking for {len(wanted.keys):,} keys by {by}"):
            if options.out is not None:
                found.write.parquet(str(options.out))
                found = spark.read.parquet(str(options.out))
            counted = found.groupBy("asked").count().toArrow()
            newest = _newest(found, options.most)
            rows = newest.orderBy("asked", "commitLogOffset").limit(options.limit).toArrow().to_pylist()
    finally:
        found.unpersist()
    counts = dict(zip(*(column.to_pylist() for column in counted.columns), strict=True))
    return _result(options, by, wanted, rows, counts)


JOB: Final = Job(options=Options, columns=COLUMNS, run=run)


def asked_keys(options: Options) -> tuple[str, ...]:
    """Without doubles, in the order in which they were given. Raises IllegalOption."""
    lines: Sequence[str] = ()
    if options.keys is not None:
        try:
            lines = options.keys.read_text(encoding="utf-8").splitlines()
        except OSError as error:
            raise IllegalOption("keys", f"{options.keys} cannot be read: {error.strerror}") from None
        except UnicodeDecodeError:
            raise IllegalOption("keys", f"{options.keys} is no UTF-8 text with a key on each line") from None
    found = tuple(dict.fromkeys(key for line in itertools.chain(options.key, lines) if (key := line.strip())))
    if not found:
        raise IllegalOption("keys", "give keys by --key KEY or --keys FILE")
    return found


def planned(options: Options, wanted: Wanted) -> tuple[str, int, Task]:
    """(index or scan, how many tasks, task by its number). Raises IllegalOption and what opening a store raises."""
    source = options.source()
    with StoreView.open(options.store) as view:
        check_topics(view, source)
        facts = view.facts()
    files = index_files(facts) if options.topic else ()
    if options.by == "index" and not options.topic:
        raise IllegalOption("by", "an index knows keys within topics: name them with --topic")
    if options.by == "index" and not files:
        raise IllegalOption("by", f"{facts.store.index} holds no index file; use --by scan")
    if options.by != "scan" and files:
        shape, showing = IndexShape.of(facts.store), Reading.of(source, wanted.columns, selection_of(source))
        return "index", len(files), IndexWalk(wanted, facts, files, shape, options.topic, showing)
    rows = min(max(source.batch_rows, len(wanted.keys)), BATCH_ROWS_MAX)
    made = plan(replace(source, batch_rows=rows), LOOKED_AT)
    showing = Reading.of(source, wanted.columns, made.reading.selection)
    return "scan", len(made.partitions), Scan(wanted, facts, tuple(made.partitions), made.reading, showing)


def index_files(facts: StoreFacts) -> tuple[str, ...]:
    """Paths, oldest first."""
    index = facts.store.index
    names = [path.name for path in index.iterdir()] if index.is_dir() else []
    return tuple(str(index / name) for name in sorted(names) if name.isascii() and name.isdecimal())


def _newest(made: "DataFrame", most: int) -> "DataFrame":
    return made.sparkSession.sql(
        f"""select * except (place) from (
            select *, row_number() over (partition by asked order by commitLogOffset desc) as place from {{made}})
        where place <= {most:d}""",
        made=made,
    )


def _result(options: Options, by: str, wanted: Wanted, rows: list[dict[str, Any]], counted: dict[str, int]) -> Result:
    """`counted`: messages of each key that was found, before anything was left out."""
    missing = [key for key in wanted.keys if key not in counted]
    found = sum(counted.values())
    cut = {key: count - options.most for key, count in counted.items() if count > options.most}
    left_out = found - len(rows)
    summary: dict[str, Any] = {
        "by": by,
        "asked": len(wanted.keys),
        "found": len(counted),
        "missing": len(missing),
        "missing_keys": missing[:MISSING_SHOWN],
        "messages": found,
        "rows_left_out": left_out,
        "left_out_by_most": sum(cut.values()),
        "left_out_by_limit": left_out - sum(cut.values()),
        "keys_left_out": dict(sorted(cut.items(), key=lambda each: -each[1])[:CUT_SHOWN]),
        "out": None if options.out is None else str(options.out),
    }
    sentence = f"{len(counted):,} of {many(len(wanted.keys), 'key')} found by {by}, {many(found, 'message')}"
    if missing:
        more = f" and {len(missing) - MISSING_NAMED:,} more" if len(missing) > MISSING_NAMED else ""
        sentence += f"; not found: {', '.join(missing[:MISSING_NAMED])}{more}"
    if cut:
        of_keys = f"{summary['left_out_by_most']:,} older ones of {many(len(cut), 'key')}"
        sentence += f"; {of_keys} are left out, --most allows more"
    if summary["left_out_by_limit"]:
        sentence += f"; {summary['left_out_by_limit']:,} rows are left out, --limit allows more"
    if left_out:
        sentence += f"; {options.out} has all" if options.out is not None else "; --out writes all"
    names = [column.name for column in COLUMNS]
    return Result(rows=[tuple(row.get(name) for name in names) for row in rows], summary=summary, sentence=sentence)
