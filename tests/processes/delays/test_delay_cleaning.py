"""Cleaning of the log waits for what is to be delivered; where it cannot, what is lost is counted."""

import time
from collections.abc import Iterator
from contextlib import suppress

import pytest

from tests.processes.aging import CLEANED_AT_ONCE, HOUR_S, clean, fill
from tests.processes.nodes import SEGMENT, TestNode, ended
from tests.processes.waiting import await_
from towline.client.admin import AdminClient
from towline.client.consumer import Consumer
from towline.client.errors import TransactionRefused
from towline.client.message import Message
from towline.client.producer import Producer
from towline.client.transaction import TransactionProducer
from towline.errors import UnknownTopic
from towline.link.endpoints import ipc_endpoint
from towline.node.report.status import read_status
from towline.runtime.positions import Duty, Position

DEADLINE_S = 60.0
DELAYED = 30


@pytest.fixture
def node(tmp_path) -> Iterator[TestNode]:
    made = TestNode(
        "master",
        tmp_path,
        ha_listen_port=0,
        message_delay_level="1h",
        timer_max_delay_sec=10 * HOUR_S,
        transaction_time_out=24 * HOUR_S * 1000,
        **CLEANED_AT_ONCE,
    )
    cleaning = ended(made)
    next(cleaning)
    made.start()
    yield made
    next(cleaning, None)


def lost(node: TestNode) -> int:
    (process,) = (
        process for process in read_status(node.store.root)["processes"] if process["duty"] == Duty.SCHEDULE.label
    )
    return int(process["lost"])


def test_what_is_delayed_keeps_its_segment_for_the_longest_delay_and_is_counted_when_lost(node: TestNode) -> None:
    with Producer(node.endpoint, linger_ms=1.0) as producer, TransactionProducer(node.endpoint, "g") as sender:
        at = time.time_ns() // 1_000_000 + HOUR_S * 1000
        futures = [producer.send_async(Message("late", b"", deliver_at=at)) for _ in range(DELAYED)]
        futures += [producer.send_async(Message("late", b"", delay_level=1)) for _ in range(DELAYED)]
        assert all(future.result().acknowledged for future in futures)
        half, _ = sender.begin(Message("late", b"half"))
        fill(node)
        for _ in range(2):  # when the second one is heard, the first one was looked into
            clean(node, 10.5)
        with AdminClient(ipc_endpoint(node.runtime, "serve")) as admin:
            assert admin.topics(), "the node goes on"
        assert (node.at(Position.LOG_MIN), lost(node)) == (0, 0)
        clean(node, 11.5)
        await_(lambda: node.at(Position.LOG_MIN) >= SEGMENT, DEADLINE_S, "the longest delay is over: the segments go")
        await_(lambda: lost(node) >= 2 * DELAYED, DEADLINE_S, "what was lost is counted")

        def told() -> str:
            with pytest.raises(TransactionRefused) as caught:
                sender.commit(half)
            return caught.value.name

        name = await_(told, DEADLINE_S, "the transaction is over")
        assert name in ("ALREADY_PUT_ASIDE", "ALREADY_ENDED")
    print(f"\nthe open half: {name}")
    assert lost(node) == 2 * DELAYED + (name == "ALREADY_ENDED")
    with Consumer(ipc_endpoint(node.runtime, "serve"), "TRANS_CHECK_MAX_TIME_TOPIC") as consumer:
        if name == "ALREADY_PUT_ASIDE":
            (message,) = await_(lambda: consumer.poll(100), DEADLINE_S, "it is put aside")
            assert message.body == b"half"
        else:
            found = []
            with suppress(UnknownTopic):  # it may have been made before the half was found to be gone
                found = consumer.poll(100)
            assert not found
