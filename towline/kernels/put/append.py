"""The append: stores put requests, one row each, and says of each what became of it.

`append_row` is the only code that makes a request of a master part of the log. Rows come from the socket
(`socket_rows`) and from rings in shared memory (`put_ring`). What a kernel cannot do it leaves to the interpreter by
the row's status: to allow a queue, to begin a segment, to open the gate again, to judge the places of an idempotent
producer's records, to word a refusal. Then the row is given to the same code once more, or refused.

Order (H2): head and sizes, then each record is validated as it is copied, the first 8 bytes zero. When all are valid
they are stamped; only then are the 8 bytes stored, then APPENDED. Of a refused request nothing stays, and queue offsets
change only with a stored one.
"""

from typing import Any, Final

from towline.format.record.forms import HALF_ROOM, Form
from towline.format.record.rules import Rule
from towline.format.wire.frames import GROUP, PLACE, PUT, PUT_ANSWER, Kind
from towline.kernels.base.directory import NONE, find
from towline.kernels.base.forms import REALS, Reals
from towline.kernels.base.put_head import groups_in
from towline.kernels.base.sequence import is_sequenced
from towline.kernels.base.shape import PROPERTY_CRC_SIZE, TOTAL_SIZE
from towline.kernels.base.words import (
    full_fence,
    load_i32,
    load_i64,
    load_shared,
    load_u16,
    raw_i64,
    raw_store_i64,
    store_i32,
    store_i64,
    store_shared,
    stores_first,
)
from towline.kernels.jit.calls import bytes_at, call_int
from towline.kernels.jit.compiled import (
    APPENDS,
    GROUPS,
    I64,
    NUMBERS,
    NUMBERS_READ,
    PUT_QUEUES,
    QUEUES_READ,
    READ,
    REQUESTS,
    WORDS_READ,
    WRITE,
    Bytes,
    Numbers,
    Rows,
    Words,
    helper,
    kernel,
    types,
)
from towline.kernels.jit.rows import RequestStatus, Sender
from towline.limits import REQUEST_GROUPS_MAX

from .stamp import BETWEEN_RECORDS, COPIED, FROM_CLIENT, PROPERTY_CRC, SEQUENCED, append_whole

# Failpoints, by the number that their function is called with (`towline.runtime.failpoints`).
FAILPOINTS: Final = (
    "put.between_records",
    "put.after_copy",
    "put.in_append",
    "put.before_publish",
    "put.in_publish",
    "put.after_publish",
    "put.ring_before_take",
    "put.ring_taken",
    "put.ring_before_answer",
    "put.ring_answered",
)
assert (BETWEEN_RECORDS, COPIED) == (0, 1)
_IN_APPEND: Final = FAILPOINTS.index("put.in_append")
_BEFORE_PUBLISH: Final = FAILPOINTS.index("put.before_publish")
_IN_PUBLISH: Final = FAILPOINTS.index("put.in_publish")
_AFTER_PUBLISH: Final = FAILPOINTS.index("put.after_publish")

# Why `append_rows` came back.
DONE: Final = 0
TURN: Final = 1  # as much was stored as a call may store
STOPPED: Final = 2  # the next row is not to be begun: another thread has recalled it, or its sender had not greeted
ROW: Final = 3  # the row behind the stored ones has a status

# `marks`: words of the thread that calls `append_rows` and of the one that watches it.
CURRENT: Final = 0  # the row that is served
STOP: Final = 1  # no other is to be begun
MARKS_SIZE: Final = 2

# `places`: a queue's number and its next offset before the request, for each group.
PLACES_SIZE: Final = 2 * REQUEST_GROUPS_MAX
ANSWER_MAX: Final = PUT_ANSWER.size + REQUEST_GROUPS_MAX * PLACE.size  # bytes

