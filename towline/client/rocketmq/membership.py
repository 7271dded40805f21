"""A member of a group at a broker: heartbeats, who else is in the group, which queues are whose, locks, offsets.

Members divide the queues of a topic over all its brokers, each for itself, from the same two lists: so they agree with
members in Java. A broker tells its members of changes (NOTIFY_CONSUMER_IDS_CHANGED); lists are looked at every few
seconds all the same.
"""

import json
from collections.abc import Generator, Mapping
from typing import Any, Final

from towline.errors import MalformedFrame
from towline.format.remoting.codes import RequestCode, ResponseCode
from towline.format.remoting.command import Command
from towline.format.remoting.consumers import BROADCASTING, CLUSTERING
from towline.format.remoting.fastjson import loads
from towline.format.remoting.headers import (
    ConsumerGroup,
    EndTransaction,
    OfTopic,
    SendBack,
    UnregisterClient,
    read_header,
)
from towline.format.remoting.routes import QueueData, read_route
from towline.format.wire.allocation import allocate

from . import replies
from .offsets import UNKNOWN, offset_in, query, update
from .positions import first_of
from .subscriptions import subscription_of
from .talk import Membership as Member
from .talk import Pause, Request, Session, Step, Talk, succeeded

HEARTBEAT_S: Final = 30.0
LOOK_S: Final = 5.0
EXPIRES_MS: Final = 100_000  # a broker forgets who is silent for 120 s
LOCK_MS: Final = 60_000  # rebalance.lockMaxLiveTime of a broker
_FROM: Final = {"first": "CONSUME_FROM_FIRST_OFFSET", "last": "CONSUME_FROM_LAST_OFFSET"}
_FROM_TIME: Final = "CONSUME_FROM_TIMESTAMP"

Facts = dict[str, Any]
Work = Generator[Step, list[Command], None]


# --- heartbeats


def heartbeat(session: Session) -> Request:
    """Says who we are: a producer's name is its group."""
    producers = [{"groupName": session.name}] if session.role == "producer" else []
    member = session.membership
    body = {
        "clientID": session.client_id,
        "producerDataSet": producers,
        "consumerDataSet": [] if member is None else [_consumer_data(member)],
    }
    return Request(RequestCode.HEART_BEAT, body=json.dumps(body, ensure_ascii=False).encode())


def _consumer_data(member: Member) -> Facts:
    return {
        "groupName": member.group,
        "consumeType": "CONSUME_PASSIVELY",
        "messageModel": member.model,
        "consumeFromWhere": _FROM.get(str(member.start), _FROM_TIME),
        "subscriptionDataSet": [
            subscription_of(topic, expression, kind, member.version)
            for topic, (expression, kind) in sorted(member.subscriptions.items())
        ],
        "unitMode": False,
    }


def pushed(session: Session, command: Command) -> Command:
    """Takes a request of the broker's; the answer, for one that wants it. Raises MalformedFrame."""
    session.has_news = True
    if command.code == RequestCode.RESET_CONSUMER_CLIENT_OFFSET and session.membership is not None:
        _take_reset(session.membership, command)
    elif command.code == RequestCode.CHECK_TRANSACTION_STATE:
        header = read_header(EndTransaction, {"producerGroup": "", "commitOrRollback": "0", **command.fields})
        session.checks.append((header.tran_state_table_offset, bytes(command.body)))
    elif command.code == RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT:
        replies.take(session, command)
    elif command.code != RequestCode.NOTIFY_CONSUMER_IDS_CHANGED:
        remark = f"request type {command.code} not supported"
        return command.answer(ResponseCode.REQUEST_CODE_NOT_SUPPORTED, remark=remark)
    return command.answer(ResponseCode.SUCCESS)


def _take_reset(member: Member, command: Command) -> None:
    found = loads(command.body) if len(command.body) else {}
    table = found.get("offsetTable", {}) if isinstance(found, dict) else {}
    if isinstance(table, dict) and command.fields.get("group") == member.group:
        for key, offset in table.items():
            queue = json.loads(key)
            member.wanted[str(queue["topic"]), int(queue["queueId"])] = int(offset)
        member.was_reset(command.fields.get("topic", ""))


# --- joining


def join(session: Session, facts: Facts) -> Talk:
    before = session.membership
    session.membership = member = Member(
        group=facts["group"],
        member=facts["member"],
        model=BROADCASTING if facts["model"] == "broadcasting" else CLUSTERING,
        start=facts["from"],
        subscriptions={topic: (str(each["expression"]), str(each["type"])) for topic, each in facts["topics"].items()},
        strategy=facts["strategy"],
        version=before.version if before is not None else 1,
        generation=int(facts["generation"]),
    )
    (answer,) = yield [heartbeat(session)]
    succeeded(answer)
    yield from _look(session, member)
    member.generation += 1
    return _told(member), b""


def watch(session: Session, facts: Facts) -> Talk:
    """Answers when something has changed, or after a while."""
    member = _member(session)
    if member.generation == facts["generation"] and not session.has_news:
        yield Pause(LOOK_S)
    session.has_news = False  # of which nobody may have heard: what comes from here on is seen by the next watch
    before = _state(member)
    yield from _look(session, member)
    if _state(member) != before:
        member.generation += 1
    return _told(member), b""


