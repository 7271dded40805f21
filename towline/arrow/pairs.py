"""Names and values of the properties of many records, without a loop over records (spec 2.3).

The rules are those of `towline.format.record.properties.decode`: the last of equal names wins; an item without a name,
a value or a separator between them is skipped; the 0x02 behind the last pair may be missing.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from towline.format.record.columns import Bytes, Integers
from towline.format.record.properties import NAME_END, PAIR_END

from .heads import Heads
from .kernels import Kernels, loaded
from .slices import end_to_end, ends_of, is_utf8, slices, text

_NAME_END: Final = ord(NAME_END)
_PAIR_END: Final = ord(PAIR_END)
_WORD: Final = 8  # bytes of a name that are compared at once
_MASKS: Final = np.array([(1 << 8 * size) - 1 for size in range(_WORD)] + [2**64 - 1], np.uint64)
_PROPERTIES: Final = "properties"
_LIKELY: Final = 8  # pairs of a record for which there is room at first
_NEAR: Final = 32  # pairs of one record up to which each is compared with those before it


@dataclass
class Pairs:
    """The properties of `count` records; places are bytes of `data`, a copy of all properties back to back.

    Pair n belongs to record `row[n]`; those of record m are numbered from `first[m]` up to `first[m + 1]`.
    """

    count: int
    data: Bytes
    beginnings: Integers  # of each record's properties
    first: Integers
    row: Integers
    name_start: Integers
    name_end: Integers
    value_end: Integers

    def values(self, name: str) -> pa.StringArray:
        """The value of this property in each record, null without one."""
        starts, ends, present = self.places(name)
        return text(slices(self.data, starts, ends, name), present)

    def places(self, name: str) -> tuple[Integers, Integers, NDArray[np.bool_]]:
        """Where the value begins and ends in `data`, for each record, and which have one."""
        encoded = name.encode()
        assert 0 < len(encoded) <= _WORD, f"{name} is longer than what is compared"
        word = np.uint64(int.from_bytes(encoded, "little"))
        if self._same is not None:
            return self._places_of(self._same.get((int(word), len(encoded))), len(self._same))
        found = np.flatnonzero((self._beginning == word) & (self._size == len(encoded)))
        rows = self.row[found]
        starts, ends = self.beginnings[:-1].copy(), self.beginnings[:-1].copy()
        present = np.zeros(self.count, np.bool_)
        present[rows] = True
        starts[rows] = self.name_end[found] + 1  # of equal names the last is stored last
        ends[rows] = self.value_end[found]
        return starts, ends, present

    def _places_of(self, number: int | None, each: int) -> tuple[Integers, Integers, NDArray[np.bool_]]:
        """The same where `number` of the `each` pairs of every record bears the name, or none does."""
        if number is None:
            return self.beginnings[:-1], self.beginnings[:-1], np.zeros(self.count, np.bool_)
        return self.name_end[number::each] + 1, self.value_end[number::each], np.ones(self.count, np.bool_)

    def to_map(self) -> pa.MapArray:
        names = slices(self.data, self.name_start, self.name_end, _PROPERTIES)
        values = slices(self.data, self.name_end + 1, self.value_end, _PROPERTIES)
        first = self.first
        doubled = self._rows_with_doubles() if is_utf8(names) else self._rows_beyond_ascii()
        if doubled:
            keep = self._last_of_equal_names(doubled)
            first = _numbered(self.row[keep], self.count)
            names, values = names.filter(pa.array(keep)), values.filter(pa.array(keep))
        return pa.MapArray.from_arrays(pa.array(first, pa.int32()), text(names), text(values))

    @cached_property
    def _same(self) -> dict[tuple[int, int], int] | None:
        """The number of each name in a record, by its first eight bytes and its size.

        None unless all records have the same names in the same order, as those of one producer mostly do, and no two
        that begin alike.
        """
        each = len(self.row) // self.count if self.count else 0
        if not each or (self.first[1:] - self.first[:-1] != each).any():
            return None
        words, sizes = self._beginning.reshape(self.count, each), self._size.reshape(self.count, each)
        if (words != words[0]).any() or (sizes != sizes[0]).any():
            return None
        found = {name: number for number, name in enumerate(zip(words[0].tolist(), sizes[0].tolist(), strict=True))}
        return found if len(found) == each else None

    @cached_property
    def _size(self) -> Integers:
        return self.name_end - self.name_start

    @cached_property
    def _beginning(self) -> NDArray[np.uint64]:
        """The first eight bytes of each name as one number, zeros behind a shorter name."""
        return self._words(self.name_start) & _MASKS.take(self._size, mode="clip")

    def _words(self, at: Integers) -> NDArray[np.uint64]:
        """The eight bytes from each place on, as one number; `data` goes on behind the last pair for that."""
        everywhere: NDArray[np.uint64] = np.ndarray(max(0, len(self.data) - _WORD + 1), "<u8", self.data, 0, (1,))
        return everywhere[at]

    def _last_of_equal_names(self, rows: list[int]) -> NDArray[np.bool_]:
        """False for the pairs whose name comes again in the same record, which is one of `rows`."""
        keep = np.ones(len(self.row), np.bool_)
        for row in rows:
            seen: set[str] = set()
            for pair in range(int(self.first[row + 1]) - 1, int(self.first[row]) - 1, -1):
                name = self.data[self.name_start[pair] : self.name_end[pair]].tobytes().decode("utf-8", "replace")
                keep[pair] = name not in seen
                seen.add(name)
        return keep

    def _rows_with_doubles(self) -> list[int]:
        """Records with two names of the same length, first and last bytes."""
        if self._same is not None:
            return []
        row, beginning, size = self.row, self._beginning, self._size
        longest = int((self.first[1:] - self.first[:-1]).max(initial=0))
        if longest > _NEAR:
            order = np.lexsort((self._ending(np.arange(len(row))), beginning, row))
            one, other = order[:-1], order[1:]
            same = np.flatnonzero((row[one] == row[other]) & (beginning[one] == beginning[other]))
            return self._rows_of_equal(one[same], other[same])
        found: list[int] = []
        for back in range(1, longest):
            same = beginning[back:] == beginning[:-back]
            same &= row[back:] == row[:-back]
            same &= size[back:] == size[:-back]
            one = np.flatnonzero(same)
            found += self._rows_of_equal(one, one + back)
        return sorted(set(found))

    def _rows_of_equal(self, one: Integers, other: Integers) -> list[int]:
        """Records of the pairs of names that begin alike, if they have the same length and end alike, too."""
        same = (self._size[one] == self._size[other]) & (self._ending(one) == self._ending(other))
        rows: list[int] = np.unique(self.row[one[same]]).tolist()
        return rows

    def _ending(self, pairs: Integers) -> NDArray[np.uint64]:
        """The last eight bytes of these names, or all of a shorter one."""
        inside = np.minimum(self._size[pairs], _WORD)
        return self._words(self.name_end[pairs] - inside) & _MASKS[inside]

    def _rows_beyond_ascii(self) -> list[int]:
        """Records with bytes above 0x7F: where these are not UTF-8, two names may become equal."""
        places = np.flatnonzero(self.data >= 0x80)
        rows: list[int] = np.unique(np.searchsorted(self.beginnings, places, side="right") - 1).tolist()
        return rows


def _numbered(row: Integers, count: int) -> Integers:
    """Of pairs that belong to these records: the number of the first of each record, and the count of all."""
    first = np.zeros(count + 1, np.int64)
    np.cumsum(np.bincount(row, minlength=count), out=first[1:])
    return first


def pairs_of(heads: Heads) -> Pairs:
    """The pairs of all records. Raises BatchTooLarge."""
    starts = heads.parts.properties_start
    kernels = loaded()
    if kernels is not None:
        return _at_once(kernels, *end_to_end(kernels, heads.log, starts, heads.positions + heads.size, _PROPERTIES))
    found, beginnings = ends_of(slices(heads.log, starts, heads.positions + heads.size, _PROPERTIES))
    data = np.empty(len(found) + _WORD, np.uint8)
    data[: len(found)] = found
    data[len(found) :] = 0
    return _regular(data, beginnings) or _irregular(data, beginnings)


def _at_once(kernels: Kernels, data: Bytes, places: NDArray[np.int32]) -> Pairs:
    """By the general rules."""
    beginnings = places.astype(np.int64)
    count, size = len(beginnings) - 1, int(beginnings[-1])
    first = np.empty(count + 1, np.int64)
    for room in (_LIKELY * count, size):
        row, name_start, name_end, value_end = (np.empty(room, np.int64) for _ in range(4))
        found = kernels.find_pairs(data, beginnings, first, row, name_start, name_end, value_end)
        if found >= 0:
            break
    pairs = (values[:found] for values in (row, name_start, name_end, value_end))
    return Pairs(count, data, beginnings, first, *pairs)


def _regular(data: Bytes, beginnings: Integers) -> Pairs | None:
    """Of properties as brokers write them: every item is a pair and ends with 0x02. None for any others."""
    count = len(beginnings) - 1
    marks = np.flatnonzero((data - np.uint8(_NAME_END)) < 2)
    name_end, value_end = marks[0::2], marks[1::2]
    if len(name_end) != len(value_end):
        return None
    if (data[name_end] != _NAME_END).any() or (data[value_end] != _PAIR_END).any():
        return None
    filled = beginnings[1:] > beginnings[:-1]
    ends = beginnings[1:][filled]
    if (data[ends - 1] != _PAIR_END).any():
        return None
    name_start = np.empty_like(name_end)
    if len(name_start):
        name_start[0] = 0
        name_start[1:] = value_end[:-1] + 1
    if (name_start == name_end).any() or (value_end - name_end == 1).any():
        return None
    is_end = np.zeros(len(data) + 1, np.bool_)
    is_end[ends] = True
    last = np.flatnonzero(is_end[value_end + 1])  # the last pair of each record that has any
    first = np.zeros(count + 1, np.int64)
    first[1:][filled] = np.diff(last, prepend=-1)
    np.cumsum(first, out=first)
    row = np.repeat(np.arange(count), np.diff(first))
    return Pairs(count, data, beginnings, first, row, name_start, name_end, value_end)


def _irregular(data: Bytes, beginnings: Integers) -> Pairs:
    """Of any properties: a mark is put behind each record that does not end with one, and what is no pair left out."""
    count = len(beginnings) - 1
    size = int(beginnings[-1])
    marks = np.flatnonzero((data[:size] - np.uint8(_NAME_END)) < 2)
    ends = beginnings[1:][beginnings[1:] > beginnings[:-1]]
    added = ends[data[ends - 1] != _PAIR_END]
    at = np.concatenate([added, marks])
    is_added = np.arange(len(at)) < len(added)
    order = np.argsort(at, kind="stable")  # an added mark stands before the byte at its place
    at, is_added = at[order], is_added[order]
    ends_item = is_added | (data[at] == _PAIR_END)
    begins_item = np.append(True, ends_item[:-1])[: len(at)]
    kept = ends_item | begins_item  # of the 0x01 in an item the first
    at, is_added, ends_item = at[kept], is_added[kept], ends_item[kept]
    last = np.flatnonzero(ends_item)
    item_start = np.zeros(len(last), np.int64)
    item_start[1:] = at[last[:-1]] + ~is_added[last[:-1]]
    has_name = (last > 0) & ~ends_item[last - 1]
    name_end = at[np.maximum(last - 1, 0)]
    value_end = at[last]
    sound = has_name & (name_end > item_start) & (value_end > name_end + 1)
    name_start, name_end, value_end = item_start[sound], name_end[sound], value_end[sound]
    row = np.searchsorted(beginnings, name_start, side="right") - 1
    first = _numbered(row, count)
    return Pairs(count, data, beginnings, first, row, name_start, name_end, value_end)
