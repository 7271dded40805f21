"""A table of puts that were received from the socket, held as ZeroMQ messages, which kernels fill and empty.

Rows are numbered as they arrive. Rows from `_head` to `_open` are in use, by the kernel that stores them or by a caller
of `next`; rows from there to `_tail` wait. Numbers start again at 0 when no row is left.
"""

import time
from collections.abc import Callable
from typing import Final

import numpy as np

from towline.fence import fence
from towline.format.wire.frames import Buffer, decode_put
from towline.kernels.jit.compiled import Numbers
from towline.kernels.put import put_rows as kernel
from towline.limits import REQUEST_GROUPS_MAX
from towline.link.native import UNDELIVERED, Message, address_of, bytes_from, failure, view_of
from towline.link.server import Request, Server
from towline.node.process.secret import SCHEDULE_ROLE

from .put_request import PutRequest

_FUNCTIONS: Final = {
    kernel.MSG_INIT: "zmq_msg_init",
    kernel.MSG_RECV: "zmq_msg_recv",
    kernel.MSG_CLOSE: "zmq_msg_close",
    kernel.MSG_DATA: "zmq_msg_data",
    kernel.MSG_SIZE: "zmq_msg_size",
    kernel.MSG_MORE: "zmq_msg_more",
    kernel.MSG_SEND: "zmq_msg_send",
    kernel.SEND: "zmq_send",
    kernel.ERRNO: "zmq_errno",
}
_MASK: Final = kernel.ROWS - 1


