"""Extension units of queue entries: filtering by their bitmaps (spec 3.5, 7.3)."""

from typing import Final

from towline.format.files import consume_queue_ext as ext
from towline.kernels.base.words import load_i64, load_u8, load_u16
from towline.kernels.jit.compiled import I64, NUMBERS_READ, READ, WRITE, Bytes, Numbers, kernel

_UNIT_SIZE: Final = ext.LAYOUT.offset["unit_size"]
_STORE_TIMESTAMP: Final = ext.LAYOUT.offset["store_timestamp"]
_BITMAP_SIZE: Final = ext.LAYOUT.offset["bitmap_size"]
_SIZE: Final = ext.SIZE


@kernel(I64(READ, NUMBERS_READ, I64, I64, NUMBERS_READ, WRITE))
def rule_out(units: Bytes, places: Numbers, bitmap_size: int, born: int, bits: Numbers, out: Bytes) -> int:
    """Sets out[i] to 1 where the unit at places[i] lacks one of the `bits` of a subscription born at `born` ms.

    To 0 where it has them all, where its record is not newer than that, or where it has no bitmap of exactly this many
    bytes. Each place is followed by a head and a bitmap at least, whatever stands there. Returns how many are 1.
    """
    count = 0
    for number in range(places.size):
        at = places[number]
        missing = 0
        sized = load_u16(units, at + _BITMAP_SIZE) == bitmap_size
        if sized and load_u16(units, at + _UNIT_SIZE) == _SIZE + bitmap_size:
            for bit in bits:
                missing |= ~load_u8(units, at + _SIZE + bit // 8) >> (bit % 8) & 1
            missing &= load_i64(units, at + _STORE_TIMESTAMP) > born
        out[number] = missing
        count += missing
    return count
