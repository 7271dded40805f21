"""A slave is promoted while its master runs, under load: clients that know both go over, and lose nothing."""

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from tests.processes.groups import Group
from tests.processes.nodes import TestNode, ended
from tests.processes.waiting import await_
from towline.client.admin import AdminClient
from towline.client.consumer import Consumer
from towline.client.group.consumer import GroupConsumer
from towline.client.message import Message
from towline.client.producer import Producer
from towline.client.send.futures import SendFuture
from towline.errors import TowlineError
from towline.node.process.context import runtime_of

DEADLINE_S: Final = 60.0
DEADLINE_MS: Final = 40_000
COUNT: Final = 200  # acknowledged between two switches


def serve_of(node: TestNode) -> str:
    return f"ipc://{runtime_of(node.store.root).socket('serve')}"


@pytest.fixture
def group(tmp_path: Path) -> Iterator[Group]:
    made = Group(tmp_path, 2)
    ending = ended(*made.nodes)
    next(ending)
    made.start()
    yield made
    next(ending, None)


class Load(threading.Thread):
    """Sends numbered messages until it is ended. `outcomes` are in order."""

    def __init__(self, endpoints: list[str]) -> None:
        super().__init__(daemon=True)
        self.futures: list[tuple[bytes, SendFuture]] = []
        self.trouble: TowlineError | None = None
        self.ending = threading.Event()
        self.producer = Producer(endpoints, delivery_timeout_ms=DEADLINE_MS, in_flight_max=4)

    def run(self) -> None:
        number = 0
        while not self.ending.wait(0.001):
            body = b"%d" % number
            try:
                self.futures.append((body, self.producer.send_async(Message("t", body, sharding_key=str(number)))))
            except TowlineError as error:
                self.trouble = error
                return
            number += 1

    def acknowledged(self) -> set[bytes]:
        """Of those that have an outcome."""
        return {
            body
            for body, future in list(self.futures)
            if future.done() and future.exception() is None and future.result().acknowledged
        }

    def await_more(self, count: int) -> None:
        before = len(self.acknowledged())
        await_(lambda: len(self.acknowledged()) >= before + count, DEADLINE_S, f"{count} more are acknowledged")

    def end(self) -> set[bytes]:
        """The bodies of all that were acknowledged, when everything has an outcome."""
        self.ending.set()
        self.join(DEADLINE_S)
        self.producer.close()
        return self.acknowledged()


def test_there_and_back_under_load(group: Group):
    puts = [node.endpoint for node in group.nodes]
    serves = [serve_of(node) for node in group.nodes]
    with AdminClient(puts[0]) as admin:
        admin.create_topic("t", 4)
    load = Load(puts)
    load.start()
    with (
        Consumer(serves, "t", suspend_ms=300, timeout_ms=DEADLINE_MS) as reader,
        GroupConsumer(serves, "g", "t", start="first", suspend_ms=300, timeout_ms=DEADLINE_MS) as member,
    ):
        read: set[bytes] = set()
        shared: set[bytes] = set()

        def look() -> None:
            read.update(message.body for message in reader.poll(50))
            shared.update(message.body for message in member.poll(50))

        epochs = []
        for number in (1, 0):
            load.await_more(COUNT)
            look()
            epochs.append(group.promote(number)["epoch"])
            load.await_more(COUNT)
            look()
            group.await_in_sync(number, 2)
        acknowledged = load.end()
        assert load.trouble is None
        assert len(acknowledged) >= 4 * COUNT
        assert epochs[0] < epochs[1] == load.producer.welcome["epoch"]

        def everything() -> bool:
            look()
            return acknowledged <= read and acknowledged <= shared

        await_(everything, DEADLINE_S, "both have read all that was acknowledged")
        member.commit()
    with AdminClient(serves[0]) as admin:
        ends = {queue: end for queue, (_, end) in admin.bounds("t").items()}
        assert admin.group_offsets("g", "t")["t"] == ends
    group.await_level(0, 1)
