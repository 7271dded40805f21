"""The positions of records in a segment (spec 2.1, 2.2).

Records are a chain: only a record's size leads to the next one. To walk it with numpy, many chains are walked in
lock-step: evenly spaced points are moved to the next bytes that look like a record and have their own place in
PHYSICALOFFSET, and all of these advance together. A chain counts only when the one before it ends exactly on its first
record; the first chain begins where the caller knows a record. So a message whose body contains records, even with a
right PHYSICALOFFSET, is never taken for several: no chain ends on them, and their stretch is walked again.
"""

import re
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Final

import numpy as np

from towline.format.record import blank
from towline.format.record.columns import Bytes, Integers, wider_by
from towline.format.record.record import (
    BORN_HOST_IPV6,
    LAYOUT,
    MAGIC_V1,
    MAGIC_V2,
    SIZE_MIN,
    STORE_HOST_IPV6,
    layout_of,
)
from towline.format.record.rules import Rule
from towline.format.record.torn import is_torn
from towline.limits import KIB

from .kernels import Kernels, expect_read, loaded

CHAINS_MAX: Final = 2048  # more do not hide more of the memory's latency
STRIDE_MIN: Final = 32 * KIB  # bytes of a chain: shorter ones do not pay for the search of their beginning
SEARCH_MAX: Final = 8 * KIB  # bytes that are searched for a beginning; larger records have few chains, and need few
_BEYOND: Final = 2**32  # no segment is so long
_CANDIDATES_MAX: Final = 8  # beginnings that are tried in them
_BLOCK: Final = 4096  # heads of so many records stay in the cache of a core
_AT_ONCE: Final = 1 << 16  # positions that a kernel is asked for
_MAGICS: Final = (MAGIC_V1, MAGIC_V2)
_HEAD: Final = struct.Struct(">iI")  # TOTALSIZE, MAGICCODE
_OFFSET: Final = struct.Struct(">q")
_KINDS: Final = {"total_size": ">i4", "magic": ">u4", "physical_offset": ">i8", "sys_flag": ">u4"}
_CHECKED: Final = np.dtype(  # what is checked of a head
    {
        "names": list(_KINDS),
        "formats": list(_KINDS.values()),
        "offsets": [LAYOUT.offset[name] for name in _KINDS],
        "itemsize": LAYOUT.offset["born_timestamp"],
    }
)
_WORD: Final = struct.Struct(">I")
_MAGIC_BYTES: Final = re.compile(b"|".join(re.escape(_WORD.pack(magic)) for magic in _MAGICS))


@dataclass(frozen=True, slots=True)
class Found:
    """The records that a walk found, and `end`, where it ended: bytes from the segment's beginning.

    `rule` is OK where the walk reached its end or the `blank`, which stands at `end`. Else it is the rule that the
    record at `end` breaks; `waits` when that record may still be written: nothing stands there yet (TOTALSIZE is 0), or
    the bytes end inside it by its size and by the sum of its parts.
    """

    positions: Integers
    end: int
    rule: Rule = Rule.OK
    waits: bool = False
    blank: bool = False


def boundaries(
    log: Bytes, base: int, start: int, end: int, *, check_heads: bool = True, enough: int = _BEYOND
) -> Found:
    """Every record that begins in [start, end) and is whole in `log`, whose first byte has the log offset `base`.

    `start` must be a record's first byte (or a segment's). `end` limits where records begin, the array how far they
    reach: cut it where the log is not confirmed. Heads are checked here, PHYSICALOFFSET included; parts are not.
    Without `check_heads` only those are that no chain confirms, for who checks them all with `Heads` and, if one is not
    sound, asks again from there. Positions and sizes that are not checked still lie inside `log`. With `enough` records
    the walk may end, as if at its end.
    """
    expect_read(end - start)
    kernels = loaded()
    if kernels is not None:
        positions, at = _walk_at_once(kernels, log, base, start, min(end, len(log) - SIZE_MIN + 1), enough)
        return (
            Found(positions, at)
            if at >= end or len(positions) == enough
            else Found(positions, at, *judge(log, base, at))
        )
    batches: list[Integers] = []
    at = start
    for batch, confirmed in _batches(log, base, start, min(end, len(log) - SIZE_MIN + 1)):
        unchecked = 0 if check_heads else confirmed
        sound = unchecked + _sound_count(log, base, batch[unchecked:])
        batches.append(batch[:sound])
        if sound < len(batch):
            at = int(batch[sound])
            break
        at = int(batch[-1]) + _size_at(log, int(batch[-1]))
    positions = np.concatenate(batches) if batches else np.empty(0, np.int64)
    if at >= end:
        return Found(positions, at)
    rule, waits, is_blank = judge(log, base, at)
    assert rule is not Rule.OK or is_blank, f"the record at {base + at} is sound, yet the walk ended there"
    return Found(positions, at, rule, waits, is_blank)


