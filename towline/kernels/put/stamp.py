"""Put: one pass validates a whole request and copies it into the log, a second one stamps it there (spec 2.1, 5.3).

The first record's first 8 bytes (TOTALSIZE, MAGIC) are left out and are zero in the log while this runs, so that no
crash can leave a refused request behind as records; the caller stores them when everything else stands.
"""

from typing import Any, Final

from towline.format.record.record import (
    INNER_BATCH,
    NEED_UNWRAP,
    TRANSACTION_MASK,
    TRANSACTION_PREPARED,
    TRANSACTION_ROLLBACK,
)
from towline.format.record.rules import Rule
from towline.kernels.base.crc import copy_with_crc, crc_of, crc_on
from towline.kernels.base.forms import Reals, form_rule
from towline.kernels.base.ownership import names_rule
from towline.kernels.base.sequence import (
    FIRST,
    LAST,
    SEQUENCE_NUMBERS,
    SEQUENCE_SIZE,
    ends_with_sequence,
    sequence_rule,
)
from towline.kernels.base.shape import (
    BODY_CRC,
    CRC_MASK,
    DIGITS_AT,
    HEAD_SIZE,
    IPV6_MORE,
    MAGIC,
    MAGIC_V1,
    MAGIC_V2,
    PHYSICAL_OFFSET,
    PROPERTY_CRC_SIZE,
    QUEUE_ID,
    QUEUE_OFFSET,
    SIZE_MIN,
    STORE_HOST,
    STORE_SHIFT,
    STORE_TIMESTAMP,
    SYS_FLAG,
    TOTAL_SIZE,
    born_more,
    ends_with_crc,
    hosts_more,
    parts,
    properties_form,
    same_bytes,
    store_digits_of,
    topic_sound,
)
from towline.kernels.base.words import (
    copy_bytes,
    load_i32,
    load_u32,
    raw_i64,
    raw_store_i64,
    raw_store_u32,
    raw_u32,
    store_i64,
)
from towline.kernels.jit.calls import call_int
from towline.kernels.jit.compiled import Bytes, Numbers, Rows, helper
from towline.limits import RECORD_OVERHEAD_MAX, RETRY_TOPIC_SIZE_MAX

# What is asked of a request beside its form; add them up.
CHECK_CRC: Final = 1  # BODYCRC
PROPERTY_CRC: Final = 2  # each record ends with a property CRC, whose digits are written here
FROM_CLIENT: Final = 4  # nothing that only a broker may say: names of properties, bits of SYSFLAG
SEQUENCED: Final = 8  # each record ends with the place of an idempotent producer's, one after the other

# Numbers a refusal gives: index of the bad record, its byte position in the frame, that of a bad property's name or 0.
# Behind them is room for what `sequence_rule` knows.
RESULT_SIZE: Final = 3 + SEQUENCE_NUMBERS
BETWEEN_RECORDS: Final = 0  # failpoints, see `put.append`
COPIED: Final = 1
FIRST_WORD_SIZE: Final = 8  # TOTALSIZE and MAGIC of the first record, which are the caller's to store
TIMESTAMP_SIZE: Final = STORE_HOST - STORE_TIMESTAMP
IPV4_HOST_SIZE: Final = 8
IPV6_HOST_SIZE: Final = IPV4_HOST_SIZE + IPV6_MORE
_OF_A_BROKER: Final = TRANSACTION_MASK | NEED_UNWRAP | INNER_BATCH


@helper
def _flag_rule(sys_flag: int, ipv6: int, checks: int) -> int:
    if (sys_flag >> STORE_SHIFT) & 1 != ipv6:
        return Rule.STORE_HOST_FLAG.value
    if checks & FROM_CLIENT and sys_flag & _OF_A_BROKER:
        return Rule.SYS_FLAG.value
    return Rule.OK.value


@helper
def _head_rule(frame: Bytes, at: int, room: int, size: int, magic: int, ipv6: int, queue_id: int, checks: int) -> int:
    """The rule that a record's fixed fields break, where `room` bytes of its group are left."""
    if magic != MAGIC_V1 and magic != MAGIC_V2:
        return Rule.MAGIC.value
    sys_flag = load_u32(frame, at + SYS_FLAG)
    rule = _flag_rule(sys_flag, ipv6, checks)
    if rule != Rule.OK:
        return rule
    if size < SIZE_MIN + hosts_more(sys_flag):
        return Rule.SIZE_TOO_SMALL.value
    if size > room:
        return Rule.SIZE_PAST_END.value
    if load_i32(frame, at + QUEUE_ID) != queue_id:
        return Rule.QUEUE_ID.value
    return Rule.OK.value


