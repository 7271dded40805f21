"""`replay`: messages of a topic and time range of a store into a topic of a running node; `restore` does it from an
archive. Both may be interrupted and run again: what is there is not sent twice.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from towline.spark.sink import REPLAY_WAIT_MS
from towline.spark.stores import StoreView

from .archive_manifest import Archive
from .choice import Care
from .copying import READ, Copied, Lane, prepared_target, send_lane, stem_of
from .errors import IllegalOption
from .job import Column, Job, Plot, Result
from .options import option, store_option
from .progress import Progress
from .sources import FromEither, messages_of
from .tasks import SparkTasks, Tasks

LANES: Final = 8  # tasks unless more are asked for: each decodes all of the source
_SPECULATION: Final = "spark.speculation"


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyOptions(Care):
    """What `replay` and `restore` have in common."""

    topic: str = option("Topic to read.", metavar="NAME")
    into: str = option("Topic to send to; the node may create it. Its queue is the message's, modulo its queues.")
    endpoint: str = option("Where the node takes puts: tcp://host:port, ipc://path, or several with commas.")
    serve: str = option("Where it answers questions; found through the node by default.", default="")
    tags: str = option("Only messages with one of these tags, as a subscription has them: a || b.", default="*")
    since: str | None = option("Stored then or later; 2026-01-31T12:00, UTC unless it says.", default=None)
    until: str | None = option("Stored before then.", default=None)
    source: str | None = option(
        "Name of the source in unique keys, the same for every run. Default: the store's id, or its path without one.",
        default=None,
        metavar="NAME",
    )
    wait_ms: int = option(
        "Milliseconds before what the topic holds is read: so long a request of a run that was killed may be "
        "under way to the node. A topic that is new is not waited for.",
        default=REPLAY_WAIT_MS,
        least=0,
    )
    tasks: int | None = option("Number of tasks; queues are shared among them.", default=None, least=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayOptions(CopyOptions):
    store: str = store_option()


COLUMNS: Final = (
    Column("task", "int", "number of the task; it has the queues whose number leaves this rest"),
    Column("read", "bigint", "messages that were chosen"),
    Column("sent", "bigint", "messages that this run sent, stored and promised"),
    Column("there", "bigint", "messages that the topic held already"),
)


def copy(options: CopyOptions, chosen: FromEither, source: str, tasks: Tasks) -> list[Copied]:
    """Raises what reading and `IdempotentProducer` raise."""
    messages = messages_of(chosen, READ)
    stem = stem_of(options.source or source, options.topic, options.into)
    target, queues = prepared_target(options.endpoint, options.serve, options.into, stem, options.wait_ms)
    count = options.tasks or min(tasks.parallel, queues, LANES)
    lanes = [Lane(messages=messages, target=target, number=number, count=count) for number in range(count)]
    return tasks.run("messages", send_lane, lanes)


def from_either(options: CopyOptions, *, store: str | None = None, archive: str | None = None) -> FromEither:
    return FromEither(
        store=store,
        archive=archive,
        topic=(options.topic,),
        tags=options.tags,
        since=options.since,
        until=options.until,
        check_crcs=options.check_crcs,
        on_corruption=options.on_corruption,
    )


def check_attempts(spark: Any) -> None:
    """Raises IllegalOption where Spark may run a task twice at once: each would send what the other has on its way."""
    if spark.conf.get(_SPECULATION, "false").lower() == "true":
        raise IllegalOption("conf", f"{_SPECULATION} is on, and a task that sends must not run twice at once")


def result_of(lanes: list[Copied], options: CopyOptions) -> Result:
    read, sent, there = (sum(getattr(lane, name) for lane in lanes) for name in ("read", "sent", "there"))
    plot = Plot(
        title="messages by task",
        kind="stacked",
        x=[str(lane.lane) for lane in lanes],
        series={"sent": [float(lane.sent) for lane in lanes], "there": [float(lane.there) for lane in lanes]},
        y_label="messages",
    )
    return Result(
        rows=[(lane.lane, lane.read, lane.sent, lane.there) for lane in lanes],
        summary={"read": read, "sent": sent, "there": there, "into": options.into},
        sentence=f"{read:,} messages of {options.topic}: {sent:,} sent to {options.into}, {there:,} were there",
        plots=[plot] if read else [],
    )


def source_of(store: str) -> str:
    """A store's name in unique keys."""
    with StoreView.open(store) as view:
        return view.store_id or str(Path(store).resolve())


def source_of_archive(path: str) -> str:
    """That of the store it was made of, so that `replay` and `restore` do not double each other."""
    archive = Archive.open(path)
    return archive.head.store_id or archive.where.text


def run(spark: Any, options: ReplayOptions, progress: Progress) -> Result:
    check_attempts(spark)
    if options.into == options.topic:
        raise IllegalOption("into", "it is the topic that is read: a second run would read what the first one sent")
    chosen = from_either(options, store=options.store)
    return result_of(copy(options, chosen, source_of(options.store), SparkTasks(spark, progress)), options)


JOB: Final = Job(options=ReplayOptions, columns=COLUMNS, run=run)
