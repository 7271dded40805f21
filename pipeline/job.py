"""The interface of a job and of its result. One module per job; its `JOB` is named in `registry`."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from .progress import Progress


@dataclass(frozen=True, slots=True)
class Column:
    """One column of the result table. `type` is a name of Spark SQL: string, int, bigint, double, boolean, timestamp.

    Timestamps are datetimes with UTC in the rows, and ISO 8601 in JSON.
    """

    name: str
    type: str
    meaning: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Plot:
    """One picture. `series` by their names, each as long as `x`; NaN is a gap.

    line: x are numbers or datetimes. bars: x are names, and every series has a bar beside the others at each name.
    stacked: the same, one on top of the other. steps: as line, but a value holds until the next.
    """

    title: str
    kind: Literal["line", "steps", "bars", "stacked"]
    x: Sequence[Any]
    series: Mapping[str, Sequence[float]]
    x_label: str = ""
    y_label: str = ""
    log: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """Rows as `Job.columns` names them; a summary for JSON; pictures for the report.

    `status` is the exit status: 0 when the store is as it should be, 1 or 2 for what the job's own table says.
    `sentence` is its meaning for people.
    """

    rows: Sequence[tuple[Any, ...]]
    summary: Mapping[str, Any]
    sentence: str
    plots: Sequence[Plot] = field(default=())
    status: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """`run(spark, options, progress)` takes an instance of `options`, a dataclass of `pipeline.options`.

    A job whose `jvm` is False gets None in the place of a session, and no JVM is started for it. The `store` of one
    that `makes_store` need not be there.
    """

    options: type[Any]
    columns: tuple[Column, ...]
    run: Callable[[Any, Any, Progress], Result]
    jvm: bool = True
    makes_store: bool = False


def many(count: int, word: str) -> str:
    """For sentences: 1 topic, 2,000 topics."""
    return f"{count:,} {word}" if count == 1 else f"{count:,} {word}s"


def document_of(name: str, job: Job, result: Result, seconds: float) -> dict[str, Any]:
    """The JSON document of a run: rows by column names, and the output schema."""
    names = [column.name for column in job.columns]
    return {
        "job": name,
        "status": result.status,
        "sentence": result.sentence,
        "seconds": round(seconds, 3),
        "summary": dict(result.summary),
        "schema": [{"name": each.name, "type": each.type, "meaning": each.meaning} for each in job.columns],
        "rows": [dict(zip(names, row, strict=True)) for row in result.rows],
    }
