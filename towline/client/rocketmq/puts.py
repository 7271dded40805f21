"""Puts to a broker: the records of one batch become one send, or as many as a broker needs for them.

Records of one SYSFLAG go together as a batch. A reply, and what is delayed, timed or half of a transaction, goes alone.
They go one after the other, in their order. Where the broker stored some and refused others, nothing can be said of the
whole put, and the link ends: the client sends all of it again, with the same unique keys.
"""

from collections.abc import Sequence
from itertools import groupby
from typing import Final

from towline.errors import MalformedFrame
from towline.format.record.forms import FORM_TOPICS
from towline.format.remoting.codes import RequestCode, ResponseCode, put_status_of
from towline.format.remoting.command import Command
from towline.format.remoting.headers import RecallMessage
from towline.format.remoting.sent import (
    Recall,
    Sendable,
    is_reply,
    is_timed,
    of_form,
    send_body,
    send_header,
    sendables,
)
from towline.format.wire.frames import Buffer, decode_put, encode_put_answer, encode_put_refusal
from towline.format.wire.status import PutStatus
from towline.limits import MESSAGE_BODY_MAX

from .talk import TIMERS_FROM, Parts, Request, Session

REQUEST_BYTES_MAX: Final = MESSAGE_BODY_MAX  # of a batch, as a broker's maxMessageSize has it
NOWHERE: Final = (-1, -1)  # a broker does not say where it notes that a message is cancelled
_ID_DIGITS: Final = 16  # of a message id: its last ones are the log offset
_NOT_SUPPORTED: Final = "the broker is older than 5.0: it has no times of delivery, only levels"


def put(session: Session, parts: Sequence[Buffer]) -> Parts:
    """The answer to a PUT of one group. Raises MalformedFrame, MalformedRecord."""
    request_id, _, _, (group,) = decode_put(parts[0], 1)
    records = sendables(parts[1], group.count)
    wanted: list[Sequence[Sendable] | Recall]
    if group.topic.decode() in FORM_TOPICS:
        forms = [of_form(each, session.broker) for each in records]
        if session.version < TIMERS_FROM and any(isinstance(each, Recall) or is_timed(each) for each in forms):
            status = PutStatus.WHEEL_TIMER_NOT_ENABLE
            return [encode_put_refusal(request_id, status, 0, -1, 0, _NOT_SUPPORTED)]
        wanted = [each if isinstance(each, Recall) else [each] for each in forms]
    else:
        wanted = [list(run) for _, run in groupby(records, key=_together)]
    places: list[tuple[int, int]] = []
    worst = PutStatus.PUT_OK
    for each in wanted:
        (answer,) = yield [_request(session, each)]
        status = _status_of(answer, each)
        if not status.stored:
            sentence = answer.remark.strip() or f"the broker answered with code {answer.code}"
            if places:
                raise MalformedFrame(f"the broker stored a part of a batch, and not the rest: {sentence}")
            return [encode_put_refusal(request_id, status, 0, -1, 0, sentence)]
        places += [NOWHERE] if isinstance(each, Recall) else _places(answer, len(each))
        worst = status if worst is PutStatus.PUT_OK else worst
    # Brokers of 4.9 add to each member of a batch: only they know where it stands.
    return [encode_put_answer(request_id, worst, places if len(places) == group.count else places[:1])]


def _together(record: Sendable) -> tuple[int, int, int]:
    """Equal for neighbours that one request may hold."""
    return record.sys_flag, record.reconsume_times, id(record) if is_reply(record) else 0


def _request(session: Session, wanted: Sequence[Sendable] | Recall) -> Request:
    if isinstance(wanted, Recall):
        handle = wanted.handle
        header = RecallMessage(topic=handle.topic, recall_handle=str(handle), producer_group=session.name)
        return Request(RequestCode.RECALL_MESSAGE, header)
    code = RequestCode.SEND_MESSAGE_V2 if len(wanted) == 1 else RequestCode.SEND_BATCH_MESSAGE
    if len(wanted) == 1 and is_reply(wanted[0]):
        code = RequestCode.SEND_REPLY_MESSAGE_V2
    return Request(code, send_header(wanted, session.name, session.broker), send_body(wanted), letters=True)


def _status_of(answer: Command, wanted: Sequence[Sendable] | Recall) -> PutStatus:
    if answer.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED and isinstance(wanted, Recall):
        return PutStatus.WHEEL_TIMER_NOT_ENABLE
    return put_status_of(answer.code)


def _places(answer: Command, count: int) -> list[tuple[int, int]]:
    """The queue offset and the log offset of each record. Raises MalformedFrame."""
    ids = answer.fields.get("msgId", "").split(",")
    try:
        first = int(answer.fields["queueOffset"])
        return [(first + place, int(each[-_ID_DIGITS:], 16)) for place, each in enumerate(ids[:count])]
    except (KeyError, ValueError):
        raise MalformedFrame("the answer to a send names no offsets") from None
