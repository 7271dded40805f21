"""The errors of consumer groups that a member meets."""

from towline.errors import Remedy, TowlineError


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
