"""Deadlines of puts are in the node's clock, whatever the clocks on both sides do."""

import time

import pytest

from towline.client.message import Message
from towline.client.producer import Producer
from towline.format.wire.refusals import Cause, sentence_of
from towline.format.wire.status import PutStatus

from .standin import Put, Refuse, Standin


def test_a_step_of_our_own_clock_moves_no_deadline(node: Standin, monkeypatch: pytest.MonkeyPatch) -> None:
    node.welcome = {"now": 1_000_000}
    with Producer(node.endpoint, cluster="c1", delivery_timeout_ms=10_000) as producer:
        producer.send(Message("t", b"x"))
        monkeypatch.setattr("towline.client.link.connection.now_ms", lambda: time.time_ns() // 1_000_000 - 3_600_000)
        producer.send(Message("t", b"y"))
    first, second = (put.deadline for put in node.puts)
    assert first <= second < first + 60_000


def test_a_node_whose_clock_went_forward_is_believed(node: Standin) -> None:
    """All that it takes is one refusal: it says how late the request was."""
    node.welcome = {"now": 1_000_000}
    later = 9_000_000  # by its clock, now

    def judge(put: Put) -> Refuse | None:
        late = {"late_ms": later - put.deadline}
        return Refuse(PutStatus.EXPIRED, sentence_of(Cause.EXPIRED, late)) if put.deadline < later else None

    with Producer(node.endpoint, cluster="c1", delivery_timeout_ms=10_000) as producer:
        producer.send(Message("t", b"x"))
        assert len(node.puts) == 1
        node.judge = judge
        assert producer.send(Message("t", b"y")).acknowledged
        assert producer.send(Message("t", b"z")).acknowledged
    assert len(node.puts) == 4
    assert (node.greeted, producer.statistics.links_lost) == (1, 0)
