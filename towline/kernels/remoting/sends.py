"""Plain sends among the frames that came on a connection (`towline.format.remoting.command`, `.headers`).

A send is plain where nothing of it has to be thought about: SEND_MESSAGE_V2 or SEND_BATCH_MESSAGE, in either form of
header, with a topic that is no group's, properties that parse, hold a UNIQ_KEY and no name that a broker writes or that
asks for a form; of a batch the messages add up, none has a place (`__PSEQ__`), and the properties of the whole, which
nobody stores, may be missing.
Its row has everything that its records and its answer need. Every other frame is the interpreter's: its row says where
it stands. Whatever is not understood here is not refused here.

A put of our own clients (`towline.format.remoting.wire_message`) has a row too: OURS, with its head and its records.
"""

from typing import Any, Final

import numpy as np

from towline.format.remoting.codes import RequestCode
from towline.format.remoting.command import ANSWER, FRAME_MAX, HEADER_MAX, LENGTH
from towline.format.remoting.wire_message import REQUEST_HEAD
from towline.format.wire.frames import PUT, Kind
from towline.kernels.base.shape import NAME_END, PAIR_END, properties_form
from towline.kernels.base.words import BLOCK, copy_bytes, load_i32, load_i64, load_u8, load_u16, load_u32, raw_i64
from towline.kernels.jit.compiled import I64, READ, WRITE, Bytes, Rows, helper, kernel, rows_of

from .members import count_messages

# One frame. Places count in the bytes that came, but for topic and properties: those are in `text`, unescaped.
SENT: Final = np.dtype(
    [
        ("begin", "i8"),  # of the frame, at its length
        ("size", "i8"),  # its length included
        ("body_at", "i8"),
        ("body_size", "i8"),
        ("born_timestamp", "i8"),
        ("topic_at", "i8"),
        ("topic_size", "i8"),
        ("properties_at", "i8"),
        ("properties_size", "i8"),  # with the last separator
        ("key_at", "i8"),  # the value of UNIQ_KEY
        ("key_size", "i8"),  # 0: none
        ("records", "i8"),  # that it becomes; of a put of ours 0, as it is some already
        ("content", "i8"),  # bytes of their bodies and properties, without what a broker adds
        ("queue_id", "i4"),
        ("sys_flag", "i4"),
        ("flag", "i4"),  # of the message
        ("opaque", "i4"),
        ("form", "i4"),  # of the header
        ("one_way", "i4"),
        ("plain", "i4"),  # PLAIN, OURS, or 0: only `begin` and `size` are filled
        ("batch", "i4"),  # 1: its body is a batch's
    ],
    align=True,
)
SENDS: Final = rows_of(SENT)

PLAIN: Final = 1
# A put of ours: `topic_size` bytes of its head stand at `topic_at` in what came, `body_size` of records at `body_at`.
OURS: Final = 2

# Why `read_sends` came back, as a negative number of frames would say nothing: the last row's `size` is 0 then.
BROKEN: Final = -1  # a length that no frame has

TEXT_BEFORE: Final = BLOCK  # bytes of `text` that are never written: blocks are read that end where a text ends
TEXT_MAX: Final = 40 * 1024  # of one frame: the longest properties, a topic, and what they are escaped with less

_OURS_HEAD: Final = np.frombuffer(REQUEST_HEAD, np.uint8).copy()
_OURS_SIZES: Final = 9  # bytes before the parts
_PUT_KIND: Final = Kind.PUT.value
_PUT_SIZE: Final = PUT.size
_SEND: Final = RequestCode.SEND_MESSAGE_V2.value
_SEND_BATCH: Final = RequestCode.SEND_BATCH_MESSAGE.value
_LENGTH: Final = LENGTH.size
_BINARY_FIXED: Final = 13  # bytes of a ROCKETMQ header before the remark
_ANSWER: Final = ANSWER
_ONE_WAY: Final = 2
_JSON: Final = 0
_ROCKETMQ: Final = 1
_QUOTE: Final = ord('"')
_ESCAPE: Final = ord("\\")
_COLON: Final = ord(":")
_COMMA: Final = ord(",")
_OPEN: Final = ord("{")
_CLOSE: Final = ord("}")
_MINUS: Final = ord("-")
_ZERO: Final = ord("0")
_NINE: Final = ord("9")
_SPACE: Final = ord(" ")
_U: Final = ord("u")
_PERCENT: Final = ord("%")
_DIGITS_MAX: Final = 18
_INT32: Final = 1 << 31
_CONTROL: Final = 0x20
_PROPERTIES_MAX: Final = 32_767
_TOPIC_MAX: Final = 127
_S: Final = ord("s")
_EXT_FIELD: Final = int.from_bytes(b"extField", "big")
_CODE: Final = int.from_bytes(b"code", "big")
_FLAG_NAME: Final = int.from_bytes(b"flag", "big")
_OPAQ: Final = int.from_bytes(b"opaq", "big")
_UE: Final = int.from_bytes(b"ue", "big")
_UNIQ: Final = int.from_bytes(b"UNIQ_KEY", "big")
_A: Final = ord("a")
_N: Final = ord("n")

