"""Puts from ZeroMQ's socket, many per call of the interpreter.

`take_rows` receives requests into a table of ZeroMQ's own messages, a row for each; `serve_rows` stores what is plain
of them, straight from those messages, with the code of `put_ring`; `answer_rows` sends what it has to say. Between the
calls the rows are the interpreter's: whatever is not plain waits in its row until it is looked at there.

libzmq is called by addresses in `calls` (`towline.link.native`), by the thread that holds the socket.
"""

from typing import Final

from towline.format.wire.frames import GROUP, PLACE, PUT, PUT_ANSWER, Kind
from towline.kernels.base.words import (
    copy_bytes,
    full_fence,
    load_i32,
    load_i64,
    load_shared,
    load_u8,
    load_u16,
    pause,
    store_shared,
)
from towline.kernels.jit.calls import bytes_at, call_int, call_word
from towline.kernels.jit.compiled import (
    GROUPS,
    I64,
    NUMBERS,
    NUMBERS_READ,
    READ,
    WRITE,
    Bytes,
    Numbers,
    Rows,
    helper,
    kernel,
)
from towline.limits import REQUEST_GROUPS_MAX

from .put_ring import (
    BYTES,
    BYTES_MAX,
    CHANGED,
    HELD,
    LOG_AT,
    OLDEST,
    OTHER,
    QUEUES,
    TERMS,
    TURN,
    Queues,
    Terms,
    is_as_before,
    store_plain,
    write_answer,
)

ROWS: Final = 4096  # of a table; a power of two
PEER_SIZE_MAX: Final = 256  # bytes of a ROUTER's name for a peer
UNHEARD_MAX: Final = 16  # peers whose puts are thrown away as they come; each has PEER_SIZE_MAX bytes for its name
MESSAGES: Final = 3  # of a row: peer, head, records
MESSAGE_SIZE: Final = 64  # bytes of a zmq_msg_t

# `calls`: addresses.
MSG_INIT: Final = 0
MSG_RECV: Final = 1
MSG_CLOSE: Final = 2
MSG_DATA: Final = 3
MSG_SIZE: Final = 4
MSG_MORE: Final = 5
MSG_SEND: Final = 6
SEND: Final = 7
ERRNO: Final = 8
SOCKET: Final = 9  # as it is now
TABLE: Final = 10  # of the messages
CALLS_SIZE: Final = 16

# Of a row.
HEAD: Final = 0  # address
HEAD_SIZE: Final = 1
RECORDS: Final = 2  # address
RECORDS_SIZE: Final = 3
PEER_SIZE: Final = 4
PARTS: Final = 5  # without the peer's name; 3 if more of the message is still to be received
ARRIVED: Final = 6  # monotonic ms
MEMORY: Final = 7  # bytes that it holds
MARK: Final = 8
ANSWER_AT: Final = 9  # in the answers
ANSWER_SIZE: Final = 10
LOG_END: Final = 11  # of the log behind it
ROW_SIZE: Final = 16

# MARK of a row.
PLAIN: Final = 0  # as far as is known
TRUSTED: Final = 1  # a process of this node sent it
STRANGE: Final = 2  # nobody greeted sent it, and was told so
CLOSED: Final = 3  # its messages are not held any more

# `marks`: words of the thread that calls `serve_rows` and of the one that watches it.
CURRENT: Final = 0  # the row that is served
STOP: Final = 1  # no other is to be begun
MARKS_SIZE: Final = 2

# Why `take_rows` came back, if not for an error: that is below 0, an errno.
NOTHING: Final = 0  # there is nothing more
ENOUGH: Final = 1  # as much was taken as may be
ODD: Final = 2  # what stands in the row behind the taken ones is no put
# `taken`: what it tells beside.
TAKEN: Final = 0
TAKEN_MEMORY: Final = 1

# Why `serve_rows` came back, beside TURN, OTHER and CHANGED of `put_ring`.
DONE: Final = 8
STOPPED: Final = 9

THROWN_MAX: Final = 65_536  # of a call
GROUP_MEMORY: Final = 256  # bytes that a group takes beside its topic: a request may be all groups, no records
_NOW: Final = 1  # ZMQ_DONTWAIT
_NOW_MORE: Final = 3  # and ZMQ_SNDMORE
_AGAIN: Final = 11
_INTERRUPTED: Final = 4
_PUT_KIND: Final = Kind.PUT.value
_PUT_SIZE: Final = PUT.size
_GROUPS_AT: Final = PUT.offset["groups"]
_ID_AT: Final = PUT.offset["request_id"]
_GROUP_SIZE: Final = GROUP.size
_COUNT_AT: Final = GROUP.offset["count"]
_SIZE_AT: Final = GROUP.offset["size"]
_TOPIC_SIZE_AT: Final = GROUP.offset["topic_size"]
_ANSWER_HEAD: Final = PUT_ANSWER.size
_PLACE_SIZE: Final = PLACE.size
ANSWERS_SIZE: Final = 8 * (_ANSWER_HEAD + REQUEST_GROUPS_MAX * _PLACE_SIZE)


