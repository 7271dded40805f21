"""`towline store verify` and `towline store repair`, on stores without a node and on a running one."""

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.log.sound import sound_store
from tests.log.stores import INDEXES, QUEUE_FILE, SEGMENT, SLOTS, StoreMaker
from towline.runtime.locks import DutyLock, StoreLock


@pytest.fixture
def maker(tmp_path: Path) -> StoreMaker:
    maker = sound_store(tmp_path / "store")
    maker.store.run.mkdir()
    sizes = {
        "mapped_file_size_commit_log": SEGMENT,
        "mapped_file_size_consume_queue": QUEUE_FILE,
        "max_hash_slot_num": SLOTS,
        "max_index_num": INDEXES,
    }
    maker.store.settings.write_text(json.dumps(sizes))
    return maker


@contextmanager
def _locked_elsewhere(maker: StoreMaker) -> Iterator[None]:
    """Another process holds the store, as a node does."""
    ready, end = os.pipe(), os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            StoreLock(maker.store.lock)
            os.write(ready[1], b"x")
            os.read(end[0], 1)
        finally:
            os._exit(0)
    os.read(ready[0], 1)
    yield
    os.write(end[1], b"x")
    os.waitpid(pid, 0)


def damage(maker: StoreMaker) -> int:
    stored = maker.records[100]
    maker.write(stored.at + 300, b"\xff")
    return stored.at


class TestVerify:
    def test_a_sound_store_is_status_0(self, maker, towline):
        done = towline("store", "verify", "--store", maker.root, "--json")
        assert done.status == 0
        document = done.document
        assert (document["verdict"], document["findings"], document["up_to"]) == ("sound", [], None)
        assert document["log"] == {"min": 0, "end": maker.end, "records": 300}
        assert [segment["verdict"] for segment in document["segments"]] == ["sound"] * 3

    def test_what_a_start_heals_is_status_1(self, maker, towline):
        maker.write(maker.end, b"\x01\x02")
        done = towline("store", "verify", "--store", maker.root)
        assert done.status == 1
        assert "TORN_TAIL" in done.out
        assert "start the node: recovery heals it" in done.out

    def test_damage_is_status_2_and_comes_with_the_command_that_steps_over_it(self, maker, towline):
        at = damage(maker)
        done = towline("store", "verify", "--store", maker.root, "--json")
        assert done.status == 2
        (row,) = [row for row in done.document["findings"] if row["rule"] == "BODY_CRC"]
        assert (row["file"], row["byte"], row["end"]) == ("commitlog/00000000000000000000", at, at + 507)
        assert f"`towline store repair --yes --skip {at} --store {maker.root}`" in row["remedy"]

    def test_the_bar_stands_on_standard_error(self, maker, towline):
        done = towline("store", "verify", "--store", maker.root)
        assert "verifying" not in done.out
        assert done.out.endswith("the store is sound\n")

    def test_a_store_without_settings_is_read_by_the_sizes_of_its_files(self, maker, towline):
        maker.store.settings.unlink()
        done = towline("store", "verify", "--store", maker.root, "--json")
        assert (done.status, done.document["log"]["records"]) == (0, 300)

    @pytest.mark.parametrize("torn", ["", "{", '{"max_index_num": 4', "[]", "\x00" * 40], ids=repr)
    def test_settings_that_a_crash_tore_are_healed_by_a_start(self, maker, towline, torn):
        maker.store.settings.write_text(torn)
        done = towline("store", "verify", "--store", maker.root, "--json")
        assert done.status == 1
        (row,) = done.document["findings"]
        assert (row["file"], row["rule"], row["remedy"]) == (
            "run/settings.json",
            "SETTINGS",
            "start the node: recovery heals it",
        )

    @pytest.mark.parametrize("name", ["in_sync.json", "role.json", "promise.json", "truncate.json"])
    def test_what_refuses_a_start_in_ha_is_damage(self, maker, towline, name):
        maker.store.ha.mkdir()
        (maker.store.ha / name).write_text('{"epoch": 1')
        done = towline("store", "verify", "--store", maker.root, "--json")
        assert done.status == 2
        assert [row["file"] for row in done.document["findings"]] == [f"ha/{name}"]

    def test_a_store_whose_lock_is_taken_but_where_no_node_is_says_so(self, maker, towline, monkeypatch, tmp_path):
        monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
        with _locked_elsewhere(maker):
            done = towline("store", "verify", "--store", maker.root)
        assert done.status == 1
        assert "positions" in done.err


@pytest.mark.parametrize("command", ["verify", "repair"])
def test_a_directory_without_a_log_is_left_as_it_is(tmp_path, towline, command):
    done = towline("store", command, "--store", tmp_path / "nothing", "--json")
    assert done.status == 1
    assert done.document["error"] == "NoStoreHere"
    assert not (tmp_path / "nothing").exists()


class TestRepair:
    def test_is_a_dry_run_without_yes(self, maker, towline):
        at = damage(maker)
        before = maker.log_bytes()
        done = towline("store", "repair", "--store", maker.root, "--skip", at)
        assert done.status == 1
        assert f"would do: commitlog/00000000000000000000 byte {at}: copy these 507 bytes to diverged/" in done.out
        assert "1 messages are lost (queue from number, count: TopicA/0 from 25, 1)" in done.out
        assert "nothing was done; --yes does it" in done.out
        assert maker.log_bytes() == before

    def test_with_yes_it_is_done_and_verified(self, maker, towline):
        at = damage(maker)
        done = towline("store", "repair", "--store", maker.root, "--skip", at, "--yes", "--json")
        assert done.status == 0
        actions = {step["action"]: step for step in done.document["done"]}
        assert set(actions) == {"skip", "rebuild"}
        assert Path(actions["skip"]["kept"]).stat().st_size == 507
        assert done.document["verify"]["verdict"] == "sound"
        again = towline("store", "repair", "--store", maker.root, "--skip", at, "--yes")
        assert again.status == 0
        assert "there is nothing to repair" in again.out

    def test_damage_that_nobody_named_is_refused(self, maker, towline):
        at = damage(maker)
        done = towline("store", "repair", "--store", maker.root, "--yes", "--json")
        assert done.status == 2
        (refused,) = done.document["refused"]
        assert refused["byte"] == at
        assert f"`towline store repair --yes --skip {at} --store {maker.root}`" in refused["remedy"]
        assert done.document["done"] == []

    def test_is_refused_while_a_node_runs(self, maker, towline):
        with _locked_elsewhere(maker):
            done = towline("store", "repair", "--store", maker.root, "--yes", "--json")
        assert done.status == 1
        assert done.document["error"] == "StoreTaken"

    def test_is_refused_while_a_duty_runs(self, maker, towline):
        lock = DutyLock(maker.store.duty_lock("put"), "put")
        done = towline("store", "repair", "--store", maker.root, "--json")
        assert done.document["error"] == "DutyTaken"
        del lock
