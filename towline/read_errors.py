"""What readers of a node meet where the bytes of a queue or of the log are not what they should be."""

from towline.errors import Remedy, TowlineError


class QueueDamaged(TowlineError):
    """An entry of a queue leads to no record of the log. Facts: topic, queue id, queue offset, what it names."""

    remedy = Remedy.FIX_DISK
    advice = (
        "stop the node and run `towline store repair`, which derives its queues anew; with `seek` a reader goes on "
        "behind the entry"
    )

    def __init__(self, topic: str, queue_id: int, offset: int, problem: str) -> None:
        self.topic, self.queue_id, self.offset, self.problem = topic, queue_id, offset, problem
        super().__init__(topic, queue_id, offset, problem)

    def describe(self) -> str:
        return f"entry {self.offset} of queue {self.queue_id} of {self.topic!r} is damaged: {self.problem}"


class NoRecordHere(TowlineError):
    """No record begins at a byte of the log. Facts: offset asked for, what stands there instead."""

    remedy = Remedy.FIX_CALL
    advice = "ask for an offset or a message id as the store returned it; where it is one, run `towline store verify`"

    def __init__(self, offset: int, problem: str) -> None:
        self.offset, self.problem = offset, problem
        super().__init__(offset, problem)

    def describe(self) -> str:
        return f"no record begins at offset {self.offset}: {self.problem}"


class RecordDamaged(TowlineError):
    """A record of a queue that is not what was stored, by its CRCs. Facts: its offset in the log, what is wrong."""

    remedy = Remedy.FIX_DISK
    advice = "read it from another node; `towline store verify` finds all there are, and says what to do"

    def __init__(self, offset: int, problem: str) -> None:
        self.offset, self.problem = offset, problem
        super().__init__(offset, problem)

    def describe(self) -> str:
        return f"the record at offset {self.offset} of the log is damaged: {self.problem}"
