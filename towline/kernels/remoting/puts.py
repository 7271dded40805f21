"""Plain sends on their way to put: records in a put ring, and the answers to those who sent them.

`put_sends` makes the record of each row of `read_sends`, of a batch all of them, and writes them into the ring as one
request. It notes what the answer will need in a row of PENDING, which stands where the request's number says, and the
size of each record in a ring of SIZES_MAX. `take_answers` turns each PUT_OK that comes back into the frame of its
answer. Whatever else comes back is the interpreter's.

A put of our own clients goes into the ring as it is, under a number of ours, and any answer goes back under theirs.
"""

from typing import Any, Final

import numpy as np

from towline.format.remoting.command import VERSION
from towline.format.remoting.wire_message import ANSWER_HEAD
from towline.format.wire.frames import GROUP, PLACE, PUT, PUT_ANSWER
from towline.format.wire.put_ring import ANSWERS_SIZE, HEAD_SHIFT, HEAD_SIZE, PAD, STAMP_SHIFT, WORD, Word
from towline.kernels.base.directory import NONE, find
from towline.kernels.base.put_head import groups_in
from towline.kernels.base.words import (
    copy_bytes,
    load_i64,
    load_shared,
    load_u8,
    raw_store_i64,
    store_i32,
    store_i64,
    store_shared,
)
from towline.kernels.jit.compiled import (
    I64,
    QUEUES_READ,
    READ,
    WORDS,
    WORDS_READ,
    WRITE,
    Bytes,
    Rows,
    Words,
    helper,
    kernel,
    rows_of,
    types,
)
from towline.limits import REQUEST_GROUPS_MAX, REQUEST_SIZE_MAX, RETRY_TOPIC_SIZE_MAX

from .members import MEMBERS_MAX
from .records import SIZES_MAX, fixed_size, store_records
from .sends import OURS, SENDS

PENDING_MAX: Final = 1 << 16  # requests without an answer
KEY_MAX: Final = 64  # bytes of a UNIQ_KEY in an answer; RocketMQ's have 32 or 56
OWN: Final = 1 << 62  # in the numbers of requests that come from here

# The way to put. Positions are those of the ring (`towline.format.wire.put_ring`).
WAY: Final = np.dtype(
    [
        ("area", "i8"),
        ("tail", "i8"),  # of the requests
        ("head", "i8"),  # of the requests, as put's was seen last
        ("answers_head", "i8"),
        ("next_id", "i8"),
        ("oldest_id", "i8"),  # everything before has its answer
        ("sizes_tail", "i8"),  # where the next record's size goes
        ("born_size", "i8"),  # bytes of the sender's host: 8 or 20
        ("store_size", "i8"),  # of the broker's
        ("host_bits", "i8"),  # of SYSFLAG
        ("connection", "i8"),  # number of the sender's connection
        ("puts", "i8"),  # whether the sender may send puts of ours
        ("stamp", "i8"),
        ("why", "i8"),  # `put_sends` or `take_answers` came back
        ("out", "i8"),  # bytes of answers
    ],
    align=True,
)
WAYS: Final = rows_of(WAY)
PENDING: Final = np.dtype(
    [
        ("id", "i8"),  # 0: none
        ("connection", "i8"),
        ("asked", "i8"),  # the number of a put of ours, by its sender
        ("opaque", "i4"),
        ("queue_id", "i4"),
        ("form", "i4"),  # of the header; OURS for a put of ours
        ("one_way", "i4"),
        ("key_size", "i8"),
        ("records", "i8"),
        ("sizes_at", "i8"),  # where the size of the first one is
    ],
    align=True,
)
PENDINGS: Final = rows_of(PENDING)
# Answers of one connection that follow each other.
ANSWERED: Final = np.dtype([("connection", "i8"), ("start", "i8"), ("size", "i8")], align=True)
ANSWERS: Final = rows_of(ANSWERED)

