"""Put requests of ZeroMQ's socket: received into a table of ZeroMQ's own messages, and answered from it.

`receive_rows` fills rows of REQUEST, one for each message; the append stores them straight from these messages;
`answer_rows` sends what it has to say, and releases them. Between the calls the rows are the interpreter's.

libzmq is called by addresses in `calls` (`towline.link.native`), by the thread that holds the socket.
"""

from typing import Any, Final

import numpy as np

from towline.kernels.base.put_head import groups_in
from towline.kernels.base.words import copy_bytes, pause
from towline.kernels.jit.calls import bytes_at, call_int, call_word
from towline.kernels.jit.compiled import (
    I64,
    NUMBERS_READ,
    READ,
    REQUESTS,
    WRITE,
    Bytes,
    Numbers,
    Rows,
    helper,
    kernel,
    rows_of,
)
from towline.kernels.jit.rows import RequestStatus, Sender

from .append import ANSWER_MAX

ROWS: Final = 4096  # of a table; a power of two
PEER_SIZE_MAX: Final = 256  # bytes of a ROUTER's name for a peer
UNHEARD_MAX: Final = 16  # peers whose puts are thrown away as they come; each has PEER_SIZE_MAX bytes for its name
MESSAGES: Final = 3  # of a row: peer, head, records
MESSAGE_SIZE: Final = 64  # bytes of a zmq_msg_t

FUNCTIONS: Final = (
    "zmq_msg_init",
    "zmq_msg_recv",
    "zmq_msg_close",
    "zmq_msg_data",
    "zmq_msg_more",
    "zmq_msg_send",
    "zmq_send",
    "zmq_errno",
)
# The socket as kernels see it: addresses of libzmq's functions, of the socket as it is now, and of the messages; and
# how many rows the last `receive_rows` filled, and the bytes of memory that they hold.
SOCKET: Final = np.dtype(
    [(name, "i8") for name in (*FUNCTIONS, "socket", "messages", "received", "received_memory")], align=True
)
SOCKETS: Final = rows_of(SOCKET)

# Why `receive_rows` came back, if not for an error: that is below 0, an errno.
NOTHING: Final = 0  # there is nothing more
ENOUGH: Final = 1  # as much was taken as may be
ODD: Final = 2  # what stands in the row behind the taken ones is no put

THROWN_MAX: Final = 65_536  # of a call
GROUP_MEMORY: Final = 256  # bytes that a group takes beside its topic: a request may be all groups, no records
_NOW: Final = 1  # ZMQ_DONTWAIT
_NOW_MORE: Final = 3  # and ZMQ_SNDMORE
_AGAIN: Final = 11
_INTERRUPTED: Final = 4
ANSWERS_SIZE: Final = 8 * ANSWER_MAX
_WAITING: Final = RequestStatus.WAITING.value
_CLOSED: Final = RequestStatus.CLOSED.value
_CLIENT: Final = Sender.CLIENT.value


@helper
def _message(socket: Any, number: int, which: int) -> int:
    """Address of one of a row's messages."""
    return socket.messages + ((number & (ROWS - 1)) * MESSAGES + which) * MESSAGE_SIZE  # type: ignore[no-any-return]


@helper
def _receive(socket: Any, message: int) -> int:
    """Bytes of the next part, now in `message`; an errno below 0."""
    call_int(socket.zmq_msg_init, message, 0, 0, 0)
    size = call_int(socket.zmq_msg_recv, message, socket.socket, _NOW, 0)
    while size < 0:
        error = call_int(socket.zmq_errno, 0, 0, 0, 0)
        if error != _INTERRUPTED:
            return -error
        size = call_int(socket.zmq_msg_recv, message, socket.socket, _NOW, 0)
    return size


@helper
def _close(socket: Any, requests: Rows, number: int) -> None:
    for which in range(MESSAGES):
        call_int(socket.zmq_msg_close, _message(socket, number, which), 0, 0, 0)
    requests[number & (ROWS - 1)].status = _CLOSED


