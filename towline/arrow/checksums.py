"""The two CRCs of a record: of its body, and of the whole record where its properties end with one (spec 2.6, 2.7)."""

import zlib

import numpy as np

from towline.format.record.crcs import crcs
from towline.format.record.property_crc import CRC_MASK, SIZE, encode, ends_with
from towline.format.record.rules import Rule

from .heads import Heads
from .quick import quick

_PLACE = SIZE + 1  # bytes that show whether properties end with a CRC: also the mark before it


def damaged_rows(heads: Heads) -> list[tuple[int, Rule]]:
    """Rows whose CRC is wrong, and the rule. The heads were read with body_crc."""
    data, parts = heads.log.data, heads.parts
    kernels = quick()
    kernel = kernels.crc32_each if kernels is not None else None
    found = crcs(heads.log, parts.body_start, parts.body_size, kernel) & np.uint32(CRC_MASK)
    wrong = {int(row): Rule.BODY_CRC for row in np.flatnonzero(found != heads["body_crc"])}
    for row in _with_property_crc(heads):
        start = int(heads.positions[row])
        end = start + int(heads.size[row])
        if encode(zlib.crc32(data[start : end - SIZE]) & CRC_MASK) != data[end - SIZE : end]:
            wrong.setdefault(row, Rule.PROPERTY_CRC)
    return sorted(wrong.items())


def _with_property_crc(heads: Heads) -> list[int]:
    """Rows whose properties end with a property CRC by their form."""
    ends = heads.positions + heads.size
    long = np.flatnonzero(ends - heads.parts.properties_start >= SIZE)
    if not len(long):
        return []
    # One byte of the head: the first bytes of the last pair are the same in every such record.
    first = heads.log[ends[long] - SIZE]
    likely = long[first == _FIRST]
    data = heads.log.data
    starts, ends = heads.parts.properties_start[likely].tolist(), ends[likely].tolist()
    tails = (bytes(data[max(start, end - _PLACE) : end]) for start, end in zip(starts, ends, strict=True))
    return [row for row, tail in zip(likely.tolist(), tails, strict=True) if ends_with(tail)]


_FIRST = encode(0)[0]