# Why a kernel came back.
DONE: Final = 0
OTHER: Final = 1  # the next one is the interpreter's
FULL: Final = 2  # there is no room: in the ring, among the pending, or for answers
BROKEN: Final = 3  # the ring is

_types: Any = types
TOPICS: Final = _types.Tuple((WORDS_READ, QUEUES_READ, READ))
Topics = tuple[Words, Rows, Bytes]

_REQUESTS_TAIL: Final = WORD * Word.REQUESTS_TAIL.value
_REQUESTS_HEAD: Final = WORD * Word.REQUESTS_HEAD.value
_ANSWERS_TAIL: Final = WORD * Word.ANSWERS_TAIL.value
_ANSWERS_HEAD: Final = WORD * Word.ANSWERS_HEAD.value
_ID_AT: Final = PUT.offset["request_id"]
_GROUP_AT: Final = PUT.size
_QUEUE_AT: Final = PUT.size + GROUP.offset["queue_id"]
_COUNT_AT: Final = PUT.size + GROUP.offset["count"]
_SIZE_AT: Final = PUT.size + GROUP.offset["size"]
_TOPIC_SIZE_AT: Final = PUT.size + GROUP.offset["topic_size"]
_TOPIC_AT: Final = PUT.size + GROUP.size
_ANSWER_ID_AT: Final = PUT_ANSWER.offset["request_id"]
_ANSWER_STATUS_AT: Final = PUT_ANSWER.offset["status"]
_PLACE_AT: Final = PUT_ANSWER.size
_PHYSICAL_AT: Final = PUT_ANSWER.size + PLACE.offset["physical_offset"]
_PROPERTIES_MAX: Final = 32_767
_ANSWER_ROOM: Final = 512  # bytes of an answer without ids, at most
_ID_ROOM: Final = 17  # bytes of an id and its comma, without the host's
_IPV6_HOST: Final = 20
ANSWER_MAX: Final = _ANSWER_ROOM + MEMBERS_MAX * (2 * _IPV6_HOST + _ID_ROOM)
_HEAD_MAX: Final = PUT.size + REQUEST_GROUPS_MAX * (GROUP.size + RETRY_TOPIC_SIZE_MAX)  # bytes of a put's
_OURS_HEAD: Final = np.frombuffer(ANSWER_HEAD, np.uint8).copy()
_OURS_SIZES: Final = 5  # bytes before the only part
assert PUT.size == _GROUP_AT


def _bytes(text: bytes) -> Any:
    return np.frombuffer(text, np.uint8).copy()


_JSON: Final = 0
_BEFORE_ID: Final = _bytes(b'{"code":0,"extFields":{"MSG_REGION":"DefaultRegion","TRACE_ON":"true","msgId":"')
_BEFORE_QUEUE: Final = _bytes(b'","queueId":"')
_BEFORE_OFFSET: Final = _bytes(b'","queueOffset":"')
_BEFORE_KEY: Final = _bytes(b'","transactionId":"')
_BEFORE_OPAQUE: Final = _bytes(b'"},"flag":1,"language":"JAVA","opaque":')
_END: Final = _bytes(f',"serializeTypeCurrentRPC":"JSON","version":{VERSION}}}'.encode())


def _field(name: bytes, value: bytes = b"") -> bytes:
    return len(name).to_bytes(2, "big") + name + len(value).to_bytes(4, "big") + value


_FIXED_FIELDS: Final = _bytes(_field(b"MSG_REGION", b"DefaultRegion") + _field(b"TRACE_ON", b"true"))
_ID_FIELD: Final = _bytes(_field(b"msgId"))
_QUEUE_FIELD: Final = _bytes(_field(b"queueId"))
_OFFSET_FIELD: Final = _bytes(_field(b"queueOffset"))
_KEY_FIELD: Final = _bytes(_field(b"transactionId"))
_BINARY_HEAD: Final = _bytes(
    (0).to_bytes(2, "big") + b"\0" + VERSION.to_bytes(2, "big") + bytes(4) + (1).to_bytes(4, "big") + bytes(8)
)
_BINARY_OPAQUE_AT: Final = 5
_BINARY_FIELDS_AT: Final = 17
_ANSWER_HEAD: Final = 8  # length and mark of a frame
_COMMA: Final = ord(",")
_MINUS: Final = ord("-")
_ZERO: Final = ord("0")
_UPPER_A: Final = ord("A")


