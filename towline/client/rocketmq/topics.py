"""Topics of a broker: their routes, and their changes."""

import logging
from collections.abc import Generator, Mapping
from typing import Any, Final

from towline.errors import TopicExists, UnknownTopic
from towline.format.remoting.codes import RequestCode, ResponseCode
from towline.format.remoting.command import Command
from towline.format.remoting.fastjson import loads
from towline.format.remoting.headers import MakeTopic, OfTopic
from towline.format.remoting.routes import QueueData, read_cluster, read_route
from towline.format.remoting.sent import TEMPLATE_QUEUES, TOPIC_TEMPLATE
from towline.limits import DEAD_LETTER_TOPIC_PREFIX, REPLY_TOPIC_SUFFIX, RETRY_TOPIC_PREFIX

from .positions import READ, WRITE, queues_of
from .talk import NOT_IN_ROCKETMQ, NoNameServer, Refused, Request, Session, Step, Talk, succeeded

_FILTER: Final = "SINGLE_TAG"
_TEMPLATE_PERM: Final = 1
_NO_RETENTION: Final = -1
_OWN: Final = frozenset(
    {
        "TBW102",
        "SELF_TEST_TOPIC",
        "BenchmarkTest",
        "OFFSET_MOVED_EVENT",
        "SCHEDULE_TOPIC_XXXX",
        "RMQ_SYS_TRANS_HALF_TOPIC",
        "RMQ_SYS_TRANS_OP_HALF_TOPIC",
        "TRANS_CHECK_MAX_TIME_TOPIC",
        "rmq_sys_wheel_timer",
    }
)
Facts = Mapping[str, Any]
Rows = dict[str, dict[str, Any]]

log = logging.getLogger(__name__)


def route(session: Session, facts: Facts) -> Talk:
    """The queues of a topic; for a producer also of one that the broker makes when it is first sent to."""
    topic = facts["topic"]
    if "tags" in facts:
        session.tags[topic] = facts["tags"]
    try:
        found = yield from queues_of(session, topic)
    except UnknownTopic:
        if session.role != "producer":
            raise
        yield from _template(session, topic)
        return _route(session, topic, QueueData(session.broker, TEMPLATE_QUEUES, TEMPLATE_QUEUES, READ | WRITE)), b""
    if session.role == "producer" and not found.perm & WRITE:
        raise Refused("NO_PERMISSION", f"the topic {topic!r} cannot be written to at {session.broker}")
    return _route(session, topic, found), b""


def _route(session: Session, topic: str, known: QueueData) -> dict[str, Any]:
    told = {"topic": topic, "read_queues": known.read_queues, "write_queues": known.write_queues}
    if topic == f"{session.cluster}{REPLY_TOPIC_SUFFIX}":
        told["records_max"] = 1  # one may be refused, since nobody waits for it any more, and another not
    return told


def routes(session: Session, facts: Facts) -> Talk:
    """The brokers that there are, and the queues at this one of the topics that it has."""
    asked = [Request(RequestCode.GET_BROKER_CLUSTER_INFO, names=True)]
    asked += [
        Request(RequestCode.GET_ROUTEINFO_BY_TOPIC, OfTopic(topic=topic), names=True) for topic in facts["topics"]
    ]
    cluster, *found = yield asked
    succeeded(cluster)
    told = {}
    for topic, answer in zip(facts["topics"], found, strict=True):
        rows = read_route(loads(answer.body)) if succeeded(answer, ResponseCode.TOPIC_NOT_EXIST) else []
        for row in rows:
            if row.broker == session.broker:
                told[topic] = _route(session, topic, row)
    return {"brokers": list(read_cluster(loads(cluster.body))), "topics": told}, b""


def _template(session: Session, topic: str) -> Generator[Step, list[Command], None]:
    """Raises UnknownTopic where the broker makes no topics."""
    (answer,) = yield [Request(RequestCode.GET_ROUTEINFO_BY_TOPIC, OfTopic(topic=TOPIC_TEMPLATE), names=True)]
    rows = read_route(loads(answer.body)) if succeeded(answer, ResponseCode.TOPIC_NOT_EXIST) else []
    if not any(row.broker == session.broker and row.perm & _TEMPLATE_PERM for row in rows):
        raise UnknownTopic(topic)