def judge(log: Bytes, base: int, at: int) -> tuple[Rule, bool, bool]:
    """The rule that the head at byte `at` breaks, whether it may still be written, whether it is a blank."""
    room = len(log) - at
    if room < blank.SIZE:
        return Rule.ENDS_INSIDE, True, False
    size, magic = _HEAD.unpack_from(log.data, at)
    if size == 0:
        return Rule.SIZE_TOO_SMALL, True, False
    if magic == blank.MAGIC:
        return Rule.OK, False, True
    if magic not in _MAGICS:
        return Rule.MAGIC, False, False
    if size < SIZE_MIN:
        return Rule.SIZE_TOO_SMALL, False, False
    if size > room:
        return Rule.ENDS_INSIDE, is_torn(log.data, at), False
    (sys_flag,) = _WORD.unpack_from(log.data, at + LAYOUT.offset["sys_flag"])
    if size < SIZE_MIN - LAYOUT.size + layout_of(sys_flag).size:
        return Rule.SIZE_TOO_SMALL, False, False
    (offset,) = _OFFSET.unpack_from(log.data, at + LAYOUT.offset["physical_offset"])
    return (Rule.OK if offset == base + at else Rule.PHYSICAL_OFFSET), False, False


def next_plausible(log: Bytes, base: int, start: int, end: int) -> int:
    """The first byte in [start, end) with a head that names its own place; -1 without one."""
    first = start + LAYOUT.offset["magic"]
    for match in _MAGIC_BYTES.finditer(log.data, first, min(len(log), end + SIZE_MIN)):
        at = match.start() - LAYOUT.offset["magic"]
        if at < end and judge(log, base, at)[0] is Rule.OK:
            return at
    return -1


def _walk_at_once(kernels: Kernels, log: Bytes, base: int, start: int, end: int, enough: int) -> tuple[Integers, int]:
    """From head to head, each of them checked: positions, and where that ended."""
    batches: list[Integers] = []
    at, left = start, enough
    while True:
        room = min(left, _AT_ONCE)
        positions = np.empty(room + 1, np.int64)
        count = kernels.walk_heads(log, base, at, end, positions)
        batches.append(positions[:count])
        at, left = int(positions[count]), left - count
        if count < room or not left:
            return batches[0] if len(batches) == 1 else np.concatenate(batches), at


# --- chains


def _batches(log: Bytes, base: int, start: int, end: int) -> Iterator[tuple[Integers, int]]:
    """Positions from `start` on, one array behind the other, and how many of each are confirmed.

    Those are of chains that the next one continues. Of the others no head is checked: behind a bad one all is noise.
    """
    if start >= end:
        return
    firsts = _beginnings(log, base, start, end)
    if len(firsts) == 1:
        yield _walk_alone(log, start, end)[0], 0
        return
    limits = np.append(firsts[1:], end)
    places, flat, ends = _walk(log, firsts, limits)
    met = np.append(ends[:-1] == firsts[1:], False)
    chain = 0
    while True:
        last = chain + int(np.argmin(met[chain:]))  # the first of these that the next chain does not continue
        yield flat[places[chain] : places[last + 1]], int(places[last] - places[chain])
        at = int(ends[last])
        while True:
            chain = int(np.searchsorted(firsts, at))
            if chain < len(firsts) and firsts[chain] == at:
                break
            limit = int(firsts[chain]) if chain < len(firsts) else end
            if at >= limit:
                return
            alone, at = _walk_alone(log, at, limit)
            yield alone, 0


