"""The fields of many records as arrays, where their other parts begin, and the check of their CRCs (spec 2.1, 2.6)."""

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import fields
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from towline.errors import MalformedRecord
from towline.format.record.columns import Bytes, Integers, Parts, heads_at_once, integers, locate, wider_by
from towline.format.record.crcs import crcs
from towline.format.record.property_crc import CRC_MASK, broken
from towline.format.record.record import BORN_HOST_IPV6, LAYOUT, MAGIC_V2, SIZE_MIN, STORE_HOST_IPV6
from towline.format.record.rules import Rule
from towline.limits import PROPERTIES_SIZE_MAX, RETRY_TOPIC_SIZE_MAX, TOPIC_SIZE_MAX

from .errors import damaged
from .kernels import Kernels, loaded

BORN_HOST: Final = "born_address"  # with its port behind it: eight bytes of an IPv4 host, as one number
STORE_HOST: Final = "store_address"
FAMILIES: Final = {BORN_HOST: BORN_HOST_IPV6, STORE_HOST: STORE_HOST_IPV6}
_KINDS: Final = {"i": "i4", "I": "u4", "q": "i8", "4s": "u8"}  # letters of the layout, as numpy writes them
_FIELDS: Final = {field.name: _KINDS[field.letter] for field in LAYOUT.fields if not field.name.endswith("_port")}
_ALWAYS: Final = ("total_size", "magic", "sys_flag", "body_size")
_PARTS: Final = tuple(part.name for part in fields(Parts))
_BLOCK: Final = 4096  # heads of so many records stay in the cache of a core while their fields are taken out
_HEAD: Final = np.dtype(
    {
        "names": list(_FIELDS),
        "formats": [f">{kind}" for kind in _FIELDS.values()],
        "offsets": [LAYOUT.offset[name] for name in _FIELDS],
        "itemsize": LAYOUT.size,
    }
)


class Heads:
    """Records whose heads and lengths are sound; `heads[name]` is a field of LAYOUT that was asked for.

    `positions` are bytes of `log`, whose first byte has the log offset `base`. Raises DamagedRecord for a record whose
    lengths are not sound, and with `placed` for one that stands elsewhere by its PHYSICALOFFSET.
    """

    def __init__(
        self, log: Bytes, base: int, positions: Integers, names: Collection[str] = (), *, placed: bool = False
    ) -> None:
        self.log, self.base, self.positions = log, base, positions
        self._columns: dict[str, NDArray[Any]] = {}
        kernels = loaded()
        if kernels is not None and self._read_at_once(kernels, dict.fromkeys(names), placed):
            return
        self._read_each(dict.fromkeys(names), placed)

    def _read_each(self, names: Collection[str], placed: bool) -> None:
        """Field by field: also says what is wrong."""
        log, base, positions = self.log, self.base, self.positions
        if len(positions) and (int(positions.min()) < 0 or int(positions.max()) > len(log) - SIZE_MIN):
            outside = positions[(positions < 0) | (positions > len(log) - SIZE_MIN)]
            raise damaged(base + int(outside[0]), Rule.ENDS_INSIDE)
        self._columns = _read(log, positions, dict.fromkeys((*_ALWAYS, *names, *(["physical_offset"] * placed))))
        self.size = self._columns["total_size"].astype(np.int64)
        self.sys_flag = self._columns["sys_flag"].astype(np.int64)
        least = SIZE_MIN + wider_by(self.sys_flag, *FAMILIES.values())
        self._refuse(self.size < least, Rule.SIZE_TOO_SMALL)
        self._refuse(self.size > len(log) - positions, Rule.ENDS_INSIDE)
        if placed:
            self._refuse(self._columns["physical_offset"] != base + positions, Rule.PHYSICAL_OFFSET)
        self._mend_wide()
        self.parts = self._located()
        self._columns = {name: self._columns[name] for name in names}

    def _read_at_once(self, kernels: Kernels, names: Collection[str], placed: bool) -> bool:
        """False where a record is not sound."""
        kinds = {name: _FIELDS[name] for name in names}
        found = heads_at_once(kernels.read_heads, self.log, self.base, self.positions, kinds, placed=placed)
        if found is None:
            return False
        self.parts, self._columns = found
        self.positions, self.size, self.sys_flag = self.parts.start, self.parts.size, self.parts.sys_flag
        return True

    def __len__(self) -> int:
        return len(self.positions)

    def __getitem__(self, name: str) -> NDArray[Any]:
        """int32, int64, or the eight bytes of an IPv4 host as uint64; of an IPv6 host the number means nothing."""
        return self._columns[name]

    def keep(self, rows: NDArray[Any] | slice) -> "Heads":
        """The records of these rows, or where `rows` is true. The log is not copied."""
        return self._of([self], lambda values: values[0][rows])

    @staticmethod
    def joined(several: Sequence["Heads"]) -> "Heads":
        """Several heads of one log, with the same fields, as one."""
        return several[0]._of(several, np.concatenate) if len(several) > 1 else several[0]

    def _of(self, several: Sequence["Heads"], make: Callable[[list[NDArray[Any]]], NDArray[Any]]) -> "Heads":
        made = object.__new__(Heads)
        made.log, made.base = self.log, self.base
        made._columns = {name: make([heads[name] for heads in several]) for name in self._columns}
        parts = [make([getattr(heads.parts, part) for heads in several]) for part in _PARTS]
        made.parts = Parts(*parts)
        made.positions, made.size, made.sys_flag = made.parts.start, made.parts.size, made.parts.sys_flag
        return made

    def _mend_wide(self) -> None:
        """Fields behind an IPv6 host stand further back than they were read."""
        rows = np.flatnonzero(self.sys_flag & (BORN_HOST_IPV6 | STORE_HOST_IPV6))
        if not len(rows):
            return
        for name, values in self._columns.items():
            before = [family for host, family in FAMILIES.items() if LAYOUT.offset[host] < LAYOUT.offset[name]]
            moved = self.positions[rows] + wider_by(self.sys_flag[rows], *before) + LAYOUT.offset[name]
            values[rows] = integers(self.log, moved, _FIELDS[name]).astype(values.dtype)

    def _located(self) -> Parts:
        body_size, magic = self._columns["body_size"].astype(np.int64), self._columns["magic"].astype(np.int64)
        try:
            parts = locate(self.log, self.positions, self.size, magic, self.sys_flag, body_size)
        except MalformedRecord as refused:
            raise damaged(self.base + refused.at, Rule[refused.rule]) from None
        topic_max = np.where(magic == MAGIC_V2, RETRY_TOPIC_SIZE_MAX, TOPIC_SIZE_MAX)
        self._refuse((parts.topic_size == 0) | (parts.topic_size > topic_max), Rule.TOPIC_LENGTH)
        long = self.positions + self.size - parts.properties_start > PROPERTIES_SIZE_MAX
        self._refuse(long, Rule.PROPERTIES_TOO_LARGE)
        return parts

    def _refuse(self, broken: NDArray[np.bool_], rule: Rule) -> None:
        if broken.any():
            raise damaged(self.base + int(self.positions[np.argmax(broken)]), rule)


