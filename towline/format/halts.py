"""Why reput stands still before a record: by number in shared memory, by name for people.

Below 1000 it is the `Rule` that the record breaks.
"""

from enum import IntEnum

from .rules import Rule


class Halt(IntEnum):
    """What is wrong though the record itself keeps every rule."""

    QUEUE_GAP = 1000
    TOPIC_PLACE = 1001
    TOO_MANY_QUEUES = 1002


_SENTENCES = {
    Halt.QUEUE_GAP: "QUEUEOFFSET is not the next number of the record's queue",
    Halt.TOPIC_PLACE: "the topic cannot be the name of a directory",
    Halt.TOO_MANY_QUEUES: "the record is of one more queue than a node can have",
}


def why(number: int) -> tuple[str, str]:
    """(name, sentence) of a Rule or Halt."""
    if number >= Halt.QUEUE_GAP:
        halt = Halt(number)
        return halt.name, _SENTENCES[halt]
    rule = Rule(number)
    return rule.name, rule.sentence
