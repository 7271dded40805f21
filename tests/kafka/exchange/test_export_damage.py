"""Messages that are not as they were stored: refused with file and byte, or left out as holes, counted and named."""

import zlib

import numpy as np
import pytest

from tests.kafka.samples import rows_in
from tests.spark.stores import QUEUE_FILE, MadeStore
from towline.format.files.consume_queue import SIZE, encode
from towline.format.record.record import COMPRESSED, LAYOUT
from towline.kafka.exchange.export_errors import DamagedSource
from towline.kafka.log.partition import Partition
from towline.log.queues.consume_queue import ConsumeQueueFiles

from .exports import command, exported, sample, wanted

VICTIM = 17  # number of the damaged message in queue 1


@pytest.fixture
def made(tmp_path) -> MadeStore:
    return sample(tmp_path / "store")


def row_of(made: MadeStore, number: int = VICTIM):
    return next(row for row in made.rows if row["queueId"] == 1 and row["queueOffset"] == number)


def overwrite(made: MadeStore, offset: int, data: bytes) -> None:
    made.write(offset, data)


def entry(made: MadeStore, data: bytes) -> None:
    files = ConsumeQueueFiles(made.store.consumequeue, QUEUE_FILE, 4)
    files.write("orders", 1, VICTIM, data)
    files.close()


def body(made: MadeStore) -> int:
    row = row_of(made)
    overwrite(made, row["commitLogOffset"] + LAYOUT.size + 5, b"\xff")
    return row["commitLogOffset"]


def size(made: MadeStore) -> int:
    row = row_of(made)
    overwrite(made, row["commitLogOffset"] + LAYOUT.offset["body_size"], (row["size"]).to_bytes(4, "big"))
    return row["commitLogOffset"]


def place(made: MadeStore) -> int:
    row = row_of(made)
    overwrite(made, row["commitLogOffset"] + LAYOUT.offset["physical_offset"], bytes(8))
    return row["commitLogOffset"]


@pytest.mark.parametrize("damage", [body, size, place])
def test_a_damaged_record_is_refused_or_left_out(made, tmp_path, capsys, damage):
    at = damage(made)
    words = ("--store", made.root, "--out", tmp_path / "out")
    status, said = command(capsys, *words)
    named = f"{made.path(at)} byte {at % made.segment_size}: message {VICTIM} of queue 1 of orders is damaged"
    assert (status, said["error"]) == (1, "DamagedSource")
    assert said["sentence"].startswith(named)
    assert sorted(path.name for path in (tmp_path / "out").glob("orders-*")) == ["orders-0"]
    assert "add --damaged leave-out" in said["remedy"]
    status, said = command(capsys, *words, "--damaged", "leave-out")
    assert (status, said["damaged"], said["holes"], said["messages"], said["kept"]) == (0, 1, 1, 399, 1)
    assert said["damages"][0].startswith(named)
    rows = rows_in(tmp_path / "out" / "orders-1")
    assert rows == [row for row in wanted(made, "orders", 1) if row[0] != VICTIM]
    assert Partition(tmp_path / "out" / "orders-1").end == 133


@pytest.mark.parametrize("leads_to", ["another", "nowhere", "nothing"])
def test_an_entry_that_does_not_lead_to_its_record_is_named_in_its_file(made, tmp_path, leads_to):
    other = row_of(made, VICTIM + 1)
    entries = {
        "another": encode(other["commitLogOffset"], other["size"], 0),
        "nowhere": encode(made.end + 10**9, 100, 0),
        "nothing": bytes(SIZE),
    }
    if leads_to == "nowhere":
        entries["nowhere"] = encode(made.end - 50, 100, 0)
    entry(made, entries[leads_to])
    at = VICTIM * SIZE
    path = made.store.consumequeue / "orders" / "1" / f"{at - at % QUEUE_FILE:020d}"
    with pytest.raises(DamagedSource) as refused:
        exported(made, tmp_path / "out")
    assert (refused.value.path, refused.value.at) == (str(path), at % QUEUE_FILE)
    done = exported(made, tmp_path / "more", damaged="leave-out")
    assert (done.messages, done.damaged) == (399, 1)
    assert rows_in(tmp_path / "more" / "orders-1") == [row for row in wanted(made, "orders", 1) if row[0] != VICTIM]


def test_a_body_that_cannot_be_restored_is_damage(tmp_path):
    made = MadeStore(tmp_path / "store")
    made.put("t", 0, zlib.compress(b"sound"), sys_flag=COMPRESSED, body_read=b"sound")
    bad = made.put("t", 0, b"no stream of zlib", sys_flag=COMPRESSED)
    made.put("t", 0, b"plain")
    made.dispatch().safe()
    with pytest.raises(DamagedSource) as refused:
        exported(made, tmp_path / "out")
    assert refused.value.at == bad["commitLogOffset"]
    done = exported(made, tmp_path / "more", damaged="leave-out")
    assert (done.messages, done.damaged) == (2, 1)
    assert [(row[0], row[3]) for row in rows_in(tmp_path / "more" / "t-0")] == [(0, b"sound"), (2, b"plain")]


def test_many_damaged_messages_are_counted_and_the_first_are_named(made, tmp_path):
    for row in made.rows:
        if row["size"] > 200 and row["queueId"] == 2:
            overwrite(made, row["commitLogOffset"] + LAYOUT.size, b"\xff")
    wrong = sum(row["size"] > 200 and row["queueId"] == 2 for row in made.rows)
    done = exported(made, tmp_path / "out", damaged="leave-out")
    (damaged,) = (each for each in done.partitions if each.damaged)
    assert (damaged.damaged, len(damaged.damages)) == (wrong, min(wrong, 100))
    assert wrong > 100
    assert damaged.holes == wrong
    assert np.diff([row[0] for row in rows_in(tmp_path / "out" / "orders-2")]).max() > 1
