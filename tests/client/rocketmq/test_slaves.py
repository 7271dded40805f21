"""Reading from a broker's slaves, where and while its answers say so."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from tests.processes.waiting import await_
from towline.client.consumer import Consumer
from towline.client.rocketmq import link
from towline.format.record.record import Record, encode
from towline.format.remoting.codes import RequestCode, ResponseCode
from towline.format.remoting.command import ANSWER, Command

from .standins import Answer, Standin, broker, names_of, refuses, says, serving, silent

PULL = RequestCode.PULL_MESSAGE
COUNT = 100
DEADLINE_S = 30.0
SLAVE = 1


def pulls(suggests: Callable[[int], int], end: int = COUNT) -> Answer:
    """Gives one message of queue 0, and says whom to ask next, by the offset of the message."""

    def take(asked: Command) -> Command:
        offset = int(asked.fields["queueOffset"])
        here = offset < end and asked.fields["queueId"] == "0"
        fields = {
            "nextBeginOffset": str(offset + here),
            "minOffset": "0",
            "maxOffset": str(end),
            "suggestWhichBrokerId": str(suggests(offset)),
        }
        record = Record(topic=b"t", body=b"%d" % offset, queue_offset=offset, physical_offset=1_000 * offset)
        code = ResponseCode.SUCCESS if here else ResponseCode.PULL_NOT_FOUND
        return Command(code, asked.opaque, ANSWER, "", fields, encode(record) if here else b"")

    return take


class Cluster:
    """A master and its slave, with a topic `t` of one queue; `names` knows them."""

    def __init__(self, opened: ExitStack) -> None:
        self.master, self.slave = (opened.enter_context(serving(broker())) for _ in range(2))
        self.master.answers[RequestCode.GET_MAX_OFFSET] = says({"offset": COUNT})
        self.names = opened.enter_context(serving({}))
        self.know({0: self.master.address, SLAVE: self.slave.address})

    def know(self, addresses: dict[int, str]) -> None:
        self.names.answers.update(names_of({"a": addresses}, {"t": {"a": 1}}))

    def read(self, enough: Callable[[list[int]], bool] = lambda found: len(found) == COUNT) -> list[int]:
        """The numbers of the messages that come."""
        found: list[int] = []
        with Consumer(f"rocketmq://{self.names.address}", "t", start="first", timeout_ms=60_000) as consumer:

            def read() -> bool:
                found.extend(int(each.body) for each in consumer.poll(500))
                return enough(found)

            await_(read, DEADLINE_S, "messages")
        return found


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with ExitStack() as opened:
        yield Cluster(opened)


def offsets(standin: Standin) -> list[int]:
    """Of the pulls that came."""
    return [int(each.fields["queueOffset"]) for each in standin.asked if each.code == PULL]


def test_reading_goes_to_the_slave_and_comes_back_as_the_answers_say(cluster: Cluster) -> None:
    cluster.master.answers[PULL] = pulls(lambda offset: SLAVE if offset < 20 else 0)
    cluster.slave.answers[PULL] = pulls(lambda offset: SLAVE if offset < 60 else 0)
    assert cluster.read() == list(range(COUNT))
    assert offsets(cluster.slave) == list(range(1, 61))
    assert offsets(cluster.master)[:2] == [0, 61]
    (first, *_) = [each for each in cluster.slave.asked if each.code == PULL]
    assert first.fields["suspendTimeoutMillis"] == "0"
    assert not int(first.fields["sysFlag"]) & 2, "a slave that has nothing is not waited for"


def test_what_the_slave_does_not_have_yet_the_master_is_asked_for(cluster: Cluster) -> None:
    cluster.master.answers[PULL] = pulls(lambda _: SLAVE)
    cluster.slave.answers[PULL] = pulls(lambda _: SLAVE, end=50)
    assert cluster.read() == list(range(COUNT))
    assert offsets(cluster.slave)[:50] == list(range(1, 51))
    assert set(offsets(cluster.master)) >= {0, *range(50, COUNT)}


@pytest.mark.parametrize("answer", [refuses(1), refuses(14), refuses(ResponseCode.PULL_OFFSET_MOVED), silent])
def test_a_slave_that_refuses_or_is_silent_costs_no_message(
    cluster: Cluster, answer: Answer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(link, "SLAVE_S", 0.2)
    cluster.master.answers[PULL] = pulls(lambda offset: SLAVE if offset == 10 else 0)
    cluster.slave.answers[PULL] = answer
    assert cluster.read() == list(range(COUNT))
    assert offsets(cluster.slave) == [11]


def test_a_slave_that_dies_costs_no_message(cluster: Cluster) -> None:
    cluster.master.answers[PULL] = pulls(lambda offset: SLAVE if offset == 10 else 0)
    given = pulls(lambda _: SLAVE)

    def take(asked: Command) -> Command | None:
        if int(asked.fields["queueOffset"]) == 40:
            cluster.slave.close()
            return None
        return given(asked)

    cluster.slave.answers[PULL] = take
    assert cluster.read() == list(range(COUNT))
    assert offsets(cluster.master)[:12] == [*range(11), 40]


def test_a_slave_of_which_no_name_server_knows_is_not_asked(cluster: Cluster) -> None:
    cluster.know({0: cluster.master.address})
    cluster.master.answers[PULL] = pulls(lambda _: SLAVE)
    assert cluster.read() == list(range(COUNT))
    assert offsets(cluster.slave) == []


def test_a_slave_that_comes_later_is_asked(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(link, "HEARTBEAT_S", 0.05)
    cluster.know({0: cluster.master.address})
    endless = pulls(lambda _: SLAVE, end=1 << 30)
    cluster.master.answers[PULL] = cluster.slave.answers[PULL] = endless

    def enough(found: list[int]) -> bool:
        if len(found) == COUNT:
            cluster.know({0: cluster.master.address, SLAVE: cluster.slave.address})
        return bool(offsets(cluster.slave)) and len(found) >= 2 * COUNT

    found = cluster.read(enough)
    assert found == list(range(len(found)))
