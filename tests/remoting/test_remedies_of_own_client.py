"""What our own client is refused by rocketmq://: the remedy is followed, or typed, and it then works."""

from collections.abc import Callable
from itertools import count

import pytest

from tests.cli.typist import Typist
from tests.processes.waiting import await_
from towline.client.admin import AdminClient
from towline.client.errors import TransactionRefused
from towline.client.group.consumer import GroupConsumer
from towline.client.message import Message
from towline.client.producer import Producer
from towline.client.transaction import State, Transaction, TransactionProducer
from towline.errors import NoAnswer
from towline.format.wire.status import PutStatus

from .conftest import RemotingNode

GROUP = "typed"
NUMBERS = count()


@pytest.fixture
def endpoint(node: RemotingNode) -> str:
    return f"rocketmq://127.0.0.1:{node.port}"


@pytest.fixture
def topic(endpoint: str) -> str:
    name = f"typed-{next(NUMBERS)}"
    with AdminClient(endpoint) as admin:
        admin.create_topic(name, 1)
    return name


def producer_of(endpoint: str, group: str = GROUP) -> TransactionProducer:
    return TransactionProducer(endpoint, group, lambda _: State.UNKNOWN)


def refused(end: Callable[[Transaction], PutStatus], transaction: Transaction) -> TransactionRefused:
    with pytest.raises(TransactionRefused) as caught:
        end(transaction)
    return caught.value


def test_a_transaction_of_another_group_is_ended_by_a_producer_of_its_own(endpoint: str, topic: str) -> None:
    with producer_of(endpoint) as own:
        begun, _ = own.begin(Message(topic, b"x"))
        with producer_of(endpoint, "others") as stranger:
            error = refused(stranger.commit, Transaction(begun.first, begun.unique_key, "others"))
        assert error.name == "ANOTHER_GROUP"
        assert error.advice == "end it with a producer of the group that began it"
        assert own.commit(begun) is PutStatus.PUT_OK


def test_what_is_no_transaction_is_ended_by_what_begin_gave(endpoint: str, topic: str) -> None:
    with producer_of(endpoint) as producer:
        begun, _ = producer.begin(Message(topic, b"x"))
        error = refused(producer.commit, Transaction(begun.first, "another key", GROUP))
        assert error.name == "NO_SUCH_TRANSACTION"
        assert error.advice.startswith("give back what `begin` gave")
        assert producer.commit(Transaction.read(str(begun))) is PutStatus.PUT_OK


def test_of_what_has_ended_otherwise_nothing_is_to_be_done(endpoint: str, topic: str) -> None:
    """By this producer, and by another one of its group."""
    with producer_of(endpoint) as producer, producer_of(endpoint) as other:
        begun, _ = producer.begin(Message(topic, b"kept"))
        assert producer.commit(begun) is PutStatus.PUT_OK
        for each in (producer, other):
            error = refused(each.rollback, begun)
            assert (error.name, error.advice.startswith("nothing is to be done")) == ("ALREADY_COMMITTED", True)
    with AdminClient(endpoint) as admin:
        await_(lambda: admin.bounds(topic)[0][1] == 1, 60.0, "the message is in its topic")


def test_a_group_is_looked_for_and_left_by_the_commands_named(node: RemotingNode, endpoint: str, topic: str) -> None:
    typist, where = Typist(node.store.root), f"--endpoint {endpoint}"
    [listed] = typist.refused(f"towline group describe nobody {where}")
    typist.works(listed)
    delete = f"towline group delete of-{topic} {where}"
    with GroupConsumer(endpoint, f"of-{topic}", {topic: "*"}) as member:
        member.poll(0)  # it has joined
        [described] = typist.refused(delete)
        assert len(typist(described).document["members"]) == 1
    typist.works(delete)


def test_a_broker_that_nobody_knows_is_named_beside_those_there_are(endpoint: str, topic: str) -> None:
    known = "they know no broker 'nobody', but towline"
    with AdminClient(f"{endpoint}/nobody") as admin, pytest.raises(NoAnswer, match=known):
        admin.topics()
    with Producer(f"{endpoint}/towline") as producer:
        assert producer.send(Message(topic, b"x")).acknowledged