_types: Any = types
QUEUES: Final = _types.Tuple((_types.Tuple((WORDS_READ, QUEUES_READ, READ)), PUT_QUEUES, NUMBERS, NUMBERS))
TERMS: Final = _types.Tuple((READ, READ, REALS, NUMBERS))
APPENDER: Final = _types.Tuple((APPENDS, WRITE, WRITE, NUMBERS_READ, QUEUES, GROUPS, TERMS))
Queues = tuple[tuple[Words, Rows, Bytes], Rows, Numbers, Numbers]
Terms = tuple[Bytes, Bytes, Reals, Numbers]
# What an append works with: [0] one row of APPEND, [1] the active segment, [2] the positions file, [3] pairs of a byte
# there and the word that the gate saw in it, [4] the queues (directory, rows of PUT_QUEUE, room for the numbers of
# those touched, PLACES_SIZE), [5] rows of GROUP for as many groups as a request may have, [6] this broker's
# `own_values`, its store host (8 or 20 bytes), a RealTopics' arrays and room for RESULT_SIZE numbers.
Appender = tuple[Rows, Bytes, Bytes, Numbers, Queues, Rows, Terms]

_ANSWER_KIND: Final = Kind.PUT_ANSWER.value
_GROUPS_AT: Final = PUT.offset["groups"]
_ID_AT: Final = PUT.offset["request_id"]
_DEADLINE_AT: Final = PUT.offset["deadline"]
_PUT_SIZE: Final = PUT.size
_QUEUE_AT: Final = GROUP.offset["queue_id"]
_COUNT_AT: Final = GROUP.offset["count"]
_SIZE_AT: Final = GROUP.offset["size"]
_TOPIC_SIZE_AT: Final = GROUP.offset["topic_size"]
_GROUP_SIZE: Final = GROUP.size
_ANSWER_GROUPS_AT: Final = PUT_ANSWER.offset["groups"]
_ANSWER_ID_AT: Final = PUT_ANSWER.offset["request_id"]
_ANSWER_RECORD_AT: Final = PUT_ANSWER.offset["record"]
_ANSWER_RETRY_AT: Final = PUT_ANSWER.offset["retry_after"]
_PLACE_AT: Final = PUT_ANSWER.size
_PLACE_SIZE: Final = PLACE.size
_FIRST_WORD: Final = 8
_CLOCK_REALTIME: Final = 0
_MS_PER_S: Final = 1_000
_NS_PER_MS: Final = 1_000_000
_HALF: Final = int(Form.HALF)
_CLIENT: Final = Sender.CLIENT.value
_WAITING: Final = RequestStatus.WAITING.value
_STORED: Final = RequestStatus.STORED.value
_UNKNOWN_QUEUE: Final = RequestStatus.UNKNOWN_QUEUE.value
_SEGMENT_END: Final = RequestStatus.SEGMENT_END.value
_BROKEN: Final = RequestStatus.BROKEN.value
_QUEUE_TWICE: Final = RequestStatus.QUEUE_TWICE.value
_TOO_LARGE: Final = RequestStatus.TOO_LARGE.value
_EXPIRED: Final = RequestStatus.EXPIRED.value
_WAITED: Final = RequestStatus.WAITED.value
_SHUT: Final = RequestStatus.SHUT.value
_MALFORMED: Final = RequestStatus.MALFORMED.value
_SEQUENCED: Final = RequestStatus.SEQUENCED.value


@helper
def reach(state: Any, point: int) -> None:
    """A failpoint: nothing but a comparison unless a test has armed this process."""
    if state.failpoint != 0:
        call_int(state.failpoint, point, 0, 0, 0)


@helper
def look_at_clock(states: Rows) -> None:
    """Takes the time anew for requests that came after the caller's look at it: none is stored before its birth, nor
    before what stands in front of it."""
    state = states[0]
    if state.clock == 0:
        return
    call_int(state.clock, _CLOCK_REALTIME, states.ctypes.data, 0, 0)
    state.now_ms = state.clock_s * _MS_PER_S + state.clock_ns // _NS_PER_MS + state.ahead_ms
    state.store_timestamp = max(state.store_timestamp, state.now_ms)


@helper
def _is_open(state: Any, positions: Bytes, watched: Numbers) -> bool:
    """Whether the gate is open, and every word that it looked at is what it was then."""
    if state.shut != 0:
        return False
    for row in range(0, watched.size, 2):  # noqa: SIM110 - compiled
        if load_shared(positions, watched[row]) != watched[row + 1]:
            return False
    return True


