"""Refusals of group questions, by name. Clients act on the name; the sentence is for people."""

from enum import Enum
from shlex import quote

from towline.errors import Remedy, TowlineError


class Refusal(Enum):
    """The name on the wire, and advice for the caller."""

    UNKNOWN_GROUP = "look at `towline group list`, or let a member join first"
    UNKNOWN_MEMBER = "join the group, then ask again"
    MEMBER_TAKEN = "give each consumer an id of its own, or wait until the other one has gone"
    UNKNOWN_QUEUE = "name a queue that the topic has: `towline topic describe TOPIC` shows them"
    ILLEGAL_GROUP = "give the group another name"
    ILLEGAL_MEMBER = "give the member another id"
    ILLEGAL_QUESTION = "talk to Towline with its own client of the same version"
    CONSUME_DISABLED = "switch it on with `towline group configure GROUP --consume-enable`, or use another group"
    BROADCASTING = "let each member of a broadcasting group keep its own offsets"
    FILTER_DISABLED = "restart the node with `--set enable_property_filter=true`, or filter by tags"
    GROUP_IN_USE = "close its consumers first; `towline group describe GROUP` names them"
    TOO_MANY_GROUPS = "delete groups that nobody uses"
    TOO_MANY_MEMBERS = "use fewer members: more than there are queues have nothing to read"
    NODES_OWN = "leave it to the node, whose open transactions hang on it"
    NOT_MASTER = "ask the master: a slave only follows its offsets"
    STARTING = "ask again in a moment"
    OFFSETS_UNREADABLE = "restore the file or its .bak from a copy, or remove both to begin anew, then restart the node"


class GroupRefused(TowlineError, remedy=Remedy.FIX_CALL):
    """What a member or an admin asked for is refused, by name."""

    refusal: Refusal
    sentence: str
    retry_after_ms: int = 0  # 0: asking again does not help
    about: str = ""  # the topic or group that is to be typed
    template = "{sentence}"

    @property
    def code(self) -> str:
        return self.refusal.name

    @property
    def advice(self) -> str:  # type: ignore[override]
        advice = self.refusal.value
        for open_word in ("TOPIC", "GROUP") if self.about else ():
            advice = advice.replace(open_word, quote(self.about))
        return advice
