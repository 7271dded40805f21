"""Forms: records for a system topic, whose properties name the topic and queue they are for (spec 5.2, 5.4).

RocketMQ's broker rewrites such messages as they come; here the sender encodes them as they will stand in the log, and
put checks them one by one.

    form     topic, queue                    properties                                asks for
    DELAYED  SCHEDULE_TOPIC_XXXX, level - 1  REAL_TOPIC REAL_QID DELAY=level           delivery after a level's delay
    HALF     RMQ_SYS_TRANS_HALF_TOPIC, 0     REAL_TOPIC REAL_QID TRAN_MSG=true PGROUP  delivery when committed
    TIMED    rmq_sys_wheel_timer, 0          REAL_TOPIC REAL_QID TIMER_DELIVER_MS=ms   delivery at that time, in ms
                                             TIMER_OUT_MS=the same                     since 1970
    CANCEL   rmq_sys_wheel_timer, 1          as TIMED, TIMER_DEL_UNIQKEY=key           none of what has that time and
                                                                                       UNIQ_KEY

A message that a group sends back is DELAYED with the REAL_TOPIC %RETRY%group; one that it gives up is an ordinary
record of the topic %DLQ%group.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntFlag
from typing import Final

from .properties import DELAY, PRODUCER_GROUP, REAL_QID, REAL_TOPIC, TRANSACTION_PREPARED

SCHEDULE_TOPIC: Final = "SCHEDULE_TOPIC_XXXX"
HALF_TOPIC: Final = "RMQ_SYS_TRANS_HALF_TOPIC"
TIMER_TOPIC: Final = "rmq_sys_wheel_timer"
OP_TOPIC: Final = "RMQ_SYS_TRANS_OP_HALF_TOPIC"  # these two are written by the node's own processes alone
TRANS_CHECK_TOPIC: Final = "TRANS_CHECK_MAX_TIME_TOPIC"
FORM_TOPICS: Final = frozenset({SCHEDULE_TOPIC, HALF_TOPIC, TIMER_TOPIC})
HALF_QUEUE: Final = 0
TIMER_QUEUE: Final = 0
CANCEL_QUEUE: Final = 1

LEVELS_DEFAULT: Final = 18

HALF_ROOM: Final = 2048  # bytes of a request that stay free beside a half: for its end, which is stored with it
CHECK_ROOM: Final = 128  # bytes of properties that a check may add

TIMER_DELIVER_MS: Final = "TIMER_DELIVER_MS"
TIMER_OUT_MS: Final = "TIMER_OUT_MS"
TIMER_DEL_UNIQKEY: Final = "TIMER_DEL_UNIQKEY"


class Form(IntFlag):
    """What a record of a group is; PLAIN for all that go to a topic of the clients' own."""

    PLAIN = 0
    DELAYED = 1
    HALF = 2
    TIMED = 4
    CANCEL = 8


_ANY: Final = Form.DELAYED | Form.HALF | Form.TIMED | Form.CANCEL
CARRIED: Final[Mapping[str, Form]] = {  # reserved names, and the forms whose records carry them
    REAL_TOPIC: _ANY,
    REAL_QID: _ANY,
    DELAY: Form.DELAYED,
    TRANSACTION_PREPARED: Form.HALF,
    TIMER_DELIVER_MS: Form.TIMED | Form.CANCEL,
    TIMER_OUT_MS: Form.TIMED | Form.CANCEL,
    TIMER_DEL_UNIQKEY: Form.CANCEL,
}
_QUEUES: Final[Mapping[bytes, tuple[Form, ...]]] = {
    HALF_TOPIC.encode(): (Form.HALF,),
    TIMER_TOPIC.encode(): (Form.TIMED, Form.CANCEL),
}


def form_of(topic: bytes, queue_id: int, levels: int) -> Form:
    """The form of what a client may put into this queue, where there are so many delay levels; else PLAIN."""
    if topic == SCHEDULE_TOPIC.encode():
        return Form.DELAYED if 0 <= queue_id < levels else Form.PLAIN
    forms = _QUEUES.get(topic, ())
    return forms[queue_id] if 0 <= queue_id < len(forms) else Form.PLAIN


@dataclass(frozen=True, slots=True)
class StoredForm:
    """The topic and queue of a stored record, and the properties that name its own topic and queue."""

    topic: str
    queue_id: int
    pairs: tuple[tuple[str, str], ...]


def delayed(topic: str, queue_id: int, level: int, levels: int = LEVELS_DEFAULT) -> StoredForm:
    """The form of a message that is delivered after the delay of `level`, of which the node has `levels`."""
    level = min(level, levels)
    return StoredForm(SCHEDULE_TOPIC, level - 1, (*_real(topic, queue_id), (DELAY, str(level))))


def timed(topic: str, queue_id: int, deliver_at: int) -> StoredForm:
    """The form of a message that is delivered at that time, ms since 1970."""
    return StoredForm(TIMER_TOPIC, TIMER_QUEUE, (*_real(topic, queue_id), *_times(deliver_at)))


def cancelling(topic: str, queue_id: int, deliver_at: int, unique_key: str) -> StoredForm:
    """The form that cancels a message of `timed`."""
    pairs = (*_real(topic, queue_id), *_times(deliver_at))
    return StoredForm(TIMER_TOPIC, CANCEL_QUEUE, (*pairs, (TIMER_DEL_UNIQKEY, unique_key)))


def half(topic: str, queue_id: int, group: str) -> StoredForm:
    """The form of a half message of this producer group."""
    pairs = (*_real(topic, queue_id), (TRANSACTION_PREPARED, "true"), (PRODUCER_GROUP, group))
    return StoredForm(HALF_TOPIC, HALF_QUEUE, pairs)


def _real(topic: str, queue_id: int) -> tuple[tuple[str, str], ...]:
    return (REAL_TOPIC, topic), (REAL_QID, str(queue_id))


def _times(deliver_at: int) -> tuple[tuple[str, str], ...]:
    return (TIMER_DELIVER_MS, str(deliver_at)), (TIMER_OUT_MS, str(deliver_at))
