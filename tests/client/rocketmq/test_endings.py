"""Ends of transactions at a broker, which knows a half by its place in the log: it is looked for first."""

from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from towline.client.errors import TransactionRefused
from towline.client.message import Message
from towline.client.transaction import State, TransactionProducer
from towline.format.record import properties as names
from towline.format.record.forms import HALF_TOPIC
from towline.format.record.record import Record, encode
from towline.format.remoting.codes import RequestCode, ResponseCode
from towline.format.remoting.command import ANSWER, Command
from towline.format.wire.status import PutStatus

from .standins import Standin, broker, names_of, says, serving

PLACE = 77
GROUP = "payers"


@pytest.fixture
def payer() -> Iterator[tuple[Standin, TransactionProducer]]:
    """A broker, and a producer of transactions that knows it."""
    with ExitStack() as opened:
        made = opened.enter_context(serving(broker()))
        known = opened.enter_context(serving(names_of({"a": {0: made.address}}, {"t": {"a": 4}})))
        producer = TransactionProducer(f"rocketmq://{known.address}", GROUP, lambda _: State.UNKNOWN)
        yield made, opened.enter_context(producer)


def test_a_half_that_cannot_be_read_yet_is_ended_by_ending_it_again(payer: tuple[Standin, TransactionProducer]) -> None:
    """A broker gives its halves to readers when they are dispatched, a moment after it has stored them."""
    standin, producer = payer
    begun, _ = producer.begin(Message("t", b"x"))
    pairs = [(names.UNIQ_KEY, begun.unique_key), (names.PRODUCER_GROUP, GROUP)]
    half = Record(
        topic=HALF_TOPIC.encode(),
        body=b"x",
        properties=names.encode(pairs),
        queue_offset=begun.first,
        physical_offset=PLACE,
    )
    looks = iter([b"", encode(half)])

    def pulled(asked: Command) -> Command:
        body = next(looks)
        code = ResponseCode.SUCCESS if body else ResponseCode.PULL_NOT_FOUND
        return Command(code, asked.opaque, ANSWER, "", {}, body)

    standin.answers |= {RequestCode.PULL_MESSAGE: pulled, RequestCode.END_TRANSACTION: says()}
    with pytest.raises(TransactionRefused) as refused:
        producer.commit(begun)
    assert refused.value.name == "NOT_READABLE_YET"
    assert refused.value.advice.startswith("end it again in a moment")
    assert producer.commit(begun) is PutStatus.PUT_OK
    [ended] = [each for each in standin.asked if each.code == RequestCode.END_TRANSACTION]
    assert ended.fields["commitLogOffset"] == str(PLACE)
