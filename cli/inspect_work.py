"""Does the work of `towline inspect`."""

from collections.abc import Iterator
from datetime import datetime
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import typer
from rich.console import Console

from towline.format.files import checkpoint as checkpoint_format
from towline.format.files import durable_slots, index_file
from towline.format.files.consume_queue import Entry
from towline.format.files.consume_queue_ext import are_addresses, offset_of
from towline.format.record.properties import KEYS, UNIQ_KEY
from towline.format.record.properties import decode as decode_properties
from towline.format.record.record import Record, layout_of
from towline.log.errors import NotInStore
from towline.log.files.store_files import IndexShape
from towline.log.queues.consume_queue_ext import opened
from towline.places import Store

from . import layouts
from .messages import shown_body
from .output import add_row, show, table
from .stored import Blank, IndexReader, QueueFiles, index_files, kept_files, queues_of, read_record

_BODY_SHOWN = 200
_THERE_SHOWN = 400


def record_(store: Path, offset: int, as_json: bool) -> None:
    found = read_record(Store(store), offset)
    if found is None:
        show({"offset": offset, "kind": "nothing"}, as_json, lambda console: console.print("nothing was written here"))
    elif isinstance(found, Blank):
        after = offset + found.remaining
        text = f"a blank: the segment goes on at {after}"
        result = {"offset": offset, "kind": "blank", "remaining": found.remaining, "next": after}
        show(result, as_json, lambda console: console.print(text))
    else:
        shown = describe_record(found)
        show({"offset": offset, "kind": "record"} | shown, as_json, lambda console: _print_record(console, shown))


def describe_record(found: Record) -> dict[str, Any]:
    """Every field of a record, for JSON."""
    return {
        "topic": found.topic,
        "queue_id": found.queue_id,
        "queue_offset": found.queue_offset,
        "physical_offset": found.physical_offset,
        "flag": found.flag,
        "sys_flag": found.sys_flag,
        "born_timestamp": found.born_timestamp,
        "born_host": str(found.born_host),
        "store_timestamp": found.store_timestamp,
        "store_host": str(found.store_host),
        "reconsume_times": found.reconsume_times,
        "prepared_transaction_offset": found.prepared_transaction_offset,
        "head_size": layout_of(found.sys_flag).size,
        "body_size": len(found.body),
        "properties": decode_properties(found.properties),
        "body": found.body,
    }


def _print_record(console: Console, shown: dict[str, Any]) -> None:
    made = table("field", "value")
    for name, value in shown.items():
        if name == "body" and len(value) > _BODY_SHOWN:
            value = value[:_BODY_SHOWN] + b"..."
        add_row(made, name, value.decode("utf-8", "backslashreplace") if isinstance(value, bytes) else value)
    console.print(made)


def shortened(there: str) -> str:
    """The names of what there is, as far as they are read in a sentence."""
    return there if len(there) <= _THERE_SHOWN else there[:_THERE_SHOWN].rpartition(",")[0] + ", ..."


def queue(store: Path, topic: str | None, queue_id: int, start: int | None, count: int, as_json: bool) -> None:
    places = Store(store)
    if topic is None:
        _list_queues(places, as_json)
        return
    files = QueueFiles.of(places, topic, queue_id)
    if not files.files:
        there = ", ".join(f"{name}/{number}" for name, number in queues_of(places))
        raise NotInStore(str(places.root), f"queue {queue_id} of {topic}", shortened(there), "`towline inspect queue`")
    low, end = files.bounds()
    entries = list(files.entries(low if start is None else start, count))
    result: dict[str, Any] = {
        "topic": topic,
        "queue_id": queue_id,
        "min_offset": low,
        "max_offset": end,
        "files": [str(path) for _, path in files.files],
        "entries": [{"queue_offset": number} | each for number, each in _with_units(places, topic, queue_id, entries)],
    }

    def render(console: Console) -> None:
        console.print(f"{topic}/{queue_id}: {low} to {end}", markup=False)
        extended = any("unit" in entry for entry in result["entries"])
        made = table(
            "#offset", "#physical", "#size", "#tags code", *(["#unit at", "#stored", "bitmap"] if extended else [])
        )
        for entry in result["entries"]:
            add_row(made, *list(entry.values())[:4], *_unit_cells(entry))
        console.print(made)

    show(result, as_json, render)


