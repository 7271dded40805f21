"""Messages in a form (`towline.format.record.forms`): what asks for which, and the handles that cancel."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Self, TypeGuard

from towline.client.errors import IllegalDelay, IllegalHandle
from towline.client.message import Message
from towline.format.record.forms import LEVELS_DEFAULT, StoredForm, delayed, timed

TIMER_MAX_SEC_DEFAULT: Final = 3 * 24 * 3600
_S: Final = 1000  # ms
_HANDLE_PARTS: Final = 4


@dataclass(frozen=True, slots=True)
class DelayLimits:
    """The node's limits of delays: the number of levels, and how far away a time may be (s)."""

    levels: int = LEVELS_DEFAULT
    timer_max_sec: int = TIMER_MAX_SEC_DEFAULT

    @classmethod
    def of(cls, welcome: Mapping[str, Any]) -> Self:
        """The limits in the welcome of a put process."""
        return cls(
            int(welcome.get("delay_levels", LEVELS_DEFAULT)),
            int(welcome.get("timer_max_delay_sec", TIMER_MAX_SEC_DEFAULT)),
        )


@dataclass(frozen=True, slots=True)
class Handle:
    """A scheduled message, to be cancelled. Its text is `deliver_at-unique key-queue-topic`."""

    deliver_at: int
    unique_key: str
    queue_id: int
    topic: str

    def __str__(self) -> str:
        return f"{self.deliver_at}-{self.unique_key}-{self.queue_id}-{self.topic}"

    @classmethod
    def read(cls, text: str) -> Self:
        """The handle in a text. Raises IllegalHandle."""
        parts = text.split("-", _HANDLE_PARTS - 1) if isinstance(text, str) else []
        if (
            len(parts) != _HANDLE_PARTS
            or not parts[0].isdigit()
            or not parts[2].isdigit()
            or not (parts[1] and parts[3])
        ):
            raise IllegalHandle(str(text))
        return cls(int(parts[0]), parts[1], int(parts[2]), parts[3])


def stored_form(message: Message, queue_id: int, limits: DelayLimits, now_ms: int) -> StoredForm | None:
    """The form that a message to queue `queue_id` of its topic asks for; None for one that goes there itself.

    `now_ms` is the node's clock. Raises IllegalDelay. A level above the node's highest is that one, as in RocketMQ.
    """
    level, deliver_at = message.delay_level, message.deliver_at_ms
    if level is None and deliver_at is None:
        return None
    if level is not None and deliver_at is not None:
        raise IllegalDelay("delay_level and deliver_at", f"{level} and {deliver_at}", "one of them says when")
    if level is not None:
        if not _is_number(level) or level < 0:
            raise IllegalDelay("delay_level", repr(level), "a level is a number from 1 on, 0 is no delay")
        return delayed(message.topic, queue_id, level, limits.levels) if level else None
    if not _is_number(deliver_at) or deliver_at <= 0:
        raise IllegalDelay("deliver_at", repr(deliver_at), "a time is a datetime, or a number of ms since 1970")
    if deliver_at > now_ms + limits.timer_max_sec * _S:
        raise IllegalDelay(
            "deliver_at", str(deliver_at), f"it is more than timer_max_delay_sec ({limits.timer_max_sec} s) away"
        )
    return timed(message.topic, queue_id, deliver_at)


def handle_of(message: Message, queue_id: int, unique_key: str) -> str:
    """The handle that cancels this message; empty for a message without `deliver_at`."""
    at = message.deliver_at_ms
    return str(Handle(at, unique_key, queue_id, message.topic)) if at else ""


def _is_number(value: object) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool)
