"""The head of a PUT (`towline.format.wire.frames`), as it came from a client."""

from typing import Final

from towline.format.wire.frames import GROUP, PUT, Kind
from towline.kernels.jit.compiled import Bytes, helper
from towline.limits import REQUEST_GROUPS_MAX

from .words import load_i32, load_u8, load_u16

_PUT_KIND: Final = Kind.PUT.value
_PUT_SIZE: Final = PUT.size
_GROUPS_AT: Final = PUT.offset["groups"]
_GROUP_SIZE: Final = GROUP.size
_COUNT_AT: Final = GROUP.offset["count"]
_SIZE_AT: Final = GROUP.offset["size"]
_TOPIC_SIZE_AT: Final = GROUP.offset["topic_size"]


@helper
def groups_in(head: Bytes) -> int:
    """The groups of a PUT frame's head that is whole; 0 for anything else."""
    size = head.size
    if size < _PUT_SIZE or load_u8(head, 0) != _PUT_KIND:
        return 0
    count = load_u16(head, _GROUPS_AT)
    if count > REQUEST_GROUPS_MAX:
        return 0
    at = _PUT_SIZE
    for _ in range(count):
        if at + _GROUP_SIZE > size or load_i32(head, at + _COUNT_AT) < 1 or load_i32(head, at + _SIZE_AT) < 1:
            return 0
        at += _GROUP_SIZE + load_u16(head, at + _TOPIC_SIZE_AT)
    return count if at == size else 0