class SocketTable:
    """The rows of the socket's puts.

    Used by the thread that holds the stall responder's lock; only `recall` may be called while rows are lent to a
    kernel.
    """

    def __init__(self, server: Server, other: Callable[[Request], None]) -> None:
        """`other` is called with each request of a greeted peer that is no put."""
        self._server, self._other = server, other
        self._messages = np.zeros(kernel.ROWS * kernel.MESSAGES * kernel.MESSAGE_SIZE, np.uint8)
        self.rows: Numbers = np.zeros(kernel.ROWS * kernel.ROW_SIZE, np.int64)
        self._row = self.rows.data
        self._peers = np.zeros(kernel.ROWS * kernel.PEER_SIZE_MAX, np.uint8)
        self._peer = self._peers.data
        self.answers = np.zeros(kernel.ANSWERS_SIZE, np.uint8)
        self._calls: Numbers = np.zeros(kernel.CALLS_SIZE, np.int64)
        for place, name in _FUNCTIONS.items():
            self._calls[place] = address_of(name)
        self._address = self._messages.ctypes.data
        self._calls[kernel.TABLE] = self._address
        self._taken: Numbers = np.zeros(2, np.int64)
        self._unheard: tuple[bytes, ...] = ()
        self._unheard_names = np.zeros(kernel.UNHEARD_MAX * kernel.PEER_SIZE_MAX, np.uint8)
        self._unheard_sizes: Numbers = np.zeros(kernel.UNHEARD_MAX, np.int64)
        self._marks: Numbers = np.zeros(kernel.MARKS_SIZE, np.int64)
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
            self._calls[kernel.SOCKET] = self._server.begin()
            if self._server.unheard is not self._unheard:
                self._skip_departed(self._server.unheard)
            room = min(count_max - done, kernel.ROWS - 1 - (self._tail - self._head))
            if not self._calls[kernel.SOCKET] or room <= 0:
                break
            why = kernel.take_rows(
                self._calls,
                self.rows,
                self._peers,
                self._tail,
                room,
                bytes_max - self.memory,
                time.monotonic_ns() // 1_000_000,
                spins,
                self._taken,
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
                self._set_mark(number, kernel.STRANGE)

    def _identify_senders(self) -> int:
        """Marks the received rows by their senders' sessions; returns how many rows were received."""
        taken: list[int] = self._taken.tolist()
        count, memory = taken
        greeted = self._server.greeted
        for number in range(self._tail, self._tail + count):
            size = self._get(number, kernel.HEAD_SIZE) + self._get(number, kernel.RECORDS_SIZE)
            session = greeted(self._peer_of(number), self._message(number), size)
            if session is None:
                self._server.meet(self._peer_of(number), [self._head_of(number)], self._message(number))
                self._set_mark(number, kernel.STRANGE)
            elif session.facts.get("role") == SCHEDULE_ROLE:  # its greeting showed the secret
                self._set_mark(number, kernel.TRUSTED)
        self._tail += count
        self.memory += memory
        return count

    def _handle_other(self, number: int) -> None:
        """Handles a message that is no put: its row does not belong to the table."""
        parts: list[Buffer] = [self._head_of(number)]
        count = self._get(number, kernel.PARTS)
        if count > 1:
            parts.append(bytes_from(self._get(number, kernel.RECORDS), self._get(number, kernel.RECORDS_SIZE)))
        request = self._server.meet(self._peer_of(number), parts, self._message(number), more=count > len(parts))
        if request is not None:
            self._other(request)
        kernel.close_rows(self._calls, self.rows, number, 1)

    # --- rows for a kernel

    def lend(self, count: int) -> tuple[int, int]:
        """Lends rows to a kernel until `take_back`: returns the first row that waits, and how many there are up to
        `count`."""
        if self._head_waits:
            return self._head, 0
        self._skip_ungreeted()
        assert self._head == self._open, "somebody has a row"
        self._lent_end = self._open = min(self._head + count, self._tail)
        self._mark[kernel.STOP] = 0
        self._mark[kernel.CURRENT] = self._head
        self._lent = self._open > self._head
        return self._head, self._open - self._head

    def _skip_ungreeted(self) -> None:
        """Frees rows of peers that have not greeted."""
        while self._open < self._tail and self._get(self._open, kernel.MARK) == kernel.STRANGE:
            self.memory -= self._get(self._open, kernel.MEMORY)
            self._open += 1
            self._free(self._open - 1)

    def recall(self) -> None:
        """Recalls, from another thread, the lent rows that the kernel has not begun."""
        if not self._lent:
            return
        self._mark[kernel.STOP] = 1
        fence()
        self._lent = False
        self._lent_end = self._open = self._mark[kernel.CURRENT] + 1

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
        self._calls[kernel.SOCKET] = self._server.address
        address = self.answers.ctypes.data
        first, end = self._head, self._head + count
        while first < end:
            sent = kernel.answer_rows(self._calls, self.rows, self.answers, address, first, end - first)
            first += sent
            if first < end:
                self._cut_unread(first)
                first += 1
        self._advance()

    def _cut_unread(self, number: int) -> None:
        """Cuts the row's peer off, which has gone or does not read its answers (H20)."""
        error = self._get(number, kernel.ANSWER_AT)
        if error not in UNDELIVERED:
            raise failure(error)
        self._server.cut_unread(self._peer_of(number))

    def received_ms(self, count: int) -> list[int]:
        """The times at which the first rows were received."""
        return [self._get(number, kernel.ARRIVED) for number in range(self._head, self._head + count)]

    def detach(self, count: int) -> list[tuple[bytes, bytes, int, int]]:
        """Frees the first rows, which are answered later; returns sender, answer, end in the log and time of receipt of
        each."""
        found = []
        for number in range(self._head, self._head + count):
            at, size = self._get(number, kernel.ANSWER_AT), self._get(number, kernel.ANSWER_SIZE)
            answer = self.answers[at : at + size].tobytes()
            end, received_ms = self._get(number, kernel.LOG_END), self._get(number, kernel.ARRIVED)
            found.append((self._peer_of(number), answer, end, received_ms))
        kernel.close_rows(self._calls, self.rows, self._head, count)
        self._advance()
        return found

    # --- one row

    def next(self) -> PutRequest | None:
        """The oldest request, to be given back with `release`; None if its sender had not greeted."""
        if self._head_waits:
            number, self._head_waits = self._head, 0
        else:
            number = self._open
            self._open += 1
        memory, mark = self._get(number, kernel.MEMORY), self._get(number, kernel.MARK)
        self.memory -= memory
        if mark == kernel.STRANGE:
            self._free(number)
            return None
        request_id, _epoch, deadline, groups = decode_put(self._head_of(number), REQUEST_GROUPS_MAX)
        return PutRequest(
            self._peer_of(number),
            request_id,
            deadline,
            groups,
            view_of(self._get(number, kernel.RECORDS), self._get(number, kernel.RECORDS_SIZE)),
            self._get(number, kernel.ARRIVED),
            memory,
            mark == kernel.TRUSTED,
            number,
        )

    def release(self, request: PutRequest) -> None:
        """Frees the row of a request whose records are not read any more."""
        self._free(request.row)

    def close(self) -> None:
        while len(self):
            request = self.next()
            if request is not None:
                self.release(request)

    def _free(self, number: int) -> None:
        kernel.close_rows(self._calls, self.rows, number, 1)
        self._advance()

    def _advance(self) -> None:
        """Moves `_head` past freed rows."""
        while self._head < self._open and self._get(self._head, kernel.MARK) == kernel.CLOSED:
            self._head += 1

    # --- its fields

    def _get(self, number: int, field: int) -> int:
        return self._row[(number & _MASK) * kernel.ROW_SIZE + field]

    def _set_mark(self, number: int, mark: int) -> None:
        self._row[(number & _MASK) * kernel.ROW_SIZE + kernel.MARK] = mark

    def _peer_of(self, number: int) -> bytes:
        at = (number & _MASK) * kernel.PEER_SIZE_MAX
        return bytes(self._peer[at : at + self._get(number, kernel.PEER_SIZE)])

    def _head_of(self, number: int) -> bytes:
        return bytes_from(self._get(number, kernel.HEAD), self._get(number, kernel.HEAD_SIZE))

    def _message(self, number: int) -> Message:
        place = (number & _MASK) * kernel.MESSAGES + 1
        return Message(self._address + place * kernel.MESSAGE_SIZE)
