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
    types,
)
from towline.kernels.put.put_ring import GIVE_WAY_EVERY, gives_way
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
CARRY_SIZE: Final = 2 * MIB
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

_types: Any = types
# The way to put: memory of the ring, way, queues that may be sent to, head of a put, properties that a broker adds,
# its host, requests without an answer, their keys, sizes of their records.
PUTTING: Final = _types.Tuple((WRITE, WAYS, TOPICS, WRITE, READ, READ, PENDINGS, WRITE, WORDS))
Putting = tuple[Bytes, Rows, Topics, Bytes, Bytes, Bytes, Rows, Bytes, Words]
# Those who ask: the turn; by descriptor a seat and HOST_MAX bytes of a host; the descriptor of a connection; the
# carries, CARRY_SIZE bytes each.
CLIENTS: Final = _types.Tuple((TURNS, SEATS, WRITE, WORDS, WRITE))
Clients = tuple[Rows, Rows, Bytes, Words, Bytes]
# Room: for what one client has sent, its rows, their text; for answers, their rows; EVENTS_SIZE bytes.
ROOM: Final = _types.Tuple((WRITE, SENDS, WRITE, WRITE, ANSWERS, WRITE))
Room = tuple[Bytes, Rows, Bytes, Bytes, Rows, Bytes]

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
SPINS_MAX: Final = 3_000  # some 100 us, as put's
SPINS_MIN: Final = 30

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
def _put_frames(putting: Putting, room: Room, turn: Any, host: Bytes, came: Bytes, size: int) -> int:
    """Puts the plain sends with which the first `size` bytes of `came` begin; returns how many bytes they are."""
    memory, ways, topics, head, suffix, _, pendings, keys, sizes = putting
    sends, text = room[1], room[2]
    at = 0
    ways[0].why = DONE
    while at < size:
        rest = came[at:]
        count = read_sends(rest, size - at, sends, text)
        done = put_sends(memory, ways, rest, sends, 0, count, text, topics, head, suffix, host, pendings, keys, sizes)
        if done:
            at += sends[done - 1].begin + sends[done - 1].size
            turn.messages += done
        if done < count or count == 0:
            break
    return at


@helper
def _serve(putting: Putting, clients: Clients, room: Room, descriptor: int, now_ms: int) -> int:
    """Takes what a client has sent; OVER, or why the interpreter has to go on with it."""
    turns, seats, hosts, _, carried = clients
    turn, way, seat, data = turns[0], putting[1][0], seats[descriptor], room[0]
    size = _receive(turn, seat, descriptor, carried, data)
    if size <= 0:
        return CLIENT  # it has gone: that shows again
    seat.heard_ms = now_ms
    came = data
    if seat.carry != 0:
        if seat.filled < seat.wanted:
            return OVER
        size = seat.wanted
        came = carried[CARRY_SIZE * (seat.carry - 1) : CARRY_SIZE * (seat.carry - 1) + size]
    way.connection = seat.number
    way.born_size = seat.born_size
    way.host_bits = seat.host_bits | turn.store_bits
    way.puts = seat.puts
    host = hosts[HOST_MAX * descriptor : HOST_MAX * descriptor + seat.born_size]
    taken = _put_frames(putting, room, turn, host, came, size)
    if taken == size:
        if seat.carry != 0:
            turn.carries |= 1 << (seat.carry - 1)
            seat.carry = 0
        return OVER
    if seat.carry == 0 and way.why == DONE and _carry(turn, seat, carried, data, taken, size):
        return OVER
    turn.left_of = descriptor
    turn.left_at = taken
    turn.left_end = size
    return LEFT


@helper
def _serve_clients(putting: Putting, clients: Clients, room: Room) -> int:
    """Takes what clients have sent, up to the first of whom something is left; why the interpreter has to go on."""
    turn, seats, events = clients[0][0], clients[1], room[5]
    now_ms = _now_ms(turn, events)
    putting[1][0].stamp = 1 + now_ms % STAMPS
    store_i64(putting[3], _DEADLINE_AT, now_ms + turn.wall_ms)
    address = events.ctypes.data + _CLIENTS_AT
    count = call_int(turn.epoll_wait, turn.clients, address, CLIENTS_MAX, 0)
    why = OVER
    number = 0
    while number < count and why != LEFT:
        place = _CLIENTS_AT + EVENT * number
        descriptor = _descriptor(events, place)
        if descriptor >= seats.size or raw_u32(events, place) != _EPOLLIN or seats[descriptor].number == 0:
            why = CLIENT
        else:
            found = _serve(putting, clients, room, descriptor, now_ms)
            why = found if found != OVER else why
        number += 1
    return why


