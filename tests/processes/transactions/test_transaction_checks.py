"""Who is asked about an open transaction, and when, by the node's own clock."""

import threading
from collections.abc import Iterator

import pytest

from tests.processes.delays.test_delay_steps import HOUR_MS, SteppedClock
from tests.processes.nodes import TestNode, check_nothing_is_left, ended
from tests.processes.waiting import await_
from towline.client.consumer import Consumer
from towline.client.message import Message, ReceivedMessage
from towline.client.transaction import State, TransactionProducer
from towline.clock import ENVIRONMENT
from towline.link.endpoints import ipc_endpoint

DEADLINE_S = 60.0
TIME_OUT_MS = HOUR_MS
IMMUNITY = "CHECK_IMMUNITY_TIME_IN_SECONDS"


@pytest.fixture(scope="module")
def clock(tmp_path_factory: pytest.TempPathFactory) -> SteppedClock:
    return SteppedClock(tmp_path_factory.mktemp("clock") / "ahead")


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory, clock: SteppedClock) -> Iterator[TestNode]:
    made = TestNode(
        "master",
        tmp_path_factory.mktemp("checks"),
        ha_listen_port=0,
        transaction_time_out=TIME_OUT_MS,
        transaction_check_interval=200,
        transaction_check_max=1000,
    )
    cleaning = ended(made)
    next(cleaning)
    try:
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv(ENVIRONMENT, str(clock._path))
            made.start()
        yield made
        assert made.stop()
        check_nothing_is_left(made)
    finally:
        next(cleaning, None)


class Asked:
    """What a producer was asked; it answers `state`, once it may."""

    def __init__(self, state: State) -> None:
        self.bodies: list[bytes] = []
        self.state = state
        self.answers = threading.Event()
        self.answers.set()

    def __call__(self, message: ReceivedMessage) -> State:
        self.bodies.append(message.body)
        assert self.answers.wait(DEADLINE_S)
        return self.state

    def await_rounds(self, body: bytes) -> None:
        """Until two more rounds of checks have asked about one that is due all the time."""
        wanted = self.bodies.count(body) + 2
        await_(lambda: self.bodies.count(body) >= wanted, DEADLINE_S, "rounds of checks")


def begin(producer: TransactionProducer, body: bytes, immunity_s: int | None = None) -> None:
    properties = {} if immunity_s is None else {IMMUNITY: str(immunity_s)}
    producer.begin(Message(producer.group, body, properties=properties))


def test_nobody_is_asked_before_a_transaction_is_old_enough(node: TestNode, clock: SteppedClock) -> None:
    asked = Asked(State.UNKNOWN)
    with TransactionProducer(node.endpoint, "patient", asked) as producer:
        begin(producer, b"due", 0)
        begin(producer, b"plain")
        begin(producer, b"immune", 2 * HOUR_MS // 1000)
        asked.await_rounds(b"due")
        assert set(asked.bodies) == {b"due"}
        clock.step(TIME_OUT_MS)
        await_(lambda: b"plain" in asked.bodies, DEADLINE_S, "its time-out is over")
        asked.await_rounds(b"due")
        assert b"immune" not in asked.bodies
        clock.step(HOUR_MS)
        await_(lambda: b"immune" in asked.bodies, DEADLINE_S, "its immunity is over")
        asked.state = State.ROLLBACK


def test_a_producer_that_dies_with_its_checks_leaves_them_to_another_of_its_group(node: TestNode) -> None:
    dying, living = Asked(State.ROLLBACK), Asked(State.COMMIT)
    dying.answers.clear()
    first = TransactionProducer(node.endpoint, "two", dying)
    begin(first, b"one", 0)
    await_(lambda: dying.bodies, DEADLINE_S, "it is asked, and says nothing")
    found: list[bytes] = []
    with (
        TransactionProducer(node.endpoint, "two", living),
        Consumer(ipc_endpoint(node.runtime, "serve"), "two", suspend_ms=100) as consumer,
    ):

        def committed() -> bool:
            found.extend(message.body for message in consumer.poll(100))
            return bool(found)

        await_(committed, DEADLINE_S, "the other one is asked in the next round")
        dying.answers.set()
        first.close()
        consumer.poll(100)
    assert found == [b"one"], "what the first says now comes too late"
