import errno
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from towline.errors import (
    DiskFull,
    IdentityMismatch,
    MalformedFile,
    StoreNotWritable,
    StoreOfAnotherVersion,
    SyncFailed,
)
from towline.format.files import checkpoint
from towline.format.files.checkpoint import Checkpoint
from towline.format.files.durable import Durable
from towline.format.files.durable_slots import OLD_SIZE, SIZE, SLOT_SIZE, encode, place, torn
from towline.log.files.store_files import AbortFile, write_atomically
from towline.log.recovery.quarantine import Quarantine
from towline.log.state import identity
from towline.log.state.checkpoint_file import CheckpointFile
from towline.log.state.durable_file import DurableFile
from towline.log.state.identity import IdentityFile


def broken(*_: object) -> None:
    raise OSError(errno.EIO, "Input/output error")


class TestWritingAtomically:
    def test_the_file_is_replaced_whole_and_nothing_is_left_beside_it(self, tmp_path: Path) -> None:
        path = tmp_path / "file"
        write_atomically(path, b"old and longer")
        write_atomically(path, b"new")
        assert path.read_bytes() == b"new"
        assert list(tmp_path.iterdir()) == [path]

    def test_a_failed_sync_leaves_the_old_file(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        path = tmp_path / "file"
        write_atomically(path, b"old")
        monkeypatch.setattr(os, "fsync", broken)
        with pytest.raises(SyncFailed, match="errno 5"):
            write_atomically(path, b"new")
        assert path.read_bytes() == b"old"

    def test_a_directory_that_cannot_be_written_is_told(self, tmp_path: Path) -> None:
        with pytest.raises(StoreNotWritable, match="missing"):
            write_atomically(tmp_path / "missing" / "file", b"x")


class TestAbort:
    def test_it_holds_the_pid_while_a_node_runs_and_goes_with_a_clean_stop(self, tmp_path: Path) -> None:
        abort = AbortFile(tmp_path)
        assert not abort.exists()
        abort.create(4321)
        assert abort.exists()
        assert (tmp_path / "abort").read_text() == "4321"
        abort.remove()
        abort.remove()
        assert not abort.exists()


class TestIdentity:
    def test_a_new_store_has_none_and_keeps_the_one_it_gets(self, tmp_path: Path) -> None:
        file = IdentityFile(tmp_path)
        assert file.load() is None
        created = file.create("orders")
        assert (created.cluster, len(bytes.fromhex(created.store_id))) == ("orders", 16)
        assert IdentityFile(tmp_path).load() == file.check("orders") == created

    def test_two_stores_of_a_cluster_differ(self, tmp_path: Path) -> None:
        ids = []
        for name in ("a", "b"):
            (tmp_path / name).mkdir()
            ids.append(IdentityFile(tmp_path / name).create("orders").store_id)
        assert ids[0] != ids[1]

    def test_another_cluster_is_refused_naming_both(self, tmp_path: Path) -> None:
        IdentityFile(tmp_path).create("orders")
        with pytest.raises(IdentityMismatch, match="holds cluster orders, expected was invoices"):
            IdentityFile(tmp_path).check("invoices")

    def test_a_later_format_version_is_refused(self, tmp_path: Path) -> None:
        file = IdentityFile(tmp_path)
        file.path.write_bytes(identity.encode(replace(file.create("orders"), format_version=2)))
        with pytest.raises(StoreOfAnotherVersion, match="says format version 2, and this program knows 1"):
            file.load()

    def test_a_format_version_that_does_not_fit_its_check_is_damage(self, tmp_path: Path) -> None:
        file = IdentityFile(tmp_path)
        file.create("orders")
        file.path.write_text(file.path.read_text().replace('"format_version": 1', '"format_version": 3'))
        with pytest.raises(MalformedFile, match="do not fit its check"):
            file.load()

    def test_a_flipped_bit_of_the_store_id_is_refused(self, tmp_path: Path) -> None:
        made = IdentityFile(tmp_path).create("DefaultCluster")
        text = (tmp_path / "identity.json").read_text()
        other = f"{int(made.store_id, 16) ^ 1:032x}"
        (tmp_path / "identity.json").write_text(text.replace(made.store_id, other))
        with pytest.raises(MalformedFile, match="do not fit its check"):
            IdentityFile(tmp_path).load()

    @pytest.mark.parametrize(
        "content",
        ["", "{", "[]", "{}", '{"format_version": 1, "cluster": "orders", "store_id": "12"}'],
        ids=["empty", "torn", "a list", "without members", "a short id"],
    )
    def test_what_is_no_identity_is_refused_not_replaced(self, tmp_path: Path, content: str) -> None:
        (tmp_path / "identity.json").write_text(content)
        with pytest.raises(MalformedFile, match=r"identity\.json"):
            IdentityFile(tmp_path).check("orders")
        assert (tmp_path / "identity.json").read_text() == content


WRITER = """
import os, sys
os.sched_setaffinity(0, {int(sys.argv.pop())})
fd = os.open(sys.argv[1], os.O_WRONLY)
pages = [bytes.fromhex(page) for page in sys.argv[2:]]
while True:
    for page in pages:
        os.pwrite(fd, page, 0)
"""


class TestCheckpoint:
    CONTENT = Checkpoint(
        physic_msg_timestamp=1700000000123, logics_msg_timestamp=1700000000456, confirm_phy_offset=4260
    )

    def test_it_is_written_whole_and_then_in_place(self, tmp_path: Path) -> None:
        file = CheckpointFile(tmp_path)
        assert file.load() is None
        file.save(Checkpoint())
        inode = file.path.stat().st_ino
        file.save(self.CONTENT)
        assert CheckpointFile(tmp_path).load() == self.CONTENT
        assert file.path.read_bytes() == checkpoint.sealed(checkpoint.encode(self.CONTENT))
        assert file.path.stat().st_ino == inode

    def test_a_short_file_is_refused_with_its_path(self, tmp_path: Path) -> None:
        (tmp_path / "checkpoint").write_bytes(b"x")
        with pytest.raises(MalformedFile, match=str(tmp_path / "checkpoint")):
            CheckpointFile(tmp_path).load()

    def test_a_reader_beside_its_writer_never_sees_half_of_it(self, tmp_path: Path) -> None:
        """20 to 60 of these reads do. Each on a core of its own: a reader that wakes up where the writer runs stops it
        in the middle of a page more often than not, and so time after time."""
        file, pages, cores = CheckpointFile(tmp_path), [], sorted(os.sched_getaffinity(0))
        for field in (1 << 20, 2 << 30):
            file.save(Checkpoint(*[field] * 6))
            pages.append(file.path.read_bytes())
        command = [sys.executable, "-c", WRITER, str(file.path), *(page.hex() for page in pages), str(cores[-1])]
        writer = subprocess.Popen(command)
        os.sched_setaffinity(0, cores[:1])
        try:
            for _ in range(50_000):
                found = file.load()
                assert found is not None
                assert found.physic_msg_timestamp == found.logics_physical_offset
                assert not file.others_wrote()
            assert writer.poll() is None
        finally:
            os.sched_setaffinity(0, cores)
            writer.kill()
            writer.wait()


class TestTheDurableOffset:
    def test_a_new_store_has_none(self, tmp_path: Path) -> None:
        assert DurableFile(tmp_path).load() is None

    def test_the_state_saved_last_is_loaded(self, tmp_path: Path) -> None:
        file = DurableFile(tmp_path)
        for flushed in (0, 100, 200, 300):
            file.save(Durable(flushed=flushed, queues_durable=flushed // 2))
        file.close()
        assert DurableFile(tmp_path).load() == Durable(flushed=300, queues_durable=150)

    @pytest.mark.parametrize("writes", range(2, 6))
    @pytest.mark.parametrize("at", [0, 8, 30, 63])
    def test_a_torn_write_leaves_the_state_before_it(self, tmp_path: Path, writes: int, at: int) -> None:
        file = DurableFile(tmp_path)
        for number in range(1, writes + 1):
            file.save(Durable(flushed=number * 100))
        data = bytearray(file.path.read_bytes())
        data[place(writes) + at] ^= 0xFF
        file.path.write_bytes(data)
        assert DurableFile(tmp_path).load() == Durable(flushed=(writes - 1) * 100)

    def test_writing_goes_on_from_a_torn_slot(self, tmp_path: Path) -> None:
        file = DurableFile(tmp_path)
        for flushed in (100, 200):
            file.save(Durable(flushed=flushed))
        data = bytearray(file.path.read_bytes())
        data[place(2)] ^= 0xFF
        file.path.write_bytes(data)
        file.close()
        again = DurableFile(tmp_path)
        again.save(Durable(flushed=300))
        assert DurableFile(tmp_path).load() == Durable(flushed=300)

    @pytest.mark.parametrize("saved", [Durable(flushed=300), Durable(flushed=100)], ids=["later", "taken back"])
    def test_a_file_of_an_older_version_is_written_anew_by_its_first_save(self, tmp_path: Path, saved: Durable) -> None:
        path = older(tmp_path)
        assert DurableFile(tmp_path).load() == Durable(flushed=200)
        assert path.stat().st_size == OLD_SIZE, "who only reads changes nothing"
        file = DurableFile(tmp_path)
        file.save(saved)
        assert path.stat().st_size == SIZE
        assert DurableFile(tmp_path).load() == saved
        file.save(Durable(flushed=400))
        file.close()
        assert DurableFile(tmp_path).load() == Durable(flushed=400)
        assert torn(path.read_bytes()) == []

    def test_a_failed_sync_in_an_older_file_stays_until_it_is_mended(self, tmp_path: Path) -> None:
        older(tmp_path, sync_failed=True)
        assert DurableFile(tmp_path).save(Durable(flushed=300)).sync_failed
        older(tmp_path, sync_failed=True)
        assert DurableFile(tmp_path).clear_sync_failed() == DurableFile(tmp_path).load() == Durable(flushed=200)

    def test_a_failed_sync_is_remembered_by_whatever_is_saved_later_and_by_a_restart(self, tmp_path: Path) -> None:
        file = DurableFile(tmp_path)
        file.save(Durable(flushed=100))
        file.save(Durable(flushed=100, sync_failed=True))
        assert file.save(Durable(flushed=200)).sync_failed
        restarted = DurableFile(tmp_path)
        assert restarted.save(Durable(flushed=300)) == Durable(flushed=300, sync_failed=True)
        assert restarted.clear_sync_failed() == DurableFile(tmp_path).load() == Durable(flushed=300)

    @pytest.mark.parametrize(
        "state",
        [Durable(flushed=200, sync_failed=True), Durable(flushed=50), Durable(flushed=200, queues_durable=0)],
        ids=["a failed sync", "a truncated log", "truncated queues"],
    )
    def test_what_was_taken_back_does_not_return_with_either_slot(self, tmp_path: Path, state: Durable) -> None:
        file = DurableFile(tmp_path)
        file.save(Durable(flushed=100, queues_durable=10))
        file.save(Durable(flushed=200, queues_durable=10))
        file.save(state)
        whole = file.path.read_bytes()
        for slot in (0, 1):
            data = bytearray(whole)
            data[slot * SLOT_SIZE] ^= 0xFF
            file.path.write_bytes(data)
            assert DurableFile(tmp_path).load() == state

    def test_a_write_that_failed_does_not_spoil_the_state_before_it(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        file = DurableFile(tmp_path)
        file.save(Durable(flushed=100))
        file.save(Durable(flushed=200))
        good = file.path.read_bytes()[place(2) : place(2) + SLOT_SIZE]
        monkeypatch.setattr(os, "fdatasync", broken)
        for _ in range(2):
            with pytest.raises(SyncFailed, match="durable"):
                file.save(Durable(flushed=300))
        assert file.path.read_bytes()[place(2) : place(2) + SLOT_SIZE] == good

    def test_a_file_without_a_valid_slot_is_refused(self, tmp_path: Path) -> None:
        (tmp_path / "durable").write_bytes(bytes(SIZE))
        with pytest.raises(MalformedFile, match="neither of its two slots"):
            DurableFile(tmp_path).load()


def older(root: Path, *, sync_failed: bool = False) -> Path:
    """`durable` as older versions wrote it, both slots in one sector of 4 KiB."""
    states = Durable(flushed=200, sync_failed=sync_failed), Durable(flushed=100, sync_failed=sync_failed)
    path = root / "durable"
    path.write_bytes(b"".join(encode(sequence, state)[:512] for sequence, state in zip((2, 1), states, strict=True)))
    return path


class TestDiverged:
    @pytest.fixture
    def segment(self, tmp_path: Path) -> Path:
        path = tmp_path / "segment"
        path.write_bytes(bytes(range(256)) * 16)
        return path

    def test_the_bytes_are_copied_under_their_offset_and_time_and_stay_in_the_segment(
        self, tmp_path: Path, segment: Path
    ) -> None:
        before = segment.read_bytes()
        kept = Quarantine(tmp_path).keep(segment, 8192, 8192 + 10, 8192 + 300, 1700000000123)
        assert kept == tmp_path / "diverged" / "00000000000000008202-1700000000123.log"
        assert kept.read_bytes() == before[10:300]
        assert segment.read_bytes() == before

    def test_an_earlier_copy_is_never_overwritten(self, tmp_path: Path, segment: Path) -> None:
        names = [Quarantine(tmp_path).keep(segment, 0, 0, end, 7).name for end in (1, 2, 3)]
        assert names == [f"{'0' * 20}-7{number}.log" for number in ("", "-2", "-3")]
        assert [(tmp_path / "diverged" / name).stat().st_size for name in names] == [1, 2, 3]

    def test_a_full_disk_is_told_and_half_a_copy_removed(
        self, tmp_path: Path, segment: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def full(*_: object) -> bytes:
            raise OSError(errno.ENOSPC, "No space left on device")

        monkeypatch.setattr(os, "pread", full)
        with pytest.raises(DiskFull, match="no room for 100 bytes"):
            Quarantine(tmp_path).keep(segment, 0, 0, 100, 7)
        assert list((tmp_path / "diverged").iterdir()) == []

    def test_a_range_past_the_segment_is_refused(self, tmp_path: Path, segment: Path) -> None:
        with pytest.raises(StoreNotWritable, match="ends at byte 4096"):
            Quarantine(tmp_path).keep(segment, 0, 0, 5000, 7)
