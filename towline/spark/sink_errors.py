"""Errors of the sink."""

from towline.errors import Remedy, TowlineError


class UnwritableColumn(TowlineError):
    """A column that no message has, or that only the store writes. Facts: its name, the names that are taken."""

    remedy = Remedy.FIX_CALL
    advice = "select the columns that are to be written, under these names"

    def __init__(self, name: str, known: str) -> None:
        self.name, self.known = name, known
        super().__init__(name, known)

    def describe(self) -> str:
        return f"the column {self.name!r} cannot be written; a message is made of {self.known}"


class UnwritableType(TowlineError):
    """A column of a type that its part of a message cannot hold. Facts: its name, its type, what it should be."""

    remedy = Remedy.FIX_CALL
    advice = "cast the column"

    def __init__(self, name: str, found: str, wanted: str) -> None:
        self.name, self.found, self.wanted = name, found, wanted
        super().__init__(name, found, wanted)

    def describe(self) -> str:
        return f"the column {self.name} is {self.found}; a message needs {self.wanted}"


class UnwritableRow(TowlineError):
    """A row of which no message can be made. Facts: its number within the task's batch of rows, why."""

    remedy = Remedy.FIX_CALL
    advice = "filter or change such rows before they are written"

    def __init__(self, row: int, why: str) -> None:
        self.row, self.why = row, why
        super().__init__(row, why)

    def describe(self) -> str:
        return f"row {self.row}: {self.why}"


class NotAppendable(TowlineError):
    """A write that would have to replace messages: mode overwrite, or output mode complete."""

    remedy = Remedy.FIX_CALL
    advice = 'write with mode "append", and streams with output mode append or update'

    def describe(self) -> str:
        return "messages in a topic cannot be overwritten"


class NotTheSameRows(TowlineError):
    """A batch that runs again gives other rows than before. Facts: unique key, what differs."""

    remedy = Remedy.FIX_CALL
    advice = (
        "let the query give the same rows in the same order whenever a batch is run again (sort within partitions, no "
        "random or current-time columns), or begin with another checkpoint or txnAppId"
    )

    def __init__(self, unique_key: str, why: str) -> None:
        self.unique_key, self.why = unique_key, why
        super().__init__(unique_key, why)

    def describe(self) -> str:
        return f"the message {self.unique_key} of an earlier run of this batch is not this run's: {self.why}"


class Fenced(TowlineError):
    """Another attempt at the same rows has begun since; it alone goes on. Facts: what their unique keys begin with."""

    remedy = Remedy.RETRY
    advice = "nothing is lost: the other attempt writes the rows; without spark.speculation it happens seldom"

    def __init__(self, stem: str) -> None:
        self.stem = stem
        super().__init__(stem)

    def describe(self) -> str:
        return f"another attempt at the rows {self.stem} has begun, so this one stops: both would write them"


class NotWritten(TowlineError):
    """Rows that could not be stored, or not be promised, in time; none: of which rows are there already, the node could
    not tell. Facts: how many, ms, what happened last.
    """

    remedy = Remedy.RETRY
    advice = "run the batch again when the node has recovered: what is there already is not sent twice"

    def __init__(self, count: int, waited_ms: int, trouble: str) -> None:
        self.count, self.waited_ms, self.trouble = count, waited_ms, trouble
        super().__init__(count, waited_ms, trouble)

    def describe(self) -> str:
        what = f"{self.count} messages are not surely stored" if self.count else "what is stored already is not known"
        return f"{what} after {self.waited_ms} ms: {self.trouble}"


class CannotLookBack(TowlineError):
    """The node keeps no index, so nobody can tell whether a batch was written before."""

    remedy = Remedy.FIX_SETTINGS
    advice = "set message_index_enable on the node, or write with idempotent=false and expect doubles after a replay"

    def describe(self) -> str:
        return "a batch may be a replay, and the node keeps no index in which its messages could be looked up"


class SeveralGroups(TowlineError):
    """A sink over several groups of nodes, which do not know each other's messages. Facts: their names."""

    remedy = Remedy.FIX_CALL
    advice = "name the endpoints of one group, or split the frame and write to each group"

    def __init__(self, names: str) -> None:
        self.names = names
        super().__init__(names)

    def describe(self) -> str:
        return f"the sink writes to one group of nodes, and these are several: {self.names}"