@helper
def _message(calls: Numbers, number: int, which: int) -> int:
    """Address of one of a row's messages."""
    return calls[TABLE] + ((number & (ROWS - 1)) * MESSAGES + which) * MESSAGE_SIZE  # type: ignore[no-any-return]


@helper
def _receive(calls: Numbers, message: int) -> int:
    """Bytes of the next part, now in `message`; an errno below 0."""
    call_int(calls[MSG_INIT], message, 0, 0, 0)
    size = call_int(calls[MSG_RECV], message, calls[SOCKET], _NOW, 0)
    while size < 0:
        error = call_int(calls[ERRNO], 0, 0, 0, 0)
        if error != _INTERRUPTED:
            return -error
        size = call_int(calls[MSG_RECV], message, calls[SOCKET], _NOW, 0)
    return size


@helper
def _close(calls: Numbers, rows: Numbers, number: int) -> None:
    for which in range(MESSAGES):
        call_int(calls[MSG_CLOSE], _message(calls, number, which), 0, 0, 0)
    rows[(number & (ROWS - 1)) * ROW_SIZE + MARK] = CLOSED


@helper
def _groups_of(address: int, size: int) -> int:
    """Groups of a put whose head is whole, 0 of anything else."""
    head = bytes_at(address, size)
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


@helper
def _take_one(calls: Numbers, rows: Numbers, peers: Bytes, number: int, now_ms: int, peer_size: int) -> int:
    """The row of a message whose first part, the peer's name, has come; its groups, 0 for what is no put."""
    at = (number & (ROWS - 1)) * ROW_SIZE
    name = bytes_at(call_word(calls[MSG_DATA], _message(calls, number, 0), 0, 0, 0), peer_size)
    copy_bytes(peers, (number & (ROWS - 1)) * PEER_SIZE_MAX, name, 0, peer_size)
    head = _message(calls, number, 1)
    records = _message(calls, number, 2)
    rows[at + PEER_SIZE] = peer_size
    rows[at + HEAD_SIZE] = _receive(calls, head)
    rows[at + HEAD] = call_word(calls[MSG_DATA], head, 0, 0, 0)
    rows[at + PARTS] = 1
    rows[at + RECORDS] = rows[at + RECORDS_SIZE] = 0
    if call_int(calls[MSG_MORE], head, 0, 0, 0):
        rows[at + RECORDS_SIZE] = _receive(calls, records)
        rows[at + RECORDS] = call_word(calls[MSG_DATA], records, 0, 0, 0)
        rows[at + PARTS] = 3 if call_int(calls[MSG_MORE], records, 0, 0, 0) else 2
    else:
        call_int(calls[MSG_INIT], records, 0, 0, 0)
    groups = _groups_of(rows[at + HEAD], rows[at + HEAD_SIZE]) if rows[at + PARTS] == 2 else 0
    rows[at + ARRIVED] = now_ms
    rows[at + MARK] = PLAIN
    rows[at + MEMORY] = rows[at + HEAD_SIZE] + rows[at + RECORDS_SIZE] + groups * GROUP_MEMORY
    return groups


@helper
def _is_unheard(peers: Bytes, place: int, size: int, unheard: Bytes, sizes: Numbers) -> bool:
    """Whether the name at `place` is one of those."""
    for each in range(UNHEARD_MAX):
        if sizes[each] == 0:
            return False
        if sizes[each] == size:
            same = True
            for step in range(size):
                if peers[place + step] != unheard[each * PEER_SIZE_MAX + step]:
                    same = False
                    break
            if same:
                return True
    return False


@kernel(I64(NUMBERS_READ, NUMBERS, WRITE, I64, I64, I64, I64, I64, NUMBERS, READ, NUMBERS_READ))
def take_rows(
    calls: Numbers,
    rows: Numbers,
    peers: Bytes,
    first: int,
    count_max: int,
    bytes_max: int,
    now_ms: int,
    looks: int,
    taken: Numbers,
    unheard: Bytes,
    unheard_sizes: Numbers,
) -> int:
    """Receives puts into the rows from `first` on, until there is nothing more; or why else it came back.

    At most `count_max`, and no other once they hold `bytes_max`. It looks `looks` times for the first one. `peers`
    holds their senders' names. What is ODD stands in the row behind them, and is the caller's to close. Puts of
    `unheard` senders are thrown away: so many names, the first with a size of 0 behind the last.
    """
    taken[TAKEN] = taken[TAKEN_MEMORY] = 0
    thrown = 0
    while taken[TAKEN] < count_max and taken[TAKEN_MEMORY] < bytes_max and thrown < THROWN_MAX:
        number = first + taken[TAKEN]
        peer_size = _receive(calls, _message(calls, number, 0))
        while peer_size == -_AGAIN and looks > 0 and taken[TAKEN] == 0:
            looks -= 1
            pause()
            peer_size = _receive(calls, _message(calls, number, 0))
        if peer_size < 0:
            return NOTHING if peer_size == -_AGAIN else int(peer_size)
        groups = _take_one(calls, rows, peers, number, now_ms, peer_size)
        if groups == 0:
            return ODD
        place = (number & (ROWS - 1)) * PEER_SIZE_MAX
        if unheard_sizes[0] and _is_unheard(peers, place, peer_size, unheard, unheard_sizes):
            _close(calls, rows, number)
            thrown += 1
            continue
        taken[TAKEN] += 1
        taken[TAKEN_MEMORY] += rows[(number & (ROWS - 1)) * ROW_SIZE + MEMORY]
    return ENOUGH


