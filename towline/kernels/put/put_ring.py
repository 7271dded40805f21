"""Put requests of a ring in shared memory (`towline.format.wire.put_ring`): copied out, stored, and answered.

`serve_ring` copies an entry, has the append store it (`append.append_row`) and answers it, as long as each is stored;
the first that is not stays in the ring, with a row that says why. Where PUT_OK is not due yet the answers are kept, and
`answer_ring` writes them when it is.

What the client may change meanwhile is read once and copied first. Words of other processes are read and stored by
atomic instructions, which LLVM neither moves nor drops; that is what H10 asks of the interpreter for.
"""

from typing import Any, Final

import numpy as np

from towline.format.wire.frames import GROUP, PLACE, PUT, PUT_ANSWER
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
from towline.kernels.base.words import (
    copy_bytes,
    cycles,
    full_fence,
    load_shared,
    load_u16,
    pause,
    raw_store_i64,
    store_shared,
)
from towline.kernels.jit.calls import bytes_at, call_int, call_word
from towline.kernels.jit.compiled import (
    I64,
    READ,
    REQUESTS,
    REQUESTS_READ,
    WRITE,
    Bytes,
    Rows,
    helper,
    kernel,
    rows_of,
)
from towline.kernels.jit.rows import Sender

from .append import (
    ANSWER_MAX,
    APPENDER,
    FAILPOINTS,
    Appender,
    append_row,
    keep_answer,
    look_at_clock,
    reach,
    write_answer,
)

# Why `serve_ring` came back.
EMPTY: Final = 0  # nothing is there, after as many spins as were allowed
TURN: Final = 1  # as much was stored as a turn may be
ASLEEP: Final = 2  # the client sleeps, and is to be woken; once for each sleep while there are more requests
ROW: Final = 3  # the next request was not stored: the row behind the stored ones says why
FULL: Final = 4  # there is no room for the next answer
BROKEN: Final = 5  # what comes next is no entry

# A spinner is at work for the scheduler, which leaves who is to answer it waiting behind it for up to a millisecond, on
# the same processor, with another one idle. So after so many spins (a mask: 8 us) it lets others go first.
GIVE_WAY_EVERY: Final = 255
_LONG: Final = 2_000_000  # cycles, a millisecond at most: who comes back so late has no core to spin on

# A ring as kernels see it. Positions are of `towline.format.wire.put_ring`.
RING: Final = np.dtype(
    [
        ("head", "i8"),  # of the requests, as far as they were taken
        ("tail", "i8"),  # of the requests, as it was last seen
        ("answered", "i8"),  # tail of the answers
        ("answers_read", "i8"),  # head of the answers, as it was last seen
        ("area", "i8"),  # bytes of the requests' area
        ("entry", "i8"),  # address of room for the copy of an entry
        ("entry_max", "i8"),  # bytes of that
        ("taken", "i8"),  # bytes in the ring of the entry that was copied last, and of the pad before it
        ("reserved", "i8"),  # bytes of the answers' area that are kept for others
        ("kept", "i8"),  # bytes of the answers' area that this call's answers will take
        ("woken", "i8"),  # the client was woken since it was last seen awake
        ("keeps", "i8"),  # 1: no answer is due yet
        ("spins", "i8"),  # at an empty ring, until the next request
        ("spins_max", "i8"),  # all together
        ("write", "i8"),  # address of the system's `write`; 0: the caller wakes the client
        ("give_way", "i8"),  # address of the system's `sched_yield`; 0: spins hold the processor
        ("bell", "i8"),  # the client's doorbell, a descriptor
        ("bell_byte", "i8"),  # address of what is written to it
        ("received_ms", "i8"),  # monotonic
    ],
    align=True,
)
RINGS: Final = rows_of(RING)

_REQUESTS_TAIL: Final = WORD * Word.REQUESTS_TAIL.value
_REQUESTS_HEAD: Final = WORD * Word.REQUESTS_HEAD.value
_ANSWERS_TAIL: Final = WORD * Word.ANSWERS_TAIL.value
_ANSWERS_HEAD: Final = WORD * Word.ANSWERS_HEAD.value
_CLIENT_SLEEPS: Final = WORD * Word.CLIENT_SLEEPS.value
_GROUPS_AT: Final = PUT.offset["groups"]
_TOPIC_AT: Final = PUT.size + GROUP.size
_LARGEST: Final = padded(ANSWER_MAX)  # what the end of the area may be too small for
_STATUS_AT: Final = PUT_ANSWER.offset["status"]
_PLACE_AT: Final = PUT_ANSWER.size
_PLACE_SIZE: Final = PLACE.size
_CLIENT: Final = Sender.CLIENT.value
_BEFORE_TAKE: Final = FAILPOINTS.index("put.ring_before_take")
_TAKEN: Final = FAILPOINTS.index("put.ring_taken")
_BEFORE_ANSWER: Final = FAILPOINTS.index("put.ring_before_answer")
_ANSWERED: Final = FAILPOINTS.index("put.ring_answered")