@helper
def _properties_rule(
    frame: Bytes, at: int, end: int, own: Bytes, checks: int, form: int, queue_id: int, reals: Reals
) -> tuple[int, int]:
    """The rule that the properties in [at, end) break: room for a property CRC, form, names. And a bad name's place."""
    if checks & PROPERTY_CRC:
        if not ends_with_crc(frame, at, end):
            return Rule.PROPERTY_CRC_MISSING.value, 0
        end -= PROPERTY_CRC_SIZE
    if checks & SEQUENCED:
        if not ends_with_sequence(frame, at, end):
            return Rule.SEQUENCE_MISPLACED.value, 0
        end -= SEQUENCE_SIZE
    sound, suspect = properties_form(frame, at, end)
    if not sound:
        return Rule.PROPERTIES_FORM.value, 0
    if checks & FROM_CLIENT:
        if form != 0:
            return form_rule(frame, at, end, own, form, queue_id, reals)
        if suspect:
            return names_rule(frame, at, end, own)
    return Rule.OK.value, 0


@helper
def _rest_rule(
    frame: Bytes,
    at: int,
    end: int,
    magic: int,
    arena: Bytes,
    topic_start: int,
    topic_length: int,
    own: Bytes,
    max_body: int,
    checks: int,
    form: int,
    queue_id: int,
    reals: Reals,
) -> tuple[int, int, int]:
    """The rule that topic, properties or sizes of the record in [at, end) break, and start and size of its body.

    With the rule of a name the start is the name's; it is 0 with others.
    What is said is judged before how much of it there is, as in spec 5.1: steps 7 and 8 before 10 and 11.
    """
    body_at = at + HEAD_SIZE + hosts_more(load_u32(frame, at + SYS_FLAG))
    size_rule, body_size, topic_at, topic_size, properties_at = parts(frame, at, end, magic, body_at)
    if size_rule not in (Rule.OK, Rule.PROPERTIES_TOO_LARGE):
        return size_rule, 0, 0
    if topic_size != topic_length or not same_bytes(frame, topic_at, arena, topic_start, topic_size):
        return Rule.TOPIC_MISMATCH.value, 0, 0
    if not topic_sound(frame, topic_at, topic_at + topic_size):
        return Rule.TOPIC_FORM.value, 0, 0
    rule, name_at = _properties_rule(frame, properties_at, end, own, checks, form, queue_id, reals)
    if rule == Rule.OK:
        rule = size_rule
    if rule != Rule.OK:
        return rule, name_at, 0
    if end - at > max_body + RECORD_OVERHEAD_MAX:
        return Rule.RECORD_TOO_LARGE.value, 0, 0
    if body_size > max_body:
        return Rule.BODY_TOO_LARGE.value, 0, 0
    return Rule.OK.value, body_at, body_size


@helper
def _group_rule(groups: Rows, number: int, room: int, arena: Bytes) -> int:
    """The rule that a group's own numbers break, where `room` bytes of the request are left."""
    size = groups[number].size
    start = groups[number].topic_start
    length = groups[number].topic_length
    if size < 0 or size > room:
        return Rule.GROUP_SIZE.value
    if groups[number].count < 1:
        return Rule.COUNT_MISMATCH.value
    if length < 1 or length > RETRY_TOPIC_SIZE_MAX or start < 0 or start + length > arena.size:
        return Rule.TOPIC_LENGTH.value
    return Rule.OK.value


@helper
def _group_records(
    log: Bytes,
    shift: int,
    copied: int,
    frame: Bytes,
    at: int,
    group: Any,
    arena: Bytes,
    own: Bytes,
    ipv6: int,
    max_body: int,
    checks: int,
    reals: Reals,
    result: Numbers,
    failpoint: int,
) -> tuple[int, int, int, int]:
    """The first rule that a record of the group breaks, its number in the group, the byte reached, the end copied.

    What lies between two bodies is copied at once, when the second one's turn comes.
    """
    end = at + group.size
    count = group.count
    queue_id = group.queue_id
    form = group.form
    topic_start = group.topic_start
    topic_length = group.topic_length
    for index in range(count):
        room = end - at
        if failpoint != 0 and at > 0:
            call_int(failpoint, BETWEEN_RECORDS, 0, 0, 0)
        if room < SIZE_MIN:
            return Rule.COUNT_MISMATCH.value if room == 0 else Rule.ENDS_INSIDE.value, index, at, copied
        size = load_i32(frame, at + TOTAL_SIZE)
        magic = load_u32(frame, at + MAGIC)
        rule = _head_rule(frame, at, room, size, magic, ipv6, queue_id, checks)
        if rule != Rule.OK:
            return rule, index, at, copied
        rule, body_at, body_size = _rest_rule(
            frame, at, at + size, magic, arena, topic_start, topic_length, own, max_body, checks, form, queue_id, reals
        )
        if rule != Rule.OK:
            result[2] = body_at
            return rule, index, at, copied
        if checks & SEQUENCED:
            rule = sequence_rule(frame, at + size - (PROPERTY_CRC_SIZE if checks & PROPERTY_CRC else 0), result)
            if rule != Rule.OK:
                return rule, index, at, copied
        if checks & CHECK_CRC:
            copy_bytes(log, shift + copied, frame, copied, body_at - copied)
            copied = body_at + body_size
            if copy_with_crc(log, shift + body_at, frame, body_at, body_size) & CRC_MASK != load_u32(
                frame, at + BODY_CRC
            ):
                return Rule.BODY_CRC.value, index, at, copied
        at += size
    return Rule.OK.value if at == end else Rule.GROUP_SIZE.value, count, at, copied


