"""Puts from a ring in shared memory, many per call of the interpreter (`towline.format.wire.put_ring`).

`serve_ring` takes what put would take one by one, as long as nothing about it is special: queues that put has written
to before, room in the segment and for the answer, every check passed. Whatever else it finds it leaves where it is, for
the interpreter to look at. So nothing is refused here, and no rule is written twice. `store_plain` is the part of it
that requests of the socket go through too (`put_rows`). Where PUT_OK is not due yet the answers are kept, and
`answer_ring` writes them when it is.

What the client may change meanwhile is read once and copied first. Words of other processes are read and stored by
atomic instructions, which LLVM neither moves nor drops; that is what H10 asks of the interpreter for.
"""

from typing import Any, Final

from towline.format.record.rules import Rule
from towline.format.wire.frames import GROUP, PLACE, PUT, PUT_ANSWER, Kind
from towline.format.wire.put_ring import (
    ANSWERS_SIZE,
    HEAD_BITS,
    HEAD_SHIFT,
    HEAD_SIZE,
    PAD,
    SIZE_BITS,
    STAMP_SHIFT,
    WORD,
    Word,
    padded,
)
from towline.kernels.base.directory import NONE, find
from towline.kernels.base.forms import REALS, Reals
from towline.kernels.base.shape import TOTAL_SIZE
from towline.kernels.base.words import (
    copy_bytes,
    full_fence,
    load_i32,
    load_i64,
    load_shared,
    load_u8,
    load_u16,
    pause,
    raw_i64,
    raw_store_i64,
    store_i32,
    store_i64,
    store_shared,
    stores_first,
)
from towline.kernels.jit.calls import call_word
from towline.kernels.jit.compiled import (
    GROUPS,
    I64,
    NUMBERS,
    NUMBERS_READ,
    QUEUES_READ,
    READ,
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
from towline.limits import REQUEST_GROUPS_MAX

from .stamp import append_whole

# Why `serve_ring` came back.
EMPTY: Final = 0  # nothing is there, after as many looks as were allowed
TURN: Final = 1  # as much was served as a turn may be
ASLEEP: Final = 2  # the client sleeps, and is to be rung; once for each sleep while there are more requests
OTHER: Final = 3  # what comes next is not for this kernel
CHANGED: Final = 4  # a watched word is not what it was

# `state`: numbers that the caller keeps from call to call.
HEAD: Final = 0  # of the requests, as far as they were taken
TAIL: Final = 1  # of the requests, as it was last seen
ANSWERED: Final = 2  # tail of the answers
ANSWERS_READ: Final = 3  # head of the answers, as it was last seen
LOG_AT: Final = 4  # end of the log in its segment
REQUESTS: Final = 5  # of this call: served
RECORDS: Final = 6
BYTES: Final = 7
TOUCHED: Final = 8  # queues
HELD: Final = 9  # bytes of memory that what was served had taken (of requests from the socket)
RUNG: Final = 10  # the client has been rung since it was last seen awake
WRITTEN: Final = 11  # bytes of answers that this call kept
KEPT: Final = 12  # bytes that these take in the ring
STATE_SIZE: Final = 16

# `limits`: what the caller sets for a call.
AREA: Final = 0  # bytes of the requests' area
LOG_END: Final = 1  # the log may be written up to here in its segment
REQUESTS_MAX: Final = 2
BYTES_MAX: Final = 3
LOOKS: Final = 4  # at an empty ring, until the next request
REQUEST_LIMIT: Final = 5  # bytes of records of one request
NOW_MS: Final = 6
APPENDED: Final = 7  # byte of the position in `positions`, and of the next one
STAMPED: Final = 8
LOOKS_MAX: Final = 9  # all together
OLDEST: Final = 10  # what came before that has waited too long (of requests that were stamped)
KEEPS: Final = 11  # 1: no answer is due yet
WRITE_AT: Final = 12  # address of the system's `write`; 0: the caller rings the client's bell
BELL: Final = 13  # its descriptor
BELL_BYTE: Final = 14  # address of what is written to it
LIMITS_SIZE: Final = 16

# `rows`: of each request that was stored; the first two where its answer is kept.
ANSWER_END: Final = 0  # in the kept answers
STORED_END: Final = 1  # of the log
STAMP: Final = 2  # as its client says
KEPT_SIZE: Final = 3

# Of a queue, in `queues_state`, so many numbers each.
NEXT: Final = 0  # queue offset of the next record
MESSAGES: Final = 1  # of this call
SIZE: Final = 2
PUTS: Final = 3
SEEN: Final = 4  # the last request that named it
QUEUE_STATE: Final = 5

# `places`: a queue's number and its next offset before the request, for each group; at the end the requests' count.
PLACES_SIZE: Final = 2 * REQUEST_GROUPS_MAX + 1

_types: Any = types
QUEUES: Final = _types.Tuple((_types.Tuple((WORDS_READ, QUEUES_READ, READ)), NUMBERS, NUMBERS, NUMBERS))
TERMS: Final = _types.Tuple((READ, I64, I64, READ, I64, I64, REALS, NUMBERS))
Queues = tuple[tuple[Words, Rows, Bytes], Numbers, Numbers, Numbers]
Terms = tuple[Bytes, int, int, Bytes, int, int, Reals, Numbers]
_REQUESTS_TAIL: Final = WORD * Word.REQUESTS_TAIL.value
_REQUESTS_HEAD: Final = WORD * Word.REQUESTS_HEAD.value
_ANSWERS_TAIL: Final = WORD * Word.ANSWERS_TAIL.value
_ANSWERS_HEAD: Final = WORD * Word.ANSWERS_HEAD.value
_CLIENT_SLEEPS: Final = WORD * Word.CLIENT_SLEEPS.value
_PUT_KIND: Final = Kind.PUT.value
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
_TOPIC_AT: Final = PUT.size + GROUP.size
_REQUESTS_AT: Final = PLACES_SIZE - 1
ANSWER_MAX: Final = PUT_ANSWER.size + REQUEST_GROUPS_MAX * PLACE.size  # bytes
_LARGEST: Final = padded(ANSWER_MAX)  # what the end of the area may be too small for
_STATUS_AT: Final = PUT_ANSWER.offset["status"]
_ANSWER_GROUPS_AT: Final = PUT_ANSWER.offset["groups"]
_ANSWER_ID_AT: Final = PUT_ANSWER.offset["request_id"]
_ANSWER_RECORD_AT: Final = PUT_ANSWER.offset["record"]
_ANSWER_RETRY_AT: Final = PUT_ANSWER.offset["retry_after"]
_PLACE_AT: Final = PUT_ANSWER.size
_PLACE_SIZE: Final = PLACE.size


@helper
def _look(ring: Bytes, state: Numbers, area: int) -> bool:
    """Whether something is there, of a tail that can be."""
    tail = load_shared(ring, _REQUESTS_TAIL)
    state[TAIL] = tail
    return bool(tail != state[HEAD])


@helper
def _is_sound(state: Numbers, seen: int, area: int) -> bool:
    tail = state[TAIL]
    return bool(tail >= seen and tail - state[HEAD] <= area and tail & (WORD - 1) == 0)


@helper
def _takes(size: int) -> int:
    """Bytes of an entry."""
    return WORD + ((size + WORD - 1) & ~(WORD - 1))


@helper
def _copy_entry(ring: Bytes, state: Numbers, area: int, scratch: Bytes) -> tuple[int, int, int, int]:
    """Bytes of the next entry's head, all its bytes, what it takes with the pad before it, its stamp; zeros if it is
    none."""
    head = state[HEAD]
    there = state[TAIL] - head
    at = head & (area - 1)
    skip = 0
    word = load_shared(ring, HEAD_SIZE + at)
    if word == PAD:
        skip = area - at
        if skip >= there:
            return 0, 0, 0, 0
        at = 0
        word = load_shared(ring, HEAD_SIZE)
    size = word & SIZE_BITS
    head_size = word >> HEAD_SHIFT & HEAD_BITS
    takes = _takes(size)
    if word < 0 or head_size <= _TOPIC_AT or head_size >= size or size > scratch.size:
        return 0, 0, 0, 0
    if takes > there - skip or takes > area - at:
        return 0, 0, 0, 0
    copy_bytes(scratch, 0, ring, HEAD_SIZE + at + WORD, size)
    return head_size, size, takes + skip, word >> STAMP_SHIFT


@helper
def _fill(head: Bytes, head_size: int, records: int, known: Queues, groups: Rows) -> int:
    """A row for each group of a put, and its place; how many, 0 if one is not plain, or the head is of no put."""
    (slots, queues, arena), queues_state, _, places = known
    if head_size < _PUT_SIZE or load_u8(head, 0) != _PUT_KIND:
        return 0
    count = load_u16(head, _GROUPS_AT)
    if count > groups.size:
        return 0
    at = _PUT_SIZE
    places[_REQUESTS_AT] += 1
    for row in range(count):
        topic_at = at + _GROUP_SIZE
        if topic_at > head_size:
            return 0
        topic_size = load_u16(head, at + _TOPIC_SIZE_AT)
        queue_id = load_i32(head, at + _QUEUE_AT)
        group = groups[row]
        group.size = load_i32(head, at + _SIZE_AT)
        group.count = load_i32(head, at + _COUNT_AT)
        at = topic_at + topic_size
        if at > head_size or group.count < 1 or group.size < 1:
            return 0
        number, _, _ = find(slots, queues, arena, head, topic_at, topic_size, queue_id)
        state_at = number * QUEUE_STATE
        if number == NONE or queues_state[state_at + SEEN] == places[_REQUESTS_AT]:
            return 0
        queues_state[state_at + SEEN] = places[_REQUESTS_AT]
        places[2 * row] = number
        places[2 * row + 1] = group.next_offset = queues_state[state_at + NEXT]
        group.topic_start = queues[number].topic_start
        group.topic_length = topic_size
        group.queue_id = queue_id
        group.form = 0
        records -= group.size
    return count if at == head_size and records == 0 else 0


@helper
def _room_for_answer(ring: Bytes, state: Numbers, reserved: int, count: int) -> bool:
    """Whether the answer to so many groups finds room beside those for which it is kept, wherever the area ends."""
    needed = _LARGEST + _takes(_PLACE_AT + count * _PLACE_SIZE) + state[KEPT] + reserved
    if ANSWERS_SIZE - (state[ANSWERED] - state[ANSWERS_READ]) >= needed:
        return True
    head = load_shared(ring, _ANSWERS_HEAD)
    if head < state[ANSWERS_READ] or head > state[ANSWERED]:
        return False
    state[ANSWERS_READ] = head
    return bool(ANSWERS_SIZE - (state[ANSWERED] - head) >= needed)


@helper
def write_answer(
    answer: Bytes, at: int, request_id: int, groups: Rows, count: int, known: Queues, physical: int
) -> int:
    """PUT_OK to a put of so many groups, that was stored from `physical` on; where it ends."""
    raw_store_i64(answer, at, _ANSWER_KIND)  # status and rule 0; what stands behind them follows
    store_i32(answer, at + _ANSWER_GROUPS_AT - 2, count)
    store_i64(answer, at + _ANSWER_ID_AT, request_id)
    store_i32(answer, at + _ANSWER_RECORD_AT, -1)
    store_i32(answer, at + _ANSWER_RETRY_AT, 0)
    at += _PLACE_AT
    for row in range(count):
        store_i64(answer, at, known[3][2 * row + 1])
        store_i64(answer, at + 8, physical)
        physical += groups[row].size
        at += _PLACE_SIZE
    return at


@helper
def _begin_answer(ring: Bytes, state: Numbers, area: int, size: int) -> int:
    """Where the bytes of the next answer go; it is there once the tail is stored."""
    tail = state[ANSWERED]
    base = HEAD_SIZE + area
    at = tail & (ANSWERS_SIZE - 1)
    takes = _takes(size)
    if at + takes > ANSWERS_SIZE:
        raw_store_i64(ring, base + at, PAD)
        tail += ANSWERS_SIZE - at
        at = 0
    raw_store_i64(ring, base + at, size)
    state[ANSWERED] = tail + takes
    return base + at + WORD  # type: ignore[no-any-return]


@helper
def _keep(answers: Bytes, rows: Numbers, state: Numbers, end: int, log_end: int) -> None:
    """The answer to the request that was stored last ends there."""
    at = (state[REQUESTS] - 1) * KEPT_SIZE
    rows[at + ANSWER_END] = end
    rows[at + STORED_END] = log_end
    state[KEPT] += _takes(end - state[WRITTEN])
    state[WRITTEN] = end


@helper
def _count(state: Numbers, groups: Rows, count: int, known: Queues) -> None:
    """A request of so many groups was stored."""
    _, queues_state, touched, places = known
    for row in range(count):
        number = places[2 * row]
        at = number * QUEUE_STATE
        if queues_state[at + PUTS] == 0:
            touched[state[TOUCHED]] = number
            state[TOUCHED] += 1
        queues_state[at + NEXT] = groups[row].next_offset
        queues_state[at + MESSAGES] += groups[row].count
        queues_state[at + SIZE] += groups[row].size
        queues_state[at + PUTS] += 1
        state[RECORDS] += groups[row].count
        state[BYTES] += groups[row].size
    state[REQUESTS] += 1


@helper
def is_as_before(positions: Bytes, watched: Numbers) -> bool:
    for row in range(0, watched.size, 2):  # noqa: SIM110 - compiled
        if load_shared(positions, watched[row]) != watched[row + 1]:
            return False
    return True


@helper
def store_plain(
    head: Bytes,
    head_size: int,
    frame: Bytes,
    state: Numbers,
    limits: Numbers,
    positions: Bytes,
    log: Bytes,
    known: Queues,
    groups: Rows,
    terms: Terms,
) -> int:
    """Stores and publishes a request; its groups, or 0, and the log is as before, if it is not plain."""
    own, base, store_timestamp, store_host, max_body, checks, reals, result = terms
    at = state[LOG_AT]
    records = frame.size
    if records <= WORD or records > limits[REQUEST_LIMIT] or at + records > limits[LOG_END] or raw_i64(log, at) != 0:
        return 0
    count = _fill(head, head_size, records, known, groups)
    if count == 0 or load_i64(head, _DEADLINE_AT) < limits[NOW_MS]:
        return 0
    arena = known[0][2]
    rule = append_whole(
        log, at, frame, groups, count, arena, own, base, store_timestamp, store_host, max_body, checks, reals, result
    )
    if rule != Rule.OK:
        for byte in range(at, at + records):
            log[byte] = 0
        return 0
    stores_first()
    raw_store_i64(log, at, raw_i64(frame, TOTAL_SIZE))  # the request is part of the log from here on
    at += records
    state[LOG_AT] = at
    store_shared(positions, limits[APPENDED], base + at)
    store_shared(positions, limits[STAMPED], store_timestamp)
    _count(state, groups, count, known)
    return count


@helper
def _serve_one(
    ring: Bytes,
    reserved: int,
    state: Numbers,
    limits: Numbers,
    positions: Bytes,
    scratch: Bytes,
    answers: Bytes,
    rows: Numbers,
    log: Bytes,
    known: Queues,
    groups: Rows,
    terms: Terms,
) -> bool:
    """Stores and publishes the next request, and answers it if that is due; False, and all is as before, if it is not
    plain."""
    area = limits[AREA]
    head_size, size, takes, stamp = _copy_entry(ring, state, area, scratch)
    if takes == 0 or not _room_for_answer(ring, state, reserved, load_u16(scratch, _GROUPS_AT)):
        return False
    physical = terms[1] + state[LOG_AT]
    frame = scratch[head_size:size]
    count = store_plain(scratch, head_size, frame, state, limits, positions, log, known, groups, terms)
    if count == 0:
        return False
    state[HEAD] += takes
    store_shared(ring, _REQUESTS_HEAD, state[HEAD])
    rows[(state[REQUESTS] - 1) * KEPT_SIZE + STAMP] = stamp
    request_id = load_i64(scratch, _ID_AT)
    if limits[KEEPS] != 0:
        end = write_answer(answers, state[WRITTEN], request_id, groups, count, known, physical)
        _keep(answers, rows, state, end, terms[1] + state[LOG_AT])
        return True
    place = _begin_answer(ring, state, area, _PLACE_AT + count * _PLACE_SIZE)
    write_answer(ring, place, request_id, groups, count, known, physical)
    store_shared(ring, _ANSWERS_TAIL, state[ANSWERED])
    return True


@helper
def _is_to_be_rung(ring: Bytes, state: Numbers) -> bool:
    """After an answer: whether the client sleeps, and put has not come back for that already."""
    full_fence()
    if load_shared(ring, _CLIENT_SLEEPS) == 0:
        state[RUNG] = 0
        return False
    rung = state[RUNG] != 0
    state[RUNG] = 1
    return not rung


@helper
def _rings(limits: Numbers) -> bool:
    """Wakes the client; False where that is the caller's. A full pipe rings already."""
    if limits[WRITE_AT] == 0:
        return False
    call_word(limits[WRITE_AT], limits[BELL], limits[BELL_BYTE], 1, 0)
    return True


@kernel(
    I64(WRITE, I64, NUMBERS, NUMBERS_READ, WRITE, NUMBERS_READ, WRITE, WRITE, NUMBERS, WRITE, QUEUES, GROUPS, TERMS),
)
def serve_ring(
    ring: Bytes,
    reserved: int,
    state: Numbers,
    limits: Numbers,
    positions: Bytes,
    watched: Numbers,
    scratch: Bytes,
    answers: Bytes,
    rows: Numbers,
    log: Bytes,
    known: Queues,
    groups: Rows,
    terms: Terms,
) -> int:
    """Stores, publishes and answers PUT_OK to what is in the ring, within `limits`. Returns why it came back.

    `rows` get KEPT_SIZE numbers for each request. With KEEPS the answers are for later: they are written to `answers`
    one behind the other. Both have room for REQUESTS_MAX, or it comes back sooner.
    `ring` is the memory of a put ring, of whose answers' area `reserved` bytes are kept for others. `positions` is the
    positions file: APPENDED and STORE_TIMESTAMP are stored there after each request, so that at most one lies behind
    them. `watched` are pairs of a byte there and the word it has to hold. `known` are a directory of the queues that
    may be written to, QUEUE_STATE numbers of each, room for the numbers of those that this call touches, and
    PLACES_SIZE of the kernel's own. `scratch` holds an entry, `groups` are rows for as many groups as are taken.
    `terms` are the arguments of `append_request` from `own` on.
    """
    area = limits[AREA]
    left = limits[LOOKS_MAX]
    full_fence()
    while (
        state[REQUESTS] < limits[REQUESTS_MAX]
        and state[BYTES] < limits[BYTES_MAX]
        and state[WRITTEN] + ANSWER_MAX <= answers.size
    ):
        seen = state[TAIL]
        if not is_as_before(positions, watched):
            return CHANGED
        looks = min(left, limits[LOOKS])
        left -= looks
        rung = state[REQUESTS] == 0 or limits[KEEPS] != 0
        while not _look(ring, state, area):
            if looks <= 0:
                return EMPTY
            if not rung and load_shared(ring, _CLIENT_SLEEPS) != 0:
                rung = True  # it may have slept twice, and was seen asleep only
                if not _rings(limits):
                    return ASLEEP
            looks -= 1
            pause()
        left += looks
        if not _is_sound(state, seen, area):
            state[TAIL] = seen
            return OTHER
        if not _serve_one(ring, reserved, state, limits, positions, scratch, answers, rows, log, known, groups, terms):
            return OTHER
        if limits[KEEPS] == 0 and _is_to_be_rung(ring, state) and not _rings(limits):
            return ASLEEP
    return TURN


@kernel(I64(WRITE, I64, NUMBERS, READ, NUMBERS_READ, I64, I64, I64))
def answer_ring(
    ring: Bytes, area: int, state: Numbers, answers: Bytes, rows: Numbers, first: int, count: int, status: int
) -> int:
    """Answers so many requests, from `first` on, of which `serve_ring` kept `answers` and `rows`; all at once.

    `status` is told instead of PUT_OK. Returns the bytes for which room had been kept.
    """
    kept = 0
    for row in range(first, first + count):
        begin = rows[(row - 1) * KEPT_SIZE + ANSWER_END] if row else 0
        size = rows[row * KEPT_SIZE + ANSWER_END] - begin
        place = _begin_answer(ring, state, area, size)
        copy_bytes(ring, place, answers, begin, size)
        ring[place + _STATUS_AT] = status
        kept += _takes(size)
    store_shared(ring, _ANSWERS_TAIL, state[ANSWERED])
    return kept
