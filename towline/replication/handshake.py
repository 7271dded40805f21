"""The master's side of the replication handshake: whether a slave's log fits, and up to where (spec 9.5; H18).

The slave's newest epoch that the master has too, with the same start, gives the common point; the CRC of the master's
bytes before it goes into the welcome, and the slave compares it with its own. Where they differ it greets again with
`before`, one epoch back.
"""

import zlib
from bisect import bisect_left
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import numpy as np

from towline.errors import LinkRefused, NotInLog
from towline.format.files.epochs import Epochs, checked, common_point, node_of
from towline.format.files.seed import OLDEST, Seed, SeedFrom, parse_seed
from towline.limits import KIB, NODE_MAX
from towline.log.commitlog.commit_log import CommitLogReader
from towline.log.commitlog.log_walk import first_timestamp
from towline.log.state.epoch_file import EpochFile
from towline.node.peers.peer_server import SEGMENT_SIZE
from towline.node.process.context import Node
from towline.runtime.positions import Position

TAIL_CRC_MAX: Final = 64 * KIB
START: Final = "start"  # fact of a greeted slave: where our welcome said that the stream begins
DEPOSED: Final = "EPOCH"
_INT64_MAX: Final = 2**63 - 1


@dataclass(frozen=True, slots=True)
class SlaveGreeting:
    """A slave's greeting. `before`: the tail behind the common point of that epoch did not match."""

    node: int
    instance: int
    epochs: Epochs
    end: int
    empty: bool
    segment_size: int
    promised: int
    before: int | None
    from_last: bool
    seed: Seed = OLDEST
    seed_rate: int = 0  # bytes in a second, 0: any

    @property
    def newest(self) -> int:
        """The highest epoch that it knows: of its bytes, or promised."""
        return max([self.promised, *(epoch.number for epoch in self.epochs)])

    @classmethod
    def of(cls, facts: dict[str, Any]) -> "SlaveGreeting":
        """Reads a greeting. Raises LinkRefused FACTS."""
        try:
            before = facts.get("before")
            made = cls(
                node=number(facts, "node", NODE_MAX),
                instance=number(facts, "instance"),
                epochs=checked(_listed(facts["epochs"])),
                end=number(facts, "end"),
                empty=bool(facts["empty"]),
                segment_size=number(facts, "segment_size"),
                promised=number(facts, "promised"),
                before=None if before is None else number(facts, "before"),
                from_last=bool(facts.get("from_last")),
                seed=parse_seed(str(facts.get("seed", SeedFrom.OLDEST))),
                seed_rate=number(facts, "seed_rate") if "seed_rate" in facts else 0,
            )
        except (KeyError, ValueError) as error:
            raise LinkRefused("FACTS", f"a slave's greeting lacks a fact or has a wrong one: {error}") from None
        if made.epochs and made.epochs[-1].start > made.end:
            raise LinkRefused("FACTS", f"epoch {made.epochs[-1].number} begins behind the end {made.end} of the log")
        return made


class LogRange(NamedTuple):
    """The part of the master's log that slaves may have: [low, end)."""

    low: int
    end: int