@helper
def _receive_row(socket: Any, row: Any, peers: Bytes, number: int, now_ms: int, peer_size: int) -> int:
    """Fills the row of a message whose first part, the peer's name, has come; its groups, 0 for what is no put."""
    name = bytes_at(call_word(socket.zmq_msg_data, _message(socket, number, 0), 0, 0, 0), peer_size)
    copy_bytes(peers, (number & (ROWS - 1)) * PEER_SIZE_MAX, name, 0, peer_size)
    head = _message(socket, number, 1)
    records = _message(socket, number, 2)
    row.peer_size = peer_size
    row.head_size = _receive(socket, head)
    row.head = call_word(socket.zmq_msg_data, head, 0, 0, 0)
    row.parts = 1
    row.records = row.records_size = 0
    if call_int(socket.zmq_msg_more, head, 0, 0, 0):
        row.records_size = _receive(socket, records)
        row.records = call_word(socket.zmq_msg_data, records, 0, 0, 0)
        row.parts = 3 if call_int(socket.zmq_msg_more, records, 0, 0, 0) else 2
    else:
        call_int(socket.zmq_msg_init, records, 0, 0, 0)
    groups = groups_in(bytes_at(row.head, row.head_size)) if row.parts == 2 else 0
    row.received_ms = now_ms
    row.status = _WAITING
    row.sender = _CLIENT
    row.memory = row.head_size + row.records_size + groups * GROUP_MEMORY
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


@kernel(I64(SOCKETS, REQUESTS, WRITE, I64, I64, I64, I64, I64, READ, NUMBERS_READ))
def receive_rows(
    sockets: Rows,
    requests: Rows,
    peers: Bytes,
    first: int,
    count_max: int,
    bytes_max: int,
    now_ms: int,
    spins: int,
    unheard: Bytes,
    unheard_sizes: Numbers,
) -> int:
    """Receives puts into the rows from `first` on, until there is nothing more; or why else it came back.

    At most `count_max`, and no other once they hold `bytes_max`. It spins `spins` times for the first one. `peers`
    holds their senders' names. What is ODD stands in the row behind them, and is the caller's to close. Puts of
    `unheard` senders are thrown away: so many names, the first with a size of 0 behind the last.
    """
    socket = sockets[0]
    socket.received = socket.received_memory = 0
    thrown = 0
    while socket.received < count_max and socket.received_memory < bytes_max and thrown < THROWN_MAX:
        number = first + socket.received
        peer_size = _receive(socket, _message(socket, number, 0))
        while peer_size == -_AGAIN and spins > 0 and socket.received == 0:
            spins -= 1
            pause()
            peer_size = _receive(socket, _message(socket, number, 0))
        if peer_size < 0:
            return NOTHING if peer_size == -_AGAIN else int(peer_size)
        row = requests[number & (ROWS - 1)]
        groups = _receive_row(socket, row, peers, number, now_ms, peer_size)
        if groups == 0:
            return ODD
        place = (number & (ROWS - 1)) * PEER_SIZE_MAX
        if unheard_sizes[0] and _is_unheard(peers, place, peer_size, unheard, unheard_sizes):
            _close(socket, requests, number)
            thrown += 1
            continue
        socket.received += 1
        socket.received_memory += row.memory
    return ENOUGH


@kernel(I64(SOCKETS, REQUESTS, I64, I64, I64))
def answer_rows(sockets: Rows, requests: Rows, answers: int, first: int, count: int) -> int:
    """Sends the answers, which stand at address `answers`, to the peers of so many rows, and closes these.

    Returns `count`; or the rows before the first whose peer could not be told, which is closed too. Its errno stands in
    the place of its answer.
    """
    socket = sockets[0]
    for step in range(count):
        number = first + step
        row = requests[number & (ROWS - 1)]
        sent = call_int(socket.zmq_msg_send, _message(socket, number, 0), socket.socket, _NOW_MORE, 0)
        if sent >= 0:
            sent = call_int(socket.zmq_send, socket.socket, answers + row.answer_at, row.answer_size, _NOW)
        error = call_int(socket.zmq_errno, 0, 0, 0, 0) if sent < 0 else 0
        _close(socket, requests, number)
        if error:
            row.answer_at = error
            return step
    return count


@kernel(I64(SOCKETS, REQUESTS, I64, I64))
def close_rows(sockets: Rows, requests: Rows, first: int, count: int) -> int:
    """Closes the messages of so many rows."""
    for number in range(first, first + count):
        _close(sockets[0], requests, number)
    return count