# Which fields were there: bit n of letter a + n.
_TOPIC: Final = 1
_QUEUE: Final = 4
_SYS_FLAG: Final = 5
_BORN: Final = 6
_FLAG: Final = 7
_PROPERTIES: Final = 8
_RECONSUME: Final = 9
_QUEUES: Final = 3
_RECONSUMES: Final = 11
_BATCH: Final = 12
_NUMBERS: Final = (_QUEUES, _QUEUE, _SYS_FLAG, _BORN, _FLAG, _RECONSUME, _RECONSUMES)
_FIELDS_MAX: Final = 64
_HIGH_BITS: Final = 0x8080_8080_8080_8080 - (1 << 64)
_WANTED: Final = sum(1 << bit for bit in (0, _TOPIC, _QUEUE, _SYS_FLAG, _BORN, _FLAG, _PROPERTIES))


@helper
def _number(data: Bytes, at: int, end: int) -> tuple[bool, int]:
    """The number in [at, end): whether it is one of few digits, and it."""
    sign = 1
    if at < end and load_u8(data, at) == _MINUS:
        sign = -1
        at += 1
    if at == end or end - at > _DIGITS_MAX:
        return False, 0
    value = 0
    while at < end:
        digit = load_u8(data, at) - _ZERO
        if digit < 0 or digit > 9:
            return False, 0
        value = 10 * value + digit
        at += 1
    return True, sign * value


@helper
def _within_i32(value: int) -> bool:
    return -_INT32 <= value < _INT32


@helper
def _is_false(data: Bytes, at: int, end: int) -> bool:
    """Whether [at, end) is the word false."""
    return end - at == 5 and load_u32(data, at) == 0x66616C73 and load_u8(data, at + 4) == 0x65


@helper
def _is_true(data: Bytes, at: int, end: int) -> bool:
    return end - at == 4 and load_u32(data, at) == 0x74727565


@helper
def _is_ascii(data: Bytes, at: int, end: int) -> bool:
    """Whether every byte of [at, end) is."""
    found = 0
    while end - at >= 8:
        found |= raw_i64(data, at) & _HIGH_BITS
        at += 8
    while at < end:
        found |= load_u8(data, at) & 0x80
        at += 1
    return found == 0


@helper
def _is_send(row: Any, code: int) -> bool:
    """Whether a request's code is that of a send; takes what it says of it."""
    if code == _SEND_BATCH:
        row.batch = 1
    return code in (_SEND, _SEND_BATCH)


@helper
def _take_field(row: Any, bit: int, data: Bytes, at: int, end: int) -> bool:
    """Takes the field of a letter, but for topic and properties; False where it is not plain."""
    if bit == _BATCH:
        if _is_true(data, at, end):
            row.batch = 1
            return True
        return _is_false(data, at, end)
    if bit not in _NUMBERS:
        return _is_ascii(data, at, end)
    sound, value = _number(data, at, end)
    if not sound or (bit != _BORN and not _within_i32(value)):
        return False
    if bit == _QUEUE:
        row.queue_id = value
    elif bit == _SYS_FLAG:
        row.sys_flag = value
    elif bit == _BORN:
        row.born_timestamp = value
    elif bit == _FLAG:
        row.flag = value
    return bit != _RECONSUME or value == 0


# --- ROCKETMQ