@helper
def gives_way(address: int) -> bool:
    """Lets others go first, by `sched_yield`; whether it is worth while to spin on."""
    began = cycles()
    call_int(address, 0, 0, 0, 0)
    return bool(cycles() - began < _LONG)


@helper
def _is_sound(ring: Any, seen: int) -> bool:
    """Whether the tail is one that can follow the one seen before."""
    return bool(ring.tail >= seen and ring.tail - ring.head <= ring.area and ring.tail & (WORD - 1) == 0)


@helper
def _takes(size: int) -> int:
    """Bytes of an entry."""
    return WORD + ((size + WORD - 1) & ~(WORD - 1))


@helper
def _copy_entry(memory: Bytes, ring: Any, row: Any) -> bool:
    """Copies the next entry and fills the row with it; False if it is none."""
    there = ring.tail - ring.head
    at = ring.head & (ring.area - 1)
    skip = 0
    word = load_shared(memory, HEAD_SIZE + at)
    if word == PAD:
        skip = ring.area - at
        if skip >= there:
            return False
        at = 0
        word = load_shared(memory, HEAD_SIZE)
    size = word & SIZE_BITS
    head_size = word >> HEAD_SHIFT & HEAD_BITS
    takes = _takes(size)
    if word < 0 or head_size <= _TOPIC_AT or head_size >= size or size > ring.entry_max:
        return False
    if takes > there - skip or takes > ring.area - at:
        return False
    copy_bytes(bytes_at(ring.entry, size), 0, memory, HEAD_SIZE + at + WORD, size)
    ring.taken = takes + skip
    row.head = ring.entry
    row.head_size = head_size
    row.records = ring.entry + head_size
    row.records_size = size - head_size
    row.stamp = word >> STAMP_SHIFT
    row.received_ms = ring.received_ms
    row.memory = 0
    row.sender = _CLIENT
    return True


@helper
def _has_room(memory: Bytes, ring: Any, groups: int) -> bool:
    """Whether the answer to so many groups finds room beside those for which it is kept, wherever the area ends."""
    needed = _LARGEST + _takes(_PLACE_AT + groups * _PLACE_SIZE) + ring.kept + ring.reserved
    if ANSWERS_SIZE - (ring.answered - ring.answers_read) >= needed:
        return True
    head = load_shared(memory, _ANSWERS_HEAD)
    if head < ring.answers_read or head > ring.answered:
        return False
    ring.answers_read = head
    return bool(ANSWERS_SIZE - (ring.answered - head) >= needed)


@helper
def _begin_answer(memory: Bytes, ring: Any, size: int) -> int:
    """Where the bytes of the next answer go; it is there once the tail is stored."""
    tail = ring.answered
    base = HEAD_SIZE + ring.area
    at = tail & (ANSWERS_SIZE - 1)
    takes = _takes(size)
    if at + takes > ANSWERS_SIZE:
        raw_store_i64(memory, base + at, PAD)
        tail += ANSWERS_SIZE - at
        at = 0
    raw_store_i64(memory, base + at, size)
    ring.answered = tail + takes
    return base + at + WORD  # type: ignore[no-any-return]


@helper
def _answer(memory: Bytes, ring: Any, row: Any, groups: int, appender: Appender) -> None:
    place = _begin_answer(memory, ring, _PLACE_AT + groups * _PLACE_SIZE)
    write_answer(memory, place, row, groups, appender)
    reach(appender[0][0], _BEFORE_ANSWER)
    store_shared(memory, _ANSWERS_TAIL, ring.answered)
    reach(appender[0][0], _ANSWERED)


