"""Parses group questions field by field. Raises GroupRefused ILLEGAL_QUESTION, ILLEGAL_MEMBER."""

import re
from collections.abc import Mapping
from typing import Any, Final

from towline.format.files.groups import member_problem
from towline.format.wire.allocation import AVERAGE, STRATEGIES
from towline.limits import RETRY_TOPIC_SIZE_MAX

from .errors import GroupRefused, Refusal
from .locks import Queue
from .members import JoinRequest, Subscription
from .offsets import GENERATION_MAX
from .request_modes import POP, PULL, RequestMode

CLUSTERING: Final = "clustering"
BROADCASTING: Final = "broadcasting"
TAG: Final = "TAG"
SQL92: Final = "SQL92"
FIRST: Final = "first"
LAST: Final = "last"
NOWHERE: Final = "none"
TOPICS_MAX: Final = 1_024  # of one member
EXPRESSIONS_MAX: Final = 64 * 1_024  # characters of all expressions of one member
INSTANCE_MAX: Final = 255
QUEUE_DIGITS_MAX: Final = 10
_INT63: Final = 1 << 63
_HALF_A_PAIR: Final = re.compile("[\ud800-\udfff]")

Question = Mapping[str, Any]


def text(question: Question, name: str, default: str | None = None) -> str:
    value = question.get(name, default)
    if not isinstance(value, str):
        raise _illegal(question, name, "a text")
    return value


def number(question: Question, name: str, default: int | None = None) -> int:
    value = question.get(name, default)
    if type(value) is not int or not 0 <= value < _INT63:
        raise _illegal(question, name, "a number that is not negative")
    return value


def table(question: Question, name: str) -> dict[str, Any]:
    value = question.get(name)
    if not isinstance(value, dict):
        raise _illegal(question, name, "an object")
    return value


def join_request(question: Question) -> JoinRequest:
    """Of `group_join`."""
    member = text(question, "member")
    problem = member_problem(member)
    if problem is not None:
        raise GroupRefused(Refusal.ILLEGAL_MEMBER, f"member {member!r}: {problem}")
    instance = text(question, "instance", "")
    if len(instance) > INSTANCE_MAX:
        raise _illegal(question, "instance", f"at most {INSTANCE_MAX} characters")
    topics = table(question, "topics")
    if not 0 < len(topics) <= TOPICS_MAX or max(map(len, topics)) > RETRY_TOPIC_SIZE_MAX:
        raise _illegal(question, "topics", f"1 to {TOPICS_MAX} topics of at most {RETRY_TOPIC_SIZE_MAX} characters")
    subscriptions = {topic: _subscription(question, said) for topic, said in topics.items()}
    if sum(len(each.expression) for each in subscriptions.values()) > EXPRESSIONS_MAX:
        raise _illegal(question, "topics", f"at most {EXPRESSIONS_MAX} characters of expressions")
    return JoinRequest(
        member,
        instance,
        _one_of(question, "model", (CLUSTERING, BROADCASTING), CLUSTERING),
        _one_of(question, "strategy", STRATEGIES, AVERAGE),
        subscriptions,
        generation(question),
    )


def generation(question: Question, default: int = 0) -> int:
    """The newest generation that the member knows."""
    value = number(question, "generation", default)
    if value >= GENERATION_MAX:
        raise _illegal(question, "generation", "a number that a group can reach")
    return value


def beginning(question: Question) -> str | int:
    """`from` of `group_join`: FIRST, LAST, ms since 1970, or NOWHERE: no offsets are set, the member knows where."""
    match question.get("from", LAST):
        case "first" | "last" | "none" as where:
            return str(where)
        case int(at) if 0 <= at < _INT63:
            return at
    raise _illegal(question, "from", f"{FIRST!r}, {LAST!r}, {NOWHERE!r} or ms since 1970")


def target(question: Question) -> str | tuple[str, int]:
    """`to` of `group_reset`: FIRST, LAST, ("timestamp", ms) or ("offset", offset)."""
    match question.get("to"):
        case "first" | "last" as where:
            return str(where)
        case {"timestamp": int(at)} if 0 <= at < _INT63:
            return "timestamp", at
        case {"offset": int(at)} if 0 <= at < _INT63:
            return "offset", at
    raise _illegal(question, "to", f"{FIRST!r}, {LAST!r}, an object with timestamp, or one with offset")


def mode(question: Question) -> RequestMode:
    """`mode` and `share` of `group_set_mode`."""
    return RequestMode(_one_of(question, "mode", (PULL, POP), PULL), number(question, "share", 0))


def commits(question: Question) -> dict[str, dict[int, int]]:
    """`offsets` of `group_commit`: topic -> queue -> offset."""
    found: dict[str, dict[int, int]] = {}
    for topic, queues in table(question, "offsets").items():
        if not isinstance(queues, dict):
            raise _illegal(question, "offsets", "objects of queue and offset")
        of = found[topic] = {}
        for queue, at in queues.items():
            if not queue.isdecimal() or len(queue) > QUEUE_DIGITS_MAX or type(at) is not int or not 0 <= at < _INT63:
                raise _illegal(question, "offsets", "queue numbers and offsets that are not negative")
            of[int(queue)] = at
    return found


def queues(question: Question, name: str = "queues", default: object = None) -> list[Queue]:
    """`queues` of `group_lock` and `group_unlock`, or their `claims`."""
    value = question.get(name, default)
    if not isinstance(value, list):
        raise _illegal(question, name, "a list of topic and queue")
    found = []
    for each in value:
        match each:
            case [str(topic), int(queue)] if queue >= 0:
                found.append((topic, queue))
            case _:
                raise _illegal(question, name, "a list of topic and queue")
    return found


def names(question: Question, name: str) -> list[str]:
    value = question.get(name)
    if not isinstance(value, list) or len(value) > TOPICS_MAX or not all(isinstance(each, str) for each in value):
        raise _illegal(question, name, f"a list of at most {TOPICS_MAX} names")
    return value


def _subscription(question: Question, said: Any) -> Subscription:
    match said:
        case {"expression": str(expression), "type": "TAG" | "SQL92" as kind}:
            if _HALF_A_PAIR.search(expression):  # it stands in a file that others read as UTF-8
                raise _illegal(question, "topics", "expressions in UTF-8")
            return Subscription(expression, str(kind))
    raise _illegal(question, "topics", "objects of expression and type TAG or SQL92")


def _one_of(question: Question, name: str, allowed: tuple[str, ...], default: str) -> str:
    value = text(question, name, default)
    if value not in allowed:
        raise _illegal(question, name, " or ".join(allowed))
    return value


def _illegal(question: Question, name: str, expected: str) -> GroupRefused:
    return GroupRefused(Refusal.ILLEGAL_QUESTION, f"{name} of {question.get('op')} has to be {expected}")
