"""What a start, a reader or a check finds damaged: the remedy that is named is typed, and it then works."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from towline.format.files.consume_queue import SIZE
from towline.places import Store

from .typist import TYPED, Typist, filled

SEGMENT = 1048576  # as the typist's settings have it


def torn(*names: str) -> Callable[[Path], None]:
    """Leaves the first bytes of these files alone, of which some may never have been there."""

    def tear(store: Path) -> None:
        for name in names:
            path = store / name
            path.parent.mkdir(exist_ok=True)
            path.write_bytes(path.read_bytes()[:10] if path.exists() else b"{")

    return tear


def foreign(store: Path) -> None:
    (store / "commitlog" / "notes.txt").write_text("what somebody left here")


def short_queue(store: Path) -> None:
    path = queue_file(store)
    path.write_bytes(path.read_bytes()[:-SIZE])


def short_index(store: Path) -> None:
    [path] = (store / "index").iterdir()
    path.write_bytes(path.read_bytes()[:-1])


def first_segment_gone(store: Path) -> None:
    (store / "commitlog" / f"{0:020}").unlink()


def changed_byte(store: Path) -> None:
    """In a record of the segment in which the log ends: a start reads that one."""
    change(store / "commitlog" / f"{SEGMENT:020}", 200_000)
    Store(store).known.unlink()  # or the start believes that nobody wrote since the stop


def queue_file(store: Path) -> Path:
    return store / "consumequeue" / "orders" / "0" / f"{0:020}"


def change(path: Path, at: int) -> None:
    with path.open("r+b") as file:
        file.seek(at)
        old = file.read(1)
        file.seek(at)
        file.write(bytes([old[0] ^ 1]))


DAMAGED = {
    "a file that belongs to nobody": foreign,
    "no durable offset": torn("durable"),
    "no identity": torn("identity.json"),
    "no topics": torn("config/topics.json", "config/topics.json.bak"),
    "no in-sync set": torn("ha/in_sync.json", "ha/in_sync.json.bak"),
    "no role": torn("ha/role.json"),
    "no point of a truncation": torn("ha/truncate.json"),
    "a short queue file": short_queue,
    "a short index file": short_index,
    "a changed byte": changed_byte,
    "no first segment": first_segment_gone,
}


IN_THE_GATE = ("a file that belongs to nobody", "no durable offset", "a short queue file", "a changed byte")


def marks(kind: str) -> list[pytest.MarkDecorator]:
    """One of each sort is repaired in the gate, all are in `make soak`."""
    return [] if kind in IN_THE_GATE else [pytest.mark.slow]


@pytest.fixture
def store(typist: Typist, stored: Path) -> Path:
    shutil.copytree(stored, typist.store)
    return typist.store


@pytest.mark.parametrize("damage", [pytest.param(DAMAGED[kind], id=kind, marks=marks(kind)) for kind in DAMAGED])
def test_a_store_that_a_start_refuses_is_repaired(typist: Typist, store: Path, damage: Callable[[Path], None]) -> None:
    start = f"towline master start --store {store}"
    damage(store)
    typist.works(typist.refused_once(start, "store repair"))
    typist.works(start)
    typist.works(f"towline get orders --store {store}")


def test_a_repair_that_would_have_to_guess_names_what_to_step_over(typist: Typist, store: Path) -> None:
    changed_byte(store)
    [refused] = typist(f"towline store repair --yes --store {store}").document["refused"]
    [stepped_over] = TYPED.findall(refused["remedy"])
    typist.works(stepped_over)
    typist.works(f"towline store verify --store {store}")


def test_what_verify_finds_is_healed_by_the_command_of_its_row(typist: Typist, store: Path) -> None:
    torn("ha/role.json", "ha/truncate.json")(store)
    foreign(store)
    (store / "identity.json").write_bytes((store / "identity.json").read_bytes() + b" ")
    (store / "staging" / "odd").mkdir()
    change(queue_file(store), 8)
    verify = f"towline store verify --store {store}"
    rows = typist(verify).document["findings"]
    assert {"ROLE_LOST", "TRUNCATION_LOST", "FOREIGN", "IDENTITY_FORM", "LEFTOVER", "QUEUE_ENTRY"} <= {
        row["rule"] for row in rows
    }
    [repaired] = {typed for row in rows for typed in TYPED.findall(row["remedy"])}
    typist.works(repaired)
    typist.works(verify)


def test_the_sizes_of_a_store_are_kept_or_it_is_repaired_for_others(typist: Typist, store: Path) -> None:
    start, other = f"towline master start --store {store}", "--set=mapped_file_size_consume_queue=200000"
    refused = typist(start, other)
    assert "set the sizes the store was made with" in refused.document["remedy"]
    typist.works(start)
    typist.stop()
    repaired = typist.refused_once(start, "store repair", other)
    typist.works(repaired)
    typist.works(start, other)
    typist.works(f"towline get orders --store {store}")


def test_a_damaged_entry_that_a_reader_meets_is_derived_anew(typist: Typist, store: Path) -> None:
    change(queue_file(store), 0)  # it points far behind the log
    start, get = f"towline master start --store {store}", f"towline get orders --queue 0 --store {store}"
    typist.works(start)
    repaired = typist.refused_once(get, "store repair")
    typist.stop()
    typist.works(repaired)
    typist.works(start)
    typist.works(get)


def test_a_damaged_record_that_is_looked_up_is_found_by_verify_and_stepped_over(typist: Typist, store: Path) -> None:
    segment = store / "commitlog" / f"{0:020}"  # no start reads it: the log ends in the next one
    change(segment, segment.read_bytes().index(b"hello"))
    start = f"towline master start --store {store}"
    typist.works(start)
    verify = typist.refused_once(f"towline query --offset 0 --store {store}", "store verify")
    [row] = [row for row in typist(verify).document["findings"] if row["weight"] == "damage"]
    typist.stop()
    [stepped_over] = TYPED.findall(row["remedy"])
    typist.works(stepped_over)
    typist.works(verify)
    typist.works(start)


def test_a_backup_that_is_damaged_is_made_whole_and_a_restore_begun_anew(
    typist: Typist, store: Path, tmp_path: Path
) -> None:
    backup, restored = tmp_path / "backup", tmp_path / "restored"
    typist.works(f"towline store backup --store {store} --to {backup}")
    segment = backup / "commitlog" / f"{0:020}"
    change(segment, segment.read_bytes().index(b"hello"))
    again = typist.refused_once(f"towline store restore --store {restored} --from {backup}", "store backup")
    segment.unlink()
    typist.works(filled(again, STORE=store, BACKUP=backup))
    typist.store, start = restored, f"towline master start --store {restored}"
    typist.works(typist.refused_once(start, "store restore"))
    typist.works(start)
    typist.works(f"towline get orders --store {restored}")


def test_a_backup_whose_manifest_is_lost_is_begun_in_another_directory(
    typist: Typist, store: Path, tmp_path: Path
) -> None:
    backup, other = tmp_path / "backup", tmp_path / "other"
    typist.works(f"towline store backup --store {store} --to {backup}")
    torn("backup.json")(backup)
    again = typist.refused_once(f"towline store backup --verify {backup}", "store backup")
    typist.works(filled(again, STORE=store, DIR=other))
    typist.works(f"towline store backup --verify {other}")
