"""Open transactions outlive a master, and a log that lost its end: nobody's half is forgotten."""

import os
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.processes.groups import Group
from tests.processes.nodes import TestNode, ended
from tests.processes.readable import bodies, read_all
from tests.processes.stopping import stopped
from tests.processes.waiting import await_, read_saved
from towline.client.errors import TransactionRefused
from towline.client.message import Message, ReceivedMessage
from towline.client.transaction import State, TransactionProducer
from towline.format.wire.status import PutStatus
from towline.log.files.config_file import ConfigFile
from towline.runtime.positions import Counter, Duty, Position

DEADLINE_S = 60.0
RULES = {
    "flush_consumer_offset_interval": 100,
    "transaction_time_out": 600_000,
    "transaction_check_interval": 200,
    "transaction_check_max": 1000,
}
FLOORS = "transactionOffset.json"


@pytest.fixture
def group(tmp_path: Path) -> Iterator[Group]:
    made = Group(tmp_path, 3, flush_disk_type="SYNC_FLUSH", slave_timeout=500, **RULES)
    made.nodes[1].flags += ["--set", "transaction_time_out=300"]  # it asks when it is master, and that alone
    cleaning = ended(*made.nodes)
    next(cleaning)
    yield made
    next(cleaning, None)


def test_a_promoted_slave_checks_what_was_committed_without_reaching_it(group: Group) -> None:
    """The commit is in the log of the master alone: it was stored, not promised."""
    group.start()
    group.await_in_sync(0, 3)
    master, slave = group.nodes[0], group.nodes[1]
    with TransactionProducer(master.endpoint, "bank") as producer:
        through = producer.send(Message("bank", b"through"), lambda _: State.COMMIT)
        assert through.ended is PutStatus.PUT_OK
        transaction, half = producer.begin(Message("bank", b"lost"))
        assert half.status is PutStatus.PUT_OK
        before = b'"halfOffset":1'
        await_(lambda: before in read_saved(slave.store.config / FLOORS).replace(b" ", b""), DEADLINE_S, "it follows")
        assert bodies(slave, "bank", 1) == [b"through"], "a slave shows no half"
        receivers = [node.pids()["receive"] for node in group.nodes[1:]]
        with stopped(*receivers):
            assert producer.commit(transaction) is PutStatus.FLUSH_SLAVE_TIMEOUT
            with pytest.raises(TransactionRefused, match="ALREADY_COMMITTED"):
                producer.commit(transaction)
            master.kill_all(seed=1)
            for pid in receivers:  # going on they would take what came to their sockets meanwhile
                os.kill(pid, signal.SIGKILL)
    assert group.promote(1)["role"] == "master"
    asked: list[bytes] = []

    def check(message: ReceivedMessage) -> State:
        asked.append(message.body)
        return State.COMMIT

    with TransactionProducer(slave.endpoint, "bank", check) as producer:
        assert bodies(slave, "bank", 2) == [b"lost", b"through"]
        with pytest.raises(TransactionRefused, match="ALREADY_COMMITTED"):
            producer.rollback(transaction)
    assert set(asked) == {b"lost"}


def test_offsets_that_are_ahead_of_the_log_are_not_believed(tmp_path: Path) -> None:
    """As after a power cut, when the file outlived the end of the log that it speaks of."""
    node = TestNode("master", tmp_path, ha_listen_port=0, **RULES)
    cleaning = ended(node)
    next(cleaning)
    try:
        node.start()
        with TransactionProducer(node.endpoint, "bank") as producer:
            transaction, _ = producer.begin(Message("bank", b"open"))
            gone = producer.send(Message("bank", b"gone"), lambda _: State.ROLLBACK)
        assert node.stop()
        file = ConfigFile(node.store.config / FLOORS)
        assert file.load() is None, "nothing is through: the first half is open"
        file.save({"halfOffset": 2, "opOffset": 1, "towlineLogEnd": 1 << 40})
        node.start()
        assert node.positions.duty(Duty.SCHEDULE).counter(Counter.FALLBACKS) == 1
        with TransactionProducer(node.endpoint, "bank") as producer:
            with pytest.raises(TransactionRefused, match="ALREADY_ROLLED_BACK"):
                producer.commit(gone.transaction)
            assert producer.commit(transaction) is PutStatus.PUT_OK
        assert bodies(node, "bank", 1) == [b"open"]
        assert node.stop()
    finally:
        next(cleaning, None)


def test_a_log_that_ends_between_message_and_op_record_has_the_half_open_again(tmp_path: Path) -> None:
    """As a power cut may leave it. The message comes twice then, with one unique key."""
    rare = {
        "flush_disk_type": "ASYNC_FLUSH",
        "flush_interval_commit_log": 600_000,
        "flush_commit_log_thorough_interval": 600_000,
    }
    rules = RULES | {"flush_consumer_offset_interval": 600_000, "transaction_time_out": 0}
    node = TestNode("master", tmp_path, ha_listen_port=0, **(rules | rare))
    cleaning = ended(node)
    next(cleaning)
    try:
        node.start()
        with TransactionProducer(node.endpoint, "bank") as producer:
            result = producer.send(Message("bank", b"twice"), lambda _: State.COMMIT)
            assert result.ended is PutStatus.PUT_OK
        (record,) = read_all(node, "bank", least=1)
        end = node.at(Position.APPENDED)
        node.kill_all(seed=1)
        shutil.rmtree(node.runtime)  # with the power went the memory
        with (node.store.commitlog / f"{0:020}").open("r+b") as log:
            log.seek(record.physical_offset + len(record.raw))
            assert b"TOWLINE_OUTCOME" in log.read(end - log.tell())
            log.seek(record.physical_offset + len(record.raw))
            log.write(bytes(end - log.tell()))
        node.start()
        with TransactionProducer(node.endpoint, "bank", lambda _: State.COMMIT):
            found = read_all(node, "bank", least=2)
        assert {message.unique_key for message in found} == {result.transaction.unique_key}
        assert node.stop()
    finally:
        next(cleaning, None)
