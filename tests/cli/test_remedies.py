"""What a refusal names as its remedy is typed as it stands, and the refused command then works."""

import json
import re
import socket
import subprocess
from contextlib import closing
from pathlib import Path

import pytest

from tests.processes.disks import small_memory
from tests.processes.nodes import free_port
from towline.cli.remedies import completed
from towline.cli.status import SYNC_FAILED

from .typist import TYPED, Typist, filled

SMALLER = "mapped_file_size_commit_log"


def test_a_node_that_does_not_run_is_started(typist: Typist) -> None:
    put = f"towline put orders hello --store {typist.store}"
    started, _ = typist.refused(put)
    typist.works(started)
    typist.works(put)


def test_a_store_in_use_is_left_by_the_node_that_is_stopped(typist: Typist) -> None:
    start = f"towline master start --store {typist.store}"
    typist.works(start)
    [stopped] = typist.refused(start)
    typist.works(stopped)
    typist.works(start)


def test_a_topic_that_is_not_there_is_created_and_a_command_without_a_node_gets_a_context(typist: Typist) -> None:
    port = free_port()
    typist.works(f"towline master start --store {typist.store}", "--set", f"listen_port={port}")
    get = "towline get orders"
    added, *_ = typist.refused(get)
    typist.works(filled(added, NAME="here", ENDPOINT=f"tcp://127.0.0.1:{port}"))
    [created] = typist.refused(get)
    typist.works(created)
    typist.works(get)


def test_a_setting_that_is_misspelt_is_written_as_the_sentence_has_it(typist: Typist) -> None:
    start = f"towline master start --store {typist.store}"
    done = typist(start, "--set", "flush_disc_type=SYNC_FLUSH")
    [meant] = re.findall(r"did you mean '(\w+)'", str(done.document["sentence"]))
    typist.works(start, "--set", f"{meant}=SYNC_FLUSH")


def test_a_port_that_is_taken_is_set_to_another_one(typist: Typist) -> None:
    start = f"towline master start --store {typist.store}"
    with closing(socket.create_server(("127.0.0.1", 0))) as listening:
        [option] = typist.refused(start, "--set", f"listen_port={listening.getsockname()[1]}")
        assert option == "--set listen_port=VALUE"
        typist.works(start, *option.replace("VALUE", str(free_port())).split())


def test_a_node_that_other_machines_reach_gets_keys_or_does_without(typist: Typist, tmp_path: Path) -> None:
    start = f"towline master start --store {typist.store}"
    open_to_all = ("--set", "listen_host=0.0.0.0", "--set", f"ha_listen_port={free_port()}")
    done = typist(start, *open_to_all)
    assert "or set insecure=true" in str(done.document["sentence"])
    typist.works(start, *open_to_all, "--set", "insecure=true")
    typist.stop()
    [made] = typist.refused(start, *open_to_all)
    typist.works(filled(made, NAME="app", DIR=tmp_path / "keys", ROLE="producer"))
    typist.works(start, *open_to_all, "--set", f"keys_dir={tmp_path / 'keys'}")


def test_a_master_whose_peers_are_silent_starts_alone(typist: Typist) -> None:
    start = f"towline master start --store {typist.store}"
    typist.works(start)
    typist.stop()
    own, other = free_port(), free_port()
    peers = ("--set", f"ha_peers=0=127.0.0.1:{own},1=127.0.0.1:{other}", "--set", f"ha_listen_port={own}")
    assert "say --alone" in str(typist(start, *peers).document["remedy"])
    typist.works(start, *peers, "--alone")


def test_another_segment_size_is_that_of_the_store(typist: Typist) -> None:
    start = f"towline master start --store {typist.store}"
    typist.works(start)
    typist.works(f"towline put orders hello --store {typist.store}")
    typist.stop()
    [option] = typist.refused(start, "--set", f"{SMALLER}=2097152")
    typist.works(start, *option.split())


