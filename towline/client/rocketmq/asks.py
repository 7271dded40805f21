"""Questions of a client, and who answers them at a broker. What is not here, no broker can answer."""

from collections.abc import Callable, Mapping
from typing import Any, Final

from . import groups, lookups, membership, positions, replies, topics, transactions
from .talk import NOT_IN_ROCKETMQ, Refused, Session, Talk

Handler = Callable[[Session, dict[str, Any]], Talk]


def _offsets(session: Session, facts: dict[str, Any]) -> Talk:
    """A member's own, which it begins to read at; or an administrator's look."""
    if session.membership is not None and session.membership.group == facts["group"]:
        return membership.offsets(session, facts)
    return groups.offsets(session, facts)


_HANDLERS: Final[Mapping[str, Handler]] = {
    "route": topics.route,
    "routes": topics.routes,
    "topics": topics.topics,
    "create_topic": topics.create,
    "alter_topic": topics.alter,
    "delete_topic": topics.delete,
    "bounds": positions.bounds,
    "offset_by_time": positions.offset_by_time,
    "query_key": lookups.by_key,
    "query_unique_key": lookups.by_unique_key,
    "query_id": lookups.by_id,
    "query_offset": lookups.by_offset,
    "group_join": membership.join,
    "group_watch": membership.watch,
    "group_leave": membership.leave,
    "group_lock": membership.lock,
    "group_unlock": membership.unlock,
    "group_commit": membership.commit,
    "group_offsets": _offsets,
    "group_send_back": membership.send_back,
    "group_list": groups.listed,
    "group_describe": groups.describe,
    "group_reset": groups.reset,
    "group_delete": groups.delete,
    "group_configure": groups.configure,
    "reply_watch": replies.watch,
    "transaction_end": transactions.end,
    "transaction_watch": transactions.watch,
}


def ask(session: Session, question: dict[str, Any]) -> Talk:
    """The answer to a question. Raises Refused NOT_IN_ROCKETMQ for one that no broker knows."""
    handler = _HANDLERS.get(question["op"])
    if handler is None:
        return _refuse(question["op"])
    return handler(session, question)


def _refuse(op: str) -> Talk:
    raise Refused(NOT_IN_ROCKETMQ, f"a broker of RocketMQ has no answer to {op!r}")
    yield []  # it is a talk like the others
