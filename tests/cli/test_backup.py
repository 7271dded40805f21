"""`towline store backup` and `restore` on stores at rest: what they say, and with which status they end."""

import json

import pytest

from tests.log.sound import sound_store
from tests.log.stores import INDEXES, QUEUE_FILE, SEGMENT, SLOTS
from towline.cli.status import progress_text
from towline.log.backup.restore import check_restored
from towline.log.state.durable_file import DurableFile
from towline.places import Store


@pytest.fixture
def maker(tmp_path):
    maker = sound_store(tmp_path / "store")
    maker.store.run.mkdir()
    sizes = {
        "mapped_file_size_commit_log": SEGMENT,
        "mapped_file_size_consume_queue": QUEUE_FILE,
        "max_hash_slot_num": SLOTS,
        "max_index_num": INDEXES,
        "broker_id": 3,
    }
    maker.store.settings.write_text(json.dumps(sizes))
    return maker


def test_there_and_back(maker, towline, tmp_path):
    target, made = tmp_path / "backup", tmp_path / "made"
    done = towline("store", "backup", "--store", maker.root, "--to", target, "--json")
    assert done.status == 0
    said = done.document
    assert (said["from"], said["end"], said["copied"], said["kept"], said["node"]) == (0, maker.end, maker.end, 0, 3)
    again = towline("store", "backup", "--store", maker.root, "--to", target)
    assert (again.status, "backup 2" in again.out) == (0, True)
    checked = towline("store", "backup", "--verify", target, "--json")
    assert (checked.status, checked.document["sound"], checked.document["number"]) == (0, True, 2)
    done = towline("store", "restore", "--from", target, "--store", made, "--as", "slave", "--json")
    assert done.document["next"] == f"towline slave start --store {made}"
    check_restored(Store(made))
    assert DurableFile(made).load().flushed == maker.end
    refused = towline("store", "restore", "--from", target, "--store", made)
    assert (refused.status, "not empty" in refused.err) == (1, True)


def test_damage_is_told(maker, towline, tmp_path):
    target = tmp_path / "backup"
    assert towline("store", "backup", "--store", maker.root, "--to", target).status == 0
    path = target / "commitlog" / f"{0:020d}"
    with path.open("r+b") as file:
        file.seek(1000)
        file.write(b"\xff")
    done = towline("store", "backup", "--verify", target, "--json")
    assert (done.status, [row["file"] for row in done.document["damaged"]]) == (1, [str(path)])
    assert "CRC-32" in towline("store", "backup", "--verify", target).out
    assert towline("store", "restore", "--from", target, "--store", tmp_path / "made").status == 1


def test_what_is_missing_is_asked_for(towline, tmp_path):
    done = towline("store", "backup", "--store", tmp_path)
    assert (done.status, "--to" in done.err) == (2, True)
    assert towline("store", "backup", "--verify", tmp_path).status == 1  # there is none


@pytest.mark.parametrize("seed", ["newest", "offset", "time:yesterday", "backup:"])
def test_a_slave_is_not_started_with_a_seed_that_is_none(towline, tmp_path, seed):
    done = towline("slave", "start", "--store", tmp_path / "store", "--seed", seed)
    assert done.status == 2
    assert not (tmp_path / "store").exists()


@pytest.mark.parametrize(
    ("left", "rate", "text"),
    [
        (0, 0, "it has all 10.0 MiB that its master has confirmed"),
        (None, 0, "it has 10.0 MiB; what its master has is not known while it follows nobody"),
        (30 << 20, 0, "it has 10.0 MiB of 40.0 MiB, 25%; nothing came just now"),
        (30 << 20, 1 << 13, "it has 10.0 MiB of 40.0 MiB, 25%, 0 MB/s: 1 h 4 min 0 s are left"),
    ],
)
def test_how_far_a_slave_has_come_is_told(left, rate, text):
    left_s = left / rate if rate else None
    facts = {"from": 5, "at": (10 << 20) + 5, "end": 0, "left": left, "bytes_per_second": rate, "left_s": left_s}
    assert progress_text(facts) == text
