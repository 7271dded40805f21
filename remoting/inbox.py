"""Frames out of what came on a connection, in their order: runs of plain sends by kernels, the others one by one."""

from collections.abc import Callable
from typing import Final

import numpy as np

from towline.errors import MalformedFrame
from towline.format.remoting.command import FRAME_MAX, frame_size
from towline.kernels.remoting import puts
from towline.kernels.remoting.sends import BROKEN

from .connections import Connection
from .plain_sends import PlainSends
from .put_client import PutClient

Handle = Callable[[Connection, bytes], None]
TURN_MAX: Final = 64  # frames that the interpreter takes of one connection before it is another's turn
_RULE: Final = f"a frame of more than {FRAME_MAX} bytes, or of less than its header's length"


class Inbox:
    """`handle` gets a whole frame; `counted` the number of plain sends that went."""

    def __init__(self, put: PutClient, handle: Handle, counted: Callable[[int], None]) -> None:
        self._put, self._handle, self._counted = put, handle, counted
        self._left = 0  # frames for the interpreter in this turn

    def take(self, connection: Connection, data: bytes) -> int:
        """Takes whole frames while put has room, the client reads and it is its turn; returns how many bytes they were.
        Raises MalformedFrame."""
        at, self._left = 0, TURN_MAX
        while self._left and not self._put.is_full:
            plain = self._put.plain
            taken = (
                self._take_one(connection, data, at) if plain is None else self._take_run(connection, plain, data, at)
            )
            if not taken:
                break
            at += taken
        return at

    def _take_one(self, connection: Connection, data: bytes, at: int) -> int:
        size = frame_size(data, at)
        if not size or at + size > len(data):
            return 0
        self._handle_one(connection, data[at : at + size])
        return size

    def _take_run(self, connection: Connection, plain: PlainSends, data: bytes, at: int) -> int:
        came = np.frombuffer(data, np.uint8)[at:]
        count, number, taken = plain.read(came), 0, 0
        while number < count and self._left and not self._put.is_full:
            row = plain.rows[number]
            if row.plain and plain is self._put.plain:
                first = number
                number, why = plain.put(connection, came, number, count - number)
                if number > first:
                    self._counted(number - first)
                    last = plain.rows[number - 1]
                    taken = last.begin + last.size
                if why == puts.FULL:
                    self._put.wait_for_room()
                    break
                if why == puts.DONE:
                    continue
                row = plain.rows[number]
            if row.size == BROKEN:
                raise MalformedFrame(_RULE)
            begin, taken = at + row.begin, row.begin + row.size
            number += 1
            self._handle_one(connection, data[begin : begin + row.size])
        return int(taken)

    def _handle_one(self, connection: Connection, frame: bytes) -> None:
        self._handle(connection, frame)
        self._left = 0 if connection.is_behind else self._left - 1
