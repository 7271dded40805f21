"""Pulls from a broker. Its answers hold records as they stand in the log, which the client reads as they are."""

import json
import logging
from collections.abc import Generator
from dataclasses import replace
from typing import Final

from towline.errors import UnknownTopic
from towline.format.remoting.codes import RequestCode, ResponseCode, pull_status_of
from towline.format.remoting.command import Command
from towline.format.remoting.headers import PullMessage
from towline.format.wire.frames import PULL_ANSWER, Kind, Pull, json_part
from towline.format.wire.status import GetStatus

from .records import sizes_of
from .subscriptions import subscription_of
from .talk import MASTER_ID, NoSlave, Parts, Request, Session, Step

TOOLS_GROUP: Final = "TOOLS_CONSUMER"  # every broker has it: for readers that are in no group
ANY: Final = "*"
SQL92: Final = "SQL92"
_HOLD: Final = 2
_SUBSCRIPTION: Final = 4
_FILTERS_OFF: Final = "does not support"

log = logging.getLogger(__name__)


def pull(session: Session, wanted: Pull) -> Parts:
    """The answer to a PULL. Raises MalformedFrame."""
    topic = wanted.topic.decode()
    if wanted.expression and wanted.expression not in session.expressions:
        (answer,) = yield [_check(session, wanted, topic)]
        if answer.code != ResponseCode.SUCCESS:
            head = _head(wanted, GetStatus.REFUSED, 0, wanted.offset, 0, 0)
            return [head, json_part(_refusal(answer))]
        session.expressions.add(wanted.expression)
    answer = yield from _pulled(session, wanted, topic)
    offset = wanted.offset
    following, low, end = (_number(answer, name, offset) for name in ("nextBeginOffset", "minOffset", "maxOffset"))
    status = pull_status_of(answer.code, offset, following)
    if status is None:
        head = _head(wanted, GetStatus.REFUSED, 0, offset, low, end)
        return [head, json_part(_refusal(answer))]
    if status is GetStatus.FOUND:
        sizes = sizes_of(answer.body)
        return [_head(wanted, status, len(sizes) // 4, following, low, end), sizes, answer.body]
    if status is GetStatus.OFFSET_OVERFLOW_BADLY and session.membership is not None and offset <= end:
        session.membership.was_reset(topic)  # a broker tells it to the next pull
        session.has_news = True
        return [_head(wanted, GetStatus.OFFSET_FOUND_NULL, 0, offset, low, end)]
    if status is GetStatus.OFFSET_OVERFLOW_ONE:
        following = offset
    return [_head(wanted, status, 0, following, low, end)]


def _pulled(session: Session, wanted: Pull, topic: str) -> Generator[Step, list[Command], Command]:
    """The answer of the master; or of a slave, where the last answer said so, and as long as that finds something."""
    queue, header = (topic, wanted.queue_id), _header(session, wanted, topic)
    at = session.read_at.get(queue, MASTER_ID)
    if at in session.slaves:
        try:
            (answer,) = yield [Request(RequestCode.PULL_MESSAGE, _at_once(header), at=at)]
        except NoSlave as error:
            log.info("queue %d of %s is read from the master again: %s", wanted.queue_id, topic, error.describe())
        else:
            if answer.code == ResponseCode.SUCCESS:
                _note(session, queue, answer)
                return answer
    (answer,) = yield [Request(RequestCode.PULL_MESSAGE, header)]
    _note(session, queue, answer)
    return answer


def _note(session: Session, queue: tuple[str, int], answer: Command) -> None:
    """Notes whom the broker wants to be asked next."""
    at = _number(answer, "suggestWhichBrokerId", MASTER_ID)
    if at > MASTER_ID:
        session.read_at[queue] = at
    else:
        session.read_at.pop(queue, None)


def _at_once(header: PullMessage) -> PullMessage:
    """A slave that has nothing is not waited for: the master may have more."""
    return replace(header, sys_flag=header.sys_flag & ~_HOLD, suspend_timeout_millis=0)


def _check(session: Session, wanted: Pull, topic: str) -> Request:
    """A broker takes a pull with an expression that is none, and filters nothing: so it is asked before."""
    subscription = subscription_of(topic, wanted.expression, SQL92, 0)
    body = {"clientId": session.client_id, "group": wanted.group or TOOLS_GROUP, "subscriptionData": subscription}
    return Request(RequestCode.CHECK_CLIENT_CONFIG, body=json.dumps(body).encode())


def _header(session: Session, wanted: Pull, topic: str) -> PullMessage:
    expression, kind, version = session.tags.get(topic, ANY), "TAG", 0
    group = wanted.group or TOOLS_GROUP
    membership = session.membership
    if wanted.expression:
        expression, kind = wanted.expression, SQL92
    if membership is not None:
        group, version = membership.group, membership.version
        expression, kind = membership.subscriptions.get(topic, (ANY, "TAG"))
    return PullMessage(
        consumer_group=group,
        topic=topic,
        queue_id=wanted.queue_id,
        queue_offset=wanted.offset,
        max_msg_nums=wanted.max_count,
        sys_flag=_SUBSCRIPTION | (_HOLD if wanted.suspend else 0),
        suspend_timeout_millis=wanted.suspend,
        subscription=expression,
        sub_version=version,
        expression_type=kind,
        max_msg_bytes=wanted.max_bytes,
    )


def _head(wanted: Pull, status: GetStatus, count: int, following: int, low: int, end: int) -> bytes:
    return PULL_ANSWER.pack(Kind.PULL_ANSWER, status, wanted.queue_id, wanted.request_id, count, following, low, end, 0)


def _number(answer: Command, name: str, default: int) -> int:
    text = answer.fields.get(name, "")
    return int(text) if text.lstrip("-").isdecimal() else default


def _refusal(answer: Command) -> dict[str, str | int]:
    sentence = answer.remark.strip() or f"the broker answered with code {answer.code}"
    match answer.code:
        case ResponseCode.TOPIC_NOT_EXIST:
            error = UnknownTopic.__name__
        case ResponseCode.SUBSCRIPTION_PARSE_FAILED:
            error = "BadExpression"
        case ResponseCode.SYSTEM_ERROR if _FILTERS_OFF in sentence:
            error = "PropertyFilterDisabled"
        case _:
            error = "NO_PERMISSION"
    return {"error": error, "sentence": sentence, "position": -1}