@helper
def _fill(row: Any, head: Bytes, count: int, state: Any, known: Queues, groups: Rows) -> int:
    """A GROUP and a place for each group of the request; its status, WAITING if it may be stored."""
    (slots, queues, arena), queue_rows, _, places = known
    left = row.records_size
    status = _WAITING
    state.serial += 1
    at = _PUT_SIZE
    for number in range(count):
        topic_at = at + _GROUP_SIZE
        topic_size = load_u16(head, at + _TOPIC_SIZE_AT)
        queue_id = load_i32(head, at + _QUEUE_AT)
        group = groups[number]
        group.size = load_i32(head, at + _SIZE_AT)
        group.count = load_i32(head, at + _COUNT_AT)
        left -= group.size
        at = topic_at + topic_size
        place, _, _ = find(slots, queues, arena, head, topic_at, topic_size, queue_id)
        if place == NONE or queue_rows[place].access & row.sender == 0:
            status = _UNKNOWN_QUEUE
            continue
        queue = queue_rows[place]
        if queue.seen == state.serial and status == _WAITING:
            status = _QUEUE_TWICE
        queue.seen = state.serial
        places[2 * number] = place
        places[2 * number + 1] = group.next_offset = queue.next_offset
        group.topic_start = queues[place].topic_start
        group.topic_length = topic_size
        group.queue_id = queue_id
        group.form = queue.form
    if left != 0:
        row.rule = Rule.GROUP_SIZE.value
        return _BROKEN
    return status


@helper
def _admit(row: Any, head: Bytes, appender: Appender) -> tuple[int, int]:
    """The request's groups and its status before a byte is copied: WAITING if it may be."""
    states, _, positions, watched, known, groups, _ = appender
    state = states[0]
    row.rule = row.name_at = 0
    row.record = -1
    count = groups_in(head)
    if count == 0:
        return 0, _MALFORMED
    if load_i64(head, _DEADLINE_AT) < state.now_ms:
        return count, _EXPIRED
    if row.received_ms < state.oldest_ms:
        return count, _WAITED
    if not _is_open(state, positions, watched):
        return count, _SHUT
    if row.records_size > state.request_limit:
        return count, _TOO_LARGE
    status = _fill(row, head, count, state, known, groups)
    if status == _WAITING and row.records_size <= _FIRST_WORD:
        row.rule = Rule.GROUP_SIZE.value
        return count, _BROKEN
    if status == _WAITING and row.sender == _CLIENT and row.records_size > state.request_limit - HALF_ROOM:
        for number in range(count):
            if groups[number].form == _HALF:
                row.rule = Rule.HALF_TOO_LARGE.value
                return count, _BROKEN
    if status == _WAITING and state.at + row.records_size > state.end:
        return count, _SEGMENT_END
    return count, status


@helper
def _count(row: Any, state: Any, groups: Rows, count: int, known: Queues) -> None:
    """A request of so many groups was stored."""
    _, queue_rows, touched, places = known
    scheduled = 0
    for number in range(count):
        place = places[2 * number]
        queue = queue_rows[place]
        group = groups[number]
        if queue.requests == 0:
            touched[state.touched] = place
            state.touched += 1
        queue.next_offset = group.next_offset
        queue.messages += group.count
        queue.size += group.size
        queue.requests += 1
        state.records += group.count
        scheduled |= group.form
    if scheduled:
        state.scheduled += 1
    state.size += row.records_size
    state.memory += row.memory
    state.requests += 1