def _with_units(
    store: Store, topic: str, queue_id: int, entries: list[tuple[int, Entry]]
) -> Iterator[tuple[int, dict[str, Any]]]:
    """Entries for JSON. Where one points to a unit, `unit` says what stands there, and the tags code is from there."""
    units = opened(store.consumequeue_ext, open_max=4)
    for number, entry in entries:
        shown: dict[str, Any] = {
            "physical_offset": entry.physical_offset,
            "record_size": entry.record_size,
            "tags_code": entry.tags_code,
        }
        if units is not None and are_addresses(np.array([entry.tags_code]))[0]:
            found = units.unit(topic, queue_id, entry.tags_code)
            shown["unit"] = {"at": offset_of(entry.tags_code), "found": found is not None}
            if found is not None:
                shown["tags_code"] = found.tags_code
                shown["unit"] |= {"store_timestamp": found.store_timestamp, "bitmap": found.bitmap.hex()}
        yield number, shown
    if units is not None:
        units.close()


def _unit_cells(entry: dict[str, Any]) -> list[object]:
    unit = entry.get("unit")
    if unit is None:
        return []
    return [unit["at"], unit.get("store_timestamp", "-"), unit.get("bitmap", "no unit is there") or "-"]


def _list_queues(store: Store, as_json: bool) -> None:
    found = []
    for topic, queue_id in queues_of(store):
        low, end = QueueFiles.of(store, topic, queue_id).bounds()
        found.append({"topic": topic, "queue_id": queue_id, "min_offset": low, "max_offset": end})

    def render(console: Console) -> None:
        made = table("topic", "#queue", "#min", "#max")
        for row in found:
            add_row(made, *row.values())
        console.print(made)

    show({"queues": found}, as_json, render)


def index(store: Path, topic: str, key: str, slots: int, indexes: int, as_json: bool) -> None:
    if bool(topic) != bool(key):
        raise typer.BadParameter("--topic and --key belong together")
    places = Store(store)
    known = IndexShape.of(places)
    shape = IndexShape(slots or known.slots, indexes or known.indexes)
    found: list[dict[str, Any]] = []
    for path in index_files(places):
        reader = IndexReader(path, shape)
        chain = [_link(places, reader.header, link, topic, key) for link in reader.chain(topic, key)] if key else []
        found.append({"file": path.name, **_fields(reader.header), "chain": chain})

    def render(console: Console) -> None:
        made = table("file", "#slots used", "#entries", "#begin", "#end")
        for row in found:
            span = (row["begin_physical_offset"], row["end_physical_offset"])
            add_row(made, row["file"], row["hash_slot_count"], row["index_count"] - 1, *span)
        console.print(made)
        for row in found:
            for link in row["chain"]:
                console.print(f"{row['file']} entry {link['entry']} -> {link['physical_offset']}: {link['holds']}")

    show({"files": found}, as_json, render)


def _fields(header: index_file.Header) -> dict[str, int]:
    return {field.name: getattr(header, field.name) for field in index_file.LAYOUT.fields}


def _link(store: Store, header: index_file.Header, link: Any, topic: str, key: str) -> dict[str, Any]:
    entry = link.entry
    holds = _verdict(store, entry.physical_offset, topic, key) if link.same_hash else "another key of the slot"
    return {
        "entry": link.number,
        "key_hash": entry.key_hash,
        "physical_offset": entry.physical_offset,
        "store_timestamp_s": header.begin_timestamp // 1000 + entry.time_diff,
        "previous": entry.previous,
        "same_hash": link.same_hash,
        "holds": holds,
    }


