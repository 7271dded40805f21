"""The errors of consumer groups that a member meets."""

from typing import Final

from towline.client.errors import AskRefused
from towline.errors import Remedy, TowlineError

CONSUME_DISABLED: Final = "CONSUME_DISABLED"


class MemberTaken(TowlineError):
    """Another live consumer has this name in the group. Facts: group, member."""

    remedy = Remedy.FIX_CALL
    advice = "give every consumer of a group a name of its own, or none"

    def __init__(self, group: str, member: str) -> None:
        self.group, self.member = group, member
        super().__init__(group, member)

    def describe(self) -> str:
        return f"the group {self.group!r} has a live member {self.member!r} already"


class NotAssigned(TowlineError):
    """A queue that this member does not read now. Facts: topic, queue."""

    remedy = Remedy.FIX_CALL
    advice = "look at `assignment()`: queues come and go as members do"

    def __init__(self, topic: str, queue_id: int) -> None:
        self.topic, self.queue_id = topic, queue_id
        super().__init__(topic, queue_id)

    def describe(self) -> str:
        return f"queue {self.queue_id} of {self.topic} is not read by this member"


class NoWayBack(TowlineError):
    """A message cannot be sent back. Facts: group, why."""

    remedy = Remedy.FIX_CALL
    advice = "give the consumer `put_endpoint`, the address of the master's put process"

    def __init__(self, group: str, why: str) -> None:
        self.group, self.why = group, why
        super().__init__(group, why)

    def describe(self) -> str:
        return f"the group {self.group!r} cannot send messages back: {self.why}"


class NotStorable(TowlineError):
    """No copy of a message can be stored, now or later. Facts: the topic it was for, which rule is in the way."""

    remedy = Remedy.FIX_CALL
    advice = "read the message where it stands, in the topic it came from, and handle it by hand"

    def __init__(self, topic: str, why: str) -> None:
        self.topic, self.why = topic, why
        super().__init__(topic, why)

    def describe(self) -> str:
        return f"a copy for {self.topic} can never be stored: {self.why}"


class NotInHand(TowlineError):
    """A message that was to be committed is nobody's any more: its queue went, began anew or was moved since it was
    handed out, or whoever had it gave it back. Facts: topic, queue, offset.
    """

    remedy = Remedy.FIX_CALL
    advice = "do not commit it: it comes again, here or to another member, unless it was committed before"

    def __init__(self, topic: str, queue_id: int, offset: int) -> None:
        self.topic, self.queue_id, self.offset = topic, queue_id, offset
        super().__init__(topic, queue_id, offset)

    def describe(self) -> str:
        return f"the message at {self.offset} of queue {self.queue_id} of {self.topic} is in nobody's hand"


class ConsumeDisabled(AskRefused):
    """The group is switched off at the node. Facts: operation, the node's sentence."""

    advice = "switch it on: `towline group configure GROUP --consume-enable`, for members that broadcast "
    advice += "--consume-broadcast-enable; members that are there go on by themselves"

    def __init__(self, op: str, sentence: str) -> None:
        super().__init__(op, CONSUME_DISABLED, sentence)
        self.args = (op, sentence)

    def describe(self) -> str:
        return self.sentence


class IllegalPlace(TowlineError):
    """An offset at which no message can stand. Facts: topic, queue, offset."""

    remedy = Remedy.FIX_CALL
    advice = "seek to 0 or more; `seek_to_time(0)` finds the first message that is kept"

    def __init__(self, topic: str, queue_id: int, offset: int) -> None:
        self.topic, self.queue_id, self.offset = topic, queue_id, offset
        super().__init__(topic, queue_id, offset)

    def describe(self) -> str:
        return f"queue {self.queue_id} of {self.topic} has no offset {self.offset}"


class OffsetsFileDamaged(TowlineError):
    """Neither the local offsets file nor its copy can be read. Facts: path, what is wrong."""

    remedy = Remedy.FIX_DISK
    advice = "restore the file, or remove it and its .bak to start as a new consumer"

    def __init__(self, path: str, problem: str) -> None:
        self.path, self.problem = path, problem
        super().__init__(path, problem)

    def describe(self) -> str:
        return f"{self.path}: {self.problem}"


class OffsetsFileTaken(TowlineError):
    """Another process keeps its offsets in this file. Facts: path."""

    remedy = Remedy.FIX_CALL
    advice = "give every broadcasting consumer an offsets_file of its own"

    def __init__(self, path: str) -> None:
        self.path = path
        super().__init__(path)

    def describe(self) -> str:
        return f"{self.path} is in use by another consumer"


class OffsetsNotSaved(TowlineError):
    """The local offsets file cannot be written; it is tried again. Facts: path, what the system says."""

    remedy = Remedy.FIX_DISK
    advice = "make room and look at the permissions: after a crash now, messages come again"

    def __init__(self, path: str, problem: str) -> None:
        self.path, self.problem = path, problem
        super().__init__(path, problem)

    def describe(self) -> str:
        return f"{self.path} is not saved: {self.problem}"
