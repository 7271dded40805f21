"""Renders messages as text, column by column: JSON lines, CSV, and bodies as UTF-8, base64 or hex. No Spark."""

import base64
import io
from typing import Final, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pacsv

Bodies = Literal["utf8", "base64", "hex", "binary"]

_CONTROL: Final = "[\\x00-\\x1f]"
_ESCAPES: Final = {"\b": "\\b", "\f": "\\f", "\n": "\\n", "\r": "\\r", "\t": "\\t"}
_GROUP: Final = 3  # bytes that base64 makes four characters of


class NotUtf8(Exception):
    """Of a row: number, counted in the array."""

    def __init__(self, row: int) -> None:
        self.row = row
        super().__init__(row)


def with_bodies(batch: pa.RecordBatch, bodies: Bodies) -> pa.RecordBatch:
    """The batch with its column `body`, where it has one, as text. Raises NotUtf8."""
    if bodies == "binary" or "body" not in batch.schema.names:
        return batch
    at = batch.schema.names.index("body")
    column = {"utf8": utf8, "base64": in_base64, "hex": in_hex}[bodies](batch.column(at))
    return batch.set_column(at, pa.field("body", pa.string(), nullable=False), column)


def utf8(values: pa.BinaryArray) -> pa.StringArray:
    """Raises NotUtf8 with the first row that is not."""
    try:
        return values.cast(pa.string())
    except pa.ArrowInvalid:
        low, high = 0, len(values)
    while high - low > 1:
        middle = (low + high) // 2
        try:
            values.slice(low, middle - low).cast(pa.string())
            low = middle
        except pa.ArrowInvalid:
            high = middle
    raise NotUtf8(low)


def in_hex(values: pa.BinaryArray) -> pa.StringArray:
    starts, data = _flat(values)
    return _strings(2 * starts, data.tobytes().hex().encode())


def in_base64(values: pa.BinaryArray) -> pa.StringArray:
    """RFC 4648, padded. All values at once: each is brought to whole groups, and what that adds is made padding."""
    starts, data = _flat(values)
    lengths = np.diff(starts)
    groups = -(-lengths // _GROUP)
    firsts = np.concatenate([[0], np.cumsum(groups)])
    room = np.zeros(_GROUP * int(firsts[-1]), np.uint8)
    moved = np.repeat(_GROUP * firsts[:-1] - starts[:-1], lengths)
    room[np.arange(len(data)) + moved] = data
    text = np.frombuffer(bytearray(base64.b64encode(room.data)), np.uint8)
    ends = 4 * firsts[1:]
    missing = _GROUP * groups - lengths
    text[ends[missing >= 1] - 1] = ord("=")
    text[ends[missing == 2] - 2] = ord("=")
    return _strings(4 * firsts, text.tobytes())


def _flat(values: pa.BinaryArray) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.uint8]]:
    """Where each value begins, and where the last one ends, in the bytes of all of them."""
    _, offsets, data = values.buffers()
    bounds = np.frombuffer(offsets, np.int32)[values.offset : values.offset + len(values) + 1].astype(np.int64)
    held = np.frombuffer(data, np.uint8) if data is not None else np.empty(0, np.uint8)
    return bounds - bounds[0], held[bounds[0] : bounds[-1]]


def _strings(bounds: npt.NDArray[np.int64], text: bytes) -> pa.StringArray:
    offsets = pa.py_buffer(bounds.astype(np.int32).tobytes())
    return pa.Array.from_buffers(pa.string(), len(bounds) - 1, [None, offsets, pa.py_buffer(text)])


# --- JSON


def json_lines(batch: pa.RecordBatch) -> bytes:
    """One object a line. Times as 2026-01-31T12:00:00.000000Z, a null as null; bodies must be text already."""
    if not batch.num_rows:
        return b""
    parts: list[pa.Array | pa.Scalar] = []
    for number, name in enumerate(batch.schema.names):
        head = f"{',' if number else '{'}{_quoted_name(name)}:"
        parts += [pa.scalar(head, pa.large_string()), _json(batch.column(number))]
    lines = pc.binary_join_element_wise(*parts, pa.scalar("}\n", pa.large_string()), pa.scalar("", pa.large_string()))
    _, data = _flat(lines.cast(pa.large_binary()).cast(pa.binary()))
    return data.tobytes()


def _json(column: pa.Array) -> pa.Array:
    kind = column.type
    if pa.types.is_map(kind):
        found = json_maps(column)
    elif pa.types.is_timestamp(kind):
        found = _within(times(column))
    elif pa.types.is_string(kind) or pa.types.is_large_string(kind):
        found = _within(_escaped(column))
    else:
        found = column.cast(pa.large_string())
    return pc.fill_null(found.cast(pa.large_string()), "null")


def times(column: pa.TimestampArray) -> pa.Array:
    """ISO 8601, UTC."""
    return pc.replace_substring(column.cast(pa.string()), " ", "T", max_replacements=1)


def json_maps(column: pa.MapArray) -> pa.Array:
    """An object for each map."""
    starts = column.offsets.to_numpy().astype(np.int64)
    first, count = int(starts[0]), int(starts[-1] - starts[0])
    names, values = (_within(_escaped(side.slice(first, count))) for side in (column.keys, column.items))
    pairs = pc.binary_join_element_wise(names, pc.fill_null(values, "null"), pa.scalar(":", pa.large_string()))
    rows = pa.LargeListArray.from_arrays(pa.array(starts - first), pairs)
    inner = pc.binary_join(rows, pa.scalar(",", pa.large_string()))
    ends = pa.scalar("{", pa.large_string()), pa.scalar("}", pa.large_string())
    return pc.binary_join_element_wise(ends[0], inner, ends[1], pa.scalar("", pa.large_string()))


def _within(texts: pa.Array) -> pa.Array:
    quote = pa.scalar('"', pa.large_string())
    return pc.binary_join_element_wise(quote, texts.cast(pa.large_string()), quote, pa.scalar("", pa.large_string()))


def _escaped(texts: pa.Array) -> pa.Array:
    """What JSON does not take as it is (RFC 8259, 7). Each replacement is a pass over the column, if it is needed."""
    found = pc.replace_substring(texts, "\\", "\\\\")
    found = pc.replace_substring(found, '"', '\\"')
    if not pc.any(pc.match_substring_regex(found, _CONTROL)).as_py():
        return found
    for number in range(0x20):
        letter = chr(number)
        found = pc.replace_substring(found, letter, _ESCAPES.get(letter, f"\\u{number:04x}"))
    return found


def _quoted_name(name: str) -> str:
    assert name.isidentifier(), f"{name} is no name of a column"
    return f'"{name}"'


# --- CSV


def csv_lines(batch: pa.RecordBatch, *, header: bool) -> bytes:
    """RFC 4180 with "\\n"; text always in quotes, a null without. Maps are JSON, times as in `json_lines`."""
    columns = []
    for column in batch.columns:
        kind = column.type
        if pa.types.is_map(kind):
            columns.append(json_maps(column))
        elif pa.types.is_timestamp(kind):
            columns.append(times(column))
        else:
            columns.append(column)
    table = pa.Table.from_arrays(columns, names=batch.schema.names)
    sink = io.BytesIO()
    pacsv.write_csv(table, sink, pacsv.WriteOptions(include_header=header))
    return sink.getvalue()
