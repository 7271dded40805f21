"""HAService's frames, and the whole messages in them: bytes in, stretches of the log out (spec 9.1).

    i8 offset | i4 size | so many bytes of the log        a size of 0 is a heartbeat: where the next bytes will begin

A frame may begin and end inside a message. What is handed on are whole messages, and a segment's blank to its end, at
the place they say they stand and with bodies that fit their CRC; so what is stored here always ends behind a message.
"""

import struct
from typing import Final

import numpy as np

from towline.format.record import blank
from towline.format.record.rules import Rule as RecordRule
from towline.kernels.jit.rows import Stop
from towline.kernels.scan.scan import CHECK_CRC, CHECK_PLACE, COUNT, REACHED, WALK_STATE_SIZE, walk
from towline.limits import MIB
from towline.log.commitlog.commit_log import CommitLogReader
from towline.log.commitlog.log_walk import Checks, LogWalk

from .rules import Rule, refused

HEAD: Final = struct.Struct(">qi")
FRAME_MAX: Final = 4 * MIB  # the room that a broker has for one
UNIT_MAX: Final = 16 * MIB  # of one message or blank
READ_MAX: Final = MIB  # taken at once
_ANY: Final = 2**62
_CHECKS: Final = CHECK_CRC | CHECK_PLACE
_SIZE: Final = struct.Struct(">I")


class Frames:
    """The stream of one connection: `take` what has come, then `whole` until it has nothing.

    `end`: of the log as it has come; the next frame has to name it. Both raise LinkRefused.
    """

    def __init__(self, start: int, segment_size: int) -> None:
        self.end = start
        self._base, self._segment_size = start, segment_size  # the log offset of the first byte that is kept
        self._log = np.zeros(UNIT_MAX + READ_MAX, dtype=np.uint8)  # untouched pages take no memory
        self._view = self._log.data
        self._given = 0  # bytes of it that were handed on last
        self._have = 0
        self._head = b""  # of a frame whose head has not come whole
        self._left = 0  # bytes that are still to come of the frame under way
        self._state = np.zeros(WALK_STATE_SIZE, dtype=np.int64)
        self.last_frame = -1  # offset of the last frame; -1 before the first

    @property
    def is_inside(self) -> bool:
        """Whether a frame is under way."""
        return bool(self._head) or self._left > 0

    @property
    def room(self) -> int:
        """The most bytes that may be taken."""
        return min(READ_MAX, len(self._log) - (self._have - self._given))

    def take(self, came: memoryview) -> None:
        """Takes READ_MAX bytes at most, as they came; what `whole` handed on before is gone then."""
        self._forget_given()
        at, end = 0, len(came)
        while at < end:
            if not self._left:
                at = self._take_head(came, at)
                continue
            size = min(self._left, end - at)
            self._view[self._have : self._have + size] = came[at : at + size]
            self._have, self._left, at = self._have + size, self._left - size, at + size
            self.end += size

    def whole(self) -> tuple[int, memoryview]:
        """(log offset, bytes) of the next stretch, in one segment; no bytes where nothing more is whole."""
        self._forget_given()
        border = self._base - self._base % self._segment_size + self._segment_size
        stop = min(self._have, border - self._base, UNIT_MAX)
        if not stop:
            return self._base, self._view[:0]
        reason = walk(self._log, 0, stop, self._base, _CHECKS, _ANY, self._state)
        reached = int(self._state[REACHED])
        if reason == Stop.BLANK:
            reached = self._behind_blank(reached, stop, border)
        elif reason != Stop.DONE and not reached:  # what is whole goes first, whatever stands behind it
            self._check_rest(reason, stop, border)
        self._given = reached
        return self._base, self._view[:reached]

    def _take_head(self, came: memoryview, at: int) -> int:
        """Reads a frame's head; the byte behind what was read of it."""
        wanted = HEAD.size - len(self._head)
        self._head += came[at : at + wanted]
        if len(self._head) < HEAD.size:
            return len(came)
        offset, size = HEAD.unpack(self._head)
        self._head, self.last_frame = b"", offset
        if not 0 <= size <= FRAME_MAX:
            raise refused(Rule.SIZE, f"the frame at {offset} has {size} bytes")
        if offset != self.end:
            raise refused(Rule.OFFSET, f"it is of {offset}, and what has come ends at {self.end}")
        room = self._segment_size - offset % self._segment_size
        if size > room:
            facts = f"{size} bytes at {offset}, in segments of {self._segment_size} that leave room for {room}"
            raise refused(Rule.BORDER, facts)
        self._left = size
        return at + wanted

    def _behind_blank(self, at: int, stop: int, border: int) -> int:
        """Behind a blank that has come to the segment's end; else where it begins."""
        (size,) = _SIZE.unpack_from(self._view, at)
        if size == border - self._base - at and size <= UNIT_MAX:
            return at + size if self._base + stop == border else at
        if at:
            return at
        raise self._broken(f"a blank of {size} bytes, {border - self._base} before the segment's end")

    def _check_rest(self, reason: int, stop: int, border: int) -> None:
        """Whether all that has come is the beginning of a message."""
        room = border - self._base
        if reason == RecordRule.ENDS_INSIDE and stop < blank.SIZE <= room:
            return
        if reason == RecordRule.ENDS_INSIDE:
            (size,) = _SIZE.unpack_from(self._view)
            if size <= min(room, UNIT_MAX):
                return
            raise self._broken(f"a size of {size}, where {room} bytes are left in the segment")
        said = RecordRule.SIZE_TOO_SMALL if reason == Stop.END else RecordRule(reason)
        raise self._broken(f"{said.name}: {said.sentence}")

    def _broken(self, facts: str) -> Exception:
        return refused(Rule.RECORD, f"at {self._base} stands what breaks this: {facts}")

    def _forget_given(self) -> None:
        if not self._given:
            return
        rest = self._have - self._given
        self._log[:rest] = self._log[self._given : self._have].copy()
        self._base, self._have, self._given = self._base + self._given, rest, 0


def last_message(log: CommitLogReader, low: int, end: int) -> tuple[int, bytes] | None:
    """(log offset, bytes) of the last message before `end`, in the last segment that has bytes of [low, end).

    None where that begins with a blank, or with nothing. It walks the heads of that segment. Raises NotInLog.
    """
    if end <= low:
        return None
    base = log.segment_of(end - 1)
    steps = LogWalk(log, 0, Checks(crc=False, form=False)).steps(base, max(low - base, 0), end - base)
    walked = [(first, reached) for first, reached, _ in steps if reached > first]
    if not walked:
        return None
    (first, reached), segment = walked[-1], log.array(base)
    state = np.zeros(WALK_STATE_SIZE, dtype=np.int64)
    walk(segment, first, reached, base, 0, _ANY, state)
    walk(segment, first, reached, base, 0, int(state[COUNT]) - 1, state)
    return base + int(state[REACHED]), bytes(segment[int(state[REACHED]) : reached])
