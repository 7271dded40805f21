"""Checkpoints of a broker: text, a version, a count, and as many lines.

`leader-epoch-checkpoint` of a partition has `<epoch> <first offset>` in each line, both rising. In the log directory
`recovery-point-offset-checkpoint`, `log-start-offset-checkpoint`, `replication-offset-checkpoint` and
`cleaner-offset-checkpoint` have `<topic> <partition> <offset>`. The version is 0; an empty file has no lines.
"""

import re
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from towline.kafka.errors import MalformedBytes, Rule

VERSION: Final = 0
LEADER_EPOCHS: Final = "leader-epoch-checkpoint"
RECOVERY_POINTS: Final = "recovery-point-offset-checkpoint"
LOG_STARTS: Final = "log-start-offset-checkpoint"
HIGH_WATERMARKS: Final = "replication-offset-checkpoint"
CLEANED: Final = "cleaner-offset-checkpoint"

TopicPartition = tuple[str, int]
_NUMBER: Final = re.compile(r"-?[0-9]{1,19}")
_NUMBER_MAX: Final = 2**63 - 1


class LeaderEpoch(NamedTuple):
    """From `start` on the log was written by the leader of this epoch."""

    number: int
    start: int


def encode_epochs(epochs: Iterable[LeaderEpoch]) -> bytes:
    """The whole file."""
    return _encoded([f"{epoch.number} {epoch.start}" for epoch in epochs])


def decode_epochs(data: bytes) -> list[LeaderEpoch]:
    """Raises MalformedBytes at the byte of the line that is not as it should be."""
    found: list[LeaderEpoch] = []
    for at, words in _lines(data, 2):
        epoch = LeaderEpoch(*_numbers(words, at))
        if found and (epoch.number <= found[-1].number or epoch.start < found[-1].start):
            before = f"{found[-1].number} {found[-1].start}"
            raise MalformedBytes(Rule.TEXT, at, f"'{epoch.number} {epoch.start}' comes after '{before}'")
        found.append(epoch)
    return found


def encode_offsets(offsets: Mapping[TopicPartition, int]) -> bytes:
    """The whole file."""
    return _encoded([f"{topic} {partition} {offset}" for (topic, partition), offset in offsets.items()])


def decode_offsets(data: bytes) -> dict[TopicPartition, int]:
    """Raises MalformedBytes at the byte of the line that is not as it should be."""
    found: dict[TopicPartition, int] = {}
    for at, (topic, *words) in _lines(data, 3):
        partition, offset = _numbers(words, at)
        found[topic, partition] = offset
    return found


def _encoded(lines: list[str]) -> bytes:
    return "".join(f"{line}\n" for line in (VERSION, len(lines), *lines)).encode()


def _lines(data: bytes, width: int) -> list[tuple[int, list[str]]]:
    """The byte where each line begins behind the count, and its words."""
    if not data:
        return []
    at, found = 0, []
    for line in data.removesuffix(b"\n").split(b"\n"):
        found.append((at, line.decode("latin-1").split()))
        at += len(line) + 1
    (_, (version,)), (count_at, (count,)) = (_single(found, row, len(data)) for row in (0, 1))
    if version != VERSION:
        raise MalformedBytes(Rule.VERSION, 0, f"a checkpoint of version {version}")
    rest = found[2:]
    if count != len(rest):
        raise MalformedBytes(Rule.TEXT, count_at, f"{count} lines are promised, {len(rest)} follow")
    for place, words in rest:
        if len(words) != width:
            raise MalformedBytes(Rule.TEXT, place, f"a line has {width} words, this one is {' '.join(words)!r}")
    return rest


def _single(found: list[tuple[int, list[str]]], row: int, end: int) -> tuple[int, tuple[int]]:
    if row >= len(found):
        raise MalformedBytes(Rule.TEXT, end, "it ends before its count")
    at, words = found[row]
    (number,) = _numbers(words, at) if len(words) == 1 else (None,)
    if number is None:
        raise MalformedBytes(Rule.TEXT, at, f"a number stands alone here, not {' '.join(words)!r}")
    return at, (number,)


def _numbers(words: list[str], at: int) -> list[int]:
    found = [int(word) for word in words if _NUMBER.fullmatch(word)]
    if len(found) < len(words) or any(abs(number) > _NUMBER_MAX for number in found):
        raise MalformedBytes(Rule.TEXT, at, f"{' '.join(words)!r} should be numbers")
    return found
