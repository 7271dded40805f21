"""What a node's settings, or their combination, refuse: the remedy that is named is followed, and it then works."""

import re
from pathlib import Path

import pytest

from .typist import Typist


def test_what_a_setting_does_not_let_a_node_do_it_does_after_a_restart_with_another_value(typist: Typist) -> None:
    start, where = f"towline master start --store {typist.store}", f"--store {typist.store}"
    large = f"towline put orders {'x' * 2_000} --key k {where}"
    query, get = f"towline query --topic orders --key k {where}", f"towline get orders --sql 'a = 1' {where}"
    typist.works(start, "--set", "max_message_size=1000", "--set", "message_index_enable=false")
    typist.works(f"towline put orders small {where}")
    assert "raise max_message_size on the node and restart it" in typist(large).document["remedy"]
    indexed = typist.refused_once(query, "--set")
    filtered = typist.refused_once(get, "--set")
    typist.stop()
    typist.works(start, *indexed.split(), *filtered.split(), "--set", "max_message_size=4000")
    for worked in (large, query, get):
        typist.works(worked)


def test_what_changes_at_a_start_alone_and_what_a_start_overrules(typist: Typist) -> None:
    start, where = f"towline master start --store {typist.store}", f"--store {typist.store}"
    typist.works(start, "--set", "file_reserved_time=48")
    fixed = typist(f"towline config set max_message_size=4000 {where}")
    assert (fixed.document["error"], "restart it" in fixed.document["remedy"]) == ("FixedSetting", True)
    change = f"towline config set file_reserved_time=24 {where}"
    kept = typist(change, "--keep")
    assert (kept.document["error"], "(--keep)" in kept.document["remedy"]) == ("OverruledSetting", True)
    typist.works(change)
    typist.stop()
    typist.works(start, "--set", "max_message_size=4000")
    assert "4000" in typist(f"towline config get max_message_size {where}").out


@pytest.mark.parametrize(
    ("kept", "error"),
    [
        pytest.param(
            "put_waiting_max = 0\nfile_reserved_time = 24\n",
            "BadSetting",
            id="a value that cannot be",
            marks=pytest.mark.slow,
        ),
        pytest.param(
            "put_waiting_maximum = 7\nfile_reserved_time = 24\n", "UnknownSetting", id="a key of another version"
        ),
        pytest.param("put_waiting_max = \n", "UnreadableSettings", id="no TOML", marks=pytest.mark.slow),
    ],
)
def test_what_was_kept_and_keeps_a_node_from_starting_is_taken_back(typist: Typist, kept: str, error: str) -> None:
    start = f"towline master start --store {typist.store}"
    typist.store.mkdir()
    file = typist.store / "kept.toml"
    file.write_text(kept, encoding="utf-8")
    assert typist(start).document["error"] == error
    [takes_back] = typist.refused(start)
    typist.works(takes_back)
    assert file.exists() == (error != "UnreadableSettings")
    typist.works(start)
    typist.works(f"towline put orders hello --store {typist.store}")


def test_a_kept_change_is_taken_back_while_the_node_runs_and_when_it_is_down(typist: Typist) -> None:
    start, where = f"towline master start --store {typist.store}", f"--store {typist.store}"
    typist.works(start)
    typist.works(f"towline config set put_waiting_max=500 log_level=ERROR --keep {where}")
    typist.stop()
    typist.works(start)
    done = typist(f"towline config unset put_waiting_max {where}")
    assert (done.document["forgotten"], done.document["settings"]) == (
        {"put_waiting_max": 500},
        {"put_waiting_max": 65_536},
    )
    [row] = typist(f"towline config get put_waiting_max {where}").document["settings"]
    assert (row["value"], row["kept"]) == (65_536, False)
    assert "put_waiting_max is 65536, now and after the next start" in typist.shown(
        f"towline config unset put_waiting_max {where}"
    )
    typist.stop()
    assert "log_level = ERROR is not kept any more" in typist.shown(f"towline config unset log_level {where}")
    typist.works(start)
    assert "log_level" not in typist.shown(f"towline config get {where}")


@pytest.mark.parametrize(
    ("given", "also"),
    [
        ("enable_calc_filter_bit_map=true", "enable_consume_queue_ext=true"),
        ("force_verify_prop_crc=true check_crc_on_recover=false", "check_crc_on_recover=true"),
        ("transient_store_pool_enable=true flush_disk_type=SYNC_FLUSH", "flush_disk_type=ASYNC_FLUSH"),
        ("listen_host=0.0.0.0", "insecure=true"),
    ],
)
def test_settings_that_cannot_stand_together_name_the_other_one(typist: Typist, given: str, also: str) -> None:
    shown, options = "towline settings show", [f"--set={setting}" for setting in given.split()]
    refused = typist(shown, *options)
    assert refused.document["error"] == "BadSetting"
    key, _, value = also.partition("=")
    said = str(refused.document["sentence"])
    assert key in said or value in said or "SYNC_FLUSH" in said
    typist.works(shown, *options, f"--set={also}")


def test_a_settings_file_that_cannot_be_read_is_written_as_toml(typist: Typist, tmp_path: Path) -> None:
    file = tmp_path / "node.toml"
    file.write_text("file_reserved_time: 24\n", encoding="utf-8")
    shown = f"towline settings show --config {file}"
    refused = typist(shown)
    assert refused.document["error"] == "UnreadableSettings"
    assert re.search(r"a readable \.toml file", refused.document["remedy"])
    file.write_text("file_reserved_time = 24\n", encoding="utf-8")
    typist.works(shown)