@helper
def _read_binary(row: Any, data: Bytes, at: int, end: int, text: Bytes, free: int) -> int:
    """The fields of a header in [at, end); where `text` is free behind them, 0 where they are not plain."""
    if end - at < _BINARY_FIXED + 8 or not _is_send(row, load_u16(data, at)):
        return 0
    flag = load_i32(data, at + 9)
    row.opaque = load_i32(data, at + 5)
    if flag & _ANSWER:
        return 0
    row.one_way = flag & _ONE_WAY
    remark = load_i32(data, at + _BINARY_FIXED)
    if remark != 0:
        return 0
    fields_end = at + _BINARY_FIXED + 8 + load_i32(data, at + _BINARY_FIXED + 4)
    if fields_end != end:
        return 0
    at += _BINARY_FIXED + 8
    there = fields = 0
    while at < end:
        fields += 1
        if fields > _FIELDS_MAX:
            return 0
        if end - at < 2:
            return 0
        name_size = load_u16(data, at)
        name_at = at + 2
        value_at = name_at + name_size + 4
        if value_at > end:
            return 0
        value_size = load_i32(data, value_at - 4)
        if value_size < 0 or value_size > end - value_at:
            return 0
        at = value_at + value_size
        if not _is_ascii(data, name_at, name_at + name_size):
            return 0
        if name_size != 1:
            if not _is_ascii(data, value_at, at):
                return 0
            continue
        bit = load_u8(data, name_at) - _A
        if bit < 0 or bit > _N - _A or there >> bit & 1:
            return 0
        there |= 1 << bit
        if bit in (_TOPIC, _PROPERTIES):
            if value_size > _PROPERTIES_MAX or not _is_ascii(data, value_at, at):
                return 0
            copy_bytes(text, free, data, value_at, value_size)
            if bit == _TOPIC:
                row.topic_at = free
                row.topic_size = value_size
            else:
                row.properties_at = free
                row.properties_size = value_size
            free += value_size + 1  # room for the last separator
        elif not _take_field(row, bit, data, value_at, at):
            return 0
    return free if there & _WANTED == _WANTED else 0


# --- JSON


@helper
def _is_space(byte: int) -> bool:
    return byte == _SPACE or byte == ord("\n") or byte == ord("\r") or byte == ord("\t")


@helper
def _skip_space(data: Bytes, at: int, end: int) -> int:
    while at < end and _is_space(load_u8(data, at)):
        at += 1
    return at


@helper
def _string_end(data: Bytes, at: int, end: int, escapes: bool) -> int:
    """Where the string that begins behind its quote at `at` has its closing quote; `end` where it has none, or what is
    not allowed in it."""
    while at < end:
        byte = load_u8(data, at)
        if byte == _QUOTE:
            return at
        if byte < _CONTROL or (byte == _ESCAPE and not escapes):
            return end
        at += 2 if byte == _ESCAPE else 1
    return end


@helper
def _hex(byte: int) -> int:
    """The value of a hexadecimal digit, -1 for none."""
    if _ZERO <= byte <= _NINE:
        return byte - _ZERO
    letter = byte | 0x20
    return letter - 87 if 97 <= letter <= 102 else -1


@helper
def _unescape(data: Bytes, at: int, end: int, text: Bytes, free: int) -> int:
    """Copies the string in [at, end); its bytes, -1 where it has an escape that is not of one ASCII character."""
    begin = free
    while at < end:
        byte = load_u8(data, at)
        if byte < _CONTROL:
            return -1
        if byte == _ESCAPE:
            at += 1
            byte = load_u8(data, at)
            if byte == _U:
                if end - at < 5:
                    return -1
                value = 0
                for place in range(at + 1, at + 5):
                    digit = _hex(load_u8(data, place))
                    if digit < 0:
                        return -1
                    value = value << 4 | digit
                if value > 0x7F:
                    return -1
                byte = value
                at += 4
            elif byte != _QUOTE and byte != _ESCAPE and byte != ord("/"):
                return -1
        text[free] = byte
        free += 1
        at += 1
    return free - begin