@helper
def _serve_one(memory: Bytes, ring: Any, row: Any, answers: Bytes, appender: Appender) -> int:
    """Stores and publishes the next request, and answers it if that is due. EMPTY, or why it was not stored."""
    state = appender[0][0]
    reach(state, _BEFORE_TAKE)
    if not _copy_entry(memory, ring, row):
        return BROKEN
    if not _has_room(memory, ring, load_u16(bytes_at(row.head, row.head_size), _GROUPS_AT)):
        return FULL
    groups = append_row(row, appender)
    if groups == 0:
        return ROW
    ring.head += ring.taken
    store_shared(memory, _REQUESTS_HEAD, ring.head)
    reach(state, _TAKEN)
    if ring.keeps != 0:
        keep_answer(answers, row, groups, appender)
        ring.kept += _takes(row.answer_size)
    else:
        _answer(memory, ring, row, groups, appender)
    return EMPTY


@helper
def _is_to_be_woken(memory: Bytes, ring: Any) -> bool:
    """After an answer: whether the client sleeps, and put has not come back for that already."""
    full_fence()
    if load_shared(memory, _CLIENT_SLEEPS) == 0:
        ring.woken = 0
        return False
    woken = ring.woken != 0
    ring.woken = 1
    return not woken


@helper
def _wakes(ring: Any) -> bool:
    """Wakes the client; False where that is the caller's. A full pipe rings already."""
    if ring.write == 0:
        return False
    call_word(ring.write, ring.bell, ring.bell_byte, 1, 0)
    return True


@kernel(I64(WRITE, RINGS, REQUESTS, WRITE, APPENDER))
def serve_ring(memory: Bytes, rings: Rows, requests: Rows, answers: Bytes, appender: Appender) -> int:
    """Stores, publishes and answers PUT_OK to what is in the ring. Returns why it came back.

    `memory` is that of a put ring, `rings` its one row of RING. The requests stored since `appender`'s counters were 0
    have rows of `requests` from 0 on; the one behind them is that of a request which was not. Where answers are kept
    they stand in `answers`, one behind the other. Both have room for what a call may store, or it comes back sooner.
    APPENDED and STORE_TIMESTAMP are stored after each request, so that at most one lies behind them.
    """
    ring = rings[0]
    state = appender[0][0]
    spins_left = ring.spins_max
    full_fence()
    while (
        state.requests < requests.size and state.size < state.bytes_max and state.written + ANSWER_MAX <= answers.size
    ):
        seen = ring.tail
        spins = min(spins_left, ring.spins)
        spins_left -= spins
        # One that was awake behind its last answer has seen it.
        woken = state.requests == 0 or ring.keeps != 0 or ring.woken == 0
        ring.tail = load_shared(memory, _REQUESTS_TAIL)
        while ring.tail == ring.head:
            if spins <= 0:
                return EMPTY
            if not woken and load_shared(memory, _CLIENT_SLEEPS) != 0:
                woken = True  # it may have slept twice, and was seen asleep only
                if not _wakes(ring):
                    return ASLEEP
            spins -= 1
            pause()
            if spins & GIVE_WAY_EVERY == 0 and ring.give_way != 0 and not gives_way(ring.give_way):
                spins = 0
            ring.tail = load_shared(memory, _REQUESTS_TAIL)
        spins_left += spins
        if not _is_sound(ring, seen):
            ring.tail = seen
            return BROKEN
        if ring.tail != seen:
            look_at_clock(appender[0])
        why = _serve_one(memory, ring, requests[state.requests], answers, appender)
        if why != EMPTY:
            return why
        if ring.keeps == 0 and _is_to_be_woken(memory, ring) and not _wakes(ring):
            return ASLEEP
    return TURN


@kernel(I64(WRITE, RINGS, READ, REQUESTS_READ, I64, I64, I64))
def answer_ring(memory: Bytes, rings: Rows, answers: Bytes, requests: Rows, first: int, count: int, status: int) -> int:
    """Answers so many requests, from `first` on, of which `serve_ring` kept `answers` and rows; all at once.

    `status` is sent instead of PUT_OK. Returns the bytes for which room had been kept.
    """
    ring = rings[0]
    kept = 0
    for number in range(first, first + count):
        row = requests[number]
        place = _begin_answer(memory, ring, row.answer_size)
        copy_bytes(memory, place, answers, row.answer_at, row.answer_size)
        memory[place + _STATUS_AT] = status
        kept += _takes(row.answer_size)
    store_shared(memory, _ANSWERS_TAIL, ring.answered)
    return kept