# --- requests


@helper
def _is_word(text: Bytes, at: int, end: int) -> bool:
    """Whether [at, end) are letters, digits, `-` and `_`, which stand in JSON as they are."""
    sound = True
    while at < end:
        byte = load_u8(text, at)
        letter = byte | 0x20
        sound = sound and ((97 <= letter <= 122 and byte >= 65) or 48 <= byte <= 57 or byte == _MINUS or byte == 95)
        at += 1
    return sound


@helper
def _note(pendings: Rows, keys: Bytes, row: Any, way: Any, text: Bytes) -> None:
    place = way.next_id & (PENDING_MAX - 1)
    pending = pendings[place]
    pending.id = way.next_id
    pending.connection = way.connection
    pending.opaque = row.opaque
    pending.queue_id = row.queue_id
    pending.form = row.form
    pending.one_way = row.one_way
    pending.key_size = row.key_size
    pending.records = row.records
    pending.sizes_at = way.sizes_tail
    copy_bytes(keys, place * KEY_MAX, text, row.key_at, row.key_size)


@helper
def _records_size(row: Any, way: Any, suffix: Bytes) -> int:
    """Bytes of a row's records, or 0 for what is the interpreter's."""
    added = 0 if row.batch else suffix.size
    size = row.records * fixed_size(row, way) + row.content + added
    entry = _TOPIC_AT + row.topic_size + size
    fits = size <= REQUEST_SIZE_MAX and entry <= (way.area >> 1) - WORD
    return size if fits and row.properties_size + added <= _PROPERTIES_MAX else 0


@helper
def _is_taken(row: Any, text: Bytes, topics: Topics) -> bool:
    """Whether a row is a plain send to a queue that may be sent to."""
    if row.plain == 0 or row.key_size > KEY_MAX or not _is_word(text, row.key_at, row.key_at + row.key_size):
        return False
    slots, queues, arena = topics
    return find(slots, queues, arena, text, row.topic_at, row.topic_size, row.queue_id)[0] != NONE


@helper
def _can_note(pendings: Rows, way: Any, records: int) -> bool:
    """Whether there is room for a request of so many records among those that have no answer."""
    if way.oldest_id == way.next_id:
        return True
    noted = way.sizes_tail - pendings[way.oldest_id & (PENDING_MAX - 1)].sizes_at
    return way.next_id - way.oldest_id < PENDING_MAX and noted + records <= SIZES_MAX  # type: ignore[no-any-return]


@helper
def _place_of(memory: Bytes, way: Any, tail: int, takes: int) -> int:
    """Where an entry of `takes` bytes may stand, or -1: as far from the begin of the area as the tail, or at it."""
    at = tail & (way.area - 1)
    skip = way.area - at if at + takes > way.area else 0
    if tail + skip + takes - way.head > way.area:
        way.head = load_shared(memory, _REQUESTS_HEAD)
        if way.head < 0 or way.head > tail or tail + skip + takes - way.head > way.area:
            return -1
    if skip:
        raw_store_i64(memory, HEAD_SIZE + at, PAD)
        return 0
    return at  # type: ignore[no-any-return]


