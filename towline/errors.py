"""Every error of Towline. An error names the facts, and its class says what to do about it.

Errors hold facts only, so they pickle exactly and cross process borders.
"""

from enum import Enum
from typing import ClassVar


class Remedy(Enum):
    RETRY = "try again"  # the store is healthy, the moment was not
    FIX_CALL = "change the call"  # the caller asked for something that cannot be
    FIX_SETTINGS = "change the settings"
    FIX_DISK = "look at the disk"  # bytes are not what we wrote
    RESTART = "restart the process"  # our own rule was broken; state cannot be trusted


class TowlineError(Exception):
    """Base class. `args` are the facts; `describe()` makes the sentence; `advice` says what to do next."""

    remedy: ClassVar[Remedy] = Remedy.RESTART
    advice: ClassVar[str] = "restart the process and report what happened"

    def describe(self) -> str:
        return " ".join(str(fact) for fact in self.args)

    def __str__(self) -> str:
        return f"{self.describe()}; {self.advice}"


# --- bytes


class MalformedRecord(TowlineError):
    """A record's bytes break a rule of the format. Facts: rule name, sentence, byte position in the buffer."""

    remedy = Remedy.FIX_CALL
    advice = "send records as the client library encodes them"

    def __init__(self, rule: str, sentence: str, at: int) -> None:
        self.rule, self.sentence, self.at = rule, sentence, at
        super().__init__(rule, sentence, at)

    def describe(self) -> str:
        return f"{self.rule} at byte {self.at}: {self.sentence}"


class MalformedFile(TowlineError):
    """A file does not hold what its format says. Facts: path, what is wrong."""

    remedy = Remedy.FIX_DISK
    advice = "restore the file from a copy, or remove it if it is derived (queues, index, checkpoint)"

    def __init__(self, path: str, problem: str) -> None:
        self.path, self.problem = path, problem
        super().__init__(path, problem)

    def describe(self) -> str:
        return f"{self.path}: {self.problem}"


class MalformedFrame(TowlineError):
    """A ZeroMQ frame is not one of ours. Facts: what is wrong."""

    remedy = Remedy.FIX_CALL
    advice = "talk to Towline with its own client of the same version"