def _read(log: Bytes, positions: Integers, names: Collection[str]) -> dict[str, NDArray[Any]]:
    count = len(positions)
    columns: dict[str, NDArray[Any]] = {name: np.empty(count, _FIELDS[name]) for name in names}
    if count:
        everywhere = np.ndarray(len(log) - LAYOUT.size + 1, f"V{LAYOUT.size}", log, 0, (1,))
        for first in range(0, count, _BLOCK):
            at = positions[first : first + _BLOCK]
            heads = np.ndarray(len(at), _HEAD, everywhere[at])
            for name, values in columns.items():
                values[first : first + _BLOCK] = heads[name]
    return columns


def damaged_rows(heads: Heads, *, force_property_crc: bool = False) -> list[tuple[int, Rule]]:
    """The rows with a wrong CRC of the body, and the rule. The heads were read with body_crc.

    With `force_property_crc` also rows that do not end with their own property CRC.
    """
    parts = heads.parts
    kernels = loaded()
    kernel = kernels.crc32_each if kernels is not None else None
    found = crcs(heads.log, parts.body_start, parts.body_size, kernel) & np.uint32(CRC_MASK)
    wrong = dict(_broken_property_crcs(heads)) if force_property_crc else {}
    wrong |= {int(row): Rule.BODY_CRC for row in np.flatnonzero(found != heads["body_crc"])}
    return sorted(wrong.items())


def _broken_property_crcs(heads: Heads) -> Iterator[tuple[int, Rule]]:
    """Rows that do not end with their own, and the rule."""
    data, starts = heads.log.data, heads.positions
    places = zip(starts.tolist(), heads.parts.properties_start.tolist(), (starts + heads.size).tolist(), strict=True)
    for row, (start, properties, end) in enumerate(places):
        rule = broken(bytes(data[start:end]), bytes(data[properties:end]))
        if rule is not Rule.OK:
            yield row, rule
