"""What is said about popped messages: header fields, handles, the offsets in an answer, acks of many at once.

Out of the answer to its pop a client makes a handle of each message (`extraInfo`, POP_CK), which it shows again with an
ack: words with a blank between them.

    start offset    of what was popped from the queue with it
    pop time        ms since 1970
    invisible time  ms
    revive queue    ORDER_QUEUE of a pop in order; of no other meaning here
    retry           NORMAL or RETRY: whether the queue is one of a retry topic
    broker          its name
    queue           its number
    offset          of the message, in its queue; not in every handle
"""

import base64
import binascii
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from towline.errors import MalformedFrame
from towline.limits import RETRY_TOPIC_PREFIX

from .headers import I32

ORDER_QUEUE: Final = 999
NORMAL: Final = "0"
RETRY: Final = "1"
ACKS_MAX: Final = 1_024  # rows of one request
_BLANK: Final = " "
_HANDLE_WORDS: Final = 7
_BITS_MAX: Final = 1_024  # bytes: 8,192 messages from one start offset on
_INT63: Final = 1 << 63


@dataclass(frozen=True, slots=True, kw_only=True)
class PopMessage:
    """POP_MESSAGE. `queue_id` below 0: of any queue. `init_mode`: where a group without an offset begins, 0: at the
    first message, 1: at the end. An answer is due `poll_time` ms after it came, also without messages."""

    consumer_group: str
    topic: str
    queue_id: I32
    max_msg_nums: I32
    invisible_time: int
    poll_time: int
    init_mode: I32 = 0
    exp_type: str = "TAG"
    exp: str = ""
    order: bool = False
    attempt_id: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class AckMessage:
    """ACK_MESSAGE. `topic` may be a retry topic."""

    consumer_group: str
    topic: str
    queue_id: I32
    extra_info: str
    offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeInvisibleTime:
    """CHANGE_MESSAGE_INVISIBLETIME: the message comes again `invisible_time` ms from now."""

    consumer_group: str
    topic: str
    queue_id: I32
    extra_info: str
    offset: int
    invisible_time: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Notification:
    """NOTIFICATION: whether there is a message, within `poll_time` ms."""

    consumer_group: str
    topic: str
    queue_id: I32
    poll_time: int
    order: bool = False
    attempt_id: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class PollingInfo:
    """POLLING_INFO: how many wait for messages."""

    consumer_group: str
    topic: str
    queue_id: I32


def retry_topic(group: str, topic: str) -> str:
    """Where messages of a topic stand again that a group did not acknowledge in time."""
    return f"{RETRY_TOPIC_PREFIX}{group}_{topic}"


@dataclass(frozen=True, slots=True)
class Handle:
    """What a client shows of a pop."""

    start: int
    pop_time: int
    invisible_time: int
    revive_queue: int
    retry: str
    broker: str
    queue_id: int

    @property
    def is_ordered(self) -> bool:
        return self.revive_queue == ORDER_QUEUE

    def text(self, offset: int) -> str:
        """The handle of the message at an offset of the queue."""
        words = (self.start, self.pop_time, self.invisible_time, self.revive_queue, self.retry, self.broker)
        return _BLANK.join(map(str, (*words, self.queue_id, offset)))


def read_handle(text: str) -> Handle:
    """Raises MalformedFrame."""
    words = text.split(_BLANK)
    if len(words) < _HANDLE_WORDS:
        raise MalformedFrame(f"a handle has {_HANDLE_WORDS} words or more; {text[:80]!r} has {len(words)}")
    numbers = [_number(words[place], "a handle") for place in (0, 1, 2, 3, 6)]
    start, pop_time, invisible_time, revive_queue, queue_id = numbers
    return Handle(start, pop_time, invisible_time, revive_queue, words[4], words[5], queue_id)


@dataclass(frozen=True, slots=True)
class PoppedRange:
    """What a pop got from one queue. `times`, of an ordered pop: how often messages were popped before, by
    offset."""

    retry: str
    queue_id: int
    start: int
    offsets: Sequence[int]
    times: dict[int, int] | None = None


def offset_fields(ranges: Iterable[PoppedRange]) -> dict[str, str]:
    """The fields of an answer that say where its messages stand; a range for each queue."""
    found = list(ranges)
    fields = {
        "startOffsetInfo": ";".join(f"{each.retry} {each.queue_id} {each.start}" for each in found),
        "msgOffsetInfo": ";".join(f"{each.retry} {each.queue_id} {','.join(map(str, each.offsets))}" for each in found),
    }
    counts = ";".join(text for each in found if each.times is not None for text in _counts(each, each.times))
    return fields | ({"orderCountInfo": counts} if counts else {})


def _counts(popped: PoppedRange, times: dict[int, int]) -> Iterator[str]:
    """Of each message that was popped before, and the least of the queue, which older clients read."""
    for offset, count in times.items():
        yield f"{popped.retry} qo{popped.queue_id}%{offset} {count}"
    least = min(times.get(offset, 0) for offset in popped.offsets)
    yield f"{popped.retry} {popped.queue_id} {least}"


@dataclass(frozen=True, slots=True)
class Acks:
    """Acks of several messages of one queue that were popped together."""

    group: str
    topic: str
    queue_id: int
    pop_time: int
    revive_queue: int
    offsets: tuple[int, ...]


def read_acks(said: Any) -> list[Acks]:
    """The body of BATCH_ACK_MESSAGE. Raises MalformedFrame."""
    match said:
        case {"acks": list(rows)} if len(rows) <= ACKS_MAX:
            return [_acks(row) for row in rows]
    raise MalformedFrame(f"acks are a list of at most {ACKS_MAX}")


def _acks(row: Any) -> Acks:
    match row:
        case {
            "c": str(group),
            "t": str(topic),
            "r": str(retry),
            "so": int(start),
            "q": int(queue_id),
            "rq": int(revive_queue),
            "pt": int(pop_time),
            "b": str(bits),
        } if 0 <= start < _INT63:
            real = retry_topic(group, topic) if retry == RETRY else topic
            return Acks(group, real, queue_id, pop_time, revive_queue, tuple(start + bit for bit in _bits(bits)))
    raise MalformedFrame("an ack has a group, a topic, retry, a start offset, a queue, a pop time and bits")


def _bits(text: str) -> Iterator[int]:
    """The numbers of the bits that are set, the lowest of the first byte being 0."""
    try:
        data = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise MalformedFrame("the bits of an ack are no base64") from None
    if len(data) > _BITS_MAX:
        raise MalformedFrame(f"the bits of an ack take {len(data)} bytes; {_BITS_MAX} are allowed")
    return (8 * place + bit for place, byte in enumerate(data) for bit in range(8) if byte >> bit & 1)


def _number(text: str, what: str) -> int:
    if text.isascii() and text.isdigit() and len(text) <= 19 and int(text) < _INT63:
        return int(text)
    raise MalformedFrame(f"{text[:40]!r} in {what} is no number")
