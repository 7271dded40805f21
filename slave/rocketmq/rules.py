"""Why this node does not follow a RocketMQ master: the rule that is broken, by what, and what to do. Pure.

The protocol has no handshake, no check and no word for a refusal (spec 9.1 to 9.3), so every rule is kept here.
"""

from enum import Enum

from towline.errors import LinkRefused

_BOTH = "rocketmq_master_address and rocketmq_master_broker"
_CLEAR = "stop this node, clear its store directory and start it again: it fetches the whole log"


class Rule(Enum):
    """The rule, and the remedy where it is broken."""

    BROKER = "the master's broker answers at rocketmq_master_broker", "look whether it runs, and at that setting"
    REFUSED = (
        "the master's broker answers what its slaves ask",
        "one that has just started does so a moment later; else it has to be of 4.9 or 5, and let this machine ask "
        "without a signature",
    )
    PORT = "the master takes slaves at rocketmq_master_address", "set that to the port which the broker names"
    NAME = (
        "master and slave have one brokerName and brokerClusterName",
        f"set broker_name and broker_cluster_name to the master's, or look at {_BOTH}",
    )
    NOT_MASTER = "who is followed is a master", f"{_BOTH} name the broker with brokerId=0"
    CONTROLLER = (
        "the master hands its log on by HAService, with neither a controller nor DLedger",
        "the store can be handed over instead: see docs/coming-from-rocketmq.md",
    )
    SEGMENT_SIZE = (
        "master and slave have segments of one size",
        "set mapped_file_size_commit_log to the master's mappedFileSizeCommitLog; a store that has another size has to "
        "be cleared",
    )
    LEVELS = (
        "master and slave have the same delay levels",
        "set message_delay_level to the master's messageDelayLevel: who is promoted delivers by it",
    )
    ORIGIN = (
        "the log of a slave was written by RocketMQ's master alone",
        f"this one has bytes of a Towline master: was it promoted, `towline master start` starts it; else {_CLEAR}",
    )
    BEFORE = "a slave goes on where its log ends, and the master's begins behind that", _CLEAR
    AHEAD = (
        "a slave has nothing that its master has not",
        f"the master has lost its end, or is another one: promote this node in its place, or {_CLEAR}",
    )
    TAIL = "the last message here is, byte for byte, the master's", f"its log is another one: {_CLEAR}"
    OFFSET = (
        "a frame goes on where the one before it ended",
        f"the master's log is another one, or something else is at rocketmq_master_address: look there, or {_CLEAR}",
    )
    SIZE = (
        "a frame has 0 to 4 MiB of the log",
        "something else than a broker of RocketMQ is at rocketmq_master_address",
    )
    BORDER = (
        "no frame reaches over the end of a segment",
        "the master's segments have another size: set mapped_file_size_commit_log to its mappedFileSizeCommitLog, and "
        "clear this store",
    )
    RECORD = (
        "what the master sends are messages, each whole, at its own place and with the CRC of its body",
        "its log is damaged, or something else is at rocketmq_master_address; nothing of it was stored here",
    )
    SILENT = (
        "a master sends a heartbeat every 5 s",
        "look at the network, and whether the master's machine stands still",
    )
    CLOSED = "a master keeps the connection open", "look whether it runs, and at its log"

    def __init__(self, sentence: str, remedy: str) -> None:
        self.sentence, self.remedy = sentence, remedy


def refused(rule: Rule, facts: str) -> LinkRefused:
    """The refusal of a master that broke a rule: its code is the rule's name."""
    return LinkRefused(rule.name, f"{rule.sentence}; {facts}. Remedy: {rule.remedy}")
