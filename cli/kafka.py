"""`towline kafka`: log directories of stopped Kafka brokers, into a store and out of one. The work stands elsewhere."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from .lazy import group, load_module
from .options import Json

app = group("Move topics between Kafka's log directories and a store, without a broker.")

Config = Annotated[
    Path | None,
    typer.Option("--config", help="TOML file of settings, for a store on which no node ran yet.", dir_okay=False),
]


@app.callback()
def kafka() -> None:
    """Move topics between Kafka's log directories and a store, without a broker."""


# --- import


class Aborted(StrEnum):
    """What becomes of records of aborted transactions."""

    DROP = "drop"
    REFUSE = "refuse"


class Open(StrEnum):
    """What becomes of a partition with a transaction that has no end."""

    REFUSE = "refuse"
    LEAVE_OUT = "leave-out"


class Tombstones(StrEnum):
    """What becomes of records whose value is null."""

    KEEP = "keep"
    DROP = "drop"


class Holes(StrEnum):
    """What becomes of offsets that no record has."""

    KEEP = "keep"
    REFUSE = "refuse"


class Large(StrEnum):
    """What becomes of records that the store's limits do not take."""

    REFUSE = "refuse"
    LEAVE_OUT = "leave-out"


class Torn(StrEnum):
    """What becomes of a last batch that is not whole."""

    REFUSE = "refuse"
    CUT = "cut"


@app.command("import")
def import_(
    directory: Annotated[
        Path, typer.Argument(metavar="DIR", help="Log directory of a stopped broker.", file_okay=False)
    ],
    store: Annotated[
        Path, typer.Option("--store", help="Store on which no node runs; made if there is none.", file_okay=False)
    ],
    topic: Annotated[
        list[str] | None, typer.Option("--topic", metavar="NAME", help="Only this topic; repeatable.")
    ] = None,
    rename: Annotated[
        list[str] | None,
        typer.Option("--rename", metavar="OLD=NEW", help="Another name for a topic in the store; repeatable."),
    ] = None,
    aborted: Annotated[Aborted, typer.Option(help="Records of aborted transactions.")] = Aborted.DROP,
    open_: Annotated[
        Open, typer.Option("--open", help="Of transactions without an end: leave-out stops before the first of them.")
    ] = Open.REFUSE,
    tombstones: Annotated[Tombstones, typer.Option(help="Records whose value is null.")] = Tombstones.KEEP,
    holes: Annotated[Holes, typer.Option(help="Offsets that no record has.")] = Holes.KEEP,
    too_large: Annotated[Large, typer.Option(help="Records that the store's limits do not take.")] = Large.REFUSE,
    torn: Annotated[Torn, typer.Option(help="A last batch that is not whole, as a crash leaves it.")] = Torn.REFUSE,
    abandon: Annotated[
        bool, typer.Option("--abandon", help="Take away what an unfinished import left in the store, and stop.")
    ] = False,
    config: Config = None,
    as_json: Json = False,
) -> int:
    """Make messages of the records of a stopped broker: all of them, checked, or none."""
    work = load_module("towline.cli.kafka_import_work", "kafka")
    choices = work.Choices(
        topics=tuple(topic or ()),
        renames=tuple(rename or ()),
        aborted=aborted.value,
        open_=open_.value,
        tombstones=tombstones.value,
        holes=holes.value,
        too_large=too_large.value,
        torn=torn.value,
    )
    return int(work.import_directory_into(directory, store, choices, config, abandon, as_json))


# --- export


class Compression(StrEnum):
    """What batches are compressed with."""

    NONE = "none"
    GZIP = "gzip"
    SNAPPY = "snappy"
    LZ4 = "lz4"
    ZSTD = "zstd"


class Damaged(StrEnum):
    """What becomes of messages that are not as they were stored."""

    REFUSE = "refuse"
    LEAVE_OUT = "leave-out"


class Undelivered(StrEnum):
    """What becomes of delayed messages that are not due, and of halves of open transactions."""

    LEAVE_OUT = "leave-out"
    REFUSE = "refuse"


@app.command("export")
def export(
    store: Annotated[
        Path, typer.Option("--store", help="Store directory of a node, running or stopped.", file_okay=False)
    ],
    topic: Annotated[
        list[str] | None, typer.Option("--topic", metavar="NAME", help="Only this topic; repeatable.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option("--out", metavar="DIR", help="A new log directory.", file_okay=False)
    ] = None,
    into: Annotated[
        Path | None,
        typer.Option(
            "--into", metavar="DIR", help="Log directory of a stopped broker that made the topics.", file_okay=False
        ),
    ] = None,
    rename: Annotated[
        list[str] | None,
        typer.Option("--rename", metavar="OLD=NEW", help="Another name for a topic at Kafka; repeatable."),
    ] = None,
    topic_id: Annotated[
        list[str] | None,
        typer.Option("--topic-id", metavar="TOPIC=ID", help="Kafka's id of a topic, where no file has it; repeatable."),
    ] = None,
    compression: Annotated[Compression, typer.Option(help="Of batches.")] = Compression.NONE,
    batch_bytes: Annotated[
        int, typer.Option(min=1024, help="Bytes of a batch before compression; one message may have more.")
    ] = 64 * 1024,
    segment_bytes: Annotated[
        int, typer.Option(min=1024 * 1024, max=2**31 - 1, help="Bytes of a segment, as segment.bytes of the topic.")
    ] = 1024 * 1024 * 1024,
    damaged: Annotated[
        Damaged, typer.Option(help="Messages that are not as they were stored: refuse, or leave out as holes.")
    ] = Damaged.REFUSE,
    undelivered: Annotated[
        Undelivered, typer.Option(help="Delayed messages that are not due, and halves of open transactions.")
    ] = Undelivered.LEAVE_OUT,
    as_json: Json = False,
) -> int:
    """Make Kafka's partitions of the queues of a store, each with its offsets: whole ones, checked, or none."""
    work = load_module("towline.cli.kafka_export_work", "kafka")
    asked = work.Asked(
        store=store,
        topics=tuple(topic or ()),
        out=out,
        into=into,
        renames=tuple(rename or ()),
        topic_ids=tuple(topic_id or ()),
        compression=compression.value,
        batch_bytes=batch_bytes,
        segment_bytes=segment_bytes,
        damaged=damaged.value,
        undelivered=undelivered.value,
    )
    return int(work.export_topics(asked, as_json))
