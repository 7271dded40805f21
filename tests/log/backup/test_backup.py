"""Backups and restores: what is in them, what the second one copies, and what becomes of one that is broken off."""

import os

import pytest

from tests.log.sound import content_of
from tests.log.stores import NOON, QUEUE_FILE, SEGMENT, StoreMaker
from towline.format.files.epochs import Epoch
from towline.log.backup import copying
from towline.log.backup.backup import Source, take_backup
from towline.log.backup.backup_check import check_backup
from towline.log.backup.backup_manifest import BackupDirectory
from towline.log.backup.restore import check_restored, restore
from towline.log.errors import BackupDamaged, BackupRefused, RestoreUnfinished
from towline.log.files.config_file import ConfigFile
from towline.log.state.durable_file import DurableFile
from towline.log.state.epoch_file import EpochFile
from towline.log.state.identity import IdentityFile
from towline.log.state.in_sync_file import InSyncFile, InSyncRecord
from towline.places import Store


class Killed(Exception):
    """At this step."""


@pytest.fixture(autouse=True)
def small_steps(monkeypatch):
    monkeypatch.setattr(copying, "STEP", 8192)


@pytest.fixture
def maker(tmp_path):
    made = StoreMaker(tmp_path / "store")
    made.fill(300)  # more than two segments
    IdentityFile(made.root).create("DefaultCluster")
    EpochFile(made.store).save((Epoch(256, 0), Epoch(512, made.records[120].at)))
    made.store.config.mkdir()
    for name in ("topics.json", "consumerOffset.json"):
        ConfigFile(made.store.config / name).save(content_of(name, 3))
    InSyncFile(made.store).save(InSyncRecord(512, 3, 0, 0b11))
    return made


@pytest.fixture
def backup(tmp_path):
    return BackupDirectory(tmp_path / "backup")


def source_of(maker, end=None, low=0):
    return Source(
        store=maker.store,
        segment_size=SEGMENT,
        queue_file_size=QUEUE_FILE,
        bounds=lambda: (low, maker.end if end is None else end),
        node=0,
        broker_name="towline",
        role="master",
        time_ms=NOON,
        version="1",
    )


def take(maker, backup, progress=lambda _: None, *, end=None, low=0, **more):
    return take_backup(source_of(maker, end, low), backup.root, lambda _: None, progress, **more)


def sound(backup):
    found = check_backup(backup, lambda _: None)
    assert not found.damaged, found.damaged
    return found.manifest


def restored(backup, root):
    store = Store(root)
    restore(backup, store, lambda _: None)
    check_restored(store)
    return store


def check_restored_log(maker, backup, root):
    """The backup makes a store with exactly the bytes before its end, and zeros behind them."""
    manifest = sound(backup)
    store = restored(backup, root)
    read = b"".join(path.read_bytes() for path in sorted(store.commitlog.iterdir()))
    size = manifest.end - manifest.start
    at = manifest.start - manifest.start % SEGMENT
    assert read[:size] == maker.log_bytes()[at - maker.base :][:size]
    assert not any(read[size:])
    state = DurableFile(store.root).load()
    assert (state.flushed, state.log_min, state.queues_durable) == (manifest.end, manifest.start, manifest.start)
    return store


def killing(step):
    """Counts what is copied, and breaks off at the `step`th chunk."""
    done = []

    def progress(size):
        done.append(size)
        if len(done) == step:
            raise Killed

    return progress


def test_a_backup_makes_the_store_anew(maker, backup, tmp_path):
    taken = take(maker, backup)
    assert (taken.copied, taken.kept, taken.manifest.number) == (maker.end, 0, 1)
    store = check_restored_log(maker, backup, tmp_path / "restored")
    assert IdentityFile(store.root).load() == IdentityFile(maker.root).load()
    assert EpochFile(store).load() == EpochFile(maker.store).load()
    for name in ("topics.json", "consumerOffset.json"):
        assert ConfigFile(store.config / name).load() == content_of(name, 3)
    assert not store.ha.exists()  # who was in sync then says nothing of now
    recovered = StoreMaker(store.root).recover()
    assert (recovered.end, recovered.cut_bytes) == (maker.end, 0)


