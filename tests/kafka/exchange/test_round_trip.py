"""A log directory of Kafka into a store, a node on it, and out again: the same records at the same offsets."""

import pytest

from tests.kafka.samples import SMALL, T0, plain, read, write_plain
from tests.processes.nodes import SETTINGS, TestNode, ending
from towline.cli.main import run
from towline.kafka.format import batch
from towline.kafka.format.building import Form, end_transaction
from towline.kafka.format.control import ControlType
from towline.kafka.format.records import Records
from towline.kafka.log import log_directory
from towline.kafka.log.partition import Partition
from towline.kafka.log.writer import PartitionWriter

from .exports import command


@pytest.fixture
def kafka(tmp_path):
    """Two partitions: one with nulls and headers; one that begins late, with holes, odd keys, times, transactions."""
    root = tmp_path / "kafka"
    log_directory.make(root, "a-cluster", 1)
    write_plain(root, 300)
    with PartitionWriter(root, "topic", 1, SMALL, start=500) as writer:
        writer.append(plain(30, 510))
        writer.append(plain(20, 700), Form(append_time=T0 + 5))
        odd = [("a", None), ("a", b"\x01")], [("KEYS", b"x"), ("UNIQ_KEY", b"y")], [("TRANSACTION_CHECK_TIMES", b"9")]
        writer.append(Records.of([800, 805, 806], [-1, T0, T0], [b"", b"a b", b"k"], [b"", None, b"v"], odd))
        writer.append(plain(3, 810), Form(producer_id=7, producer_epoch=0, base_sequence=0, transactional=True))
        writer.append_batches(end_transaction(ControlType.COMMIT, 813, T0, 7, 0))
        writer.append(plain(3, 820), Form(producer_id=7, producer_epoch=0, base_sequence=3, transactional=True))
        writer.append_batches(end_transaction(ControlType.ABORT, 823, T0, 7, 0))
    return root


def test_what_came_from_kafka_goes_back_equal(kafka, tmp_path, capsys):
    store, out = tmp_path / "store", tmp_path / "out"
    config = tmp_path / "node.toml"
    config.write_text("".join(f"{name} = {value!r}\n" for name, value in SETTINGS.items()).replace("'", '"'))
    assert run(["kafka", "import", str(kafka), "--store", str(store), "--config", str(config)]) == 0
    status, said = command(capsys, "--store", store, "--out", out)
    assert (status, said["error"]) == (1, "NotDispatched")  # no node has made queues yet
    node = TestNode("master", store)
    with ending(node):
        node.start()
        status, said = command(capsys, "--store", store, "--out", out, "--batch-bytes", "2000")
        assert (status, said["damaged"], said["verified"]) == (0, 0, True)
        assert node.stop()
    for number, control in ((0, set()), (1, {813, 820, 821, 822, 823})):
        before, after = (Partition(root / f"topic-{number}") for root in (kafka, out))
        pieces, found = list(before.read()), list(after.read())
        assert read(found) == [row for row in read(pieces) if row[0] not in control]
        stamped = [each.records.offset[each.of_batch("attributes") & batch.LOG_APPEND_TIME != 0] for each in pieces]
        again = [each.records.offset[each.of_batch("attributes") & batch.LOG_APPEND_TIME != 0] for each in found]
        assert [row for each in again for row in each.tolist()] == [row for each in stamped for row in each.tolist()]
        assert after.end == before.end
    assert after.start in (500, 510)
