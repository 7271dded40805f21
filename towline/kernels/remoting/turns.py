"""Turns of clients that ask again at once: from their sockets into put's ring and back, without the interpreter.

`stay` waits at descriptors, takes what clients have sent, has `put_sends` store the plain sends among it, and sends the
answers that put gives. It comes back where something else is to be done, and has lost nothing by then: bytes that were
received and not taken stand in `data`, answers that a client did not take at once in `out`. Of a frame that has not
come whole the beginning stays in one of a few carries, which get its rest straight from the socket.
"""

from typing import Any, Final

import numpy as np

from towline.format.remoting.command import LENGTH
from towline.format.wire.frames import PUT
from towline.format.wire.put_ring import STAMPS, WORD, Word
from towline.kernels.base.words import (
    copy_bytes,
    full_fence,
    load_shared,
    load_u32,
    pause,
    raw_i64,
    raw_u32,
    store_i64,
    store_shared,
    trailing_zeros,
)
from towline.kernels.jit.calls import call_int, call_word
from towline.kernels.jit.compiled import (
    I64,
    READ,
    WORDS,
    WRITE,
    Bytes,
    Rows,
    Words,
    helper,
    kernel,
    rows_of,
)
from towline.kernels.put.put_ring import GIVE_WAY_EVERY
from towline.limits import MIB

from .puts import ANSWERS, BROKEN, DONE, FULL, OTHER, PENDINGS, TOPICS, WAYS, Topics, put_sends, take_answers
from .sends import SENDS, read_sends

# A client's place, by its descriptor: what its sends need, while nothing of it waits in the interpreter.
SEAT: Final = np.dtype(
    [
        ("number", "i8"),  # of its connection; 0: nobody
        ("born_size", "i8"),  # bytes of its host
        ("host_bits", "i8"),  # of SYSFLAG, for its host
        ("puts", "i8"),  # whether it may send puts of ours
        ("heard_ms", "i8"),  # monotonic: when something came of it
        ("carry", "i8"),  # number of the carry that it has, from 1 on; 0: none
        ("filled", "i8"),  # bytes in that
        ("wanted", "i8"),  # bytes of the frame that began there
    ],
    align=True,
)
SEATS: Final = rows_of(SEAT)
HOST_MAX: Final = 24  # bytes of a seat in `hosts`
CARRIES: Final = 16
CARRY_SIZE: Final = MIB
PLACES: Final = 1 << 16  # of descriptors, by the lowest bits of a connection's number

ALL_CARRIES: Final = (1 << CARRIES) - 1  # are free

# What a stay needs beside the way to put, and why it ended.
TURN: Final = np.dtype(
    [
        ("glances", "i8"),  # epoll of all that ends a sleep
        ("clients", "i8"),  # epoll of the clients' sockets
        ("bell", "i8"),  # that put rings for answers
        ("put_bell", "i8"),
        ("until_ms", "i8"),  # monotonic
        ("wall_ms", "i8"),  # from the monotonic clock to the wall clock's time by which put has to take a request
        ("carries", "i8"),  # bit n: carry n + 1 is free
        ("store_bits", "i8"),  # of SYSFLAG, for the broker's host
        ("spins", "i8"),  # at the ring for an answer, while put is awake
        ("failpoint", "i8"),
        ("epoll_wait", "i8"),  # addresses of the system's functions
        ("recv", "i8"),
        ("send", "i8"),
        ("read", "i8"),
        ("write", "i8"),
        ("give_way", "i8"),
        ("clock", "i8"),
        ("messages", "i8"),  # plain sends that were taken
        ("left_of", "i8"),  # descriptor of who sent more than was taken, or 0
        ("left_at", "i8"),  # where in `data`, or in its carry, that begins,
        ("left_end", "i8"),  # and ends
        ("answered", "i8"),  # rows of answers that are still to be sent
        ("shown", "i8"),  # events of `glances`
    ],
    align=True,
)
TURNS: Final = rows_of(TURN)

# Why `stay` came back.
OVER: Final = 0  # the time is
IDLE: Final = 1  # nobody asked for SOON_MS
SHOWN: Final = 2  # something else showed
LEFT: Final = 3  # bytes of a client are the interpreter's
CLIENT: Final = 4  # so is a client
ANSWER: Final = 5  # so is an answer, or what is left of one

EVENT: Final = 12  # bytes of an epoll_event
SHOWN_MAX: Final = 16
CLIENTS_MAX: Final = 64
EVENTS_SIZE: Final = EVENT * (SHOWN_MAX + CLIENTS_MAX) + 64
PLAIN_PUT: Final = 0  # a failpoint
FAILPOINTS: Final = ("remoting.plain_put",)
SOON_MS: Final = 1

