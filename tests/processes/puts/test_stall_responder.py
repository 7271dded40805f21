"""While an append is stuck in the mapping: who is refused, with what, and what is stored in the end."""

import threading
import time
from collections.abc import Iterator

import pytest

from tests.processes.arming import Arming
from tests.processes.nodes import TestNode, check_nothing_is_left, ending
from tests.processes.stored import Stored
from tests.processes.waiting import await_
from tests.processes.wire import WireClient, records_of
from towline.cli.main import run
from towline.client.message import Message
from towline.client.producer import Producer
from towline.format.wire.frames import ASK, Kind, json_part, kind_of
from towline.format.wire.refusals import Cause, read_sentence
from towline.format.wire.status import PutStatus
from towline.node.report.status import read_status
from towline.runtime.positions import Duty, Flag, Position, Positions, State

TOPIC = b"orders"
LIMIT_MS = 1000
LATEST_MS = 1500  # refusals have begun by then
STALL_MS = 5000  # there is time to look before the turn ends


@pytest.fixture(scope="module")
def arming(tmp_path_factory: pytest.TempPathFactory) -> Arming:
    return Arming(tmp_path_factory.mktemp("arming"))


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory, arming: Arming) -> Iterator[TestNode]:
    made = TestNode("master", tmp_path_factory.mktemp("front"), ha_listen_port=0)
    with ending(made):
        with pytest.MonkeyPatch.context() as patch:
            arming.announce(patch)
            made.start("--without", "serve")
        yield made
        assert made.stop()
        check_nothing_is_left(made)


@pytest.fixture
def client(node: TestNode) -> Iterator[WireClient]:
    yield from _greeted(node)


@pytest.fixture
def other(node: TestNode) -> Iterator[WireClient]:
    yield from _greeted(node)


def _greeted(node: TestNode) -> Iterator[WireClient]:
    client = WireClient(node.endpoint)
    client.create_topic(TOPIC.decode(), queues=4)
    yield client
    client.close()


def stall(node: TestNode, client: WireClient, arming: Arming, ms: int) -> int:
    """One request of `client` is stuck in the append from now on. Returns the published begin of the turn, in ns."""
    line = node.positions.duty(Duty.PUT)
    arming.arm(f"put.in_append=stall:{ms}")
    client.send(records_of(TOPIC, 2))
    arming.await_fired()
    assert line.turn_began_ns
    return line.turn_began_ns


def since_ms(began_ns: int) -> float:
    return (time.monotonic_ns() - began_ns) / 1e6


def test_a_stuck_append_refuses_everybody_else_in_time_and_stores_nothing_of_theirs(node, client, other, arming):
    line, before = node.positions.duty(Duty.PUT), node.at(Position.APPENDED)
    refused = node.positions.refused.count(Cause.PAGE_CACHE)
    began = stall(node, client, arming, STALL_MS)
    for _ in range(5):
        other.send(records_of(TOPIC, 3, queue_id=1))
    answers = [other.answer() for _ in range(5)]
    first = read_sentence(answers[0].sentence)[1]["waited_ms"]  # by put's own clock
    assert LIMIT_MS < first < LATEST_MS
    print(f"\nfirst refusal {first:.0f} ms after the turn began")
    other.send(records_of(TOPIC, 3, queue_id=2))
    answers.append(other.answer())
    assert since_ms(began) < STALL_MS
    for answer in answers:
        cause, numbers, _ = read_sentence(answer.sentence)
        assert (answer.status, cause) == (PutStatus.OS_PAGE_CACHE_BUSY, Cause.PAGE_CACHE)
        assert LIMIT_MS == numbers["limit_ms"] < numbers["waited_ms"] < STALL_MS
        assert 100 <= answer.retry_after == numbers["retry_after_ms"] <= 1000
    assert (line.turn_began_ns, line.state) == (began, State.KERNEL)
    assert node.at(Position.APPENDED) == before
    said = read_status(node.store.root)
    assert said["refused"]["leading"] == "page_cache"
    assert next(each for each in said["processes"] if each["duty"] == "put")["turn_ms"] > LIMIT_MS

    assert client.answer().status == PutStatus.PUT_OK
    assert since_ms(began) >= STALL_MS
    assert other.put(records_of(TOPIC, 1)).status == PutStatus.PUT_OK
    await_(lambda: (line.turn_began_ns, line.state) == (0, State.RUNNING), 60.0, "the turn is over")
    assert node.positions.refused.count(Cause.PAGE_CACHE) == refused + len(answers)
    assert stored_in(node, before) == 2 + 1


def stored_in(node: TestNode, start: int) -> int:
    """Records from `start` of the log on."""
    end = node.at(Position.APPENDED)
    await_(lambda: node.at(Position.DISPATCHED) == end, 60.0, "everything is dispatched")
    stored = Stored(node.store, end)
    count, at = 0, start
    while at < end:
        at += len(stored.log.record(at, end))
        count += 1
    stored.check_queues()
    stored.check_zeros_behind()
    stored.close()
    return count


