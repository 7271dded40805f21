"""The messages of a batch, as they stand in the body of its frame (`towline.format.remoting.batch`)."""

from typing import Any, Final

from towline.format.record.sequence import HEAD
from towline.format.remoting import batch, command
from towline.kernels.base.shape import PAIR_END
from towline.kernels.base.words import BLOCK, equal, load_i32, load_u8, load_u16, raw_i64, trailing_zeros
from towline.kernels.jit.compiled import Bytes, helper
from towline.limits import PROPERTIES_SIZE_MAX

MEMBERS_MAX: Final = 4_096  # messages of a batch that is plain
MEMBER_FLAG: Final = batch.FLAG_AT
MEMBER_HEAD: Final = batch.HEAD.size
LENGTH_SIZE: Final = batch.LENGTH.size
_BODY_SIZE: Final = batch.BODY_SIZE_AT
_NAME_SIZE: Final = 8
_NAME: Final = int.from_bytes(HEAD[:_NAME_SIZE], "little")
_RARE: Final = ord("Q")  # the letter of the name that others have least
_RARE_AT: Final = HEAD.index(_RARE)
assert len(HEAD) == _NAME_SIZE + 1
_FRAME_MIN: Final = 2 * command.LENGTH.size + 2  # before the body: a length, a mark, a header of "{}" or more
assert _FRAME_MIN + MEMBER_HEAD + LENGTH_SIZE >= BLOCK  # so a block that ends with the properties is within the frame


@helper
def message_in(data: Bytes, at: int, end: int) -> tuple[int, int, int, int]:
    """The message at `at` of a batch up to `end`: where it ends, its bytes of body and of properties, and 1 where these
    lack their last separator. It ends at 0 where its sizes do not add up."""
    if end - at < MEMBER_HEAD + LENGTH_SIZE:
        return 0, 0, 0, 0
    after = at + load_i32(data, at)
    body_size = load_i32(data, at + _BODY_SIZE)
    properties_at = at + MEMBER_HEAD + body_size + LENGTH_SIZE
    if body_size < 0 or after > end or properties_at > after:
        return 0, 0, 0, 0
    properties_size = load_u16(data, properties_at - LENGTH_SIZE)
    if properties_at + properties_size != after:
        return 0, 0, 0, 0
    lacks = properties_size > 0 and load_u8(data, after - 1) != PAIR_END
    return after, body_size, properties_size, 1 if lacks else 0


@helper
def _names_a_place(data: Bytes, start: int, end: int) -> bool:
    """Whether `__PSEQ__` stands in the properties in [start, end). It may read the block before them."""
    at = start
    while at < end:
        room = end - at
        found = equal(data, at, _RARE) if room >= BLOCK else equal(data, end - BLOCK, _RARE) >> (BLOCK - room)
        while found:
            place = at + trailing_zeros(found) - _RARE_AT
            found &= found - 1
            if place >= start and place + _NAME_SIZE <= end and raw_i64(data, place) == _NAME:
                return True
        at += BLOCK
    return False


@helper
def count_messages(row: Any, data: Bytes) -> bool:
    """Whether the body of a row is a batch of messages that can be records; fills in how many, and what they hold.

    One with the place of an idempotent producer's record is left to the interpreter, which takes that out.
    """
    at = row.body_at
    end = at + row.body_size
    records = content = 0
    while at < end:
        after, body_size, properties_size, lacks = message_in(data, at, end)
        records += 1
        content += body_size + properties_size + lacks
        if after == 0 or properties_size + lacks > PROPERTIES_SIZE_MAX or records > MEMBERS_MAX:
            return False
        if _names_a_place(data, after - properties_size, after):
            return False
        at = after
    row.records = records
    row.content = content
    return records > 0