@helper
def _validate(
    log: Bytes,
    shift: int,
    frame: Bytes,
    groups: Rows,
    group_count: int,
    arena: Bytes,
    own: Bytes,
    ipv6: int,
    max_body: int,
    checks: int,
    reals: Reals,
    result: Numbers,
    failpoint: int,
) -> int:
    """The first rule that is broken, its place in `result`; all but the first 8 bytes copied if there is none."""
    before = at = 0
    copied = FIRST_WORD_SIZE
    result[0] = result[1] = result[2] = result[FIRST] = result[LAST] = 0
    for number in range(group_count):
        rule = _group_rule(groups, number, frame.size - at, arena)
        if rule != Rule.OK:
            return rule
        rule, index, at, copied = _group_records(
            log, shift, copied, frame, at, groups[number], arena, own, ipv6, max_body, checks, reals, result, failpoint
        )
        before += index
        result[0] = before
        result[1] = at
        if rule != Rule.OK:
            return rule
    if at != frame.size or at == 0:
        return Rule.GROUP_SIZE.value
    copy_bytes(log, shift + copied, frame, copied, at - copied)
    if failpoint != 0:
        call_int(failpoint, COPIED, 0, 0, 0)
    return Rule.OK.value


@helper
def _stamp(
    log: Bytes, at: int, size: int, groups: Rows, group_count: int, base: int, timestamp: int, host: Bytes
) -> None:
    """Stamps the records of a valid request, the first of which has `size` bytes; moves the groups' next offsets."""
    first = raw_i64(host, 0)
    for number in range(group_count):
        next_offset = groups[number].next_offset
        for index in range(groups[number].count):
            if number > 0 or index > 0:
                size = load_i32(log, at + TOTAL_SIZE)
            sys_flag = load_u32(log, at + SYS_FLAG)
            transaction = sys_flag & TRANSACTION_MASK
            if transaction in (TRANSACTION_PREPARED, TRANSACTION_ROLLBACK):
                store_i64(log, at + QUEUE_OFFSET, 0)
            else:
                store_i64(log, at + QUEUE_OFFSET, next_offset)
                next_offset += 1
            store_i64(log, at + PHYSICAL_OFFSET, base + at)
            store_at = at + born_more(sys_flag) + STORE_HOST
            store_i64(log, store_at - TIMESTAMP_SIZE, timestamp)
            raw_store_i64(log, store_at, first)
            if host.size == IPV6_HOST_SIZE:
                raw_store_i64(log, store_at + 8, raw_i64(host, 8))
                raw_store_u32(log, store_at + 16, raw_u32(host, 16))
            at += size
        groups[number].next_offset = next_offset


@helper
def _seal(log: Bytes, shift: int, frame: Bytes) -> None:
    """Writes the digits of each stamped record's property CRC. Of the first record 8 bytes are in the frame alone."""
    at = 0
    while at < frame.size:
        crc_at = at + load_i32(frame, at + TOTAL_SIZE) - PROPERTY_CRC_SIZE
        crc = crc_of(frame, at, FIRST_WORD_SIZE)
        second_at = at + FIRST_WORD_SIZE
        crc = crc_on(crc, log, shift + second_at, crc_at - second_at)
        store_digits_of(log, shift + crc_at + DIGITS_AT, crc & CRC_MASK)
        at = crc_at + PROPERTY_CRC_SIZE


@helper
def append_whole(
    log: Bytes,
    at: int,
    frame: Bytes,
    groups: Rows,
    group_count: int,
    arena: Bytes,
    own: Bytes,
    base: int,
    store_timestamp: int,
    store_host: Bytes,
    max_body: int,
    checks: int,
    reals: Reals,
    result: Numbers,
    failpoint: int,
) -> int:
    """The broken `Rule`, or 0 and `frame` stands stamped at log[at : at + frame.size], but for its first 8 bytes.

    Those 8 bytes of the log are left as they are, zero. `groups` are rows of GROUP, in the order of their records;
    their topics stand in `arena`. `own` are this broker's `own_values`, `base` is the log offset of log[0],
    `store_timestamp` epoch ms, `store_host` 8 or 20 bytes (address and port), `max_body` bytes, `checks` a sum of the
    constants above, `reals` are of a RealTopics, `failpoint` the address of the function to call, or 0. After a refusal
    a part may be copied and nothing is stamped, `groups` are as before, and `result` holds what RESULT_SIZE says.
    """
    if store_host.size != IPV4_HOST_SIZE and store_host.size != IPV6_HOST_SIZE:
        return Rule.STORE_HOST_FLAG.value
    if at < 0 or at + frame.size > log.size:
        return Rule.ENDS_INSIDE.value
    ipv6 = 1 if store_host.size == IPV6_HOST_SIZE else 0
    rule = _validate(log, at, frame, groups, group_count, arena, own, ipv6, max_body, checks, reals, result, failpoint)
    if rule == Rule.OK:
        _stamp(log, at, load_i32(frame, TOTAL_SIZE), groups, group_count, base, store_timestamp, store_host)
        if checks & PROPERTY_CRC:
            _seal(log, at, frame)
    return rule