@helper
def _store_put(memory: Bytes, place: int, row: Any, way: Any, text: Bytes, head: Bytes, total: int) -> int:
    """The head of a request, whose records take `total` bytes; where those begin."""
    copy_bytes(memory, place, head, 0, _TOPIC_AT)
    store_i64(memory, place + _ID_AT, OWN | way.next_id)
    store_i32(memory, place + _QUEUE_AT, row.queue_id)
    store_i32(memory, place + _COUNT_AT, row.records)
    store_i32(memory, place + _SIZE_AT, total)
    memory[place + _TOPIC_SIZE_AT] = row.topic_size >> 8
    memory[place + _TOPIC_SIZE_AT + 1] = row.topic_size & 0xFF
    copy_bytes(memory, place + _TOPIC_AT, text, row.topic_at, row.topic_size)
    return place + _TOPIC_AT + row.topic_size  # type: ignore[no-any-return]


@helper
def _our_size(row: Any, data: Bytes, way: Any) -> int:
    """Bytes of head and records of a put of ours, or 0 for what is the interpreter's."""
    head_size = row.topic_size
    if way.puts == 0 or head_size > _HEAD_MAX or head_size + row.body_size > (way.area >> 1) - WORD:
        return 0
    if groups_in(data[row.topic_at : row.topic_at + head_size]) == 0:
        return 0
    return head_size + row.body_size  # type: ignore[no-any-return]


@helper
def _store_ours(memory: Bytes, place: int, row: Any, way: Any, data: Bytes, pendings: Rows) -> None:
    """Writes a put of ours under our number, and notes it."""
    copy_bytes(memory, place, data, row.topic_at, row.topic_size + row.body_size)
    store_i64(memory, place + _ID_AT, OWN | way.next_id)
    pending = pendings[way.next_id & (PENDING_MAX - 1)]
    pending.id = way.next_id
    pending.connection = way.connection
    pending.asked = load_i64(data, row.topic_at + _ID_AT)
    pending.form = OURS
    pending.one_way = 0
    pending.sizes_at = way.sizes_tail


@kernel(I64(WRITE, WAYS, READ, SENDS, I64, I64, READ, TOPICS, READ, READ, READ, PENDINGS, WRITE, WORDS))
def put_sends(
    memory: Bytes,
    ways: Rows,
    data: Bytes,
    sends: Rows,
    first: int,
    count: int,
    text: Bytes,
    topics: Topics,
    head: Bytes,
    suffix: Bytes,
    host: Bytes,
    pendings: Rows,
    keys: Bytes,
    sizes: Words,
) -> int:
    """Writes rows of `sends` from `first` on into the ring; returns the first that was not, and `why`.

    `topics` are the queues that may be sent to. `head` is that of a put of one group, without what differs; `suffix`
    the properties that a broker adds to a single message, `host` the sender's address and port. The tail is stored
    once, at the end.
    """
    way = ways[0]
    way.why = DONE
    number = first
    tail = way.tail
    while number < first + count:
        row = sends[number]
        if row.plain == OURS:
            head_size = row.topic_size
            total = _our_size(row, data, way) - head_size
        else:
            head_size = _TOPIC_AT + row.topic_size
            total = _records_size(row, way, suffix) if _is_taken(row, text, topics) else 0
        if total <= 0:
            way.why = OTHER
            break
        takes = WORD + ((head_size + total + WORD - 1) & ~(WORD - 1))
        at = _place_of(memory, way, tail, takes) if _can_note(pendings, way, row.records) else -1
        if at < 0:
            way.why = FULL
            break
        tail += (at - tail) & (way.area - 1)
        place = HEAD_SIZE + at
        raw_store_i64(memory, place, way.stamp << STAMP_SHIFT | head_size << HEAD_SHIFT | (head_size + total))
        if row.plain == OURS:
            _store_ours(memory, place + WORD, row, way, data, pendings)
        else:
            place = _store_put(memory, place + WORD, row, way, text, head, total)
            store_records(memory, place, row, way, data, text, suffix, host, sizes)
            _note(pendings, keys, row, way, text)
        way.next_id += 1
        way.sizes_tail += row.records
        tail += takes
        number += 1
    if tail != way.tail:
        way.tail = tail
        store_shared(memory, _REQUESTS_TAIL, tail)
    return number


# --- answers


