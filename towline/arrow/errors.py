"""Errors of reading a log's bytes as columns."""

from towline.errors import Remedy, TowlineError
from towline.format.record.rules import Rule


class UnknownColumn(TowlineError):
    """A column that no message has. Facts: its name, the nearest that there is."""

    remedy = Remedy.FIX_CALL
    advice = "name columns as the schema does"

    def __init__(self, name: str, nearest: str) -> None:
        self.name, self.nearest = name, nearest
        super().__init__(name, nearest)

    def describe(self) -> str:
        return f"there is no column {self.name!r}, the nearest is {self.nearest!r}"


class DamagedRecord(TowlineError):
    """A record that cannot be read.

    Facts: its offset in the log, name of the rule it breaks, the rule's sentence, which message it is where that can be
    told.
    """

    remedy = Remedy.FIX_DISK
    advice = "run `towline store verify`; onCorruption=skip reads what stands behind it, stop what stands before it"

    def __init__(self, offset: int, rule: str, sentence: str, message: str = "") -> None:
        self.offset, self.rule, self.sentence, self.message = offset, rule, sentence, message
        super().__init__(offset, rule, sentence, message)

    def describe(self) -> str:
        named = f" ({self.message})" if self.message else ""
        return f"the record at offset {self.offset} of the log{named} breaks {self.rule}: {self.sentence}"


class DamagedBody(TowlineError):
    """A compressed body that cannot be restored. Facts: offset of its record, what is wrong."""

    remedy = Remedy.FIX_CALL
    advice = "look at the sender, or read with onCorruption=skip: the store keeps bodies as it receives them"

    def __init__(self, offset: int, problem: str) -> None:
        self.offset, self.problem = offset, problem
        super().__init__(offset, problem)

    def describe(self) -> str:
        return f"the record at offset {self.offset} of the log: {self.problem}"


class BatchTooLarge(TowlineError):
    """The values of a column do not fit one Arrow array. Facts: the column, their bytes, the most that fit."""

    remedy = Remedy.FIX_CALL
    advice = "decode fewer records at once"

    def __init__(self, column: str, size: int, size_max: int) -> None:
        self.column, self.size, self.size_max = column, size, size_max
        super().__init__(column, size, size_max)

    def describe(self) -> str:
        return f"column {self.column} would hold {self.size} bytes; one batch takes {self.size_max}"


def damaged(offset: int, rule: Rule, message: str = "") -> DamagedRecord:
    """The record at this offset of the log breaks this rule."""
    return DamagedRecord(offset, rule.name, rule.sentence, message)
