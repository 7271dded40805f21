"""What a slave of RocketMQ reports of its log, where it goes on by that, and why it may not: pure.

A report is the end of the slave's log, 8 bytes, and nothing else. The protocol has no word for a refusal either: the
connection is closed, the log of this node says why, and the slave comes again every 5 s.
"""

import struct
from dataclasses import dataclass
from enum import Enum
from typing import Final

REPORT: Final = struct.Struct(">q")


class Rule(Enum):
    """Why a connection is ended from this side: the rule, and what to do."""

    NO_OFFSET = "a report is an offset of the log", "let nobody but brokers of RocketMQ reach rocketmq_ha_port"
    BEFORE = (
        "a slave goes on where its log ends, and our log begins behind that",
        "clear the slave's store directory, or copy ours to it while this node is stopped",
    )
    AHEAD = (
        "a slave has nothing that we have not",
        "its log is not of this node: clear the slave's store directory; or something else speaks to rocketmq_ha_port",
    )
    FOREIGN = "a slave reports what it was sent", "something else than a broker of RocketMQ speaks to rocketmq_ha_port"
    SILENT = "a slave reports every 5 s", "look at the network, and whether the slave's machine stands still"
    UNREAD = "a slave reads what it is sent", "look at the slave's log and its disk"
    CLEANED = (
        "a slave is sent what our log still has",
        "keep more of the log (file_reserved_time), then clear the slave's store directory",
    )
    FULL = "rocketmq_ha_port serves so many connections at once", "end those that are no slaves"

    def __init__(self, sentence: str, remedy: str) -> None:
        self.sentence, self.remedy = sentence, remedy


@dataclass(frozen=True, slots=True)
class Refusal:
    """A rule that was broken, and by what."""

    rule: Rule
    facts: str

    def __str__(self) -> str:
        return f"{self.rule.name}: {self.rule.sentence}; {self.facts}. Remedy: {self.rule.remedy}"


@dataclass(frozen=True, slots=True)
class LogEnds:
    """Our log: its first byte, the end of what is confirmed, the end of what is written."""

    first: int
    confirmed: int
    written: int


def newest(carry: bytes, data: bytes) -> tuple[int | None, bytes]:
    """The last whole report of all that has come, None for none, and what has come of the next one."""
    came = carry + data
    whole = len(came) - len(came) % REPORT.size
    if not whole:
        return None, came
    return REPORT.unpack_from(came, whole - REPORT.size)[0], came[whole:]


def begin_at(reported: int, log: LogEnds, segment_size: int, *, from_oldest: bool) -> int | Refusal:
    """Where the stream of a slave begins that has reported for the first time.

    An empty one begins with a segment: the oldest, or the one that holds the end of what is confirmed. Between that end
    and the end of what is written lies what a slave may have of this node's life before: it waits there.
    """
    if reported < 0:
        return Refusal(Rule.NO_OFFSET, f"this one is {reported}")
    if reported == 0:
        return log.first if from_oldest else max(log.first, log.confirmed - log.confirmed % segment_size)
    if reported < log.first:
        return Refusal(Rule.BEFORE, f"its log ends at {reported}, ours begins at {log.first}")
    if reported > log.written:
        return Refusal(Rule.AHEAD, f"it says that its log ends at {reported}, ours ends at {log.written}")
    return reported


def check_next(reported: int, before: int, start: int, sent: int) -> Refusal | None:
    """A further report, of a slave that began at `start` and was sent all before `sent`. One that is empty reports 0
    until it has something."""
    if before <= reported <= sent and (reported >= start or reported == before):
        return None
    return Refusal(Rule.FOREIGN, f"it reports {reported} after {before}, and was sent [{start}, {sent})")