@helper
def _await_put(memory: Bytes, way: Any, turn: Any, events: Bytes) -> None:
    """Wakes put, or waits for its answer where it is awake."""
    if turn.failpoint != 0:
        call_int(turn.failpoint, PLAIN_PUT, 0, 0, 0)
    full_fence()
    if load_shared(memory, _PUT_SLEEPS) != 0:
        call_word(turn.write, turn.put_bell, events.ctypes.data + _SCRATCH_AT, 1, 0)
        return
    spins = turn.spins
    while spins > 0 and load_shared(memory, _ANSWERS_TAIL) == way.answers_head:
        spins -= 1
        pause()
        if spins & GIVE_WAY_EVERY == 0 and not gives_way(turn.give_way):
            spins = 0
    # Where answers come late, as with SYNC_FLUSH, spins are for nothing.
    turn.spins = min(SPINS_MAX, 2 * turn.spins) if spins > 0 else max(SPINS_MIN, turn.spins >> 1)


@helper
def _is_left(answers: Rows, left: int, connection: int) -> bool:
    """Whether something of a connection is left already, so that what follows has to wait for it."""
    number = 0
    while number < left and answers[number].connection != connection:
        number += 1
    return number < left


@helper
def _send_rows(clients: Clients, out: Bytes, answers: Rows, count: int) -> int:
    """Sends what was answered; how many rows are left, at the begin of `answers`, for the interpreter."""
    turn, seats, places = clients[0][0], clients[1], clients[3]
    left = 0
    for number in range(count):
        row = answers[number]
        descriptor = places[row.connection & (PLACES - 1)]
        sent = 0
        if seats[descriptor].number == row.connection and not _is_left(answers, left, row.connection):
            address = out.ctypes.data + row.start
            sent = max(0, call_word(turn.send, descriptor, address, row.size, _MSG_DONTWAIT | _MSG_NOSIGNAL))
        if sent < row.size:
            answers[left].connection = row.connection
            answers[left].start = row.start + sent
            answers[left].size = row.size - sent
            left += 1
    return left


@helper
def _answer(putting: Putting, clients: Clients, room: Room) -> bool:
    """Sends the answers that are there; whether the interpreter has to go on with them."""
    memory, ways, _, _, _, store, pendings, keys, sizes = putting
    turn, out, answers = clients[0][0], room[3], room[4]
    way = ways[0]
    way.why = FULL
    while way.why == FULL and turn.answered == 0:
        count = take_answers(memory, ways, pendings, keys, sizes, store, out, answers)
        turn.answered = _send_rows(clients, out, answers, count)
    left = turn.answered != 0 or way.why == OTHER or way.why == BROKEN
    return bool(left or load_shared(memory, _CUT) != 0)


@helper
def _note_shown(turn: Any, events: Bytes, shown: int) -> tuple[bool, int]:
    """Whether clients have sent something, and SHOWN where something else has come."""
    asked = False
    why = OVER
    for number in range(shown):
        descriptor = _descriptor(events, EVENT * number)
        if descriptor == turn.clients:
            asked = True
        elif descriptor == turn.bell:
            call_word(turn.read, descriptor, events.ctypes.data + _SCRATCH_AT, _SCRATCH, 0)
        else:
            why = SHOWN
            turn.shown = shown
    return asked, why


@kernel(I64(PUTTING, CLIENTS, ROOM))
def stay(putting: Putting, clients: Clients, room: Room) -> int:
    """Serves clients that ask again at once; returns why it came back. See `put_sends` and `take_answers`."""
    memory, way, turn, events = putting[0], putting[1][0], clients[0][0], room[5]
    turn.messages = 0
    turn.left_of = 0
    turn.answered = 0
    turn.shown = 0
    why = OVER
    while why == OVER and _now_ms(turn, events) < turn.until_ms:
        shown = _sleep(memory, way, turn, events)
        if shown < 0:
            return IDLE
        asked, why = _note_shown(turn, events, shown)
        tail = way.tail
        if asked:
            found = _serve_clients(putting, clients, room)
            why = found if found != OVER else why
        if way.tail != tail:
            _await_put(memory, way, turn, events)
        if _answer(putting, clients, room) and why == OVER:
            why = ANSWER
    return why
