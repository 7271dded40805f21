"""Reasons for which reput stops before a record: a number in shared memory, a name for people.

Below 1000 it is the `Rule` that the record breaks.
"""

from enum import IntEnum
from typing import Final

from .rules import Rule


class Halt(IntEnum):
    """What is wrong though the record itself keeps every rule."""

    QUEUE_GAP = 1000
    QUEUE_TWICE = 1001
    TOO_MANY_QUEUES = 1002


_SENTENCES = {
    Halt.QUEUE_GAP: "QUEUEOFFSET is above the next number of the record's queue",
    Halt.QUEUE_TWICE: "QUEUEOFFSET is below the next number of the record's queue: it was given before",
    Halt.TOO_MANY_QUEUES: "the record is of one more queue than a node can have",
}


_REPAIR: Final = "stop the node, then `towline store verify` and `towline store repair --yes"
_REMEDIES: Final[dict[int, str]] = {
    Halt.QUEUE_GAP: _REPAIR + "`: it puts holes in the place of what is missing, or names the record to step over",
    Halt.TOO_MANY_QUEUES: (
        "no repair helps: serve the store with the broker that wrote it, or restore a copy of it that has fewer queues"
    ),
}


def remedy(number: int, offset: int) -> str:
    """What an operator does about the record at a log offset before which reput stands still."""
    return _REMEDIES.get(number, f"{_REPAIR} --skip {offset}`")


def why(number: int) -> tuple[str, str]:
    """(name, sentence) of a Rule or Halt."""
    if number >= Halt.QUEUE_GAP:
        halt = Halt(number)
        return halt.name, _SENTENCES[halt]
    rule = Rule(number)
    return rule.name, rule.sentence