@helper
def append_row(row: Any, appender: Appender) -> int:
    """Stores and publishes the request of a row; its groups, or 0, and the log is as before. Sets the row's status."""
    states, log, positions, _, known, groups, terms = appender
    own, host, reals, result = terms
    state = states[0]
    count, status = _admit(row, bytes_at(row.head, row.head_size), appender)
    row.status = status
    if status != _WAITING:
        return 0
    at = state.at
    size = row.records_size
    frame = bytes_at(row.records, size)
    checks = state.checks if row.sender == _CLIENT else state.checks & ~FROM_CLIENT
    if checks & FROM_CLIENT and is_sequenced(frame, PROPERTY_CRC_SIZE if checks & PROPERTY_CRC else 0):
        if state.judged == 0:
            row.status = _SEQUENCED
            return 0
        checks |= SEQUENCED
    if raw_i64(log, at) != 0:  # it is, unless a writer was killed here; a store could wait for the disk
        raw_store_i64(log, at, 0)
    reach(state, _IN_APPEND)
    rule = append_whole(
        log,
        at,
        frame,
        groups,
        count,
        known[0][2],
        own,
        state.base,
        state.store_timestamp,
        host,
        state.body_max,
        checks,
        reals,
        result,
        state.failpoint,
    )
    if rule != Rule.OK:
        for byte in range(at, at + size):
            log[byte] = 0
        row.status = _BROKEN
        row.rule = rule
        row.record = result[0]
        row.name_at = result[2]
        return 0
    reach(state, _BEFORE_PUBLISH)
    stores_first()
    raw_store_i64(log, at, raw_i64(frame, TOTAL_SIZE))  # the request is part of the log from here on
    reach(state, _IN_PUBLISH)
    at += size
    state.at = at
    store_shared(positions, state.appended_at, state.base + at)
    store_shared(positions, state.stamped_at, state.store_timestamp)
    reach(state, _AFTER_PUBLISH)
    row.status = _STORED
    row.log_end = state.base + at
    state.judged = 0
    _count(row, state, groups, count, known)
    return count


@helper
def write_answer(answer: Bytes, at: int, row: Any, count: int, appender: Appender) -> int:
    """PUT_OK to the request of so many groups that was stored last; where it ends."""
    known, groups = appender[4], appender[5]
    physical = row.log_end - row.records_size
    raw_store_i64(answer, at, _ANSWER_KIND)  # status and rule 0; what stands behind them follows
    store_i32(answer, at + _ANSWER_GROUPS_AT - 2, count)
    store_i64(answer, at + _ANSWER_ID_AT, load_i64(bytes_at(row.head, row.head_size), _ID_AT))
    store_i32(answer, at + _ANSWER_RECORD_AT, -1)
    store_i32(answer, at + _ANSWER_RETRY_AT, 0)
    at += _PLACE_AT
    for number in range(count):
        store_i64(answer, at, known[3][2 * number + 1])
        store_i64(answer, at + 8, physical)
        physical += groups[number].size
        at += _PLACE_SIZE
    return at


@helper
def keep_answer(answers: Bytes, row: Any, count: int, appender: Appender) -> None:
    """PUT_OK behind the answers that are kept already."""
    state = appender[0][0]
    row.answer_at = state.written
    state.written = write_answer(answers, state.written, row, count, appender)
    row.answer_size = state.written - row.answer_at


@kernel(I64(REQUESTS, I64, I64, WRITE, WRITE, APPENDER))
def append_rows(requests: Rows, first: int, count: int, marks: Bytes, answers: Bytes, appender: Appender) -> int:
    """Stores and publishes the requests of `count` rows from `first` on. Returns why it came back.

    Rows are numbered modulo `requests.size`, a power of two. Each stored one's PUT_OK stands in `answers`, as its row
    says. `marks` are MARKS_SIZE words: another thread that sets STOP and then, behind a fence, reads CURRENT knows
    which rows will not be begun.
    """
    state = appender[0][0]
    full_fence()
    for number in range(first, first + count):
        if state.size >= state.bytes_max or state.written + ANSWER_MAX > answers.size:
            return TURN
        if load_shared(marks, 8 * CURRENT) != number:
            store_shared(marks, 8 * CURRENT, number)
            full_fence()
            if load_shared(marks, 8 * STOP) != 0:
                return STOPPED
        row = requests[number & (requests.size - 1)]
        if row.status != _WAITING:
            return STOPPED
        groups = append_row(row, appender)
        if groups == 0:
            return ROW
        keep_answer(answers, row, groups, appender)
    return DONE
