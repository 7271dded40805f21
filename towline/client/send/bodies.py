"""The bodies of one bulk call: `bytes` one by one, rows of a numpy array, or an Arrow column."""

from collections.abc import Sequence
from typing import Any, Final, Self

import numpy as np

from towline.format.record.columns import Bytes, Integers

_OFFSETS: Final = {"binary": np.int32, "string": np.int32, "large_binary": np.int64, "large_string": np.int64}
_FIXED: Final = "fixed_size_binary"


class Bodies:
    """Bodies in their order; `sizes` has the bytes of each.

    Made of a sequence of bytes-like objects; of a numpy array with a row of bytes for each body (two dimensions of
    uint8, or one of a void dtype, which structured rows are seen as); or of a binary or string column of pyarrow.
    Arrays and columns are neither copied nor taken apart. Raises ValueError for anything else, nulls among them.
    """

    __slots__ = ("_data", "_items", "_starts", "sizes")

    def __init__(self, sizes: Integers, items: Sequence[bytes] | None, data: Bytes | None, starts: Integers) -> None:
        """`items`, or `data` in which body n begins at `starts[n]`, back to back."""
        self.sizes = sizes
        self._items, self._data, self._starts = items, data, starts

    @classmethod
    def of(cls, given: Any) -> Self:
        if isinstance(given, bytes | bytearray | str):
            raise ValueError(f"one {type(given).__name__} is not a sequence of bodies: give a list of them")
        if isinstance(given, np.ndarray) and given.dtype != object:
            return cls._of_rows(given)
        if hasattr(given, "combine_chunks"):
            given = given.combine_chunks()
        if hasattr(given, "buffers") and hasattr(given, "null_count"):
            return cls._of_arrow(given)
        return cls.of_items(given)

    @classmethod
    def of_items(cls, items: Sequence[bytes]) -> Self:
        sizes = np.fromiter(map(len, items), dtype=np.int64, count=len(items))
        return cls(sizes, items, None, sizes)

    @classmethod
    def _of_rows(cls, rows: "np.ndarray[Any, Any]") -> Self:
        if rows.ndim == 2 and rows.dtype == np.uint8:
            data = np.ascontiguousarray(rows).reshape(-1)
        elif rows.ndim == 1 and rows.dtype.kind == "V":
            data = np.frombuffer(np.ascontiguousarray(rows), dtype=np.uint8)
        else:
            raise ValueError(
                f"an array of {rows.dtype} in {rows.ndim} dimensions holds no bodies: rows of uint8 do, or a void dtype"
            )
        size = len(data) // len(rows) if len(rows) else 0
        sizes = np.full(len(rows), size, dtype=np.int64)
        return cls(sizes, None, data, np.arange(len(rows), dtype=np.int64) * size)

    @classmethod
    def _of_arrow(cls, column: Any) -> Self:
        if column.null_count:
            raise ValueError(f"{column.null_count} of the bodies are null: a message without a body has an empty one")
        kind, at, count = str(column.type), column.offset, len(column)
        data = np.frombuffer(column.buffers()[-1] or b"", dtype=np.uint8)
        if kind.startswith(_FIXED):
            ends = np.arange(at, at + count + 1, dtype=np.int64) * column.type.byte_width
        elif kind in _OFFSETS:
            offsets = column.buffers()[1]
            ends = np.frombuffer(offsets or bytes(8), dtype=_OFFSETS[kind])[at : at + count + 1].astype(np.int64)
        else:
            raise ValueError(f"a column of {kind} holds no bodies: binary and string columns do")
        return cls(np.diff(ends), None, data, ends[:-1])

    def __len__(self) -> int:
        return len(self.sizes)

    def cut(self, start: int, end: int) -> Self:
        """The bodies [start, end), without a copy."""
        items = None if self._items is None else self._items[start:end]
        return type(self)(self.sizes[start:end], items, self._data, self._starts[start:end])

    @property
    def data(self) -> Bytes:
        """All of them back to back."""
        if self._items is not None:
            return np.frombuffer(b"".join(self._items), dtype=np.uint8)
        assert self._data is not None
        first = int(self._starts[0]) if len(self) else 0
        return self._data[first : first + int(self.sizes.sum())]

    @property
    def given(self) -> Sequence[bytes] | None:
        """The objects that they were made of, if any."""
        return self._items

    @property
    def items(self) -> Sequence[bytes]:
        """Each of them."""
        if self._items is not None:
            return self._items
        data = self.data.tobytes()
        ends = np.cumsum(self.sizes).tolist()
        return [data[start:end] for start, end in zip([0, *ends], ends, strict=False)]
