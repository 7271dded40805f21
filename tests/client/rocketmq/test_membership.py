"""A member of a group at a broker, without one: what it asks, and when."""

import json

import pytest

from towline.client.rocketmq.membership import pushed, watch
from towline.client.rocketmq.talk import Membership, Pause, Session, Talk
from towline.format.remoting.codes import RequestCode
from towline.format.remoting.command import Command

FACTS = {"generation": 3}


def a_session() -> Session:
    subscriptions = {"orders": ("*", "TAG")}
    member = Membership("billing", "vm@1", "CLUSTERING", "first", subscriptions, "average", 1, 3, members=["vm@1"])
    return Session("consumer", "billing", broker="broker-a", membership=member)


def looked(session: Session, *members: str) -> list[Command]:
    """The answers to a look: who is there; the topic has no route."""
    listed = json.dumps({"consumerIdList": members}).encode()
    return [Command(0, 1, 1, body=listed), Command(17, 2, 1)]


def ended(talk: Talk, answers: list[Command]) -> int:
    """The generation that is told when a talk ends with these answers."""
    with pytest.raises(StopIteration) as told:
        talk.send(answers)
    return int(told.value.value[0]["generation"])


def test_news_that_come_while_nobody_waits_are_looked_at_once() -> None:
    session = a_session()
    pushed(session, Command(RequestCode.NOTIFY_CONSUMER_IDS_CHANGED, 1, 2, fields={"consumerGroup": "billing"}))
    talk = watch(session, FACTS)
    assert not isinstance(next(talk), Pause)  # it looks at once
    assert isinstance(next(watch(session, {"generation": ended(talk, looked(session, "vm@1"))})), Pause)


def test_news_that_come_during_a_look_are_looked_at_by_the_next() -> None:
    session = a_session()
    talk = watch(session, FACTS)
    assert isinstance(next(talk), Pause)
    next(talk)
    pushed(session, Command(RequestCode.NOTIFY_CONSUMER_IDS_CHANGED, 1, 2, fields={"consumerGroup": "billing"}))
    generation = ended(talk, looked(session, "vm@1", "vm@2"))
    assert not isinstance(next(watch(session, {"generation": generation})), Pause)