def test_the_next_backup_copies_what_is_new(maker, backup, tmp_path):
    first = maker.records[200].at
    take(maker, backup, end=first)
    whole = [path.stat().st_mtime_ns for path in sorted(backup.commitlog.iterdir())][: first // SEGMENT]
    maker.fill(200)
    ConfigFile(maker.store.config / "topics.json").save(content_of("topics.json", 9))
    taken = take(maker, backup)
    assert (taken.copied, taken.kept, taken.manifest.number) == (maker.end - first, first, 2)
    assert [path.stat().st_mtime_ns for path in sorted(backup.commitlog.iterdir())][: len(whole)] == whole
    store = check_restored_log(maker, backup, tmp_path / "restored")
    assert ConfigFile(store.config / "topics.json").load() == content_of("topics.json", 9)
    again = take(maker, backup)
    assert (again.copied, again.kept) == (0, maker.end)


def test_zeros_take_no_room(maker, backup):
    take(maker, backup, end=maker.records[10].at)
    assert 512 * (backup.commitlog / f"{0:020d}").stat().st_blocks < SEGMENT // 2


@pytest.mark.parametrize("step", range(1, 20, 2))
def test_a_backup_that_is_broken_off_anywhere_is_gone_on_with(maker, backup, tmp_path, step):
    """Before the first one is done, and in the second one: what was whole stays whole, and the next try is right."""
    with pytest.raises(Killed):
        take(maker, backup, killing(step))
    with pytest.raises(BackupRefused):
        sound(backup)
    done = take(maker, backup)
    assert done.kept == (step - 1) // 8 * SEGMENT  # whole segments are not copied again
    check_restored_log(maker, backup, tmp_path / "first")
    maker.fill(300)
    with pytest.raises(Killed):
        take(maker, backup, killing(step))
    assert sound(backup).end == done.manifest.end
    restored(backup, tmp_path / "second")
    take(maker, backup)
    check_restored_log(maker, backup, tmp_path / "third")


def test_a_backup_that_was_touched_is_copied_again(maker, backup, tmp_path):
    take(maker, backup)
    path = backup.commitlog / f"{0:020d}"
    data = bytearray(path.read_bytes())
    data[300] ^= 1
    path.write_bytes(data)
    found = check_backup(backup, lambda _: None)
    assert [error.path for error in found.damaged] == [str(path)]
    assert take(maker, backup).copied == SEGMENT
    check_restored_log(maker, backup, tmp_path / "restored")


def test_a_segment_whose_time_alone_changed_is_kept(maker, backup):
    take(maker, backup)
    os.utime(backup.commitlog / f"{0:020d}")
    assert take(maker, backup).copied == 0
    assert sound(backup).end == maker.end


def test_a_record_that_was_bad_before_the_backup_is_found(maker, backup):
    maker.write(maker.records[100].at + 200, b"\xff")
    take(maker, backup)
    found = check_backup(backup, lambda _: None)
    assert len(found.damaged) == 1
    assert "no whole record" in found.damaged[0].problem


# --- cleaning beside a backup


def test_what_is_deleted_while_it_is_copied_is_in_the_backup(maker, backup, tmp_path):
    before = maker.log_bytes()

    def progress(_):
        for path in maker.store.commitlog.iterdir():
            path.unlink()

    take(maker, backup, progress)
    store = restored(backup, tmp_path / "restored")
    assert b"".join(path.read_bytes() for path in sorted(store.commitlog.iterdir())) == before


def test_what_is_deleted_before_it_is_open_moves_the_start(maker, backup, tmp_path):
    (maker.store.commitlog / f"{0:020d}").unlink()
    taken = take(maker, backup)
    assert taken.manifest.start == SEGMENT
    store = restored(backup, tmp_path / "restored")
    assert StoreMaker(store.root).recover().log_min == SEGMENT


def test_a_hole_is_refused(maker, backup):
    take(maker, backup, end=maker.records[10].at)
    (maker.store.commitlog / f"{0:020d}").unlink()
    with pytest.raises(BackupRefused, match="was deleted"):
        take(maker, backup, low=SEGMENT)
    with pytest.raises(BackupRefused, match="was deleted"):
        take(maker, backup)
    assert sound(backup).end == maker.records[10].at


def test_segments_that_the_store_has_deleted_stay_until_they_are_pruned(maker, backup, tmp_path):
    take(maker, backup)
    (maker.store.commitlog / f"{0:020d}").unlink()
    maker.fill(50)
    assert take(maker, backup, low=SEGMENT).manifest.start == 0
    sound(backup)
    taken = take(maker, backup, low=SEGMENT, prune=True)
    assert (taken.manifest.start, taken.removed) == (SEGMENT, SEGMENT)
    assert not (backup.commitlog / f"{0:020d}").exists()
    assert StoreMaker(restored(backup, tmp_path / "restored").root).recover().end == maker.end


# --- what is refused


def test_another_log_is_refused(maker, backup, tmp_path):
    take(maker, backup)
    other = StoreMaker(tmp_path / "other")
    other.fill(300)
    IdentityFile(other.root).create("DefaultCluster")
    with pytest.raises(BackupRefused, match="it holds the log"):
        take(other, backup)
    (other.root / "identity.json").write_bytes((maker.root / "identity.json").read_bytes())
    with pytest.raises(BackupRefused, match="another one from 0 on"):
        take(other, backup)  # it knows none of the epochs


def test_a_log_that_went_back_is_refused(maker, backup):
    take(maker, backup)
    with pytest.raises(BackupRefused, match="ends at"):
        take(maker, backup, end=maker.records[100].at)
    maker.write(maker.records[-1].at + 100, b"\xff")
    with pytest.raises(BackupRefused, match="are not those"):
        take(maker, backup)
    EpochFile(maker.store).save((Epoch(256, 0), Epoch(512, maker.records[100].at)))
    with pytest.raises(BackupRefused, match="another one from"):
        take(maker, backup)


def test_a_directory_of_other_things_is_refused(maker, backup):
    backup.root.mkdir()
    (backup.root / "letters").touch()
    with pytest.raises(BackupRefused, match="other things"):
        take(maker, backup)
    with pytest.raises(BackupRefused, match="no backup"):
        check_backup(backup, lambda _: None)


# --- restores


def test_a_store_is_restored_into_an_empty_directory_alone(maker, backup, tmp_path):
    take(maker, backup)
    store = Store(tmp_path / "restored")
    store.run.mkdir(parents=True)  # where a start that failed left its log
    restore(backup, store, lambda _: None)
    with pytest.raises(BackupRefused, match="not empty"):
        restore(backup, store, lambda _: None)


@pytest.mark.parametrize("step", [1, 8, 9, 19])
def test_a_restore_that_is_broken_off_is_no_store_and_begins_anew(maker, backup, tmp_path, step):
    take(maker, backup)
    store = Store(tmp_path / "restored")
    with pytest.raises(Killed):
        restore(backup, store, killing(step))
    with pytest.raises(RestoreUnfinished, match="not finished"):
        check_restored(store)
    check_restored_log(maker, backup, store.root)


def test_a_damaged_backup_makes_no_store(maker, backup, tmp_path):
    take(maker, backup)
    path = backup.commitlog / f"{SEGMENT:020d}"
    data = bytearray(path.read_bytes())
    data[77] ^= 1
    path.write_bytes(data)
    store = Store(tmp_path / "restored")
    with pytest.raises(BackupDamaged, match=path.name):
        restore(backup, store, lambda _: None)
    with pytest.raises(RestoreUnfinished):
        check_restored(store)
    path.unlink()
    with pytest.raises(BackupDamaged):
        restore(backup, store, lambda _: None)


def test_an_empty_log_is_backed_up(tmp_path, backup):
    made = StoreMaker(tmp_path / "store")
    IdentityFile(made.root).create("DefaultCluster")
    assert take(made, backup).manifest.end == 0
    assert restored(backup, tmp_path / "restored").identity.exists()
    made.fill(10)
    EpochFile(made.store).save((Epoch(256, 0),))
    assert take(made, backup).copied == made.end