@helper
def _read_letters(row: Any, data: Bytes, at: int, end: int, text: Bytes, free: int) -> tuple[int, int]:
    """The members of extFields from behind its bracket on: where its closing one stands, and where `text` is free.

    0 where they are not plain.
    """
    there = fields = 0
    while True:
        at = _skip_space(data, at, end)
        if at >= end or load_u8(data, at) != _QUOTE:
            return 0, 0
        name_at = at + 1
        name_end = _string_end(data, name_at, end, False)
        at = _skip_space(data, name_end + 1, end)
        if at >= end or load_u8(data, at) != _COLON:
            return 0, 0
        at = _skip_space(data, at + 1, end)
        if at >= end or load_u8(data, at) != _QUOTE:
            return 0, 0
        value_at = at + 1
        bit = load_u8(data, name_at) - _A if name_end - name_at == 1 else _N
        value_end = _string_end(data, value_at, end, bit in (_TOPIC, _PROPERTIES))
        fields += 1
        if value_end >= end or fields > _FIELDS_MAX:
            return 0, 0
        if name_end - name_at == 1:
            if bit < 0 or bit > _N - _A or there >> bit & 1:
                return 0, 0
            there |= 1 << bit
            if bit in (_TOPIC, _PROPERTIES):
                size = _unescape(data, value_at, value_end, text, free)
                if size < 0:
                    return 0, 0
                if bit == _TOPIC:
                    row.topic_at = free
                    row.topic_size = size
                else:
                    row.properties_at = free
                    row.properties_size = size
                free += size + 1
            elif not _take_field(row, bit, data, value_at, value_end):
                return 0, 0
        at = _skip_space(data, value_end + 1, end)
        if at >= end:
            return 0, 0
        byte = load_u8(data, at)
        if byte == _CLOSE:
            return (at, free) if there & _WANTED == _WANTED else (0, 0)
        if byte != _COMMA:
            return 0, 0
        at += 1


@helper
def _scalar_end(data: Bytes, at: int, end: int) -> int:
    """The end of a number."""
    while at < end:
        byte = load_u8(data, at)
        if byte in (_COMMA, _CLOSE) or _is_space(byte):
            return at
        at += 1
    return end


@helper
def _json_number(data: Bytes, at: int, end: int) -> tuple[bool, int]:
    """The number in [at, end): whether it is one of 32 bits as JSON writes it, and it."""
    sound, value = _number(data, at, end)
    first = at + 1 if load_u8(data, at) == _MINUS else at
    padded = end - first > 1 and load_u8(data, first) == _ZERO
    return sound and _within_i32(value) and not padded, value


@helper
def _wants_number(data: Bytes, at: int, length: int) -> bool:
    """Whether this is the name of a member that is a number."""
    word = load_u32(data, at) if length >= 4 else 0
    four = length == 4 and word in (_CODE, _FLAG_NAME)
    return four or (length == 6 and word == _OPAQ and load_u16(data, at + 4) == _UE)


@helper
def _read_json(row: Any, data: Bytes, at: int, end: int, text: Bytes, free: int) -> int:
    """The members of a header in [at, end); where `text` is free behind them, 0 where they are not plain."""
    at = _skip_space(data, at, end)
    if at >= end or load_u8(data, at) != _OPEN:
        return 0
    at += 1
    code = flag = 0
    fields = opaque = False
    while True:
        at = _skip_space(data, at, end)
        if at >= end or load_u8(data, at) != _QUOTE:
            return 0
        name_at = at + 1
        name_end = _string_end(data, name_at, end, False)
        at = _skip_space(data, name_end + 1, end)
        if at >= end or load_u8(data, at) != _COLON:
            return 0
        at = _skip_space(data, at + 1, end)
        if at >= end:
            return 0
        length = name_end - name_at
        first = load_u8(data, at)
        if length == 9 and load_i64(data, name_at) == _EXT_FIELD and load_u8(data, name_at + 8) == _S:
            if first != _OPEN or fields:
                return 0
            fields = True
            at, free = _read_letters(row, data, at + 1, end, text, free)
            if at == 0:
                return 0
            at += 1
        elif first == _QUOTE and not _wants_number(data, name_at, length):
            at = _string_end(data, at + 1, end, False) + 1
        else:
            value_end = _scalar_end(data, at, end)
            sound, value = _json_number(data, at, value_end)
            if not sound:
                return 0
            wanted = load_u32(data, name_at) if length >= 4 else 0
            if length == 4 and wanted == _CODE:
                code = value
            elif length == 4 and wanted == _FLAG_NAME:
                flag = value
            elif length == 6 and wanted == _OPAQ and load_u16(data, name_at + 4) == _UE:
                opaque = True
                row.opaque = value
            at = value_end
        at = _skip_space(data, at, end)
        if at >= end:
            return 0
        byte = load_u8(data, at)
        if byte == _CLOSE:
            break
        if byte != _COMMA:
            return 0
        at += 1
    if not _is_send(row, code) or flag & _ANSWER or not fields or not opaque or _skip_space(data, at + 1, end) != end:
        return 0
    row.one_way = flag & _ONE_WAY
    return free


# --- frames