@helper
def _decimal(out: Bytes, at: int, number: int) -> int:
    """Writes a number; where it ends."""
    value: Any = np.int64(number)  # the least of 32 bits has no opposite among them
    if value < 0:
        out[at] = _MINUS
        at += 1
        value = -value
    digits = 1
    rest = value // 10
    while rest:
        digits += 1
        rest //= 10
    place = at + digits
    end = place
    while place > at:
        place -= 1
        out[place] = _ZERO + value % 10
        value //= 10
    return end


@helper
def _hexadecimal(out: Bytes, at: int, data: Bytes, size: int) -> int:
    """Writes bytes as digits in upper case; where they end."""
    for number in range(size):
        byte = load_u8(data, number)
        for digit in (byte >> 4, byte & 0xF):
            out[at] = _ZERO + digit if digit < 10 else _UPPER_A + digit - 10
            at += 1
    return at


@helper
def _hexadecimal_word(out: Bytes, at: int, value: int) -> int:
    for place in range(16):
        digit = value >> (60 - 4 * place) & 0xF
        out[at + place] = _ZERO + digit if digit < 10 else _UPPER_A + digit - 10
    return at + 16


@helper
def _append(out: Bytes, at: int, piece: Bytes) -> int:
    copy_bytes(out, at, piece, 0, piece.size)
    return at + piece.size


@helper
def _ids(out: Bytes, at: int, pending: Any, sizes: Words, host: Bytes, phy: int) -> int:
    """Writes the id of each record, with commas between them; where they end."""
    for number in range(pending.records):
        if number:
            out[at] = _COMMA
            at += 1
        at = _hexadecimal_word(out, _hexadecimal(out, at, host, host.size), phy)
        phy += sizes[(pending.sizes_at + number) & (SIZES_MAX - 1)]
    return at


@helper
def _json_answer(
    out: Bytes, at: int, pending: Any, key: Bytes, key_at: int, sizes: Words, host: Bytes, offset: int, phy: int
) -> int:
    at = _ids(out, _append(out, at, _BEFORE_ID), pending, sizes, host, phy)
    at = _decimal(out, _append(out, at, _BEFORE_QUEUE), pending.queue_id)
    at = _decimal(out, _append(out, at, _BEFORE_OFFSET), offset)
    if pending.key_size:
        at = _append(out, at, _BEFORE_KEY)
        copy_bytes(out, at, key, key_at, pending.key_size)
    at = _append(out, at + pending.key_size, _BEFORE_OPAQUE)
    return _append(out, _decimal(out, at, pending.opaque), _END)


@helper
def _sized(out: Bytes, at: int, end: int) -> int:
    """Writes the length of a value behind its field's name."""
    store_i32(out, at - 4, end - at)
    return end


@helper
def _binary_answer(
    out: Bytes, at: int, pending: Any, key: Bytes, key_at: int, sizes: Words, host: Bytes, offset: int, phy: int
) -> int:
    begin = at
    at = _append(out, _append(out, at, _BINARY_HEAD), _FIXED_FIELDS)
    store_i32(out, begin + _BINARY_OPAQUE_AT, pending.opaque)
    at = _append(out, at, _ID_FIELD)
    at = _sized(out, at, _ids(out, at, pending, sizes, host, phy))
    at = _append(out, at, _QUEUE_FIELD)
    at = _sized(out, at, _decimal(out, at, pending.queue_id))
    at = _append(out, at, _OFFSET_FIELD)
    at = _sized(out, at, _decimal(out, at, offset))
    if pending.key_size:
        at = _append(out, at, _KEY_FIELD)
        copy_bytes(out, at, key, key_at, pending.key_size)
        at = _sized(out, at, at + pending.key_size)
    store_i32(out, begin + _BINARY_FIELDS_AT, at - begin - _BINARY_FIELDS_AT - 4)
    return at


