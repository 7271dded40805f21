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


class NotAStore(TowlineError, remedy=Remedy.FIX_CALL):
    """A directory that holds neither a store nor a backup."""

    path: str
    problem: str
    advice = "give the directory of a store (it holds commitlog/) or of a backup (it holds backup.json)"


class NoSafeEnd(TowlineError, remedy=Remedy.FIX_CALL):
    """Somebody writes the store, and nothing says up to where it cannot be taken back (H24)."""

    path: str
    pid: int  # 0: of a process that cannot be seen from here
    advice = "read through its broker with the option endpoint, read a backup, or stop the process first"

    def describe(self) -> str:
        unsaid = "neither its positions nor checkpoint nor durable say up to where the log cannot be taken back"
        return f"{self.path} is being written by process {self.pid or 'of another container'}, and {unsaid}"


class UnknownOption(TowlineError, remedy=Remedy.FIX_CALL):
    """An option that the data source does not have."""

    name: str
    meant: str  # "" if none is near
    advice = "docs/spark.md lists the options"

    def describe(self) -> str:
        guess = f"; did you mean {self.meant}?" if self.meant else ""
        return f"the format towline has no option {self.name}{guess}"


class NoTable(TowlineError, remedy=Remedy.FIX_CALL):
    """No option at all, so perhaps a table of a catalog; or such a table is being made."""

    template = (
        "no option says which store is meant: Spark hands a source in Python none of the options that a table of a "
        "catalog was created with"
    )
    advice = (
        "make a view (CREATE TEMPORARY VIEW ... USING towline OPTIONS (path '...')), or create the table with its "
        "columns and no options, and say them with each statement: SELECT ... FROM t WITH (path = '...')"
    )


class BadOption(TowlineError, remedy=Remedy.FIX_CALL):
    """An option of the source or sink has a value that cannot be."""

    name: str
    value: str
    problem: str
    template = "option {name}={value!r}: {problem}"
    advice = "change the option; docs/spark.md says what it takes"


class WrongColumnType(TowlineError, remedy=Remedy.FIX_CALL):
    name: str
    asked: str
    has: str
    template = "column {name} is {has}, not {asked}"
    advice = "ask for the column's own type, and cast it in the query"


class UnknownRead(TowlineError, remedy=Remedy.FIX_CALL):
    what: str
    where: str
    template = "{where} has no {what}"
    advice = "look at the topics with `towline topic list`, or read without subscribe to see what the log holds"

    @classmethod
    def of_topic(cls, topic: str, known: Iterable[str], where: str) -> Self:
        """With the nearest of the topics that are there."""
        meant = nearest(topic, known)
        return cls(f"topic {topic}" + (f" (did you mean {meant}?)" if meant else ""), where)


class MessagesGone(TowlineError, remedy=Remedy.FIX_CALL):
    what: str
    amount: str
    why: str
    template = "{what} cannot be read any more ({amount}): {why}"
    advice = (
        "read again from what is left, keep segments longer (file_reserved_time), or set the source's option "
        "failOnDataLoss=false to go on without it"
    )


class DamagedQueue(TowlineError, remedy=Remedy.FIX_DISK):
    """A queue does not lead to the messages that it should."""

    path: str
    at: int
    sentence: str
    template = "{path}, byte {at}: {sentence}"
    advice = "run `towline store verify`; readMode=scan needs no queues, onCorruption=skip leaves such entries out"


class DamagedAnswer(TowlineError, remedy=Remedy.FIX_DISK):
    """A broker sent a message that cannot be read."""

    topic: str
    queue_id: int
    number: int
    problem: str
    template = "message {number} of queue {queue_id} of {topic}: {problem}"
    advice = "run `towline store verify` on the broker's store; onCorruption=skip leaves such messages out"


class NotHere(TowlineError, remedy=Remedy.FIX_CALL):
    path: str
    host: str
    template = "{path} does not exist on {host}"
    advice = "mount the store on every machine that runs tasks, or read through its broker with the option endpoint"


class MissingLibrary(TowlineError, remedy=Remedy.FIX_SETTINGS):
    library: str
    what: str
    template = "{what} needs {library}, which is not installed here"
    advice = "install towline[server,spark] on the driver"


class UnwritableColumn(TowlineError, remedy=Remedy.FIX_CALL):
    name: str
    known: str
    template = "the column {name!r} cannot be written; a message is made of {known}"
    advice = "select the columns that are to be written, under these names"


class UnwritableType(TowlineError, remedy=Remedy.FIX_CALL):
    name: str
    found: str
    wanted: str
    template = "the column {name} is {found}; a message needs {wanted}"
    advice = "cast the column"


class UnwritableRow(TowlineError, remedy=Remedy.FIX_CALL):
    """A row of which no message can be made."""

    row: int  # its number in the task's batch
    why: str
    template = "row {row}: {why}"
    advice = "filter or change such rows before they are written"


class NotAppendable(TowlineError, remedy=Remedy.FIX_CALL):
    """A write that would have to replace messages: mode overwrite, or output mode complete."""

    template = "messages in a topic cannot be overwritten"
    advice = 'write with mode "append", and streams with output mode append or update'


class NotTheSameRows(TowlineError, remedy=Remedy.FIX_CALL):
    unique_key: str
    why: str
    template = "the message {unique_key} of an earlier run of this batch is not this run's: {why}"
    advice = (
        "let the query give the same rows in the same order whenever a batch is run again (sort within partitions, no "
        "random or current-time columns), or begin with another checkpoint or txnAppId"
    )


class Fenced(TowlineError, remedy=Remedy.RETRY):
    stem: str  # what the rows' unique keys begin with
    template = "another attempt at the rows {stem} has begun, so this one stops: both would write them"
    advice = "nothing is lost: the other attempt writes the rows; without spark.speculation it happens seldom"


class NotWritten(TowlineError, remedy=Remedy.RETRY):
    """Rows that could not be stored, or not be promised, in time."""

    count: int  # 0: the node could not tell which rows it has
    waited_ms: int
    trouble: str
    advice = "run the batch again when the node has recovered: what is there already is not sent twice"

    def describe(self) -> str:
        what = f"{self.count} messages are not surely stored" if self.count else "what is stored already is not known"
        return f"{what} after {self.waited_ms} ms: {self.trouble}"


class CannotLookBack(TowlineError, remedy=Remedy.FIX_SETTINGS):
    template = "a batch may be a replay, and the node keeps no index in which its messages could be looked up"
    advice = "set message_index_enable on the node, or write with idempotent=false and expect doubles after a replay"


class SeveralGroups(TowlineError, remedy=Remedy.FIX_CALL):
    names: str
    template = "the sink writes to one group of nodes, and these are several: {names}"
    advice = "name the endpoints of one group, or split the frame and write to each group"


class CheckpointUnusable(TowlineError, remedy=Remedy.FIX_CALL):
    offset: str
    why: str
    template = "the checkpoint cannot be used: {why} (offset {offset:.200})"
    advice = "give the options and the store that the query was begun with, or begin anew with another checkpoint"
