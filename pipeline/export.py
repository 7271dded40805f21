"""`export`: messages of a store or an archive as JSON lines, CSV or Parquet, for programs that know neither.

A task decodes its part and writes its file; docs/decisions/0036 says why nothing goes through the JVM's writers.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final, Literal

import pyarrow as pa
import pyarrow.parquet as pq

from towline.arrow.columns import COLUMNS as ALL
from towline.arrow.columns import schema_of
from towline.arrow.errors import UnknownColumn
from towline.log.files.segment_files import sync_file
from towline.spark.reading import Partition

from .archive_files import DICTIONARY, crc_of_file, row_groups
from .errors import BodyNotText, IllegalOption
from .export_text import Bodies, NotUtf8, csv_lines, json_lines, with_bodies
from .job import Column, Job, Result, many
from .location import Staging, location
from .options import option
from .output import Written, output
from .progress import Progress
from .sources import FromEither, Messages, messages_of
from .tasks import SparkTasks, Tasks

Format = Literal["jsonl", "csv", "parquet"]
_PLACE: Final = ("topic", "queueId", "queueOffset", "commitLogOffset")
_SUFFIXES: Final = {"none": "", "gzip": ".gz", "zstd": ".zst"}


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportOptions(FromEither):
    out: str = option(
        "For the files, new or empty: a directory, or s3://BUCKET/PREFIX and the like.", metavar="DIR|URI"
    )
    format: Literal["jsonl", "csv", "parquet"] = option("Of the files.")
    body: Literal["utf8", "base64", "hex", "binary"] | None = option(
        "How bodies are written; utf8 refuses what is none, binary is for parquet alone. Default: binary for parquet, "
        "else utf8.",
        default=None,
    )
    column: tuple[str, ...] = option(
        "Only this column, in this place; give it several times. Default: all 21.", default=(), metavar="NAME"
    )
    compression: Literal["none", "gzip", "zstd"] = option("Of the files.", default="none")


COLUMNS: Final = (
    Column("file", "string", "name below the directory"),
    Column("messages", "bigint", "messages in it"),
    Column("bytes", "bigint", "its size"),
    Column("crc32", "bigint", "CRC-32 of the file"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class How:
    """What all tasks share."""

    messages: Messages
    columns: tuple[str, ...]
    format: Format
    body: Bodies
    compression: str
    staging: Staging


@dataclass(frozen=True, slots=True)
class NotText:
    """The first message of a part whose body is not UTF-8."""

    topic: str
    queue_id: int
    queue_offset: int
    offset: int


def export(options: ExportOptions, tasks: Tasks) -> list[Written]:
    """The files that were written. Raises IllegalOption, BodyNotText, OutputTaken, and what reading raises."""
    columns, body = _columns(options), _body(options)
    read = tuple(dict.fromkeys((*columns, *_PLACE))) if body == "utf8" and "body" in columns else columns
    messages = messages_of(options, read)
    with output(options.out) as made:
        how = How(
            messages=messages,
            columns=columns,
            format=options.format,
            body=body,
            compression=options.compression,
            staging=made.staging,
        )
        done = []
        for each in tasks.run("messages", partial(write_part, how), messages.partitions):
            if isinstance(each, NotText):
                raise BodyNotText(each.topic, each.queue_id, each.queue_offset, each.offset)
            done.append(each)
        facts = {"job": "export", "columns": list(columns), "body": body, "rows": sum(each.rows for each in done)}
        return made.publish(done, suffix_of(options.format, options.compression), facts)


def _columns(options: ExportOptions) -> tuple[str, ...]:
    try:
        schema_of(options.column)
    except UnknownColumn as error:
        raise IllegalOption("column", error.describe()) from None
    return tuple(dict.fromkeys(options.column)) or ALL


def _body(options: ExportOptions) -> Bodies:
    if options.format != "parquet" and options.body == "binary":
        raise IllegalOption("body", f"{options.format} is text; give utf8, base64 or hex")
    return options.body or ("binary" if options.format == "parquet" else "utf8")


def suffix_of(format: Format, compression: str) -> str:
    return f".{format}" + ("" if format == "parquet" else _SUFFIXES[compression])


# --- a task


def write_part(how: How, part: Partition) -> Written | NotText:
    """One file in the run's staging. Raises ScratchNotSeen where the run is over."""
    with how.staging.attempt() as attempt:
        path = attempt.directory / "part"
        try:
            rows = _write_parquet(how, part, path) if how.format == "parquet" else _write_text(how, part, path)
        except _Refused as refused:
            return refused.message
        if not rows:
            return Written("", 0, 0, 0)
        sync_file(path)
        size, crc = path.stat().st_size, crc_of_file(path)
        return Written(attempt.keep(path, crc), rows, size, crc)


class _Refused(Exception):
    def __init__(self, message: NotText) -> None:
        self.message = message
        super().__init__(message)


def _batches(how: How, part: Partition) -> Iterator[pa.RecordBatch]:
    for batch in how.messages.of(part):
        try:
            made = with_bodies(batch, how.body)
        except NotUtf8 as error:
            row = batch.slice(error.row, 1).select(list(_PLACE)).to_pylist()[0]
            raise _Refused(NotText(*(row[name] for name in _PLACE))) from None
        yield made.select(list(how.columns))


def _write_parquet(how: How, part: Partition, path: Path) -> int:
    rows, writer = 0, None
    try:
        for table in row_groups(_batches(how, part)):
            if writer is None:
                named = [name for name in DICTIONARY if name.split(".")[0] in how.columns]
                writer = pq.ParquetWriter(path, table.schema, compression=how.compression, use_dictionary=named)
            writer.write_table(table, row_group_size=table.num_rows)
            rows += table.num_rows
    finally:
        if writer is not None:
            writer.close()
    return rows


def _write_text(how: How, part: Partition, path: Path) -> int:
    rows = 0
    with pa.OSFile(str(path), "wb") as raw:
        sink = raw if how.compression == "none" else pa.CompressedOutputStream(raw, how.compression)
        with sink:
            for batch in _batches(how, part):
                text = json_lines(batch) if how.format == "jsonl" else csv_lines(batch, header=not rows)
                sink.write(text)
                rows += batch.num_rows
    return rows


# --- the job


def run(spark: Any, options: ExportOptions, progress: Progress) -> Result:
    parts = export(options, SparkTasks(spark, progress))
    rows, size = sum(part.rows for part in parts), sum(part.size for part in parts)
    return Result(
        rows=[(part.name, part.rows, part.size, part.crc) for part in parts],
        summary={"messages": rows, "bytes": size, "files": len(parts), "out": location(options.out).text},
        sentence=f"{many(rows, 'message')} in {many(len(parts), 'file')} of {size:,} bytes",
    )


JOB: Final = Job(options=ExportOptions, columns=COLUMNS, run=run)
