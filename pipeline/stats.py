"""`stats`: statistics of a store's messages: counts, bytes, sizes, delays, retries, dead letters, top keys.

Tasks count values (`counting`), Spark adds the counts up and takes percentiles of them, which are exact.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final, Literal

from towline.format.files.topics import GROUP_PREFIXES
from towline.limits import RETRY_TOPIC_PREFIX
from towline.spark.planning import plan

from .choice import MessageChoice
from .counting import DDL, DELAY, KEY, MISSED, SIZE, Counting
from .job import Column, Job, Plot, Result, many
from .options import option
from .progress import Progress
from .scanning import scanned

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

TOPICS_DRAWN: Final = 8
_DLQ_PREFIX: Final = GROUP_PREFIXES[1]
_MINUTE_S: Final = 60
_PERCENTILES: Final = "array(0.5, 0.9, 0.99)"


@dataclass(frozen=True, slots=True, kw_only=True)
class Options(MessageChoice):
    by: Literal["topic", "queue", "minute"] = option(
        "How fine: per topic, also per queue, also per minute of store time.", default="minute"
    )
    top_keys: int = option("So many of the most frequent keys of each topic; 0 reads no keys.", default=10, least=0)
    limit: int = option("Rows of the result at most; the summary counts everything.", default=100_000, least=1)


COLUMNS: Final = (
    Column("minute", "timestamp", "minute of the store time; null unless --by minute"),
    Column("topic", "string", "topic"),
    Column("queueId", "int", "queue of the topic; null with --by topic"),
    Column("count", "bigint", "messages"),
    Column("bytes", "bigint", "bytes of their records in the log"),
    Column("sizeP50", "double", "median of the records' sizes"),
    Column("sizeP90", "double", "nine of ten records are not larger"),
    Column("sizeP99", "double", "99 of 100 records are not larger"),
    Column("sizeMax", "bigint", "the largest record"),
    Column("delayP50", "double", "median of ms from born to stored; the clocks of two machines, so it may be negative"),
    Column("delayP90", "double", "nine of ten were stored as fast"),
    Column("delayP99", "double", "99 of 100 were stored as fast"),
    Column("delayMax", "bigint", "the slowest"),
    Column("retried", "bigint", "messages that were consumed again (reconsumeTimes above 0)"),
)


def run(spark: "SparkSession", options: Options, progress: Progress) -> Result:
    counting = Counting(options.by, options.top_keys > 0)
    planned = plan(options.source(), counting.columns)
    counts = scanned(spark, planned, counting, DDL).persist()
    try:
        with progress.stage(spark, "reading the log"):
            rows = [_row(row) for row in _grouped(counts, options.limit).collect()]
        with progress.stage(spark, "adding up"):
            totals = _totals(counts).collect()
            keys = _top_keys(counts, options.top_keys).collect() if options.top_keys else []
    finally:
        counts.unpersist()
    topics = {row["topic"]: (row["count"], row["bytes"], row["retried"]) for row in totals if row["what"] == SIZE}
    missed = sum(row["count"] for row in totals if row["what"] == MISSED)
    return _result(options, rows, topics, [(row["topic"], row["text"], row["n"]) for row in keys], missed)


JOB: Final = Job(options=Options, columns=COLUMNS, run=run)


def _grouped(counts: "DataFrame", limit: int) -> "DataFrame":
    sizes, delays = f"what = '{SIZE}'", f"what = '{DELAY}'"
    return counts.sparkSession.sql(
        f"""select minute, topic, queueId,
            sum(n) filter (where {sizes}) as count, sum(n * value) filter (where {sizes}) as bytes,
            percentile(value, {_PERCENTILES}, n) filter (where {sizes}) as sizes,
            max(value) filter (where {sizes}) as sizeMax,
            percentile(value, {_PERCENTILES}, n) filter (where {delays}) as delays,
            max(value) filter (where {delays}) as delayMax,
            sum(retried) filter (where {sizes}) as retried
        from {{counts}} where {sizes} or {delays} group by minute, topic, queueId
        order by minute, topic, queueId limit {limit:d}""",
        counts=counts,
    )


def _totals(counts: "DataFrame") -> "DataFrame":
    return counts.sparkSession.sql(
        f"""select what, topic, sum(n) as count, sum(n * value) as bytes, sum(retried) as retried
        from {{counts}} where what in ('{SIZE}', '{MISSED}') group by what, topic""",
        counts=counts,
    )


def _top_keys(counts: "DataFrame", top: int) -> "DataFrame":
    return counts.sparkSession.sql(
        f"""select topic, text, n from (
            select topic, text, sum(n) as n, row_number() over (partition by topic order by sum(n) desc, text) as place
            from {{counts}} where what = '{KEY}' group by topic, text)
        where place <= {top:d} order by topic, place""",
        counts=counts,
    )


def _row(row: Any) -> tuple[Any, ...]:
    minute = None if row["minute"] is None else datetime.fromtimestamp(row["minute"] * _MINUTE_S, UTC)
    return (
        *(minute, row["topic"], row["queueId"], row["count"], row["bytes"], *row["sizes"], row["sizeMax"]),
        *(*row["delays"], row["delayMax"], row["retried"]),
    )


def _result(
    options: Options,
    rows: Sequence[tuple[Any, ...]],
    topics: Mapping[str, tuple[int, int, int]],
    keys: Iterable[tuple[str, str, int]],
    missed: int,
) -> Result:
    """`topics`: count, bytes, retried; `keys` of each topic in the order of their counts."""
    by_topic: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for topic, key, count in keys:
        by_topic[topic].append({"key": key, "count": count})
    count, size, retried = (sum(numbers[at] for numbers in topics.values()) for at in range(3))
    summary: dict[str, Any] = {
        "count": count,
        "bytes": size,
        "retried": retried,
        "retries": sum(numbers[0] for topic, numbers in topics.items() if topic.startswith(RETRY_TOPIC_PREFIX)),
        "dead_letters": sum(numbers[0] for topic, numbers in topics.items() if topic.startswith(_DLQ_PREFIX)),
        "rows_left_out": len(rows) == options.limit,
        "topics": {
            topic: {"count": numbers[0], "bytes": numbers[1], "retried": numbers[2], "top_keys": by_topic[topic]}
            for topic, numbers in sorted(topics.items())
        },
        "key_counts_too_low_by": missed,
    }
    sentence = f"{many(count, 'message')} of {many(len(topics), 'topic')}, {many(size, 'byte')}"
    sentence += f"; {summary['retries']:,} retries, {many(summary['dead_letters'], 'dead letter')}"
    if summary["rows_left_out"]:
        sentence += f"; the first {options.limit:,} rows, --limit allows more"
    return Result(rows=rows, summary=summary, sentence=sentence, plots=_plots(options, rows, topics))


def _plots(options: Options, rows: Sequence[tuple[Any, ...]], topics: Mapping[str, tuple[int, int, int]]) -> list[Plot]:
    drawn = sorted(topics, key=lambda topic: (-topics[topic][0], topic))[:TOPICS_DRAWN]
    if not drawn:
        return []
    plots = [
        Plot(
            title="messages and bytes of the largest topics, of all",
            kind="bars",
            x=drawn,
            series={
                name: [100 * topics[topic][at] / (sum(each[at] for each in topics.values()) or 1) for topic in drawn]
                for at, name in enumerate(("messages", "bytes"))
            },
            y_label="%",
        )
    ]
    if options.by == "minute":
        plots += _over_time(rows, drawn)
    return plots


def _over_time(rows: Sequence[tuple[Any, ...]], drawn: Sequence[str]) -> list[Plot]:
    """Queues together. A minute without messages is 0, not a gap; the slowest of a minute is that of any queue."""
    minutes = sorted({row[0] for row in rows})
    place = {minute: at for at, minute in enumerate(minutes)}
    counts = {topic: [0.0] * len(minutes) for topic in drawn}
    slowest = {topic: [float("nan")] * len(minutes) for topic in drawn}
    for row in rows:
        if row[1] in counts:
            at = place[row[0]]
            counts[row[1]][at] += row[3]
            before = slowest[row[1]][at]
            slowest[row[1]][at] = row[11] if before != before else max(before, row[11])
    return [
        Plot(title="messages a minute", kind="steps", x=minutes, series=counts, y_label="messages"),
        Plot(title="99 of 100 messages were stored within", kind="line", x=minutes, series=slowest, y_label="ms"),
    ]