@helper
def _find_key(row: Any, text: Bytes, at: int, end: int) -> bool:
    """Finds the value of UNIQ_KEY, the last if there are several."""
    found = False
    item = at
    while item < end:
        name_end = item
        while name_end < end and load_u8(text, name_end) != NAME_END and load_u8(text, name_end) != PAIR_END:
            name_end += 1
        value_end = name_end
        while value_end < end and load_u8(text, value_end) != PAIR_END:
            value_end += 1
        if name_end - item == 8 and load_i64(text, item) == _UNIQ and value_end > name_end + 1:
            row.key_at = name_end + 1
            row.key_size = value_end - name_end - 1
            found = True
        item = value_end + 1
    return found


@helper
def _is_plain(row: Any, text: Bytes) -> bool:
    """Whether topic and properties are; the last separator is added where it is missing."""
    if row.topic_size == 0 or row.topic_size > _TOPIC_MAX or load_u8(text, row.topic_at) == _PERCENT:
        return False
    row.key_size = 0
    if row.properties_size == 0 or row.properties_size > _PROPERTIES_MAX:
        return row.batch == 1 and row.properties_size == 0  # type: ignore[no-any-return]
    end = row.properties_at + row.properties_size
    if load_u8(text, end - 1) != PAIR_END:
        text[end] = PAIR_END
        row.properties_size += 1
        end += 1
    sound, suspect = properties_form(text, row.properties_at, end)
    found = _find_key(row, text, row.properties_at, end)
    return sound and suspect == 0 and (found or row.batch == 1)


@helper
def _holds_records(row: Any, data: Bytes) -> bool:
    """Whether the body of a row can become records; fills in how many, and what they hold."""
    if row.batch:
        return count_messages(row, data)
    row.records = 1
    row.content = row.body_size + row.properties_size
    return True


@helper
def _read_ours(row: Any, data: Bytes, at: int, end: int) -> bool:
    """Whether the frame whose mark stands at `at` is a put of ours; fills its row."""
    body = at + _OURS_HEAD.size
    if end - body < _OURS_SIZES + _PUT_SIZE:
        return False
    for number in range(_OURS_HEAD.size):
        if load_u8(data, at + number) != _OURS_HEAD[number]:
            return False
    head_size, size = load_u32(data, body + 1), load_u32(data, body + 5)
    body_at = body + _OURS_SIZES
    if load_u8(data, body) != 2 or head_size < _PUT_SIZE or load_u8(data, body_at) != _PUT_KIND:
        return False
    if body_at + head_size + size != end or size == 0:
        return False
    row.topic_at = body_at
    row.topic_size = head_size
    row.body_at = body_at + head_size
    row.body_size = size
    row.records = 0
    row.one_way = 0
    row.plain = OURS
    return True


@kernel(I64(READ, I64, SENDS, WRITE))
def read_sends(data: Bytes, size: int, sends: Rows, text: Bytes) -> int:
    """Reads the whole frames among the first `size` bytes that came; returns how many have a row.

    It stops where `sends` has no row left, or `text` no room for the next frame: TEXT_MAX bytes. A frame whose length
    cannot be gets a row of size BROKEN, the last.
    """
    at = 0
    count = 0
    free = TEXT_BEFORE
    while count < sends.size and size - at >= _LENGTH and free + TEXT_MAX <= text.size:
        length = load_u32(data, at)
        row = sends[count]
        row.begin = at
        row.plain = 0
        row.batch = 0
        if length < _LENGTH or length > FRAME_MAX:
            row.size = BROKEN
            return count + 1
        end = at + _LENGTH + length
        if end > size:
            break
        row.size = end - at
        mark = load_u32(data, at + _LENGTH)
        header_at = at + 2 * _LENGTH
        header_end = header_at + (mark & HEADER_MAX)
        row.form = mark >> 24
        after = 0
        # Topic and properties together are not longer than the header.
        if header_end <= end and header_end - header_at + 2 <= TEXT_MAX:
            if row.form == _JSON and _is_ascii(data, header_at, header_end):
                after = _read_json(row, data, header_at, header_end, text, free)
            elif row.form == _ROCKETMQ and not _read_ours(row, data, at + _LENGTH, end):
                after = _read_binary(row, data, header_at, header_end, text, free)
        if after and _is_plain(row, text):
            row.body_at = header_end
            row.body_size = end - header_end
            if _holds_records(row, data):
                row.plain = PLAIN
                free = after
        at = end
        count += 1
    return count