class SenderHandshake:
    """The handshakes of one start of a master. `log` is the sender's own reader."""

    def __init__(self, node: Node, log: CommitLogReader, epochs: Epochs = ()) -> None:
        """`epochs`: of the log; none: as its file says."""
        self._node, self._log = node, log
        self.epochs = epochs or EpochFile(node.store).load()
        self.epoch = node.positions.get(Position.EPOCH)

    def welcome(self, slave: SlaveGreeting, log_range: LogRange) -> dict[str, Any]:
        """The facts of a welcome. Raises LinkRefused with both sides' values where the two logs do not fit together."""
        self._check(slave)
        facts = {"epoch": self.epoch, "epochs": self.epochs, "end": log_range.end}
        if slave.empty:
            return facts | {START: self._first(slave, log_range), "common": 0, "tail_size": 0, "tail_crc": 0}
        common = common_point(self.epochs, log_range.end, slave.epochs, slave.end, slave.before)
        if common is None and slave.end <= log_range.low:
            raise self.cleaned(slave.end, log_range.low)
        if common is None:
            raise LinkRefused("DIVERGED", self._diverged(slave))
        if common.point <= log_range.low and common.point != slave.end:
            raise self.cleaned(common.point, log_range.low)
        if common.point < log_range.low:
            raise self.cleaned(slave.end, log_range.low)
        tail = self._tail(common.point, log_range.low)
        return facts | {
            START: common.point,
            "common": common.number,
            "tail_size": len(tail),
            "tail_crc": zlib.crc32(tail),
        }

    def cleaned(self, theirs: int, low: int) -> LinkRefused:
        """The refusal of a slave that needs deleted bytes."""
        return LinkRefused(
            "OFFSET",
            f"your log is ours up to {theirs} and ours begins at {low}: what follows yours was deleted; stop this "
            "slave, move its store directory away and start it on an empty one, which joins where our log begins",
        )

    def _check(self, slave: SlaveGreeting) -> None:
        settings = self._node.settings
        log_range = settings.mapped_file_size_commit_log
        if slave.segment_size != log_range:
            raise LinkRefused(
                SEGMENT_SIZE,
                f"your segments have {slave.segment_size} bytes and ours {log_range}: start the slave with "
                f"mapped_file_size_commit_log={log_range}, on an empty store directory",
            )
        if slave.node == settings.broker_id:
            raise LinkRefused("NODE_TAKEN", f"you call yourself node {slave.node}, and that is what we are")
        if slave.newest > self.epoch:
            held = slave.epochs[-1].number if slave.epochs else 0
            raise LinkRefused(
                DEPOSED,
                f"you have bytes of epoch {held} and promised to follow none below {slave.promised}, "
                f"ours is {self.epoch}: node {node_of(slave.newest)} is master, or was after us",
            )

    def _first(self, slave: SlaveGreeting, log_range: LogRange) -> int:
        """The beginning of an empty log: the master's oldest segment, or the one that the slave is configured to begin
        with.

        A slave's log that begins further on keeps its beginning.
        """
        begin = self._chosen(slave, log_range, self._node.positions.get(Position.LOG_MIN))
        if slave.end > begin:
            begin = slave.end
        if begin > log_range.end:
            raise LinkRefused("OFFSET", f"your log is to begin at {begin}, and ours ends at {log_range.end}")
        return begin

    def _chosen(self, slave: SlaveGreeting, log_range: LogRange, low: int) -> int:
        """The configured segment, or the oldest one where that is deleted."""
        begin, at = slave.seed
        if begin is SeedFrom.OFFSET:
            if at > log_range.end:
                raise LinkRefused("OFFSET", f"your log is to begin with offset {at}, and ours ends at {log_range.end}")
            return max(low, self._log.segment_of(at))
        if begin is SeedFrom.TIME:
            return max(low, self._at_time(at, log_range))
        if begin is SeedFrom.LAST or slave.from_last:
            return max(low, self._log.segment_of(log_range.end))
        return low

    def _at_time(self, time_ms: int, log_range: LogRange) -> int:
        """The newest segment that begins before that time: records stored then or later stand in it, or behind it."""
        self._log.refresh()
        bases = [base for base in self._log.queue.bases if base < log_range.end]
        try:
            after = bisect_left(bases, time_ms, key=lambda base: first_timestamp(self._log, base))
        except NotInLog:  # deleted meanwhile, so all of the beginning has gone
            return log_range.low
        return bases[max(0, after - 1)] if bases else log_range.low

    def _tail(self, point: int, low: int) -> bytes:
        try:
            start = tail_start(self._log, low, point) if point > low else point
            return bytes(self._log.slice(start, point))
        except NotInLog:
            raise self.cleaned(point, low) from None

    def _diverged(self, slave: SlaveGreeting) -> str:
        theirs = ", ".join(f"{number} at {start}" for number, start in slave.epochs[-5:]) or "none"
        log_range = ", ".join(f"{number} at {start}" for number, start in self.epochs[-5:])
        back = "" if slave.before is None else f" below {slave.before}, from where on the bytes differ"
        return (
            f"the logs of node {slave.node} and of node {self._node.settings.broker_id}, the master, have no epoch in "
            f"common{back}: yours are {theirs}, ours {log_range}; move the store of the one that is wrong away"
        )


def tail_start(log: CommitLogReader, low: int, end: int) -> int:
    """The beginning of the bytes before `end` that distinguish two histories: TAIL_CRC_MAX bytes that are not all zero.

    Behind the blank of a full segment are only zeros, up to a request's size of them, the same in every log. The tail
    does not begin before the segment or `low`.
    """
    first = max(low, log.segment_of(end - 1))
    zeros = True
    while zeros and end > first:
        start = max(first, end - TAIL_CRC_MAX)
        zeros = not np.frombuffer(log.slice(start, end), dtype=np.uint8).any()
        end = start
    return max(first, end - TAIL_CRC_MAX)  # what was found may be no more than the blank


def number(facts: dict[str, Any], name: str, most: int = _INT64_MAX) -> int:
    """A number among the facts of a greeting or a welcome. Raises KeyError, ValueError."""
    value = facts[name]
    if type(value) is not int or not 0 <= value <= most:
        raise ValueError(f"{name} is {value!r}")
    return value


def _listed(value: Any) -> list[Any]:
    if not isinstance(value, list):
        raise ValueError(f"epochs are {value!r}")
    return value
