"""What an export refuses, each with words that work when they are typed."""

import fcntl
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.kafka.samples import plain, rows_in
from tests.spark.stores import MadeStore
from towline.format.record.record import LAYOUT
from towline.kafka.exchange import export_target
from towline.kafka.exchange.export_target import JOURNAL
from towline.kafka.format import partition_metadata
from towline.kafka.log import log_directory
from towline.kafka.log.writer import PartitionWriter

from .exports import Outcome, command, sample, wanted

ID, OTHER = "Zm9vYmFyYmF6cXV4MTIzNA", "AAAAAAAAAAAAAAAAAAAAAQ"
HOLDER = """
import fcntl, sys
file = open(sys.argv[1], "w")
fcntl.lockf(file, fcntl.LOCK_EX)
print("held", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def made(tmp_path) -> MadeStore:
    return sample(tmp_path / "store", 90)


@pytest.fixture
def broker(tmp_path) -> Path:
    """The log directory of a stopped broker with the topic, as a broker makes it, and one more."""
    root = tmp_path / "broker"
    log_directory.make(root, "a-cluster", 1)
    for number in range(3):
        PartitionWriter(root, "orders", number, topic_id=partition_metadata.id_of(ID)).close()
    with PartitionWriter(root, "busy", 0, topic_id=partition_metadata.id_of(OTHER)) as writer:
        writer.append(plain(10))
    return root


def refused(outcome: Outcome, error: str, *words: str) -> None:
    status, said = outcome
    assert (status, said["error"]) == (1, error)
    for word in words:
        assert word in said["sentence"] + "; " + said["remedy"]


def succeeded(outcome: Outcome, messages: int = 90) -> None:
    status, said = outcome
    assert (status, said.get("messages"), said.get("verified")) == (0, messages, True), said


def test_a_name_that_kafka_does_not_take(made, tmp_path, capsys):
    made.put("a|b", 0, b"x")
    made.dispatch().safe()
    words = ("--store", made.root, "--out", tmp_path / "out")
    refused(command(capsys, *words), "NeedsName", "'a|b'", "--rename OLD=NEW")
    succeeded(command(capsys, *words, "--rename", "a|b=a.b"), 91)
    refused(command(capsys, *words, "--rename", "a|b=a/b"), "NeedsName", "'a/b'")


def test_topics_that_are_none_or_the_nodes_own(made, tmp_path, capsys):
    made.put("SCHEDULE_TOPIC_XXXX", 0, b"later")
    made.dispatch().safe()
    words = ("--store", made.root, "--out", tmp_path / "out")
    refused(command(capsys, *words, "--topic", "order"), "NotExportable", "topic order", "no such topic")
    refused(command(capsys, *words, "--topic", "SCHEDULE_TOPIC_XXXX"), "NotExportable", "it is a system topic")
    refused(command(capsys, *words, "--rename", "other=x"), "NotExportable", "topic other")
    made.put("bills", 0, b"x")
    made.dispatch().safe()
    refused(command(capsys, *words, "--rename", "bills=orders"), "NotExportable", "is orders at Kafka as well")
    succeeded(command(capsys, *words, "--topic", "orders"))


def test_words_that_are_no_choice(made, tmp_path, capsys):
    words = ("--store", made.root)
    refused(command(capsys, *words), "BadChoice", "one of --out and --into")
    both = ("--out", tmp_path / "out", "--into", tmp_path)
    refused(command(capsys, *words, *both), "BadChoice", "one of --out and --into")
    words = (*words, "--out", tmp_path / "out")
    refused(command(capsys, *words, "--rename", "orders"), "BadChoice", "'orders' is not OLD=NEW")
    refused(command(capsys, *words, "--topic-id", f"orders={ID}x"), "BadChoice", "no id of 22 characters")
    sizes = ("--batch-bytes", "2000000", "--segment-bytes", "1048576")
    refused(command(capsys, *words, *sizes), "BadChoice", "a batch is not larger than a segment")
    succeeded(command(capsys, *words, "--topic-id", f"orders={ID}"))


def test_a_directory_that_holds_something_else(made, tmp_path, capsys):
    taken = tmp_path / "taken"
    taken.mkdir()
    (taken / "letters").touch()
    refused(command(capsys, "--store", made.root, "--out", taken), "TargetTaken", str(taken), "not empty")
    status, said = command(capsys, "--store", made.root, "--out", taken / "letters")
    assert (status, said["error"]) == (2, "BadParameter")
    succeeded(command(capsys, "--store", made.root, "--out", taken / "new" / "below"))


def test_an_export_that_was_another_one(made, tmp_path, capsys, monkeypatch):
    words = ("--store", made.root, "--out", tmp_path / "out")
    monkeypatch.setattr(export_target.Target, "finish", lambda self: None)
    succeeded(command(capsys, *words, "--compression", "lz4"))
    monkeypatch.undo()
    journal = tmp_path / "out" / JOURNAL
    refused(command(capsys, *words), "OtherExport", str(journal), "compression differ")
    refused(command(capsys, *words, "--compression", "lz4", "--topic", "x"), "NotExportable")
    succeeded(command(capsys, *words, "--compression", "lz4"))
    assert not journal.exists()
    journal.write_text("{}")
    refused(command(capsys, *words), "MalformedFile", str(journal))


def test_a_directory_without_room(made, tmp_path, capsys, monkeypatch):
    words = ("--store", made.root, "--out", tmp_path / "out")
    free = os.statvfs(tmp_path)
    full = os.statvfs_result((*free[:4], 17 * 2**20 // free.f_frsize, *free[5:]))
    monkeypatch.setattr(export_target.os, "statvfs", lambda path: full)
    succeeded(command(capsys, *words))
    full = os.statvfs_result((*free[:4], 16 * 2**20 // free.f_frsize, *free[5:]))
    refused(command(capsys, "--store", made.root, "--out", tmp_path / "more"), "NoRoom", "more", "--compression zstd")


def test_messages_that_wait_may_be_refused(made, tmp_path, capsys):
    made.put("SCHEDULE_TOPIC_XXXX", 0, b"later", REAL_TOPIC="orders")
    made.dispatch().safe()
    words = ("--store", made.root, "--out", tmp_path / "out")
    refused(command(capsys, *words, "--undelivered", "refuse"), "Undelivered", "orders has 1 delayed")
    succeeded(command(capsys, *words, "--undelivered", "leave-out"))


def test_a_damaged_message_that_waits_hides_no_other_one(made, tmp_path, capsys):
    for number in range(5):
        made.put("SCHEDULE_TOPIC_XXXX", 0, b"later %d" % number, REAL_TOPIC="orders")
    made.dispatch().safe()
    damaged = made.rows[-4]
    made.write(damaged["commitLogOffset"] + LAYOUT.offset["body_size"], damaged["size"].to_bytes(4, "big"))
    words = ("--store", made.root, "--out", tmp_path / "out", "--undelivered", "refuse")
    refused(command(capsys, *words), "Undelivered", "orders has 4 delayed")


def test_a_store_whose_queues_may_lack_messages(made, tmp_path, capsys):
    words = ("--store", made.root, "--out", tmp_path / "out")
    made.store.abort.touch()
    refused(command(capsys, *words), "NothingToExport", "its node was killed", "start it once")
    made.store.abort.unlink()
    backup = made.backup(tmp_path / "backup")
    refused(command(capsys, "--store", backup, "--out", tmp_path / "out"), "NothingToExport", "towline store restore")
    refused(command(capsys, "--store", tmp_path / "none", "--out", tmp_path / "out"), "NotAStore")
    succeeded(command(capsys, *words))


def test_messages_that_stand_in_the_log_and_not_in_a_queue_yet(made, tmp_path, capsys):
    """As after an import, or where the queues were taken away: they would be missing."""
    words = ("--store", made.root, "--out", tmp_path / "out")
    made.put("orders", 0, b"one more")
    made.safe()
    refused(command(capsys, *words), "NotDispatched", f"it goes up to {made.end}", "towline master start --store")
    assert not (tmp_path / "out").exists()
    made.dispatch()
    succeeded(command(capsys, *words), 91)
    shutil.rmtree(made.store.consumequeue)
    refused(command(capsys, *words[:2], "--out", tmp_path / "more", "--topic", "orders"), "NotExportable")


# --- into the directory of a broker


def test_a_stopped_broker_gets_the_messages_in_its_own_partitions(made, broker, capsys):
    words = ("--store", made.root, "--into", broker, "--topic", "orders")
    root = log_directory.LogDirectory(broker)
    root.keep("log-start-offset-checkpoint", {("orders", 1): 0, ("busy", 0): 3})
    root.keep("recovery-point-offset-checkpoint", {("orders", 1): 0, ("busy", 0): 10})
    succeeded(command(capsys, *words))
    for number in range(3):
        assert rows_in(broker / f"orders-{number}") == wanted(made, "orders", number)
    assert root.offsets("log-start-offset-checkpoint") == {("busy", 0): 3}
    ends = {("busy", 0): 10, **{("orders", number): 30 for number in range(3)}}
    assert root.offsets("recovery-point-offset-checkpoint") == ends
    assert {each.topic_id for each in root.partitions() if each.topic == "orders"} == {partition_metadata.id_of(ID)}
    names = {path.name for path in broker.iterdir() if path.is_dir()}
    assert names == {"busy-0", "orders-0", "orders-1", "orders-2"}
    refused(command(capsys, *words), "PartitionTaken", f"{broker / 'orders-0'} has records", "--rename")


def test_a_running_broker_is_refused(made, broker, capsys):
    words = ("--store", made.root, "--into", broker, "--topic", "orders")
    with subprocess.Popen(
        [sys.executable, "-c", HOLDER, broker / ".lock"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as holder:
        assert holder.stdout is not None
        holder.stdout.readline()
        refused(command(capsys, *words), "LogInUse", f"a broker runs on {broker}", "stop the broker")
        holder.communicate()
    succeeded(command(capsys, *words))


def test_no_broker_starts_meanwhile(made, broker):
    """Nor a second export."""
    with export_target.opened(broker, into=True):
        script = f"import fcntl; fcntl.lockf(open({str(broker / '.lock')!r}, 'r+'), fcntl.LOCK_EX | fcntl.LOCK_NB)"
        assert subprocess.run([sys.executable, "-c", script], capture_output=True, check=False).returncode != 0
    with (broker / ".lock").open("r+") as file:
        fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)


def test_partitions_that_the_broker_has_not_made(made, broker, tmp_path, capsys):
    made.put("orders", 4, b"x")
    made.put("bills", 1, b"x")
    made.dispatch().safe()
    words = ("--store", made.root, "--into", broker)
    create = "kafka-topics.sh --bootstrap-server HOST:PORT --create --topic bills --partitions 2 --replication-factor 1"
    refused(command(capsys, *words, "--topic", "bills"), "TargetNotKnown", "bills-0", create, "retention.ms=-1")
    alter = "--alter --topic orders --partitions 5"
    refused(command(capsys, *words, "--topic", "orders"), "TargetNotKnown", "orders-3", alter)
    refused(command(capsys, *words[:2], "--into", tmp_path, "--topic", "orders"), "NoLogDirectory", str(tmp_path))
    succeeded(command(capsys, *words, "--topic", "bills", "--topic-id", f"bills={OTHER}"), 1)
    for number in (3, 4):
        PartitionWriter(broker, "orders", number, topic_id=partition_metadata.id_of(ID)).close()
    succeeded(command(capsys, *words, "--topic", "orders"), 91)


def test_a_partition_that_has_or_had_records_and_an_id_that_is_not_its_own(made, broker, capsys):
    words = ("--store", made.root, "--into", broker, "--topic", "orders")
    refused(command(capsys, *words, "--rename", "orders=busy"), "PartitionTaken", "busy-0 has records")
    refused(command(capsys, *words, "--topic-id", f"orders={OTHER}"), "OtherTopicId", ID, OTHER, "leave --topic-id out")
    PartitionWriter(broker, "had", 0, start=7).close()
    refused(command(capsys, *words, "--rename", "orders=had"), "PartitionTaken", "had-0 begins at offset 7")
    assert not (broker / JOURNAL).exists()
    succeeded(command(capsys, *words, "--topic-id", f"orders={ID}"))
