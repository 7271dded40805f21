"""What each question of our own clients takes of a key whose roles are limited: what is done with which topics, groups.

Each question that a process of the node answers has a row; what has none is refused to who is limited. Puts and pulls
name their topics themselves (`check_put`, `check_pull`). Where a row is `later`, the answer is judged (`judged`), or
schedule does it, which gets what the permit says (`with_holder`).
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol, TypeAlias, TypeVar

from towline.errors import MalformedFrame, MalformedRecord, TowlineError
from towline.format.files.topics import TopicConfig, topic_facts
from towline.format.record.record import decode
from towline.format.wire.frames import (
    ANSWER,
    ASK,
    PULL,
    PULL_ANSWER,
    Buffer,
    Group,
    Kind,
    encode_put_refusal,
    expect,
    json_part,
    read_json,
)
from towline.format.wire.refusals import error_facts
from towline.format.wire.status import GetStatus, PutStatus
from towline.limits import KIB
from towline.link.permissions import (
    HOLDER,
    Act,
    NotPermitted,
    Permit,
    is_form_topic,
    real_topics_of_each,
    seen_topics,
    topics_of,
)

Asked = TypeVar("Asked", contravariant=True)
Facts: TypeAlias = Mapping[str, Any]
Names: TypeAlias = Callable[[Facts], Iterable[str]]

_SIZES: Final = 4  # bytes of a size in an answer


class Named(Protocol[Asked]):
    """What a request or a question needs of a permit, by the names that stand in it."""

    @property
    def act(self) -> Act: ...

    @property
    def topics(self) -> Callable[[Asked], Iterable[str]] | None: ...

    @property
    def group_act(self) -> Act: ...

    @property
    def groups(self) -> Callable[[Asked], Iterable[str]] | None: ...

    @property
    def whole(self) -> bool: ...


def check_named(need: Named[Asked], permit: Permit, asked: Asked, what: str) -> None:
    """Checks the node as a whole, each group and each topic; `what` says what is done with the node. Raises
    NotPermitted, MalformedFrame."""
    if need.whole:
        permit.check_whole(what)
    for group in () if need.groups is None else need.groups(asked):
        permit.check(need.group_act, group)
    for topic in () if need.topics is None else need.topics(asked):
        permit.check(need.act, topic)


@dataclass(frozen=True, slots=True)
class OwnNeed:
    """To do `act` with each of `topics`, and `group_act` with each of `groups`. `whole`: it concerns the node or every
    topic. `sends`: it is for who may send to some topic."""

    act: Act = Act.LOOK
    topics: Names | None = None
    group_act: Act = Act.JOIN
    groups: Names | None = None
    whole: bool = False
    sends: bool = False
    later: bool = False

    def check(self, permit: Permit, question: Facts) -> None:
        """Raises NotPermitted, MalformedFrame."""
        if self.sends:
            permit.check_sends(f"ask {question.get('op')}")
        check_named(self, permit, question, f"ask {question.get('op')}")


def _text(name: str) -> Names:
    def names(question: Facts) -> Iterable[str]:
        found = question.get(name)
        if not isinstance(found, str):
            raise MalformedFrame(f"{name} of {question.get('op')} is a text")
        return (found,)

    return names


def _keys(name: str) -> Names:
    """Of an object by topic."""

    def names(question: Facts) -> Iterable[str]:
        found = question.get(name)
        if not isinstance(found, dict):
            raise MalformedFrame(f"{name} of {question.get('op')} is an object by topic")
        return found

    return names


def _list(name: str) -> Names:
    """Of a list of topics, or of lists that begin with one."""

    def names(question: Facts) -> Iterable[str]:
        found = question.get(name, [])
        if not isinstance(found, list):
            raise MalformedFrame(f"{name} of {question.get('op')} is a list")
        firsts = [row[0] if isinstance(row, list) and row else row for row in found]
        return {str(first) for first in firsts}

    return names


def _queues(question: Facts) -> Iterable[str]:
    return {*_list("queues")(question), *_list("claims")(question)}


_TOPIC: Final = _text("topic")
_GROUP: Final = _text("group")
_LOOKS: Final = OwnNeed(Act.LOOK, _TOPIC)
_READS: Final = OwnNeed(Act.CONSUME, _TOPIC)
_ADMINISTERS: Final = OwnNeed(Act.ADMINISTER, _TOPIC)
_MEMBER: Final = OwnNeed(groups=_GROUP)
_GROUP_ADMIN: Final = OwnNeed(group_act=Act.MANAGE, groups=_GROUP)
_LATER: Final = OwnNeed(later=True)
_WHOLE: Final = OwnNeed(whole=True)

OWN_NEEDS: Final[Mapping[str, OwnNeed]] = {
    "route": _LOOKS,  # at put, which may make the topic: `need_of`
    "topics": _LATER,
    "create_topic": _ADMINISTERS,
    "alter_topic": _ADMINISTERS,
    "delete_topic": _ADMINISTERS,
    "begin_producer": OwnNeed(sends=True),  # an epoch alone: what is sent in it is judged like any put
    "bounds": _LOOKS,
    "follow": _READS,
    "offset_by_time": _LOOKS,
    "store_times": OwnNeed(Act.LOOK, _list("places")),
    "queue_entries": _READS,
    "log_ends": OwnNeed(),  # numbers of the log alone
    "epoch_ends": _LOOKS,
    "query_key": _READS,
    "query_unique_key": _READS,
    "query_id": _LATER,
    "query_offset": _LATER,
    "group_join": OwnNeed(Act.CONSUME, _keys("topics"), groups=_GROUP),
    "group_watch": _MEMBER,
    "group_leave": _MEMBER,
    "group_commit": OwnNeed(Act.CONSUME, _keys("offsets"), groups=_GROUP),
    "group_offsets": OwnNeed(Act.CONSUME, _list("topics"), groups=_GROUP),
    "group_lock": OwnNeed(Act.CONSUME, _queues, groups=_GROUP),
    "group_unlock": OwnNeed(Act.CONSUME, _queues, groups=_GROUP),
    "group_list": _LATER,
    "group_describe": _MEMBER,
    "group_mode": OwnNeed(Act.CONSUME, _TOPIC, groups=_GROUP),
    "group_set_mode": OwnNeed(Act.CONSUME, _TOPIC, groups=_GROUP),
    "group_reset": OwnNeed(Act.ADMINISTER, _TOPIC, Act.MANAGE, _GROUP),
    "group_delete": _GROUP_ADMIN,
    "group_configure": _GROUP_ADMIN,
    "transaction_end": _LATER,
    "transaction_watch": _LATER,
    "transaction_list": _LATER,
    "transaction_status": OwnNeed(),  # counts alone
    "node_status": _WHOLE,
    "node_stats": _WHOLE,
    "node_segments": _WHOLE,
    "node_settings": _WHOLE,
    "node_configure": _WHOLE,
    "open_ring": _WHOLE,  # these two are asked by processes of the node
    "transaction_topics": _WHOLE,
}
_MAKES: Final = OwnNeed(Act.PRODUCE, _TOPIC)


def check_question(permit: Permit, question: Facts, *, makes: bool) -> None:
    """`makes`: put is asked, which makes the topic of a route. Raises NotPermitted, MalformedFrame."""
    op = str(question.get("op"))
    if op == "route" and is_form_topic(str(question.get("topic")).encode(errors="replace")):
        return
    need = OWN_NEEDS.get(op, _WHOLE)
    (_MAKES if makes and op == "route" else need).check(permit, question)


def check_put(permit: Permit, groups: Sequence[Group], records: Buffer) -> None:
    """Once for each group of a put, and each topic that records of a form are for. Raises NotPermitted."""
    at = 0
    for group in groups:
        if is_form_topic(group.topic):
            _check_forms(permit, memoryview(records)[at : at + group.size])
        else:
            permit.check(Act.PRODUCE, group.topic.decode("utf-8", "replace"))
        at += group.size


def _check_forms(permit: Permit, records: memoryview) -> None:
    seen = seen_topics(records)
    if seen is not None and all(permit.may(Act.PRODUCE, name) for name in seen):
        return
    try:
        for name in real_topics_of_each(records):
            permit.check(Act.PRODUCE, name)
    except MalformedRecord as error:
        raise NotPermitted(permit.key, "produce what cannot be read", error.describe()) from None


def topic_of_pull(head: Buffer) -> str:
    """The topic in the head of a pull. Raises MalformedFrame."""
    _, _, size, *_ = expect(PULL, head)
    return bytes(head[PULL.size : PULL.size + size]).decode("utf-8", "replace")


def with_holder(limits: Permit | None, parts: list[Buffer], question: Facts) -> list[Buffer]:
    """A question to schedule, with what the permit of a limited key says. Raises MalformedFrame for one that says it
    itself, or is longer than schedule takes."""
    if HOLDER in question or len(parts[1]) > KIB:
        raise MalformedFrame("the schedule process answers short questions only")
    return parts if limits is None else [parts[0], json_part({**question, HOLDER: limits.facts})]


def judged(permit: Permit, parts: list[Buffer], act: Act = Act.CONSUME) -> list[Buffer]:
    """An answer without groups that are not the key's, or a refusal where it may not do this with the topic of a record
    in it, or that record cannot be read."""
    _, status, number, count = expect(ANSWER, parts[0])
    if status:
        return parts
    if count:
        try:
            check_records(permit, parts[2], parts[3], act)
        except (NotPermitted, MalformedRecord) as refused:
            return refusal(number, refused)
    elif b'"groups"' in bytes(parts[1]):
        facts = read_json(parts[1])
        rows = facts.get("groups")
        if isinstance(rows, list):
            facts["groups"] = [row for row in rows if permit.may(Act.JOIN, str(row.get("group", "")))]
            return [parts[0], json_part(facts), *parts[2:]]
    return parts


def check_records(permit: Permit, sizes: Buffer, records: Buffer, act: Act = Act.CONSUME) -> None:
    """Raises NotPermitted for a record of a topic with which the key may not do this, MalformedRecord."""
    at, view = 0, memoryview(bytes(records))
    for place in range(0, len(sizes), _SIZES):
        for topic in topics_of(decode(view, at, check_crc=False)):
            permit.check(act, topic)
        at += int.from_bytes(sizes[place : place + _SIZES], "big")


def refusal(number: int, refused: TowlineError) -> list[Buffer]:
    """The answer to a question that is not permitted, or has none."""
    return [ANSWER.pack(Kind.ANSWER, 1, number, 0), json_part(error_facts(refused))]


def refused_put(number: int, refused: NotPermitted) -> bytes:
    """The answer to a put that is not permitted, of which nothing is stored."""
    return encode_put_refusal(number, PutStatus.NO_PERMISSION, 0, -1, 0, str(refused))


def refused_pull(pull: Buffer, refused: NotPermitted) -> list[Buffer]:
    """The answer to a pull, of which this is the head, that is not permitted."""
    _, _, _, number, queue, _, _, _, offset, _ = expect(PULL, pull)
    head = PULL_ANSWER.pack(Kind.PULL_ANSWER, GetStatus.REFUSED, queue, number, 0, offset, 0, 0, 0)
    return [head, json_part(error_facts(refused))]


def topics_for(permit: Permit, number: int, topics: Iterable[TopicConfig]) -> list[Buffer]:
    """The answer to `topics`: those that the key may do something with."""
    rows = [topic_facts(each) for each in topics if permit.may(Act.LOOK, each.topic_name)]
    return [ANSWER.pack(Kind.ANSWER, 0, number, 0), json_part({"topics": rows})]


def number_of(question: Sequence[Buffer]) -> int:
    """The number of a question. Raises MalformedFrame."""
    return int(expect(ASK, question[0])[1])