def test_what_waited_too_long_behind_a_shorter_stall_is_refused_with_its_wait(node, client, other, arming):
    before = node.at(Position.APPENDED)
    client.put(records_of(TOPIC, 1))
    began = stall(node, client, arming, 700)
    other.send(records_of(TOPIC, 3, queue_id=1))
    answer = other.answer()
    assert since_ms(began) >= 700
    cause, numbers, _ = read_sentence(answer.sentence)
    assert (answer.status, cause) == (PutStatus.SYSTEM_BUSY, Cause.SEND_QUEUE)
    assert 200 == numbers["limit_ms"] < numbers["waited_ms"] < LIMIT_MS
    assert answer.retry_after == numbers["retry_after_ms"] == 40
    assert client.answer().status == PutStatus.PUT_OK
    assert stored_in(node, before) == 1 + 2


def test_questions_and_greetings_are_answered_meanwhile(node, client, other, arming):
    began = stall(node, client, arming, 3000)
    other.create_topic("made-meanwhile", queues=2)
    late = WireClient(node.endpoint)
    assert late.link.send([ASK.pack(Kind.ASK, 7), json_part({"op": "route", "topic": "made-meanwhile"})])
    parts = late.receive(5)
    assert parts is not None
    assert kind_of(parts[0]) == Kind.ANSWER
    assert b'"write_queues":2' in bytes(parts[1])
    assert since_ms(began) < 3000
    late.close()
    assert client.answer().status == PutStatus.PUT_OK
    assert other.put(records_of(b"made-meanwhile", 1)).status == PutStatus.PUT_OK


def test_a_running_flag_closes_the_gate_and_status_says_so(node, client, capfd):
    request, positions = records_of(TOPIC, 1), Positions.open(node.positions.path)
    line = positions.duty(Duty.RECEIVE)  # nobody's on a master
    line.raise_flag(Flag.LOGIC_QUEUE_ERROR)
    try:
        answers = [client.put(request) for _ in range(50)]
        assert run(["master", "status", "--store", str(node.store.root)]) == 1, "it is not ready"
        said = " ".join(capfd.readouterr().out.split())
        read = read_status(node.store.root)
    finally:
        line.lower_flag(Flag.LOGIC_QUEUE_ERROR)
    for answer in answers:
        assert (answer.status, answer.retry_after) == (PutStatus.SERVICE_NOT_AVAILABLE, 1000)
        assert read_sentence(answer.sentence)[:2] == (Cause.QUEUE_ERROR, {"flags": 4, "retry_after_ms": 1000})
    assert (read["flags"], read["refused"]["leading"]) == (["LOGIC_QUEUE_ERROR"], "queue_error")
    assert "running flags: LOGIC_QUEUE_ERROR" in said
    assert "puts are refused mostly by queue_error (50 of " in said
    assert Cause.QUEUE_ERROR.remedy_at(str(node.store.root)) in said
    assert client.put(request).status == PutStatus.PUT_OK


def test_with_too_few_replicas_in_sync_a_put_is_refused_before_it_is_written(tmp_path):
    settings = {"broker_role": "SYNC_MASTER", "in_sync_replicas": 2, "min_in_sync_replicas": 2, "total_replicas": 2}
    alone = TestNode("master", tmp_path, ha_listen_port=0, **settings)
    with ending(alone):
        alone.start("--without", "serve")
        client = WireClient(alone.endpoint)
        client.create_topic(TOPIC.decode(), queues=1)
        answer = client.put(records_of(TOPIC, 1))
        client.close()
        assert answer.status == PutStatus.IN_SYNC_REPLICAS_NOT_ENOUGH
        assert read_sentence(answer.sentence)[:2] == (
            Cause.REPLICAS,
            {"in_sync": 1, "limit": 2, "retry_after_ms": 200},
        )
        assert alone.at(Position.APPENDED) == 0
        assert alone.stop()


def test_a_producer_rides_through_a_stall_with_nothing_lost_or_doubled(node, client, arming):
    before, began = node.at(Position.APPENDED), 0
    keys, count = [], 60
    with Producer(node.endpoint, linger_ms=0, in_flight_max=4) as producer:
        producer.route("riders")
        began = stall(node, client, arming, 3000)
        sender = threading.Thread(target=lambda: keys.extend(_send(producer, count)))
        sender.start()
        sender.join(20)
        assert not sender.is_alive()
        assert since_ms(began) >= 3000
        assert producer.statistics.retried > 0
        assert (producer.statistics.acknowledged, producer.statistics.failed) == (count, 0)
        assert producer.statistics.links_lost == 0
    assert client.answer().status == PutStatus.PUT_OK
    assert stored_in(node, before) == 2 + count
    stored = Stored(node.store, node.at(Position.APPENDED))
    found = stored.read("riders")
    stored.close()
    assert sorted(key for key, _ in found.elements()) == sorted(keys)


def _send(producer: Producer, count: int) -> list[str]:
    futures = [producer.send_async(Message("riders", b"%d" % number)) for number in range(count)]
    return [future.result(20).unique_key for future in futures]