def _verdict(store: Store, offset: int, topic: str, key: str) -> str:
    """Equal hashes prove nothing: the record decides."""
    found = read_record(store, offset)
    if not isinstance(found, Record):
        return "no record stands there"
    properties = decode_properties(found.properties)
    keys = {*properties.get(KEYS, "").split(" "), properties.get(UNIQ_KEY, "")}
    return "the key" if found.topic == topic.encode() and key in keys else "another key of the same hash"


def checkpoint(store: Path, as_json: bool) -> None:
    path = Store(store).checkpoint
    data = path.read_bytes()
    decoded = checkpoint_format.decode(data, str(path), check=False)
    result: dict[str, Any] = {field.name: getattr(decoded, field.name) for field in checkpoint_format.LAYOUT.fields}
    result["check_fits"] = checkpoint_format.check_fits(data)
    show(result, as_json, lambda console: _print_pairs(console, result))


def durable(store: Path, as_json: bool) -> None:
    path = Store(store).durable
    sequence, state = durable_slots.decode(path.read_bytes(), str(path))
    result = {
        "sequence": sequence,
        "flushed": state.flushed,
        "segment_base": state.segment_base,
        "queues_durable": state.queues_durable,
        "log_min": state.log_min,
        "sync_failed": state.sync_failed,
    }
    show(result, as_json, lambda console: _print_pairs(console, result))


def _print_pairs(console: Console, pairs: dict[str, Any]) -> None:
    made = table("field", "#value")
    for name, value in pairs.items():
        add_row(made, name, value)
    console.print(made)


def diverged(store: Path, file: str | None, offset: int | None, start: int | None, count: int, as_json: bool) -> None:
    kept = kept_files(Store(store))
    if file is None:
        if offset is not None or start is not None:
            raise typer.BadParameter("--offset and --from belong to a --file")
        _list_kept([one.row() for one in kept], as_json)
        return
    found = next((one for one in kept if one.path.name == file), None)
    if found is None:
        there = ", ".join(one.path.name for one in kept)
        raise NotInStore(str(store), f"file diverged/{file}", shortened(there), "`towline inspect diverged`")
    if offset is not None:
        shown = describe_record(found.read(offset))
        show({"offset": offset, "kind": "record"} | shown, as_json, lambda console: _print_record(console, shown))
        return
    records = [describe_record(found.read(at)) for at, _ in islice(found.records(start), count)]

    def render(console: Console) -> None:
        made = table("#offset", "topic", "#queue", "#number", "keys", "body")
        for one in records:
            keys = one["properties"].get(KEYS, "")
            body = shown_body(one["body"])
            add_row(made, one["physical_offset"], _text(one["topic"]), one["queue_id"], one["queue_offset"], keys, body)
        console.print(made)

    show(found.row() | {"shown": records}, as_json, render)


def _list_kept(rows: list[dict[str, Any]], as_json: bool) -> None:
    def render(console: Console) -> None:
        made = table("file", "#from", "#to", "epochs", "#records", "when", "why")
        for row in rows:
            when = "" if row["time"] is None else f"{datetime.fromtimestamp(row['time'] / 1000):%Y-%m-%d %H:%M:%S}"
            epochs = ", ".join(map(str, row["epochs"]))
            add_row(made, row["file"], row["start"], row["end"], epochs, row["records"], when, row["why"])
        console.print(made)

    show({"files": rows}, as_json, render)


def _text(value: bytes) -> str:
    return value.decode("utf-8", "backslashreplace")


def layout(as_json: bool) -> None:
    result = [
        {"name": one.name, "size": one.layout.size, "rows": one.layout.rows(), "sizes": one.sizes}
        for one in layouts.EVERY
    ]

    def render(console: Console) -> None:
        for one in layouts.EVERY:
            console.print(one.name, style="bold")
            for row in one.layout.rows():
                at, size, name, meaning = row.split(" ", 3)
                console.print(f"  {at:>4} {size:>3}  {name:<28}{meaning}", soft_wrap=True, markup=False)
            console.print("  " + ", ".join(f"{name} {size}" for name, size in one.sizes.items()) + " bytes")

    show({"layouts": result}, as_json, render)