def _walk(log: Bytes, firsts: Integers, limits: Integers) -> tuple[Integers, Integers, Integers]:
    """(where each chain begins in the positions, and their count; the positions; where each chain ended)

    Chain n goes from `firsts[n]` until it is at or behind `limits[n]`. Sizes are believed; one that is too small ends a
    chain as one beyond every limit would.
    """
    count = len(firsts)
    sizes = np.ndarray(len(log) - 3, ">u4", log, 0, (1,))
    steps: list[tuple[Integers, Integers]] = []
    ends = np.empty(count, np.int64)
    lengths = np.empty(count, np.int64)
    chain, at, limit = np.arange(count), firsts, limits
    while len(at):
        steps.append((chain, at))
        log.take(at)  # brings the bytes: many at once, which the gather of unaligned words does not. Half the time
        more = sizes[at].astype(np.uint32)
        more -= np.uint32(SIZE_MIN)  # wraps around where it is too small
        at = at + more
        at += SIZE_MIN
        going = at < limit
        if not going.all():
            over = chain[~going]
            ends[over] = at[~going]
            lengths[over] = len(steps)
            chain, at, limit = chain[going], at[going], limit[going]
    places = np.zeros(count + 1, np.int64)
    np.cumsum(lengths, out=places[1:])
    flat = np.empty(int(places[-1]), np.int64)
    for step, (chain, at) in enumerate(steps):
        flat[(places[:-1] if len(chain) == count else places[chain]) + step] = at
    return places, flat, ends


def _walk_alone(log: Bytes, at: int, limit: int) -> tuple[Integers, int]:
    """One chain, its positions and where it ended: a short one costs less without numpy."""
    data = log.data
    found: list[int] = []
    while at < limit:
        found.append(at)
        (size,) = _WORD.unpack_from(data, at)
        at += size if size >= SIZE_MIN else _BEYOND
    return np.array(found), at


def _beginnings(log: Bytes, base: int, start: int, end: int) -> Integers:
    """`start`, and likely beginnings of records behind evenly spaced points, ascending."""
    stride = max(STRIDE_MIN, -(-(end - start) // CHAINS_MAX))
    found = [start]
    for point in range(start + stride, end, stride):
        at = _beginning(log.data, base, point, min(point + SEARCH_MAX, end))
        if at > found[-1]:
            found.append(at)
    return np.array(found)


def _beginning(data: memoryview, base: int, start: int, end: int) -> int:
    matches = _MAGIC_BYTES.finditer(data, start + LAYOUT.offset["magic"], end)
    for match in islice(matches, _CANDIDATES_MAX):
        at = match.start() - LAYOUT.offset["magic"]
        if _OFFSET.unpack_from(data, at + LAYOUT.offset["physical_offset"])[0] == base + at:
            return at
    return -1


def _sound_count(log: Bytes, base: int, positions: Integers) -> int:
    """How many heads, from the first on, break no rule."""
    everywhere = np.ndarray(len(log) - _CHECKED.itemsize + 1, f"V{_CHECKED.itemsize}", log, 0, (1,))
    for first in range(0, len(positions), _BLOCK):
        at = positions[first : first + _BLOCK]
        heads = everywhere[at].view(_CHECKED)
        magic = heads["magic"].astype(np.uint32)
        size = heads["total_size"].astype(np.int64)
        sound = (magic == MAGIC_V1) | (magic == MAGIC_V2)
        sound &= heads["physical_offset"] == base + at
        sound &= size <= len(log) - at
        sound &= size >= SIZE_MIN + wider_by(heads["sys_flag"].astype(np.int64), BORN_HOST_IPV6, STORE_HOST_IPV6)
        if not sound.all():
            return first + int(np.argmin(sound))
    return len(positions)


def _size_at(log: Bytes, at: int) -> int:
    size: int = _HEAD.unpack_from(log.data, at)[0]
    return size
