"""A table of puts that were received from the socket, held as ZeroMQ messages, which kernels fill and empty.

Rows are numbered as they arrive. Rows from `_head` to `_open` are in use, by the append or by a caller of `next`; rows
from there to `_tail` wait. Numbers start again at 0 when no row is left.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from towline.fence import fence
from towline.format.wire.frames import Buffer, decode_put
from towline.kernels.jit.compiled import Numbers, Rows
from towline.kernels.jit.rows import REQUEST, RequestStatus, Sender, fields_of
from towline.kernels.put import append
from towline.kernels.put import socket_rows as kernel
from towline.limits import REQUEST_GROUPS_MAX
from towline.link.native import UNDELIVERED, Message, address_of, bytes_from, failure
from towline.link.server import Request, Server
from towline.node.process.secret import SCHEDULE_ROLE

_MASK: Final = kernel.ROWS - 1


@dataclass(frozen=True, slots=True)
class Detached:
    """PUT_OK to stored requests whose rows were released: senders, answers, ends in the log, times of receipt."""

    peers: Sequence[bytes]
    answers: Sequence[bytes]
    ends: Sequence[int]
    received_ms: Sequence[int]


class SocketTable:
    """The rows of the socket's puts.

    Used by the thread that holds the stall responder's lock; only `recall` may be called while rows are lent to a
    kernel.
    """

    def __init__(self, server: Server, other: Callable[[Request], None]) -> None:
        """`other` is called with each request of a greeted peer that is no put."""
        self._server, self._other = server, other
        self._messages = np.zeros(kernel.ROWS * kernel.MESSAGES * kernel.MESSAGE_SIZE, np.uint8)
        self.rows: Rows = np.zeros(kernel.ROWS, REQUEST)
        self._rows = fields_of(self.rows)
        self._peers = np.zeros(kernel.ROWS * kernel.PEER_SIZE_MAX, np.uint8)
        self._peer = self._peers.data
        self.answers = np.zeros(kernel.ANSWERS_SIZE, np.uint8)
        self._sockets: Rows = np.zeros(1, kernel.SOCKET)
        self._socket = fields_of(self._sockets)[0]
        for name in kernel.FUNCTIONS:
            setattr(self._socket, name, address_of(name))
        self._address = self._socket.messages = self._messages.ctypes.data
        self._unheard: tuple[bytes, ...] = ()
        self._unheard_names = np.zeros(kernel.UNHEARD_MAX * kernel.PEER_SIZE_MAX, np.uint8)
        self._unheard_sizes: Numbers = np.zeros(kernel.UNHEARD_MAX, np.int64)
        self._marks: Numbers = np.zeros(append.MARKS_SIZE, np.int64)
        self._mark = self._marks.data
        self.marks = self._marks.view(np.uint8)
        self._head = self._open = self._tail = 0
        self._head_waits = 0  # 1 if the row at `_head` waits although others behind it do not
        self._lent = False  # a kernel has those from `_head` on
        self._lent_end = 0
        self.memory = 0  # bytes of those that wait
        self.drained = False  # the last receive found the socket empty

    def __len__(self) -> int:
        """The number of rows that wait."""
        return self._tail - self._open + self._head_waits

    # --- the socket

    def receive(self, count_max: int, bytes_max: int, spins: int = 0) -> int:
        """Receives what the socket holds, within bounds; returns how many messages. It spins `spins` times for the
        first one."""
        if self._head == self._tail:
            self._head = self._open = self._tail = 0  # the same memory again
        done = 0
        self.drained = False
        while done < count_max:
            self._socket.socket = self._server.begin()
            if self._server.unheard is not self._unheard:
                self._skip_departed(self._server.unheard)
            room = min(count_max - done, kernel.ROWS - 1 - (self._tail - self._head))
            if not self._socket.socket or room <= 0:
                break
            why = kernel.receive_rows(
                self._sockets,
                self.rows,
                self._peers,
                self._tail,
                room,
                bytes_max - self.memory,
                time.monotonic_ns() // 1_000_000,
                spins,
                self._unheard_names,
                self._unheard_sizes,
            )
            if why < 0:
                raise failure(-why)
            done += self._identify_senders()
            spins = 0
            if why == kernel.ODD:
                done += 1
                self._handle_other(self._tail)
            elif why == kernel.ENOUGH:
                break
            elif not self._server.has_more():
                self._server.emptied()
                self.drained = True
                break
        return done

    def _skip_departed(self, unheard: tuple[bytes, ...]) -> None:
        """Marks puts of peers that have gone: those that wait and those that arrive would be answered to nobody."""
        self._unheard = unheard
        self._unheard_sizes[:] = 0
        for place, peer in enumerate(unheard[-kernel.UNHEARD_MAX :]):
            at = place * kernel.PEER_SIZE_MAX
            self._unheard_names[at : at + len(peer)] = np.frombuffer(peer, np.uint8)
            self._unheard_sizes[place] = len(peer)
        for number in range(self._open, self._tail):
            if self._peer_of(number) in unheard:
                self.row(number).status = RequestStatus.UNGREETED

    def _identify_senders(self) -> int:
        """Marks the received rows by their senders' sessions; returns how many rows were received."""
        count: int = self._socket.received
        greeted = self._server.greeted
        for number in range(self._tail, self._tail + count):
            row = self.row(number)
            session = greeted(self._peer_of(number), (row.head_size, row.records_size)[: row.parts])
            if session is None:
                self._server.meet(self._peer_of(number), [self._head_of(number)], self._message(number))
                row.status = RequestStatus.UNGREETED
            elif session.facts.get("role") == SCHEDULE_ROLE:  # its greeting showed the secret
                row.sender = Sender.NODE
        self._tail += count
        self.memory += self._socket.received_memory
        return count

    def _handle_other(self, number: int) -> None:
        """Handles a message that is no put: its row does not belong to the table."""
        parts: list[Buffer] = [self._head_of(number)]
        row = self.row(number)
        count = row.parts
        if count > 1:
            parts.append(bytes_from(row.records, row.records_size))
        request = self._server.meet(self._peer_of(number), parts, self._message(number), more=count > len(parts))
        if request is not None:
            self._other(request)
        kernel.close_rows(self._sockets, self.rows, number, 1)

    # --- rows for a kernel

    def lend(self, count: int) -> tuple[int, int]:
        """Lends rows to a kernel until `take_back`: returns the first row that waits, and how many there are up to
        `count`."""
        if self._head_waits:  # it was begun, so it cannot be recalled again
            self._head_waits = 0
            self._lent_end = self._head + 1
        else:
            self._skip_ungreeted()
            assert self._head == self._open, "somebody has a row"
            self._lent_end = self._open = min(self._head + count, self._tail)
            self._lent = self._open > self._head
        self._mark[append.STOP] = 0
        self._mark[append.CURRENT] = self._head
        return self._head, self._lent_end - self._head

    def _skip_ungreeted(self) -> None:
        """Frees rows of peers that have not greeted."""
        while self._open < self._tail and self.row(self._open).status == RequestStatus.UNGREETED:
            self.memory -= self.row(self._open).memory
            self._open += 1
            self.release(self._open - 1)

    def recall(self) -> None:
        """Recalls, from another thread, the lent rows that the kernel has not begun."""
        if not self._lent:
            return
        self._mark[append.STOP] = 1
        fence()
        self._lent = False
        self._lent_end = self._open = self._mark[append.CURRENT] + 1

    def take_back(self, served: int, memory: int) -> None:
        """Ends `lend`: the first `served` rows were stored and are to be answered; the other rows wait again.

        `memory`: bytes that the stored rows occupied.
        """
        self.memory -= memory
        if self._lent:
            self._open = self._head + served
            self._lent = False
        else:  # those behind the one that was begun are the other thread's, or were
            self._head_waits = self._lent_end - self._head - served

    def answer(self, count: int) -> None:
        """Sends the kernel's answers to the senders of the first rows, and frees these rows."""
        self._socket.socket = self._server.address
        answers = self.answers.ctypes.data
        first, end = self._head, self._head + count
        while first < end:
            sent = kernel.answer_rows(self._sockets, self.rows, answers, first, end - first)
            first += sent
            if first < end:
                self._cut_unread(first)
                first += 1
        self._advance()

    def _cut_unread(self, number: int) -> None:
        """Cuts the row's peer off, which has gone or does not read its answers (H20)."""
        error = self.row(number).answer_at
        if error not in UNDELIVERED:
            raise failure(error)
        self._server.cut_unread(self._peer_of(number))

    def received_ms(self, count: int) -> list[int]:
        """The times at which the first rows were received."""
        return [self.row(number).received_ms for number in range(self._head, self._head + count)]

    def detach(self, count: int) -> Detached:
        """Releases the first rows, which are answered later."""
        numbers = range(self._head, self._head + count)
        rows = [self.row(number) for number in numbers]
        found = Detached(
            [self._peer_of(number) for number in numbers],
            [self.answers[row.answer_at : row.answer_at + row.answer_size].tobytes() for row in rows],
            [row.log_end for row in rows],
            [row.received_ms for row in rows],
        )
        kernel.close_rows(self._sockets, self.rows, self._head, count)
        self._advance()
        return found

    # --- one row

    def next(self) -> int | None:
        """The number of the oldest row that waits, to be refused and released; None if its sender had not greeted."""
        if self._head_waits:
            number, self._head_waits = self._head, 0
        else:
            number = self._open
            self._open += 1
        row = self.row(number)
        self.memory -= row.memory
        if row.status == RequestStatus.UNGREETED:
            self.release(number)
            return None
        return number

    def request_of(self, number: int) -> tuple[bytes, int]:
        """The sender of a row's request, and its request id."""
        return self._peer_of(number), decode_put(self._head_of(number), REQUEST_GROUPS_MAX)[0]

    def release(self, number: int) -> None:
        """Releases a row that `next` returned."""
        kernel.close_rows(self._sockets, self.rows, number, 1)
        self._advance()

    def close(self) -> None:
        while len(self):
            number = self.next()
            if number is not None:
                self.release(number)

    def _advance(self) -> None:
        """Moves `_head` past freed rows."""
        while self._head < self._open and self.row(self._head).status == RequestStatus.CLOSED:
            self._head += 1

    # --- its fields

    def row(self, number: int) -> Any:
        """The fields of REQUEST of a row."""
        return self._rows[number & _MASK]

    def _peer_of(self, number: int) -> bytes:
        at = (number & _MASK) * kernel.PEER_SIZE_MAX
        return bytes(self._peer[at : at + self.row(number).peer_size])

    def _head_of(self, number: int) -> bytes:
        return bytes_from(self.row(number).head, self.row(number).head_size)

    def _message(self, number: int) -> Message:
        place = (number & _MASK) * kernel.MESSAGES + 1
        return Message(self._address + place * kernel.MESSAGE_SIZE)