def leave(session: Session, _: Facts) -> Talk:
    member = _member(session)
    header = UnregisterClient(client_id=session.client_id, consumer_group=member.group)
    (answer,) = yield [Request(RequestCode.UNREGISTER_CLIENT, header)]
    succeeded(answer)
    session.membership = None
    return {}, b""


def _look(session: Session, member: Member) -> Work:
    """Looks who is in the group, and where the queues of its topics are."""
    topics = sorted(member.subscriptions)
    routes = [Request(RequestCode.GET_ROUTEINFO_BY_TOPIC, OfTopic(topic=topic), names=True) for topic in topics]
    members = Request(RequestCode.GET_CONSUMER_LIST_BY_GROUP, ConsumerGroup(consumer_group=member.group))
    listed, *found = yield [members, *routes]
    ids = loads(listed.body).get("consumerIdList", []) if listed.code == ResponseCode.SUCCESS else []
    member.members = sorted({*map(str, ids), member.member})
    for topic, answer in zip(topics, found, strict=True):
        rows = read_route(loads(answer.body)) if succeeded(answer, ResponseCode.TOPIC_NOT_EXIST) else []
        own = [row.read_queues for row in rows if row.broker == session.broker and row.perm & 4]
        member.queues[topic] = sum(own)
        member.shares[topic] = _share(session.broker, member, rows)


def _share(broker: str, member: Member, rows: list[QueueData]) -> list[int]:
    """The queues of this broker that are the member's."""
    everywhere = [(row.broker, queue) for row in rows if row.perm & 4 for queue in range(row.read_queues)]
    if member.model == BROADCASTING:
        return [queue for name, queue in everywhere if name == broker]
    mine = allocate(member.strategy, everywhere, member.members, member.member)
    return [queue for name, queue in mine if name == broker]


def _state(member: Member) -> tuple[Any, ...]:
    return list(member.members), dict(member.queues), dict(member.shares)


def _told(member: Member) -> Facts:
    return {
        "generation": member.generation,
        "members": member.members,
        "queues": {topic: count for topic, count in member.queues.items() if count},
        "shares": member.shares,
        "strategy": member.strategy,
        "resets": member.resets,
        "settings": member.settings,
        "expires_ms": EXPIRES_MS,
        "lock_ms": LOCK_MS,
    }


def _member(session: Session) -> Member:
    if session.membership is None:
        raise MalformedFrame("a question about a group that was not joined")
    return session.membership


# --- locks


def lock(session: Session, facts: Facts) -> Talk:
    (answer,) = yield [_lock_request(session, RequestCode.LOCK_BATCH_MQ, facts)]
    succeeded(answer)
    rows = loads(answer.body).get("lockOKMQSet") or []
    return {"locked": [[row["topic"], row["queueId"]] for row in rows]}, b""


def unlock(session: Session, facts: Facts) -> Talk:
    if facts["queues"]:
        (answer,) = yield [_lock_request(session, RequestCode.UNLOCK_BATCH_MQ, facts)]
        succeeded(answer)
    return {}, b""


def _lock_request(session: Session, code: RequestCode, facts: Mapping[str, Any]) -> Request:
    queues = [
        {"topic": topic, "brokerName": session.broker, "queueId": queue_id} for topic, queue_id in facts["queues"]
    ]
    body = {"consumerGroup": facts["group"], "clientId": facts["member"], "mqSet": queues}
    return Request(code, body=json.dumps(body).encode())


# --- offsets


def offsets(session: Session, facts: Facts) -> Talk:
    """Where a member goes on. A queue for which the group has no offset begins where the member's `start` says."""
    member = _member(session)
    yield from _commit_wanted(member)
    keys = [(topic, queue) for topic in facts["topics"] for queue in range(member.queues.get(topic, 0))]
    table: dict[str, dict[str, int]] = {}
    if not keys:
        return {"offsets": table}, b""
    found = yield [query(member.group, *key) for key in keys]
    for (topic, queue), answer in zip(keys, found, strict=True):
        offset = offset_in(answer)
        if offset == UNKNOWN:
            retries = topic.endswith(f"%{member.group}") and topic.startswith("%RETRY%")
            offset = yield from first_of(topic, queue, "first" if retries else member.start)
            (answer,) = yield [update(member.group, topic, queue, offset)]
            succeeded(answer)
        table.setdefault(topic, {})[str(queue)] = offset
    return {"offsets": table}, b""


def commit(session: Session, facts: Facts) -> Talk:
    group = facts["group"]
    rows = [
        update(group, topic, int(queue), int(offset))
        for topic, queues in facts["offsets"].items()
        for queue, offset in queues.items()
    ]
    if rows:
        for answer in (yield rows):
            succeeded(answer)
    return {}, b""


def _commit_wanted(member: Member) -> Work:
    """What somebody has set goes to the broker last: what was read meanwhile may have been committed."""
    wanted, member.wanted = member.wanted, {}
    if wanted:
        for answer in (yield [update(member.group, *key, offset) for key, offset in wanted.items()]):
            succeeded(answer)


# --- messages that come back


def send_back(session: Session, facts: Facts) -> Talk:
    """Has the broker store a message again, in the retry topic or as a dead letter."""
    header = SendBack(
        offset=facts["offset"],
        group=facts["group"],
        delay_level=facts["level"],
        origin_msg_id=facts["key"],
        origin_topic=facts["topic"],
        max_reconsume_times=facts["times"],
    )
    (answer,) = yield [Request(RequestCode.CONSUMER_SEND_MSG_BACK, header)]
    succeeded(answer)
    return {}, b""
