"""Errors of the data source: what Spark's user sees, on the driver where it can be, else in the task that failed."""

import difflib
from collections.abc import Iterable
from typing import Final, Self

from towline.errors import Remedy, TowlineError

_LIKE_MIN: Final = 0.5


def nearest(name: str, known: Iterable[str]) -> str:
    """The known name that is most like this one, whatever its case, the first of several; "" when none is like it."""
    best, likeness = "", _LIKE_MIN
    for one in sorted(known):
        found = difflib.SequenceMatcher(None, name.lower(), one.lower()).ratio()
        if found > likeness:
            best, likeness = one, found
    return best


class NotAStore(TowlineError):
    """Facts: path, what was looked for."""

    remedy = Remedy.FIX_CALL
    advice = "give the directory of a store (it holds commitlog/) or of a backup (it holds backup.json)"

    def __init__(self, path: str, problem: str) -> None:
        self.path, self.problem = path, problem
        super().__init__(path, problem)

    def describe(self) -> str:
        return f"{self.path}: {self.problem}"


class NoSafeEnd(TowlineError):
    """Somebody writes the store, and nothing says up to where it cannot be taken back (H24).

    Facts: path, pid (0 of a process that cannot be seen from here).
    """

    remedy = Remedy.FIX_CALL
    advice = "read through its broker with the option endpoint, read a backup, or stop the process first"

    def __init__(self, path: str, pid: int) -> None:
        self.path, self.pid = path, pid
        super().__init__(path, pid)

    def describe(self) -> str:
        who = self.pid or "of another container"
        return (
            f"{self.path} is being written by process {who}, and neither its positions nor checkpoint nor durable say "
            "up to where the log cannot be taken back"
        )


class UnknownOption(TowlineError):
    """Facts: the name, the nearest right one, "" for none."""

    remedy = Remedy.FIX_CALL
    advice = "docs/spark.md lists the options"

    def __init__(self, name: str, meant: str) -> None:
        self.name, self.meant = name, meant
        super().__init__(name, meant)

    def describe(self) -> str:
        guess = f"; did you mean {self.meant}?" if self.meant else ""
        return f"the format towline has no option {self.name}{guess}"


class BadOption(TowlineError):
    """Facts: the option, its value, what is wrong."""

    remedy = Remedy.FIX_CALL
    advice = "change the option; docs/spark.md says what it takes"

    def __init__(self, name: str, value: str, problem: str) -> None:
        self.name, self.value, self.problem = name, value, problem
        super().__init__(name, value, problem)

    def describe(self) -> str:
        return f"option {self.name}={self.value!r}: {self.problem}"


class WrongColumnType(TowlineError):
    """Facts: column, the type that was asked for, the type that it has."""

    remedy = Remedy.FIX_CALL
    advice = "ask for the column's own type, and cast it in the query"

    def __init__(self, name: str, asked: str, has: str) -> None:
        self.name, self.asked, self.has = name, asked, has
        super().__init__(name, asked, has)

    def describe(self) -> str:
        return f"column {self.name} is {self.has}, not {self.asked}"


class UnknownRead(TowlineError):
    """A topic or queue that was named is not there. Facts: what, where."""

    remedy = Remedy.FIX_CALL
    advice = "look at the topics with `towline topic list`, or read without subscribe to see what the log holds"

    def __init__(self, what: str, where: str) -> None:
        self.what, self.where = what, where
        super().__init__(what, where)

    @classmethod
    def of_topic(cls, topic: str, known: Iterable[str], where: str) -> Self:
        """With the nearest of the topics that are there."""
        meant = nearest(topic, known)
        return cls(f"topic {topic}" + (f" (did you mean {meant}?)" if meant else ""), where)

    def describe(self) -> str:
        return f"{self.where} has no {self.what}"


class MessagesGone(TowlineError):
    """What was to be read is not there any more. Facts: what, how much, why."""

    remedy = Remedy.FIX_CALL
    advice = (
        "read again from what is left, keep segments longer (file_reserved_time), or set the source's option "
        "failOnDataLoss=false to go on without it"
    )

    def __init__(self, what: str, amount: str, why: str) -> None:
        self.what, self.amount, self.why = what, amount, why
        super().__init__(what, amount, why)

    def describe(self) -> str:
        return f"{self.what} cannot be read any more ({self.amount}): {self.why}"


class DamagedQueue(TowlineError):
    """A queue does not lead to the messages that it should. Facts: file, byte in it, sentence."""

    remedy = Remedy.FIX_DISK
    advice = "run `towline store verify`; readMode=scan needs no queues, onCorruption=skip leaves such entries out"

    def __init__(self, path: str, at: int, sentence: str) -> None:
        self.path, self.at, self.sentence = path, at, sentence
        super().__init__(path, at, sentence)

    def describe(self) -> str:
        return f"{self.path}, byte {self.at}: {self.sentence}"


class DamagedAnswer(TowlineError):
    """A broker sent a message that cannot be read. Facts: topic, queue id, its number in the queue, what is wrong."""

    remedy = Remedy.FIX_DISK
    advice = "run `towline store verify` on the broker's store; onCorruption=skip leaves such messages out"

    def __init__(self, topic: str, queue_id: int, number: int, problem: str) -> None:
        self.topic, self.queue_id, self.number, self.problem = topic, queue_id, number, problem
        super().__init__(topic, queue_id, number, problem)

    def describe(self) -> str:
        return f"message {self.number} of queue {self.queue_id} of {self.topic}: {self.problem}"


class NotHere(TowlineError):
    """A machine that runs a task does not see the store. Facts: path, host."""

    remedy = Remedy.FIX_CALL
    advice = "mount the store on every machine that runs tasks, or read through its broker with the option endpoint"

    def __init__(self, path: str, host: str) -> None:
        self.path, self.host = path, host
        super().__init__(path, host)

    def describe(self) -> str:
        return f"{self.path} does not exist on {self.host}"


class MissingLibrary(TowlineError):
    """Facts: the library, what needs it."""

    remedy = Remedy.FIX_SETTINGS
    advice = "install towline[server,spark] on the driver"

    def __init__(self, library: str, what: str) -> None:
        self.library, self.what = library, what
        super().__init__(library, what)

    def describe(self) -> str:
        return f"{self.what} needs {self.library}, which is not installed here"
