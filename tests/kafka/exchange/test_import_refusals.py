"""What an import refuses, by file, byte and rule, with a remedy that works; a refused one leaves a store as it was."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.kafka.exchange.imports import bring, directory, messages_of, numbered, settings, write, write_large
from tests.kafka.samples import T0, write_transactions
from towline.cli.main import run
from towline.errors import TowlineError
from towline.kafka.errors import LogInUse, MalformedLog, Rule, TornLog
from towline.kafka.exchange import import_errors as errors
from towline.kafka.exchange.import_units import verify
from towline.kafka.format.building import Form, end_transaction
from towline.kafka.format.checkpoints import LEADER_EPOCHS, LeaderEpoch, encode_epochs
from towline.kafka.format.control import ControlType
from towline.kafka.format.records import Records
from towline.kafka.log.files import INDEX, LOG
from towline.kafka.log.log_directory import LOCK
from towline.kafka.log.rolling import LogConfig
from towline.kafka.log.writer import PartitionWriter
from towline.log.errors import RestoreUnfinished
from towline.log.files.config_file import ConfigFile
from towline.log.files.store_files import AbortFile
from towline.log.state.floors import QUEUE_FLOORS
from towline.log.state.role_file import SLAVE, Role, save_role
from towline.places import Store


@pytest.fixture
def source(tmp_path):
    made = directory(tmp_path / "kafka")
    write(made, "topic", 0, numbered(20))
    return made


def refused(source: Path, tmp_path: Path, error: type[TowlineError], **choices) -> TowlineError:
    """What is raised; there is no store then."""
    with pytest.raises(error) as raised:
        bring(source, tmp_path / "store", tmp_path, **choices)
    assert not (tmp_path / "store").exists()
    return raised.value


def typed(source: Path, tmp_path: Path, *more: str) -> int:
    words = ["kafka", "import", str(source), "--store", str(tmp_path / "store"), "--config", str(settings(tmp_path))]
    return run([*words, *more])


def damage(path: Path, at: int) -> None:
    data = bytearray(path.read_bytes())
    data[at] ^= 0xFF
    path.write_bytes(data)


# --- the source


def test_a_directory_on_which_a_broker_runs(source, tmp_path):
    code = (
        "import fcntl, os, sys\n"
        f"fd = os.open({str(source / LOCK)!r}, os.O_RDWR | os.O_CREAT)\n"
        "fcntl.lockf(fd, fcntl.LOCK_EX)\nprint(flush=True)\nsys.stdin.read()\n"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as broker:
        broker.stdout.readline()
        refused(source, tmp_path, LogInUse)
        broker.stdin.close()
    bring(source, tmp_path / "store", tmp_path)


def test_a_torn_last_batch_until_it_is_to_be_cut(source, tmp_path):
    path = source / "topic-0" / f"{0:020}{LOG}"
    path.write_bytes(path.read_bytes()[:-3])
    error = refused(source, tmp_path, TornLog)
    assert (error.path, error.rule) == (str(path), Rule.TORN_BATCH)
    assert "`--torn cut`" in error.__notes__[0]
    assert typed(source, tmp_path, "--torn", "cut") == 0


def test_a_wrong_crc_by_file_and_byte_also_with_the_choice_to_cut(source, tmp_path):
    path = source / "topic-0" / f"{0:020}{LOG}"
    damage(path, 100)
    for torn in ("refuse", "cut"):
        error = refused(source, tmp_path, MalformedLog, torn=torn)
        assert (error.path, error.at, error.rule) == (str(path), 0, Rule.CRC)


def test_an_unknown_magic(source, tmp_path):
    path = source / "topic-0" / f"{0:020}{LOG}"
    data = bytearray(path.read_bytes())
    data[16] = 9
    path.write_bytes(data)
    assert refused(source, tmp_path, MalformedLog).rule == Rule.MAGIC


def test_offsets_that_do_not_rise(source, tmp_path):
    path = source / "topic-0" / f"{0:020}{LOG}"
    data = path.read_bytes()
    path.write_bytes(data + data)
    error = refused(source, tmp_path, MalformedLog)
    assert (error.at, error.rule) == (len(data), Rule.OFFSETS)


def test_an_index_that_points_beyond_the_log(tmp_path):
    source = directory(tmp_path / "kafka")
    """It knows of records that the log has lost."""
    path = write(source, "topic", 0, numbered(100)) / f"{0:020}{INDEX}"
    data = path.read_bytes()
    assert len(data) > 16
    path.write_bytes(data[:-4] + (10**8).to_bytes(4, "big"))
    error = refused(source, tmp_path, MalformedLog)
    assert (error.path, error.rule) == (str(path), Rule.INDEX_BEYOND)


EPOCHS = {
    "one that begins behind the log's end": [LeaderEpoch(0, 0), LeaderEpoch(7, 100)],
    "one that the log does not have there": [LeaderEpoch(0, 0), LeaderEpoch(4, 3)],
}


@pytest.mark.parametrize("epochs", EPOCHS.values(), ids=EPOCHS)
def test_leader_epochs_of_another_log(source, tmp_path, epochs):
    """As where a replica was cut and its checkpoint was not."""
    (source / "topic-0" / LEADER_EPOCHS).write_bytes(encode_epochs(epochs))
    refused(source, tmp_path, errors.EpochsDoNotFit)


def test_an_open_transaction_until_it_is_to_be_left_out(tmp_path):
    source = directory(tmp_path / "kafka")
    write_transactions(source)
    error = refused(source, tmp_path, errors.OpenTransaction)
    assert (error.path, error.offset, error.end) == (str(source / "tx-0"), 4, 12)
    assert typed(source, tmp_path, "--open", "leave-out") == 0


def test_an_aborted_transaction_and_holes_where_they_are_to_be_refused(tmp_path):
    source = directory(tmp_path / "kafka")
    with PartitionWriter(source, "tx", 0) as writer:
        form = Form(producer_id=7, producer_epoch=3, base_sequence=0, transactional=True)
        writer.append(numbered(3, 5), form)
        writer.append_batches(end_transaction(ControlType.ABORT, 8, T0, 7, 3, 11))
    error = refused(source, tmp_path, errors.AbortedTransactions, aborted="refuse")
    assert (error.count, error.offset) == (1, 5)
    assert refused(source, tmp_path, errors.OffsetsMissing, holes="refuse").count == 1
    assert typed(source, tmp_path, "--aborted", "drop", "--holes", "keep") == 0


TOO_LARGE = {
    "body": (Records.of([0, 1], [T0] * 2, [b"k"] * 2, [b"v", b"x" * 5000]), "the body", 4096),
    "key": (Records.of([0, 1], [T0] * 2, [None, b"k" * 40_000], [b"v"] * 2), "key and headers", 32767),
    "headers": (
        Records.of([0, 1], [T0] * 2, [None] * 2, [b"v"] * 2, [[], [("a", b"x" * 20_000), ("b", b"x" * 20_000)]]),
        "key and headers",
        32767,
    ),
}


@pytest.mark.parametrize(("records", "what", "limit"), TOO_LARGE.values(), ids=TOO_LARGE)
def test_a_record_that_is_too_large_until_it_is_to_be_left_out(tmp_path, records, what, limit):
    source = directory(tmp_path / "kafka")
    with PartitionWriter(source, "topic", 0, LogConfig()) as writer:
        writer.append(records)
    config = tmp_path / "more.toml"
    config.write_text(settings(tmp_path, "max_message_size = 4096\n").read_text())
    words = ["kafka", "import", str(source), "--store", str(tmp_path / "store"), "--config", str(config)]
    with pytest.raises(errors.RecordTooLarge) as raised:
        bring(source, tmp_path / "store", tmp_path, "max_message_size = 4096\n")
    assert (raised.value.offset, raised.value.what, raised.value.limit) == (1, what, limit)
    assert not (tmp_path / "store").exists()
    assert run([*words, "--too-large", "leave-out"]) == 0
    assert len(messages_of(tmp_path / "store", "topic")) == 1


# --- names


@pytest.mark.parametrize("name", ["a.b", "RMQ_SYS_x", "x" * 128], ids=["dots", "a system's", "128 bytes"])
def test_a_name_that_is_not_allowed_until_it_gets_another(tmp_path, name):
    source = directory(tmp_path / "kafka")
    write(source, name, 0, numbered(3))
    error = refused(source, tmp_path, errors.NameRefused)
    assert error.topic == name
    assert f"`--rename {name}=NAME`" in error.advice
    assert typed(source, tmp_path, "--rename", f"{name}=other") == 0
    assert len(messages_of(tmp_path / "store", "other")) == 3


def test_dots_where_the_store_allows_them(tmp_path):
    source = directory(tmp_path / "kafka")
    write(source, "a.b", 0, numbered(3))
    bring(source, tmp_path / "store", tmp_path, "dots_in_topic_names = true\n")
    assert len(messages_of(tmp_path / "store", "a.b")) == 3


def test_two_topics_of_one_name_a_topic_that_is_not_there_and_words_that_are_no_names(source, tmp_path):
    write(source, "other", 0, numbered(3))
    refused(source, tmp_path, errors.NameRefused, renames=("other=topic",))
    refused(source, tmp_path, errors.NameRefused, renames=("other",))
    assert refused(source, tmp_path, errors.NoSuchTopic, topics=("nobody",)).name == "nobody"
    assert refused(source, tmp_path, errors.NoSuchTopic, renames=("nobody=x",)).name == "nobody"
    refused(directory(tmp_path / "empty"), tmp_path, errors.NothingToImport)


# --- the store


def test_a_topic_that_has_messages_until_it_gets_another_name(source, tmp_path):
    """Also where no queue is derived yet."""
    bring(source, tmp_path / "store", tmp_path)
    before = files_of(tmp_path / "store")
    with pytest.raises(errors.TopicThere):
        bring(source, tmp_path / "store", tmp_path)
    assert files_of(tmp_path / "store") == before
    assert typed(source, tmp_path, "--rename", "topic=again") == 0


def files_of(store: Path) -> dict[str, bytes]:
    return {str(path.relative_to(store)): path.read_bytes() for path in store.rglob("*") if path.is_file()}


def test_too_many_queues(source, tmp_path):
    shutil.copytree(source / "topic-0", source / "wide-16384")
    assert refused(source, tmp_path, errors.TooManyQueuesThere).count == 16385


def test_a_slaves_store_and_one_that_was_not_closed(source, tmp_path):
    bring(source, tmp_path / "store", tmp_path)
    store = Store(tmp_path / "store")
    abort = AbortFile(store.root)
    abort.create(os.getpid())
    with pytest.raises(errors.NotAtRest):
        bring(source, tmp_path / "store", tmp_path, renames=("topic=again",))
    abort.remove()
    store.truncate.parent.mkdir(exist_ok=True)
    store.truncate.write_bytes(b"{}")
    with pytest.raises(errors.NotAtRest, match="to be cut"):
        bring(source, tmp_path / "store", tmp_path, renames=("topic=again",))
    store.truncate.unlink()
    floors = store.config / QUEUE_FLOORS
    floors.write_bytes(b"{}")
    with pytest.raises(errors.NotAtRest, match="was restored"):
        bring(source, tmp_path / "store", tmp_path, renames=("topic=again",))
    floors.unlink()
    save_role(store, Role(SLAVE, 0, "", 1))
    with pytest.raises(errors.SlaveStore):
        bring(source, tmp_path / "store", tmp_path, renames=("topic=again",))


def test_a_store_whose_restore_has_only_begun(source, tmp_path):
    """It has no log yet; done again, the restore would remove what was imported."""
    store = Store(tmp_path / "store")
    store.root.mkdir()
    ConfigFile(store.restoring).save({"backup": "elsewhere"})
    with pytest.raises(RestoreUnfinished):
        bring(source, store.root, tmp_path)


def test_a_file_system_without_room(source, tmp_path, monkeypatch):
    monkeypatch.setattr("towline.kafka.exchange.importing._free", lambda path: 65_000)
    error = refused(source, tmp_path, errors.NoRoomToImport)
    assert error.free < error.size


def test_nothing_is_taken_in_that_differs_from_the_source(tmp_path, monkeypatch):
    """A byte that changed in a staged segment is named; the store has nothing of it until the import begins anew."""
    source = directory(tmp_path / "kafka")
    write_large(source, "topic", 0, 600)
    staged = tmp_path / "store" / "kafka-import" / f"{0:020}"

    def damaged(plan, staging, unit, progress):
        damage(staged, 5000)
        verify(plan, staging, unit, progress)

    monkeypatch.setattr("towline.kafka.exchange.importing.verify", damaged)
    with pytest.raises(errors.StagedDiffers) as raised:
        bring(source, tmp_path / "store", tmp_path)
    monkeypatch.undo()
    assert raised.value.path == str(staged)
    assert raised.value.at <= 5000 < raised.value.at + 300
    assert not (tmp_path / "store" / "commitlog").exists()
    assert typed(source, tmp_path, "--abandon") == 0
    assert typed(source, tmp_path) == 0