@helper
def _write_answer(
    out: Bytes, at: int, pending: Any, keys: Bytes, key_at: int, sizes: Words, host: Bytes, memory: Bytes, answer: int
) -> int:
    """The frame of an answer; where it ends."""
    offset = load_i64(memory, answer + _PLACE_AT)
    phy = load_i64(memory, answer + _PHYSICAL_AT)
    body = at + _ANSWER_HEAD
    if pending.form == _JSON:
        end = _json_answer(out, body, pending, keys, key_at, sizes, host, offset, phy)
    else:
        end = _binary_answer(out, body, pending, keys, key_at, sizes, host, offset, phy)
    store_i32(out, at, end - at - 4)
    store_i32(out, at + 4, pending.form << 24 | (end - body))
    return end


@helper
def _our_answer(out: Bytes, at: int, pending: Any, memory: Bytes, answer: int, size: int) -> int:
    """The frame of an answer to a put of ours, which has so many bytes; where it ends."""
    begin = at
    at = _append(out, at + 4, _OURS_HEAD)
    out[at] = 1
    store_i32(out, at + 1, size)
    at += _OURS_SIZES
    copy_bytes(out, at, memory, answer, size)
    store_i64(out, at + _ANSWER_ID_AT, pending.asked)
    store_i32(out, begin, at + size - begin - 4)
    return at + size


@kernel(I64(WRITE, WAYS, PENDINGS, READ, WORDS_READ, READ, WRITE, ANSWERS))
def take_answers(
    memory: Bytes, ways: Rows, pendings: Rows, keys: Bytes, sizes: Words, host: Bytes, out: Bytes, answers: Rows
) -> int:
    """Takes answers to requests of `put_sends`, of plain sends PUT_OK alone; returns how many rows of `answers` it has.

    `host` is the broker's address and port, as it stands in ids. The next answer is another's where `why` is OTHER.
    """
    way = ways[0]
    way.why = DONE
    way.out = 0
    filled = 0
    tail = load_shared(memory, _ANSWERS_TAIL)
    head = way.answers_head
    if tail < head or tail - head > ANSWERS_SIZE or tail & (WORD - 1):
        way.why = BROKEN
        return 0
    while head != tail:
        at = HEAD_SIZE + way.area + (head & (ANSWERS_SIZE - 1))
        word = load_shared(memory, at)
        if word == PAD:
            head += ANSWERS_SIZE - (head & (ANSWERS_SIZE - 1))
            continue
        at += WORD
        number = load_i64(memory, at + _ANSWER_ID_AT) if word >= _PLACE_AT else 0
        place = number & (PENDING_MAX - 1)
        pending = pendings[place]
        ours = pending.form == OURS
        sound = ours or (word >= _PHYSICAL_AT + 8 and load_u8(memory, at + _ANSWER_STATUS_AT) == 0)
        if number & OWN == 0 or pending.id != number & ~OWN or not sound:
            way.why = OTHER
            break
        room = _ANSWER_ROOM + (word if ours else pending.records * (2 * host.size + _ID_ROOM))
        if way.out + room > out.size or filled + 1 > answers.size:
            way.why = FULL
            break
        if pending.one_way == 0:
            if ours:
                end = _our_answer(out, way.out, pending, memory, at, word)
            else:
                end = _write_answer(out, way.out, pending, keys, place * KEY_MAX, sizes, host, memory, at)
            if filled == 0 or answers[filled - 1].connection != pending.connection:
                answers[filled].connection = pending.connection
                answers[filled].start = way.out
                answers[filled].size = 0
                filled += 1
            answers[filled - 1].size += end - way.out
            way.out = end
        pending.id = 0
        head += WORD + ((word + WORD - 1) & ~(WORD - 1))
    if head != way.answers_head:
        way.answers_head = head
        store_shared(memory, _ANSWERS_HEAD, head)
    while way.oldest_id < way.next_id and pendings[way.oldest_id & (PENDING_MAX - 1)].id != way.oldest_id:
        way.oldest_id += 1
    return filled
