"""Messages by key, id and place of the log."""

from collections.abc import Mapping
from typing import Any, Final

from towline.errors import NoRecordHere
from towline.format.record.message_id import decode_offset_id
from towline.format.record.record import decode
from towline.format.remoting.codes import RequestCode, ResponseCode
from towline.format.remoting.headers import QueryMessage, ViewMessage

from .records import sizes_of
from .talk import Refused, Request, Session, Talk, succeeded

_I32_MAX: Final = 2**31 - 1

Facts = Mapping[str, Any]


def by_key(session: Session, facts: Facts) -> Talk:
    return _query(facts, unique=False)


def by_unique_key(session: Session, facts: Facts) -> Talk:
    return _query(facts, unique=True)


def by_id(session: Session, facts: Facts) -> Talk:
    """Raises Refused for an id whose message is at another broker, IllegalMessageId."""
    wanted = decode_offset_id(facts["id"])
    told, record = yield from by_offset(session, {"offset": wanted.physical_offset})
    if record and decode(record, check_crc=False).store_host != wanted.store_host:
        why = f"the message of this id is at {wanted.store_host}, and not at {session.address}"
        raise Refused(NoRecordHere.__name__, why)
    return told, record


def by_offset(_: Session, facts: Facts) -> Talk:
    offset = facts["offset"]
    (answer,) = yield [Request(RequestCode.VIEW_MESSAGE_BY_ID, ViewMessage(offset=offset))]
    if not succeeded(answer, ResponseCode.SYSTEM_ERROR):
        raise Refused(NoRecordHere.__name__, NoRecordHere(offset, answer.remark).describe())
    return {}, bytes(answer.body)


def _query(facts: Facts, *, unique: bool) -> Talk:
    most = min(int(facts["max"]), _I32_MAX)
    header = QueryMessage(
        topic=facts["topic"],
        key=facts["key"],
        max_num=most,
        begin_timestamp=facts["begin"],
        end_timestamp=facts["end"],
        unique=unique,
    )
    (answer,) = yield [Request(RequestCode.QUERY_MESSAGE, header)]
    if not succeeded(answer, ResponseCode.QUERY_NOT_FOUND):
        return {"truncated": False, "complete": True}, b""
    records = bytes(answer.body)
    return {"truncated": len(sizes_of(records)) // 4 >= most, "complete": True}, records