def test_a_disk_without_room_for_a_segment_has_room_for_a_smaller_one(typist: Typist) -> None:
    with small_memory(100 << 20) as disk:
        typist.store = disk / "store"
        start = f"towline master start --store {typist.store}"
        done = typist(start, "--set", f"{SMALLER}=1073741824")
        assert done.document["error"] == "NoFirstSegment"
        missing = re.search(
            r"it needs ([\d,]+) bytes, ([\d,]+) are available, ([\d,]+)", str(done.document["sentence"])
        )
        assert missing
        needs, available, lacks = (int(each.replace(",", "")) for each in missing.groups())
        assert lacks == needs - available > 0
        assert f"the node's log: {typist.store}/run/node.log" in str(done.document["remedy"])
        assert Path(f"{typist.store}/run/node.log").is_file()
        [option] = TYPED.findall(str(done.document["remedy"]))
        typist.works(start, *option.split(), "--set", "reserve_file_size=1048576")
        typist.works(f"towline put orders hello --store {typist.store}")
        typist.stop()


def test_a_disk_that_is_full_is_named_by_whichever_process_needs_it(typist: Typist) -> None:
    """The first state file of any process finds no room; the file that says so has none either."""
    with small_memory(16 << 20) as disk:
        typist.store = disk / "store"
        start = f"towline master start --store {typist.store} --set reserve_file_size=0"
        typist.works(start)
        typist.works(f"towline put orders hello --store {typist.store}")
        typist.stop()
        for spare in (0, 4, 8, 12, 16, 24):  # KiB
            fill(disk, spare << 10)
            done = typist(start)
            if done.status == 0:
                break
            assert "exit status" not in str(done.document["sentence"]), done
            assert "No space left" in str(done.document["sentence"]) or done.document["error"] == "DiskFull", done
            assert str(typist.store / "run" / "node.log") in str(done.document["remedy"])
        typist.stop()
        (disk / "fill").unlink()
        typist.works(start)
        typist.stop()


def fill(disk: Path, spare: int) -> None:
    """Takes all but `spare` bytes."""
    (disk / "fill").unlink(missing_ok=True)
    with (disk / "fill").open("wb", buffering=0) as file:
        try:
            while True:
                file.write(bytes(1 << 16))
        except OSError:
            file.truncate(max(0, file.tell() - spare))


def test_a_directory_that_cannot_be_written_is_named(typist: Typist, tmp_path: Path) -> None:
    with small_memory(1 << 20) as disk:
        (disk / "store").mkdir()
        subprocess.run(["mount", "-o", "remount,ro", disk], check=True)
        done = typist(f"towline master start --store {disk / 'store'}")
        assert done.document["error"] == "StoreNotWritable"
        assert f"{disk}/store cannot be written: Read-only file system" in json.dumps(done.document)
        assert "name another one with --store" in str(done.document["remedy"])
        typist.works(f"towline master start --store {typist.store}")


@pytest.mark.parametrize(
    ("remedy", "place", "typed"),
    [
        ("run `towline store verify` now", "", "run `towline store verify --store '/a b'` now"),
        ("run `towline store verify`", "/a b/commitlog/0", "run `towline store verify --store '/a b'`"),
        ("run `towline store backup` again", "/backup/commitlog/0", "run `towline store backup` again"),
        ("stop it (`towline master stop --store /c`)", "", "stop it (`towline master stop --store /c`)"),
        ("`towline group list`, `towline keys list`", "", "`towline group list --store '/a b'`, `towline keys list`"),
        ("say `--alone`", "", "say `--alone`"),
    ],
)
def test_a_remedy_gets_the_store_of_the_command_unless_it_is_about_another_place(
    remedy: str, place: str, typed: str
) -> None:
    assert completed(remedy, ["put", "orders", "x", "--store", "/a b"], place) == typed
    assert completed(remedy, ["put", "orders", "x"], place) == remedy


def test_status_says_of_a_failed_sync_what_is_typed_for_this_store() -> None:
    typed = TYPED.findall(completed(SYNC_FAILED, ("--store", "/a")))
    assert typed == ["towline master stop --store /a", "towline store mend --yes --store /a"]


def test_a_remedy_gets_the_endpoint_of_the_command() -> None:
    words = ["topic", "describe", "t", "--endpoint=tcp://h:1"]
    assert completed("`towline topic create t`", words) == "`towline topic create t --endpoint tcp://h:1`"
    assert completed("`towline store verify`", words) == "`towline store verify`"
