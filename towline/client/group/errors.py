"""The errors of consumer groups that a member meets."""

from shlex import quote
from typing import Final

from towline.client.errors import AskRefused
from towline.errors import Remedy, TowlineError

CONSUME_DISABLED: Final = "CONSUME_DISABLED"


class MemberTaken(TowlineError, remedy=Remedy.FIX_CALL):
    group: str
    member: str
    template = "the group {group!r} has a live member {member!r} already"
    advice = "give every consumer of a group a name of its own, or none"


class NotAssigned(TowlineError, remedy=Remedy.FIX_CALL):
    topic: str
    queue_id: int
    template = "queue {queue_id} of {topic} is not read by this member"
    advice = "look at `assignment()`: queues come and go as members do"


class NoWayBack(TowlineError, remedy=Remedy.FIX_CALL):
    group: str
    why: str
    template = "the group {group!r} cannot send messages back: {why}"
    advice = "give the consumer `put_endpoint`, the address of the master"


class NotStorable(TowlineError, remedy=Remedy.FIX_CALL):
    topic: str
    why: str
    template = "a copy for {topic} can never be stored: {why}"
    advice = "read the message where it stands, in the topic it came from, and handle it by hand"


class NotInHand(TowlineError, remedy=Remedy.FIX_CALL):
    """A message that was to be committed is this member's no more: its queue was reassigned, begun anew or moved since
    it was handed out, or whoever had it gave it back.
    """

    topic: str
    queue_id: int
    offset: int
    template = "the message at {offset} of queue {queue_id} of {topic} is in nobody's hand"
    advice = "do not commit it: it comes again, here or to another member, unless it was committed before"


class ConsumeDisabled(AskRefused):
    """The group is switched off at the node, for members of this model."""

    group: str
    broadcasting: bool
    template = "{sentence}"

    @property
    def advice(self) -> str:  # type: ignore[override]
        option = "--consume-broadcast-enable" if self.broadcasting else "--consume-enable"
        typed = f"`towline group configure {quote(self.group)} {option}`"
        return f"switch it on: {typed}; members that are there go on by themselves"


class IllegalPlace(TowlineError, remedy=Remedy.FIX_CALL):
    topic: str
    queue_id: int
    offset: int
    template = "queue {queue_id} of {topic} has no offset {offset}"
    advice = "seek to 0 or more; `seek_to_time(0)` finds the first message that is kept"


class OffsetsFileDamaged(TowlineError, remedy=Remedy.FIX_DISK):
    """Neither the local offsets file nor its copy can be read."""

    path: str
    problem: str
    advice = "restore the file, or remove it and its .bak to start as a new consumer"


class OffsetsFileTaken(TowlineError, remedy=Remedy.FIX_CALL):
    path: str
    template = "{path} is in use by another consumer"
    advice = "give every broadcasting consumer an offsets_file of its own"


class OffsetsNotSaved(TowlineError, remedy=Remedy.FIX_DISK):
    path: str
    problem: str
    template = "{path} is not saved: {problem}"
    advice = "make room and look at the permissions: after a crash now, messages come again"