_LENGTH: Final = LENGTH.size
_CLIENTS_AT: Final = EVENT * SHOWN_MAX
_SCRATCH_AT: Final = EVENT * (SHOWN_MAX + CLIENTS_MAX)
_SCRATCH: Final = 64
_EPOLLIN: Final = 1
_MSG_DONTWAIT: Final = 0x40
_MSG_NOSIGNAL: Final = 0x4000
_CLOCK_MONOTONIC: Final = 1
_MS_PER_S: Final = 1_000
_NS_PER_MS: Final = 1_000_000
_DEADLINE_AT: Final = PUT.offset["deadline"]
_ANSWERS_TAIL: Final = WORD * Word.ANSWERS_TAIL.value
_CLIENT_SLEEPS: Final = WORD * Word.CLIENT_SLEEPS.value
_PUT_SLEEPS: Final = WORD * Word.PUT_SLEEPS.value
_CUT: Final = WORD * Word.CUT.value


@helper
def _now_ms(turn: Any, events: Bytes) -> int:
    """The monotonic clock."""
    call_int(turn.clock, _CLOCK_MONOTONIC, events.ctypes.data + _SCRATCH_AT, 0, 0)
    return raw_i64(events, _SCRATCH_AT) * _MS_PER_S + raw_i64(events, _SCRATCH_AT + 8) // _NS_PER_MS


@helper
def _sleep(memory: Bytes, way: Any, turn: Any, events: Bytes) -> int:
    """Waits for SOON_MS at most, and not where an answer is there (H12); how many events there are, or -1 where nothing
    came."""
    store_shared(memory, _CLIENT_SLEEPS, 1)
    full_fence()
    there = load_shared(memory, _ANSWERS_TAIL) != way.answers_head or load_shared(memory, _CUT) != 0
    timeout_ms = 0 if there else SOON_MS
    count = call_int(turn.epoll_wait, turn.glances, events.ctypes.data, SHOWN_MAX, timeout_ms)
    store_shared(memory, _CLIENT_SLEEPS, 0)
    if count > 0:
        return count
    return 0 if there else -1


@helper
def _descriptor(events: Bytes, at: int) -> int:
    return raw_u32(events, at + 4)


@helper
def _put_frames(
    memory: Bytes,
    ways: Rows,
    turn: Any,
    seat: Any,
    host: Bytes,
    data: Bytes,
    size: int,
    sends: Rows,
    text: Bytes,
    topics: Topics,
    head: Bytes,
    suffix: Bytes,
    pendings: Rows,
    keys: Bytes,
    sizes: Words,
) -> int:
    """Puts the plain sends with which the first `size` bytes of `data` begin; returns how many bytes they are."""
    way = ways[0]
    way.connection = seat.number
    way.born_size = seat.born_size
    way.host_bits = seat.host_bits | turn.store_bits
    way.puts = seat.puts
    at = 0
    way.why = DONE
    while at < size:
        came = data[at:]
        count = read_sends(came, size - at, sends, text)
        done = put_sends(memory, ways, came, sends, 0, count, text, topics, head, suffix, host, pendings, keys, sizes)
        if done:
            at += sends[done - 1].begin + sends[done - 1].size
            turn.messages += done
        if done < count or count == 0:
            break
    return at


@helper
def _frame_size(data: Bytes, at: int, end: int) -> int:
    """Bytes of the frame that begins at `at`, of which not all have come; 0 where that cannot be told, or none has so
    many."""
    if end - at < _LENGTH:
        return 0
    size = _LENGTH + load_u32(data, at)
    return size if size <= CARRY_SIZE else 0


@helper
def _carry(turn: Any, seat: Any, carried: Bytes, data: Bytes, at: int, end: int) -> bool:
    """Keeps the beginning of a frame until the rest has come; False where there is no carry for it."""
    wanted = _frame_size(data, at, end)
    if wanted <= end - at or turn.carries == 0:
        return False
    bit = trailing_zeros(turn.carries)
    turn.carries &= ~(1 << bit)
    seat.carry = bit + 1
    seat.filled = end - at
    seat.wanted = wanted
    copy_bytes(carried, CARRY_SIZE * bit, data, at, end - at)
    return True


@helper
def _receive(turn: Any, seat: Any, descriptor: int, carried: Bytes, data: Bytes) -> int:
    """Receives into the client's carry, or into `data`; how many bytes."""
    if seat.carry == 0:
        return call_word(turn.recv, descriptor, data.ctypes.data, data.size, _MSG_DONTWAIT)
    address = carried.ctypes.data + CARRY_SIZE * (seat.carry - 1) + seat.filled
    size = call_word(turn.recv, descriptor, address, seat.wanted - seat.filled, _MSG_DONTWAIT)
    if size > 0:
        seat.filled += size
    return size


@helper
def _send_answers(turn: Any, seats: Rows, places: Words, out: Bytes, answers: Rows, count: int) -> int:
    """Sends what was answered; how many rows are left, at the begin of `answers`, for the interpreter."""
    left = 0
    for number in range(count):
        row = answers[number]
        descriptor = places[row.connection & (PLACES - 1)]
        sent = 0
        if descriptor > 0 and seats[descriptor].number == row.connection:
            address = out.ctypes.data + row.start
            sent = call_word(turn.send, descriptor, address, row.size, _MSG_DONTWAIT | _MSG_NOSIGNAL)
            sent = max(0, sent)
        if sent < row.size:
            answers[left].connection = row.connection
            answers[left].start = row.start + sent
            answers[left].size = row.size - sent
            left += 1
    return left


