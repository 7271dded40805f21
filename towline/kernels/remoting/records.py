"""The records of a send, as they will stand in the log but for what put stamps."""

from typing import Any, Final

import numpy as np

from towline.format.record import record
from towline.kernels.base.crc import crc_of
from towline.kernels.base.shape import BODY_CRC, CRC_MASK, MAGIC, PAIR_END, QUEUE_ID, SYS_FLAG, TOTAL_SIZE
from towline.kernels.base.words import copy_bytes, load_i32, raw_store_i64, store_i32, store_i64
from towline.kernels.jit.compiled import Bytes, Words, helper

from .members import LENGTH_SIZE, MEMBER_FLAG, MEMBER_HEAD, MEMBERS_MAX, message_in

SIZES_MAX: Final = 1 << 17  # records whose sizes are noted until they have an answer
_FLAG: Final = record.LAYOUT.offset["flag"]
_BORN_TIMESTAMP: Final = record.LAYOUT.offset["born_timestamp"]
_BORN_HOST: Final = record.LAYOUT.offset["born_address"]
_MAGIC: Final = record.MAGIC_V1 - (1 << 32)
_NOT_TAKEN: Final = ~(
    record.TRANSACTION_MASK | record.BORN_HOST_IPV6 | record.STORE_HOST_IPV6 | record.NEED_UNWRAP | record.INNER_BATCH
)
_HEAD_MIN: Final = record.LAYOUT.size
_IPV4_HOST: Final = 8
_SEPARATOR: Final = np.array([PAIR_END], np.uint8)
assert MEMBERS_MAX <= SIZES_MAX


@helper
def _store_head(
    memory: Bytes, at: int, row: Any, way: Any, total: int, host: Bytes, flag: int, body_size: int, crc: int
) -> int:
    """The head of a record, up to the body; where that begins."""
    born_at = at + _BORN_HOST
    body_at = at + _HEAD_MIN + way.born_size + way.store_size - 2 * _IPV4_HOST
    for place in range(at, body_at, 8):
        raw_store_i64(memory, place, 0)  # the body is copied over what is too much
    store_i32(memory, at + TOTAL_SIZE, total)
    store_i32(memory, at + MAGIC, _MAGIC)
    store_i32(memory, at + BODY_CRC, crc)
    store_i32(memory, at + QUEUE_ID, row.queue_id)
    store_i32(memory, at + _FLAG, flag)
    store_i32(memory, at + SYS_FLAG, (row.sys_flag & _NOT_TAKEN) | way.host_bits)
    store_i64(memory, at + _BORN_TIMESTAMP, row.born_timestamp)
    copy_bytes(memory, born_at, host, 0, way.born_size)
    store_i32(memory, body_at - 4, body_size)
    return body_at  # type: ignore[no-any-return]


@helper
def fixed_size(row: Any, way: Any) -> int:
    """Bytes of a record but for its body and its properties."""
    return _HEAD_MIN + way.born_size + way.store_size - 2 * _IPV4_HOST + 1 + row.topic_size + 2  # type: ignore[no-any-return]


@helper
def _store_rest(
    memory: Bytes, at: int, row: Any, text: Bytes, source: Bytes, properties_at: int, size: int, added: Bytes
) -> None:
    """Topic and properties of a record, behind its body: `size` bytes of `source`, and what is added to them."""
    memory[at] = row.topic_size
    copy_bytes(memory, at + 1, text, row.topic_at, row.topic_size)
    at += 1 + row.topic_size
    properties = size + added.size
    memory[at] = properties >> 8
    memory[at + 1] = properties & 0xFF
    copy_bytes(memory, at + 2, source, properties_at, size)
    copy_bytes(memory, at + 2 + size, added, 0, added.size)


@helper
def store_records(
    memory: Bytes, at: int, row: Any, way: Any, data: Bytes, text: Bytes, suffix: Bytes, host: Bytes, sizes: Words
) -> None:
    """The records of a row, of a batch one for each message, which gets a last separator alone; notes their sizes."""
    flag, body_at, body_size = row.flag, row.body_at, row.body_size
    source, properties_at, properties_size, added = text, row.properties_at, row.properties_size, suffix
    after, end = body_at, body_at + body_size
    for number in range(row.records):
        if row.batch:
            message = after
            after, body_size, properties_size, lacks = message_in(data, message, end)
            flag = load_i32(data, message + MEMBER_FLAG)
            body_at = message + MEMBER_HEAD
            source, properties_at, added = data, body_at + body_size + LENGTH_SIZE, _SEPARATOR[:lacks]
        size = fixed_size(row, way) + body_size + properties_size + added.size
        crc = crc_of(data, body_at, body_size) & CRC_MASK
        place = _store_head(memory, at, row, way, size, host, flag, body_size, crc)
        copy_bytes(memory, place, data, body_at, body_size)
        _store_rest(memory, place + body_size, row, text, source, properties_at, properties_size, added)
        sizes[(way.sizes_tail + number) & (SIZES_MAX - 1)] = size
        at += size
