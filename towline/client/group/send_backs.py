"""Messages that a member could not handle, stored again: by the client itself at a node, by the broker at RocketMQ."""

from typing import Final, Protocol

from towline.format.record.retries import RETRIES_DEFAULT

from .member import Member
from .message import GroupMessage

DEAD_LETTER: Final = -1


class SendBacks(Protocol):
    """Any thread may use it."""

    def send(self, message: GroupMessage, level: int | None) -> bool:
        """Has the message come again, after the delay of `level` if one is named; False for a dead letter."""
        ...

    def close(self) -> None: ...


class BrokerSendBacks:
    """Has the broker do it, which knows the message by its place (CONSUMER_SEND_MSG_BACK)."""

    def __init__(self, member: Member) -> None:
        self._member = member

    def send(self, message: GroupMessage, level: int | None) -> bool:
        """After RETRIES_DEFAULT times, which consumers in Java name too, a message is a dead letter.

        Raises AskRefused, NoAnswer, ClientClosed.
        """
        facts = {
            "group": self._member.rules.group,
            "offset": message.physical_offset,
            "key": message.unique_key or "",
            "topic": message.stored_topic,
            "level": 0 if level is None else max(DEAD_LETTER, level),
            "times": RETRIES_DEFAULT,
        }
        self._member.ask("group_send_back", facts, self._member.rules.timeout_ms)
        return (level is None or level >= 0) and message.reconsume_times < RETRIES_DEFAULT

    def close(self) -> None:
        """The member is closed by its consumer."""