@kernel(
    I64(
        WRITE, WAYS, TURNS, SEATS, WRITE, WORDS, WRITE, WRITE, SENDS, WRITE, TOPICS, WRITE, READ, READ, PENDINGS, WRITE,
        WORDS, WRITE, ANSWERS, WRITE,
    )
)  # fmt: skip
def stay(
    memory: Bytes,
    ways: Rows,
    turns: Rows,
    seats: Rows,
    hosts: Bytes,
    places: Words,
    carried: Bytes,
    data: Bytes,
    sends: Rows,
    text: Bytes,
    topics: Topics,
    head: Bytes,
    suffix: Bytes,
    store: Bytes,
    pendings: Rows,
    keys: Bytes,
    sizes: Words,
    out: Bytes,
    answers: Rows,
    events: Bytes,
) -> int:
    """Serves clients that ask again at once; returns why it came back. See `put_sends` and `take_answers`.

    `seats` and `hosts` have a row and HOST_MAX bytes for each descriptor, `places` the descriptor of a connection.
    `carried` are CARRIES times CARRY_SIZE bytes, `data` what one client has sent without a carry, `events` room for
    EVENTS_SIZE bytes.
    """
    way = ways[0]
    turn = turns[0]
    turn.messages = 0
    turn.left_of = 0
    turn.answered = 0
    turn.shown = 0
    why = OVER
    while why == OVER:
        now_ms = _now_ms(turn, events)
        if now_ms >= turn.until_ms:
            break
        shown = _sleep(memory, way, turn, events)
        if shown < 0:
            return IDLE
        asked = False
        for number in range(shown):
            descriptor = _descriptor(events, EVENT * number)
            if descriptor == turn.clients:
                asked = True
            elif descriptor == turn.bell:
                call_word(turn.read, descriptor, events.ctypes.data + _SCRATCH_AT, _SCRATCH, 0)
            else:
                why = SHOWN
                turn.shown = shown
        before = way.tail
        if asked:
            now_ms = _now_ms(turn, events)
            way.stamp = 1 + now_ms % STAMPS
            store_i64(head, _DEADLINE_AT, now_ms + turn.wall_ms)
            address = events.ctypes.data + _CLIENTS_AT
            for number in range(max(0, call_int(turn.epoll_wait, turn.clients, address, CLIENTS_MAX, 0))):
                place = _CLIENTS_AT + EVENT * number
                descriptor = _descriptor(events, place)
                if descriptor >= seats.size or raw_u32(events, place) != _EPOLLIN or seats[descriptor].number == 0:
                    why = CLIENT
                    continue
                seat = seats[descriptor]
                size = _receive(turn, seat, descriptor, carried, data)
                if size <= 0:
                    why = CLIENT  # it has gone: that shows again
                    continue
                seat.heard_ms = now_ms
                if seat.carry != 0 and seat.filled < seat.wanted:
                    continue
                came = data
                if seat.carry != 0:
                    size = seat.wanted
                    came = carried[CARRY_SIZE * (seat.carry - 1) : CARRY_SIZE * (seat.carry - 1) + size]
                host = hosts[HOST_MAX * descriptor : HOST_MAX * descriptor + seat.born_size]
                taken = _put_frames(
                    memory, ways, turn, seat, host, came, size, sends, text, topics, head, suffix, pendings, keys,
                    sizes,
                )  # fmt: skip
                if taken == size:
                    if seat.carry != 0:
                        turn.carries |= 1 << (seat.carry - 1)
                        seat.carry = 0
                    continue
                if seat.carry == 0 and way.why == DONE and _carry(turn, seat, carried, data, taken, size):
                    continue
                turn.left_of = descriptor
                turn.left_at = taken
                turn.left_end = size
                why = LEFT
                break
        if way.tail != before:
            if turn.failpoint != 0:
                call_int(turn.failpoint, PLAIN_PUT, 0, 0, 0)
            full_fence()
            if load_shared(memory, _PUT_SLEEPS) != 0:
                call_word(turn.write, turn.put_bell, events.ctypes.data + _SCRATCH_AT, 1, 0)
            else:
                spins = turn.spins
                while spins > 0 and load_shared(memory, _ANSWERS_TAIL) == way.answers_head:
                    spins -= 1
                    pause()
                    if spins & GIVE_WAY_EVERY == 0:
                        call_int(turn.give_way, 0, 0, 0, 0)
        while True:
            count = take_answers(memory, ways, pendings, keys, sizes, store, out, answers)
            left = _send_answers(turn, seats, places, out, answers, count)
            if left:
                turn.answered = left
                why = ANSWER if why == OVER else why
                break
            if way.why != FULL:
                break
        if way.why == OTHER or way.why == BROKEN or load_shared(memory, _CUT) != 0:
            why = ANSWER if why == OVER else why
    return why
