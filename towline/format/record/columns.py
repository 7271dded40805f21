"""Places of the parts of many records, as numpy arrays: no loop over records, no copy of them (spec 2.1)."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import Any, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from towline.errors import MalformedRecord

from .record import BORN_HOST_IPV6, LAYOUT, MAGIC_V1, MAGIC_V2, SIZE_MIN, STORE_HOST_IPV6, layout_of
from .rules import Rule

Bytes: TypeAlias = NDArray[np.uint8]
Integers: TypeAlias = NDArray[np.int64]

PROPERTIES_LENGTH: Final = 2
_ADDRESSES: Final = (BORN_HOST_IPV6, STORE_HOST_IPV6)
_FAMILIES: Final = BORN_HOST_IPV6 | STORE_HOST_IPV6
_WIDER: Final = {family: layout_of(family).size - LAYOUT.size for family in _ADDRESSES}  # than an IPv4 address
_FIELDS: Final = {field.name: (LAYOUT.offset[field.name], f"i{field.size}") for field in LAYOUT.fields}
_TYPES: Final = {kind: np.dtype(f">{kind}") for kind in ("u1", "u2", "i4", "u4", "i8", "u8")}


@dataclass(frozen=True, slots=True)
class Parts:
    """One value per record, in bytes from the first byte of the array that holds them."""

    start: Integers
    size: Integers
    sys_flag: Integers
    body_start: Integers
    body_size: Integers
    topic_start: Integers
    topic_size: Integers
    properties_start: Integers


_FROM_KERNEL: Final = len(fields(Parts)) - 1  # all but `start`, which is given, in this order
_APART: Final = 24  # rows between two columns that are written at once, so that they do not share lines of a cache


def heads_at_once(
    read_heads: Callable[..., int],
    data: Bytes,
    base: int,
    start: Integers,
    kinds: Mapping[str, str],
    *,
    placed: bool = False,
) -> tuple[Parts, dict[str, NDArray[Any]]] | None:
    """The parts of the records at `start`, and their fields of these kinds, by the kernel of that name; None where a
    record is not sound, or with `placed` says that it stands elsewhere than at `base` and its start."""
    types = {name: np.dtype(kind) for name, kind in kinds.items()}
    words, longs = ([name for name, kind in types.items() if kind.itemsize == size] for size in (4, 8))
    start = np.ascontiguousarray(start, np.int64)
    count, stride = len(start), len(start) + _APART
    narrow = np.empty(len(words) * stride, np.int32)
    wide = np.empty((_FROM_KERNEL + len(longs)) * stride, np.int64)
    places = (np.array([LAYOUT.offset[name] for name in some], np.int64) for some in (words, longs))
    if read_heads(data, base, start, placed, *places, stride, narrow, wide) < count:
        return None
    rows = [wide[first : first + count] for first in range(0, len(wide), stride)]
    found: dict[str, NDArray[Any]] = dict(zip(longs, rows[_FROM_KERNEL:], strict=True))
    found |= {name: narrow[row * stride : row * stride + count] for row, name in enumerate(words)}
    return Parts(start, *rows[:_FROM_KERNEL]), {name: found[name].view(kind) for name, kind in types.items()}


def parts_of(data: Bytes, start: Integers, size: Integers) -> Parts:
    """The parts of the records at `start`, none of which may lie beyond the array.

    Raises MalformedRecord for the first record whose own lengths do not add up; its content is not checked.
    """
    _refuse(size < SIZE_MIN, Rule.SIZE_TOO_SMALL, start)
    _refuse(field(data, start, "total_size") != size, Rule.GROUP_SIZE, start)
    sys_flag = field(data, start, "sys_flag")
    body_size_at = start + wider_by(sys_flag, *_ADDRESSES)
    _refuse(body_size_at + LAYOUT.size > start + size, Rule.ENDS_INSIDE, start)
    magic = field(data, start, "magic") & 0xFFFF_FFFF
    return locate(data, start, size, magic, sys_flag, field(data, body_size_at, "body_size"))


def locate(
    data: Bytes, start: Integers, size: Integers, magic: Integers, sys_flag: Integers, body_size: Integers
) -> Parts:
    """The same from heads that are read already, and whole: MAGICCODE and the parts behind the body are checked."""
    is_v2 = magic == MAGIC_V2
    _refuse(~is_v2 & (magic != MAGIC_V1), Rule.MAGIC, start)
    ends = start + size
    body_start = start + LAYOUT.size + wider_by(sys_flag, *_ADDRESSES)
    length_at = body_start + body_size
    topic_start = length_at + 1 + is_v2
    _refuse((body_size < 0) | (topic_start > ends), Rule.PARTS_DO_NOT_ADD_UP, start)
    topic_size = integers(data, length_at, "u1")
    if np.count_nonzero(is_v2):  # the length of a V2 topic has two bytes
        topic_size = np.where(is_v2, (topic_size << 8) | integers(data, topic_start - 1, "u1"), topic_size)
    properties_start = topic_start + topic_size + PROPERTIES_LENGTH
    _refuse(properties_start > ends, Rule.PARTS_DO_NOT_ADD_UP, start)
    stated = integers(data, properties_start - PROPERTIES_LENGTH, "u2")
    _refuse(properties_start + stated != ends, Rule.PARTS_DO_NOT_ADD_UP, start)
    return Parts(start, size, sys_flag, body_start, body_size, topic_start, topic_size, properties_start)


def field(data: Bytes, start: Integers, name: str) -> Integers:
    """A field of the records at `start`, which has to be moved by `wider_by` the addresses before the field."""
    at, kind = _FIELDS[name]
    return integers(data, start + at, kind)


def wider_by(sys_flag: Integers, *families: int) -> Integers | int:
    """Bytes by which these addresses are longer than IPv4 ones."""
    wider: Integers | int = 0
    if not np.count_nonzero(sys_flag & _FAMILIES):
        return wider
    for family in families:
        found = sys_flag & family
        if np.count_nonzero(found):
            wider = wider + np.where(found, _WIDER[family], 0)
    return wider


def integers(data: Bytes, at: Integers, kind: str) -> Integers:
    """Big-endian integers that begin at the bytes `at`; `kind` is a letter and a width, as i4."""
    width = int(kind[1:])
    count = len(at)
    if count == 0:
        return np.empty(0, dtype=np.int64)
    first, last = int(at[0]), int(at[-1])
    step = int(at[1]) - first if count > 1 else 1
    if step > 0 and first >= 0 and last + width <= len(data) and (count <= 2 or (at[1:] - at[:-1] == step).all()):
        return np.ndarray(count, _TYPES[kind], data, first, (step,)).astype(np.int64)
    # Brings the bytes from memory, many at once; the gather of words without alignment brings one after the other.
    if kind == "u1":
        return data.take(at).astype(np.int64)
    if kind == "u2":
        return (data.take(at).astype(np.int64) << 8) | data.take(at + 1)
    everywhere: NDArray[np.int64] = np.ndarray(len(data) - width + 1, _TYPES[kind], data, 0, (1,))
    return everywhere[at].astype(np.int64)


def _refuse(broken: NDArray[np.bool_], rule: Rule, start: Integers) -> None:
    if np.count_nonzero(broken):
        row = int(np.argmax(broken))
        raise MalformedRecord(rule.name, f"record {row}: {rule.sentence}", int(start[row]))
