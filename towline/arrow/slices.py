"""Stretches of bytes as Arrow arrays. All are copies, so nothing aliases the log's bytes."""

from functools import lru_cache
from typing import Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from towline.format.record.columns import Bytes, Integers

from .errors import BatchTooLarge
from .kernels import Kernels, loaded

VALUES_MAX: Final = 2**31 - 1  # bytes that the 32-bit offsets of an Arrow array reach
_TEXT: Final = pa.string()
_REPEATED: Final = 16  # arrays that are kept, of some 300 KiB


def slices(data: Bytes, starts: Integers, ends: Integers, column: str) -> pa.BinaryArray:
    """The values data[start:end] of each pair; no two overlap, unless they are the same. Raises BatchTooLarge.

    Of ascending ones the stretches and the gaps between them are an array over `data` without any copy; a filter then
    copies every other value of it, a third of the cost of gathering bytes. Those of one size are items of that size,
    which a gather copies in half the time.
    """
    count = len(starts)
    if count == 0:
        return pa.array([], pa.binary())
    kernels = loaded()
    if kernels is not None:
        copied, places = end_to_end(kernels, data, starts, ends, column)
        values = copied[: places[-1]]
        return pa.BinaryArray.from_buffers(pa.binary(), count, [None, pa.py_buffer(places), pa.py_buffer(values)])
    size = int(ends[0]) - int(starts[0])
    if size > 0 and (ends - starts == size).all():
        return _of_one_size(data, starts, size, column)
    if (starts[1:] < ends[:-1]).any():
        _, rows, order = np.unique(starts, return_index=True, return_inverse=True)
        return slices(data, starts[rows], ends[rows], column).take(pa.array(order))
    first = int(starts[0])
    span = int(ends[-1]) - first
    if span > VALUES_MAX:
        return _wide_slices(data, starts, ends, column)
    edges = np.empty(2 * count + 1, np.int32)
    np.subtract(starts, first, out=edges[0:-1:2], casting="unsafe")
    np.subtract(ends, first, out=edges[1::2], casting="unsafe")
    edges[-1] = edges[-2]
    buffers = [None, pa.py_buffer(edges), pa.py_buffer(data[first : first + span])]
    return pa.BinaryArray.from_buffers(pa.binary(), 2 * count, buffers).filter(_every_other(count))


def end_to_end(
    kernels: Kernels, data: Bytes, starts: Integers, ends: Integers, column: str
) -> tuple[Bytes, NDArray[np.int32]]:
    """The stretches back to back with `slack` zeros behind them, and count + 1 places where they begin.

    Raises BatchTooLarge with `column`.
    """
    starts, ends = np.ascontiguousarray(starts), np.ascontiguousarray(ends)
    places = np.empty(len(starts) + 1, np.int32)
    total = kernels.lay_out(starts, ends, places)
    if total > VALUES_MAX:
        raise BatchTooLarge(column, total, VALUES_MAX)
    copied = np.empty(total + kernels.slack, np.uint8)
    kernels.copy_stretches(data, starts, places, copied)
    copied[total:] = 0
    return copied, places


@lru_cache(maxsize=_REPEATED)
def repeated(value: str, count: int) -> pa.StringArray:
    """An array of one text. It is cached: most batches have as many rows."""
    return pa.repeat(pa.scalar(value, _TEXT), count)


def _of_one_size(data: Bytes, starts: Integers, size: int, column: str) -> pa.BinaryArray:
    count = len(starts)
    if count * size > VALUES_MAX:
        raise BatchTooLarge(column, count * size, VALUES_MAX)
    everywhere = np.ndarray(len(data) - size + 1, f"V{size}", data, 0, (1,))
    places = np.arange(0, (count + 1) * size, size, dtype=np.int32)
    return pa.BinaryArray.from_buffers(
        pa.binary(), count, [None, pa.py_buffer(places), pa.py_buffer(everywhere[starts])]
    )


def _wide_slices(data: Bytes, starts: Integers, ends: Integers, column: str) -> pa.BinaryArray:
    """The same for stretches further apart than 32 bits reach."""
    total = int((ends - starts).sum())
    if total > VALUES_MAX:
        raise BatchTooLarge(column, total, VALUES_MAX)
    count = len(starts)
    edges = np.empty(2 * count + 1, np.int64)
    edges[0:-1:2] = starts
    edges[1::2] = ends
    edges[-1] = edges[-2]
    buffers = [None, pa.py_buffer(edges), pa.py_buffer(data)]
    wide = pa.LargeBinaryArray.from_buffers(pa.large_binary(), 2 * count, buffers).filter(_every_other(count))
    return wide.cast(pa.binary())


def _every_other(count: int) -> pa.BooleanArray:
    """Twice as many values, the first true, every second false."""
    bits = np.full((2 * count + 7) // 8, 0b0101_0101, np.uint8)
    return pa.BooleanArray.from_buffers(pa.bool_(), 2 * count, [None, pa.py_buffer(bits)])


def text(values: pa.BinaryArray, valid: NDArray[np.bool_] | None = None) -> pa.StringArray:
    """The values as text, null where not `valid`. What is not UTF-8 becomes U+FFFD, as in Java and in `properties`."""
    if not is_utf8(values):
        replaced = [value.decode("utf-8", "replace") for value in values.to_pylist()]
        return pa.array(replaced, _TEXT, mask=None if valid is None else ~valid)
    _, offsets, data = values.buffers()
    nulls = None if valid is None or valid.all() else pa.py_buffer(np.packbits(valid, bitorder="little"))
    return pa.StringArray.from_buffers(len(values), offsets, data or pa.py_buffer(b""), nulls, offset=values.offset)


def is_utf8(values: pa.BinaryArray) -> bool:
    """Whether each of the values is."""
    data = values.buffers()[2]
    if data is None or np.frombuffer(data, np.uint8).max(initial=0) < 0x80:
        return True
    try:
        values.cast(_TEXT)
    except pa.ArrowInvalid:
        return False
    return True


def ends_of(values: pa.BinaryArray) -> tuple[Bytes, Integers]:
    """The values back to back, and count + 1 places: where each begins, and where the last one ends."""
    count = len(values)
    _, offsets, data = values.buffers()
    if count == 0 or data is None:
        return np.empty(0, np.uint8), np.zeros(count + 1, np.int64)
    places = np.frombuffer(offsets, np.int32)[values.offset : values.offset + count + 1].astype(np.int64)
    return np.frombuffer(data, np.uint8)[places[0] : places[-1]], places - places[0]