@helper
def _serve_row(
    rows: Numbers,
    at: int,
    state: Numbers,
    limits: Numbers,
    positions: Bytes,
    answers: Bytes,
    written: int,
    log: Bytes,
    known: Queues,
    groups: Rows,
    terms: Terms,
) -> int:
    """Stores the request of the row at `at`, and says where its answer ends; `written` as it is, if it is not plain."""
    head_size = rows[at + HEAD_SIZE]
    head = bytes_at(rows[at + HEAD], head_size)
    frame = bytes_at(rows[at + RECORDS], rows[at + RECORDS_SIZE])
    physical = terms[1] + state[LOG_AT]
    count = store_plain(head, head_size, frame, state, limits, positions, log, known, groups, terms)
    if count == 0:
        return written
    end = write_answer(answers, written, load_i64(head, _ID_AT), groups, count, known, physical)
    rows[at + ANSWER_AT] = written
    rows[at + ANSWER_SIZE] = end - written
    rows[at + LOG_END] = terms[1] + state[LOG_AT]
    return end


@kernel(
    I64(NUMBERS, I64, I64, NUMBERS, NUMBERS_READ, WRITE, NUMBERS_READ, WRITE, WRITE, WRITE, QUEUES, GROUPS, TERMS),
)
def serve_rows(
    rows: Numbers,
    first: int,
    count: int,
    state: Numbers,
    limits: Numbers,
    positions: Bytes,
    watched: Numbers,
    marks: Bytes,
    answers: Bytes,
    log: Bytes,
    known: Queues,
    groups: Rows,
    terms: Terms,
) -> int:
    """Stores and publishes the requests of `count` rows from `first` on, within `limits`. Returns why it came back.

    `state` says how many requests went, `answers` gets PUT_OK to each, as the rows say. `marks` are MARKS_SIZE words:
    another thread that sets STOP and then, behind a fence, reads CURRENT knows which rows will not be begun. The rest
    is as in `serve_ring`; `groups` are rows for as many groups as a request may have.
    """
    written = 0
    full_fence()
    for number in range(first, first + count):
        at = (number & (ROWS - 1)) * ROW_SIZE
        if state[BYTES] >= limits[BYTES_MAX] or written + ANSWERS_SIZE // 8 > answers.size:
            return TURN
        store_shared(marks, 8 * CURRENT, number)
        full_fence()
        if load_shared(marks, 8 * STOP) != 0:
            return STOPPED
        if not is_as_before(positions, watched):
            return CHANGED
        if rows[at + MARK] != PLAIN or rows[at + ARRIVED] < limits[OLDEST]:
            return OTHER
        end = _serve_row(rows, at, state, limits, positions, answers, written, log, known, groups, terms)
        if end == written:
            return OTHER
        written = end
        state[HELD] += rows[at + MEMORY]
    return DONE


@kernel(I64(NUMBERS_READ, NUMBERS, READ, I64, I64, I64))
def answer_rows(calls: Numbers, rows: Numbers, answers: Bytes, address: int, first: int, count: int) -> int:
    """Sends `answers`, which stand at `address`, to the peers of so many rows, and closes these.

    Returns `count`; or the rows before the first whose peer could not be told, which is closed too. Its errno stands in
    the place of its answer.
    """
    for step in range(count):
        number = first + step
        at = (number & (ROWS - 1)) * ROW_SIZE
        sent = call_int(calls[MSG_SEND], _message(calls, number, 0), calls[SOCKET], _NOW_MORE, 0)
        if sent >= 0:
            sent = call_int(calls[SEND], calls[SOCKET], address + rows[at + ANSWER_AT], rows[at + ANSWER_SIZE], _NOW)
        error = call_int(calls[ERRNO], 0, 0, 0, 0) if sent < 0 else 0
        _close(calls, rows, number)
        if error:
            rows[at + ANSWER_AT] = error
            return step
    return count


@kernel(I64(NUMBERS_READ, NUMBERS, I64, I64))
def close_rows(calls: Numbers, rows: Numbers, first: int, count: int) -> int:
    """Lets go of the messages of so many rows."""
    for number in range(first, first + count):
        _close(calls, rows, number)
    return count
