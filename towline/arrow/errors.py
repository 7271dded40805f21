"""Errors of reading a log's bytes as columns."""

from towline.errors import Remedy, TowlineError
from towline.format.record.rules import Rule


class UnknownColumn(TowlineError, remedy=Remedy.FIX_CALL):
    name: str
    nearest: str
    template = "there is no column {name!r}, the nearest is {nearest!r}"
    advice = "name columns as the schema does"


class DamagedRecord(TowlineError, remedy=Remedy.FIX_DISK):
    """A record that cannot be read."""

    offset: int
    rule: str
    sentence: str
    message: str = ""  # which one it is, where that is known
    advice = "run `towline store verify`; onCorruption=skip reads what stands behind it, stop what stands before it"

    def describe(self) -> str:
        named = f" ({self.message})" if self.message else ""
        return f"the record at offset {self.offset} of the log{named} breaks {self.rule}: {self.sentence}"


class DamagedBody(TowlineError, remedy=Remedy.FIX_CALL):
    offset: int
    problem: str
    template = "the record at offset {offset} of the log: {problem}"
    advice = "look at the sender, or read with onCorruption=skip: the store keeps bodies as it receives them"


class BatchTooLarge(TowlineError, remedy=Remedy.FIX_CALL):
    column: str
    size: int
    size_max: int
    template = "column {column} would hold {size} bytes; one batch takes {size_max}"
    advice = "decode fewer records at once"


def damaged(offset: int, rule: Rule, message: str = "") -> DamagedRecord:
    """The record at this offset of the log breaks this rule."""
    return DamagedRecord(offset, rule.name, rule.sentence, message)