def topics(_: Session, __: Facts) -> Talk:
    found = yield from configs()
    return {"topics": [_facts(row) for _, row in sorted(found.items())]}, b""


def configs() -> Generator[Step, list[Command], Rows]:
    """The settings of every topic, by its name."""
    (answer,) = yield [Request(RequestCode.GET_ALL_TOPIC_CONFIG)]
    succeeded(answer)
    return dict(loads(answer.body).get("topicConfigTable") or {})


def _facts(row: Mapping[str, Any]) -> dict[str, Any]:
    name = str(row["topicName"])
    return {
        "topic": name,
        "write_queues": int(row["writeQueueNums"]),
        "read_queues": int(row["readQueueNums"]),
        "perm": int(row["perm"]) & (READ | WRITE),
        "order": bool(row.get("order", False)),
        "filter_type": str(row.get("topicFilterType", _FILTER)),
        "system": is_system(name),
        "retention_ms": None,
        "retention_bytes": None,
    }


def is_system(name: str) -> bool:
    """Whether a topic is the broker's own."""
    return name in _OWN or name.startswith(("rmq_sys_", "RMQ_SYS_"))


def is_of_group(name: str) -> bool:
    return name.startswith((RETRY_TOPIC_PREFIX, DEAD_LETTER_TOPIC_PREFIX))


def create(session: Session, facts: Facts) -> Talk:
    """Raises Refused TopicExists."""
    topic, queues = facts["topic"], int(facts["queues"])
    try:
        yield from queues_of(session, topic)
    except UnknownTopic:
        pass
    else:
        raise Refused(TopicExists.__name__, TopicExists(topic).describe())
    row = {"topicName": topic, "readQueueNums": queues, "writeQueueNums": queues, "perm": READ | WRITE}
    found = yield from _make(_changed(row, facts))
    return found, b""


def alter(_: Session, facts: Facts) -> Talk:
    known = yield from configs()
    if facts["topic"] not in known:
        raise UnknownTopic(facts["topic"])
    found = yield from _make(_changed(known[facts["topic"]], facts))
    return found, b""


def delete(_: Session, facts: Facts) -> Talk:
    topic = facts["topic"]
    known = yield from configs()
    if topic not in known:
        raise UnknownTopic(topic)
    header = OfTopic(topic=topic)
    (answer,) = yield [Request(RequestCode.DELETE_TOPIC_IN_BROKER, header)]
    succeeded(answer)
    try:
        (answer,) = yield [Request(RequestCode.DELETE_TOPIC_IN_NAMESRV, header, names=True, everywhere=True)]
        succeeded(answer)
    except (Refused, NoNameServer) as error:  # what counts is that the broker has it no more
        log.warning("the topic %s is deleted, but its route may still be told: %s", topic, error.describe())
    return {"topic": topic}, b""


def _changed(row: Mapping[str, Any], facts: Facts) -> dict[str, Any]:
    """Raises Refused NOT_IN_ROCKETMQ for a retention."""
    if any(facts.get(name, _NO_RETENTION) != _NO_RETENTION for name in ("retention_ms", "retention_bytes")):
        raise Refused(NOT_IN_ROCKETMQ, "a broker keeps the messages of all its topics for one time, fileReservedTime")
    names = {"read_queues": "readQueueNums", "write_queues": "writeQueueNums", "perm": "perm", "order": "order"}
    return {**row, **{wire: facts[name] for name, wire in names.items() if name in facts}}


def _make(row: Mapping[str, Any]) -> Generator[Step, list[Command], dict[str, Any]]:
    header = MakeTopic(
        topic=row["topicName"],
        default_topic=TOPIC_TEMPLATE,
        read_queue_nums=int(row["readQueueNums"]),
        write_queue_nums=int(row["writeQueueNums"]),
        perm=int(row["perm"]),
        topic_filter_type=str(row.get("topicFilterType", _FILTER)),
        topic_sys_flag=int(row.get("topicSysFlag", 0)),
        order=bool(row.get("order", False)),
    )
    (answer,) = yield [Request(RequestCode.UPDATE_AND_CREATE_TOPIC, header)]
    succeeded(answer)
    return _facts(row)
