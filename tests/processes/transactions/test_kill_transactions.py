"""Processes and the whole node are killed at random under a load of transactions: each ends as its sender decided."""

import os
import random
import signal
import threading
from collections import Counter
from pathlib import Path
from typing import Final

import pytest

from tests.processes.nodes import TestNode, check_nothing_is_left, ended
from tests.processes.waiting import await_
from towline.client.admin import AdminClient
from towline.client.consumer import Consumer
from towline.client.errors import TransactionRefused
from towline.client.message import Message, ReceivedMessage
from towline.client.transaction import State, TransactionProducer
from towline.errors import TowlineError
from towline.link.endpoints import ipc_endpoint

NODE: Final = "all of it"
VICTIMS: Final = ("put", "schedule", "reput", NODE, "serve", "flush", "schedule", "put", NODE, "schedule")
THREADS: Final = 4
DEADLINE_S: Final = 60.0
TOPIC: Final = "bank"


def decision(body: bytes) -> State:
    """What the sender of a body does, and what any producer says of it when asked."""
    return State.COMMIT if body.startswith(b"commit") else State.ROLLBACK


class Senders:
    """Threads that begin transactions; a third of them is left to checks."""

    def __init__(self, node: TestNode, seed: int) -> None:
        self.begun = 0
        self.wrong: list[str] = []
        self.kept: set[bytes] = set()  # decided to be committed, their halves acknowledged
        self.troubles: Counter[str] = Counter()
        self._ending = threading.Event()
        self._lock = threading.Lock()
        self._producer = TransactionProducer(node.endpoint, "bank", self._check)
        self._threads = [threading.Thread(target=self._run, args=(seed + number,)) for number in range(THREADS)]
        for thread in self._threads:
            thread.start()

    @staticmethod
    def _check(message: ReceivedMessage) -> State:
        return decision(message.body)

    def _run(self, seed: int) -> None:
        draw = random.Random(seed)
        while not self._ending.is_set():
            with self._lock:
                self.begun += 1
                body = b"%s %d" % (draw.choice([b"commit", b"rollback"]), self.begun)
            left = draw.random() < 1 / 3
            try:
                result = self._producer.send(
                    Message(TOPIC, body), lambda _, body=body, left=left: self._say(body, left)
                )
                if result.half.acknowledged and decision(body) is State.COMMIT:
                    self.kept.add(body)
            except TransactionRefused as refused:
                self.wrong.append(f"{body!r}: {refused}")
            except TowlineError as error:
                self.troubles[type(error).__name__] += 1

    @staticmethod
    def _say(body: bytes, left: bool) -> State:
        return State.UNKNOWN if left else decision(body)

    def await_begun(self, count: int) -> None:
        await_(lambda: self.begun >= count, DEADLINE_S, f"{count} transactions are begun")

    def finish(self) -> None:
        self._ending.set()
        for thread in self._threads:
            thread.join(DEADLINE_S)

    def close(self) -> None:
        self._producer.close()


def open_transactions(node: TestNode) -> int:
    with AdminClient(ipc_endpoint(node.runtime, "schedule"), timeout_ms=20_000) as admin:
        return admin.transaction_status()["open"]


@pytest.mark.slow
def test_every_transaction_ends_as_it_was_decided(tmp_path: Path) -> None:
    node = TestNode(
        "master",
        tmp_path,
        ha_listen_port=0,
        transaction_time_out=500,
        transaction_check_interval=500,
        transaction_check_max=1000,
    )
    cleaning = ended(node)
    next(cleaning)
    try:
        node.start()
        senders = Senders(node, 11)
        for number, victim in enumerate(VICTIMS, 1):
            senders.await_begun(150 * number)
            if victim == NODE:
                node.kill_all(number)
                node.start()
                continue
            before = node.pids()
            os.kill(before[victim], signal.SIGKILL)
            node.await_restarted(victim, before)
        senders.await_begun(150 * (len(VICTIMS) + 1))
        senders.finish()
        await_(lambda: open_transactions(node) == 0, DEADLINE_S, "no transaction is left open")
        senders.close()
        assert senders.wrong == []
        found: list[ReceivedMessage] = []
        with Consumer(ipc_endpoint(node.runtime, "serve"), TOPIC) as consumer:
            await_(lambda: found.extend(consumer.poll(100)) or consumer.at_end, DEADLINE_S, "all is read")
        seen = Counter(message.body for message in found)
        assert not [body for body in seen if decision(body) is State.ROLLBACK]
        assert senders.kept - seen.keys() == set()
        assert len(senders.kept) > senders.begun // 4
        keys = {message.unique_key for message in found}
        assert len(keys) == len(seen), "one unique key for each message"
        print(
            f"\n{senders.begun} begun, {len(seen)} seen, {seen.total() - len(seen)} doubles, {dict(senders.troubles)}"
        )
        assert node.stop()
        check_nothing_is_left(node)
    finally:
        next(cleaning, None)
