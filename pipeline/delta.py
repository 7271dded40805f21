"""A Delta table over an archive: `_delta_log` beside `archive.json`, with the files that the manifests name.

The manifests stay the only truth. Each run brings the table to them, so what a killed one left out is added by the
next. Nothing is written twice: the table's files are the archive's.
"""

import json
import os
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Final
from urllib.parse import unquote

import pyarrow as pa
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError
from deltalake.schema import Schema
from deltalake.transaction import AddAction, RemoveAction, create_table_with_add_actions

from towline.arrow.columns import SCHEMA

from .archive_manifest import Archive, ArchivedFile
from .errors import TableFailed
from .location import is_uri

PARTED_BY: Final = ("topic", "day")
SCHEMA_OF_TABLE: Final = SCHEMA.append(pa.field("day", pa.date32(), nullable=False))


def bring_up(archive: Archive) -> int:
    """Makes the table, or brings it to what the manifests name; how many files were added. The archive's lock is held.

    Raises TableFailed.
    """
    where = archive.where.text
    wanted = {file.name: file for segment in archive.segments.values() for file in segment.files}
    if not wanted:
        return 0
    options = storage_options(os.environ) if is_uri(where) else None
    try:
        if not DeltaTable.is_deltatable(where, options):
            create_table_with_add_actions(
                where, Schema.from_arrow(SCHEMA_OF_TABLE), _added(wanted.values()), partition_by=list(PARTED_BY),
                storage_options=options, description="an archive of Towline",
            )  # fmt: skip
            return len(wanted)
        table = DeltaTable(where, storage_options=options)
        there = _files_of(table)
        gone = [name for name, size in there.items() if name not in wanted or wanted[name].size != size]
        if gone:  # a manifest that was damaged was removed, and its segment archived again
            _commit(table, [_removed(name) for name in gone])
        missing = [file for name, file in wanted.items() if name not in there or name in gone]
        if missing:
            _commit(table, _added(missing))
    except (DeltaError, OSError, ValueError) as error:
        raise TableFailed(where, str(error).strip().partition("\n")[0]) from None
    return len(missing)


def storage_options(environment: Mapping[str, str]) -> dict[str, str]:
    """What delta-rs needs to be told beside the environment, which it reads: that an address without TLS is meant."""
    plain = environment.get("AWS_ENDPOINT_URL", "").startswith("http://")
    return {"AWS_ALLOW_HTTP": "true"} if plain else {}


def _commit(table: DeltaTable, actions: Iterable[AddAction | RemoveAction]) -> None:
    table.create_write_transaction(list(actions), "append", table.schema(), list(PARTED_BY))
    table.update_incremental()


def _files_of(table: DeltaTable) -> dict[str, int]:
    """Name -> size. Delta writes a path as a URI."""
    rows = pa.table(table.get_add_actions(flatten=True)).select(["path", "size_bytes"]).to_pylist()
    return {unquote(row["path"]): int(row["size_bytes"]) for row in rows}


def _added(files: Iterable[ArchivedFile]) -> list[AddAction]:
    return [
        AddAction(
            path=file.name,
            size=file.size,
            partition_values={"topic": file.topic, "day": file.day},
            modification_time=file.last_ms,
            data_change=True,
            stats=_statistics(file),
        )
        for file in files
    ]


def _removed(name: str) -> RemoveAction:
    return RemoveAction(name, True, int(datetime.now(UTC).timestamp() * 1000))


def _statistics(file: ArchivedFile) -> str:
    """By which readers pass a file by. The times are whole ms, as the store has them."""
    least = {"commitLogOffset": file.first, "storeTimestamp": _time(file.first_ms)}
    most = {"commitLogOffset": file.last, "storeTimestamp": _time(file.last_ms)}
    return json.dumps({"numRecords": file.rows, "minValues": least, "maxValues": most, "nullCount": {}})


def _time(ms: int) -> str:
    return datetime.fromtimestamp(ms / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
