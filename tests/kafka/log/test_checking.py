"""Bad input, one by one: each is named by file, byte and rule, when it is checked and when it is read."""

from pathlib import Path

import numpy as np
import pytest

from tests.kafka.samples import SMALL, plain, write_plain, write_transactions
from towline.kafka.errors import MalformedLog, Rule, TornLog
from towline.kafka.format import batch
from towline.kafka.format.building import Form, build
from towline.kafka.format.checkpoints import LeaderEpoch, encode_epochs
from towline.kafka.format.producer_snapshot import crc32c
from towline.kafka.log.checking import check
from towline.kafka.log.partition import Partition
from towline.kafka.log.scan import mapped, scan
from towline.kafka.log.writer import PartitionWriter


@pytest.fixture
def directory(tmp_path) -> Path:
    return write_plain(tmp_path)


def change(path: Path, at: int, data: bytes) -> None:
    held = bytearray(path.read_bytes())
    held[at : at + len(data)] = data
    path.write_bytes(held)


def flip(path: Path, at: int) -> None:
    change(path, at, bytes([path.read_bytes()[at] ^ 0xFF]))


def begins(path: Path) -> list[int]:
    """Where its batches begin."""
    return [int(at) for at in scan(mapped(path)).batches["position"]]


def told(found: list[MalformedLog]) -> list[tuple[str, int, str]]:
    return [(Path(each.path).name, each.at, each.rule) for each in found]


def read_error(directory: Path) -> MalformedLog:
    with pytest.raises(MalformedLog) as caught:
        list(Partition(directory).read(0))
    return caught.value


def first(directory: Path, suffix: str, row: int = 0) -> Path:
    return sorted(directory.glob(f"*{suffix}"))[row]


class TestTheLog:
    def test_a_torn_last_batch(self, directory):
        path = first(directory, ".log", -1)
        at = begins(path)[-1]
        path.write_bytes(path.read_bytes()[:-5])
        assert (path.name, at, Rule.TORN_BATCH) in told(check(directory))
        error = read_error(directory)
        assert isinstance(error, TornLog)
        assert (Path(error.path), error.at, error.rule) == (path, at, Rule.TORN_BATCH)
        assert "recover the partition" in str(error)

    @pytest.mark.parametrize("left", [1, 11, 12, 30])
    def test_a_batch_of_which_only_the_beginning_was_written(self, directory, left):
        path = first(directory, ".log", -1)
        size = path.stat().st_size
        path.write_bytes(path.read_bytes() + build(plain(3, 300)).tobytes()[:left])
        assert told(check(directory)) == [(path.name, size, Rule.TORN_BATCH)]

    def test_zeros_behind_the_last_batch(self, directory):
        path = first(directory, ".log", -1)
        size = path.stat().st_size
        path.write_bytes(path.read_bytes() + bytes(500))
        assert told(check(directory)) == [(path.name, size, Rule.TORN_BATCH)]

    def test_a_wrong_crc(self, directory):
        path = first(directory, ".log")
        at = begins(path)[1]
        flip(path, at + batch.SIZE + 3)
        assert told(check(directory))[0] == (path.name, at, Rule.CRC)
        error = read_error(directory)
        assert (error.path, error.at, error.rule) == (str(path), at, Rule.CRC)

    def test_an_unknown_magic(self, directory):
        path = first(directory, ".log")
        at = begins(path)[2]
        change(path, at + batch.MAGIC_AT, b"\3")
        assert told(check(directory))[0] == (path.name, at, Rule.MAGIC)
        assert (read_error(directory).at, read_error(directory).rule) == (at, Rule.MAGIC)

    @pytest.mark.parametrize("size", [b"\0\0\0\5", b"\0\0\0\x28", b"\xff\xff\xff\0"], ids=["5", "40", "below 0"])
    def test_a_size_that_no_batch_has(self, directory, size):
        path = first(directory, ".log")
        at = begins(path)[1]
        change(path, at + 8, size)
        assert told(check(directory))[0] == (path.name, at, Rule.BATCH_SIZE)

    def test_a_size_beyond_the_end_in_the_middle_of_the_log(self, directory):
        path = first(directory, ".log")
        at = begins(path)[1]
        change(path, at + 8, b"\0\1\0\0")
        assert told(check(directory))[0] == (path.name, at, Rule.TORN_BATCH)

    def test_offsets_that_do_not_rise(self, directory):
        path = first(directory, ".log")
        at = begins(path)[1]
        change(path, at, (0).to_bytes(8, "big"))  # outside the CRC
        assert told(check(directory))[0] == (path.name, at, Rule.OFFSETS)
        assert (read_error(directory).at, read_error(directory).rule) == (at, Rule.OFFSETS)

    def test_an_offset_of_another_segment(self, directory):
        path = first(directory, ".log")
        at = begins(path)[-1]
        change(path, at, (150).to_bytes(8, "big"))
        assert (path.name, at, Rule.OFFSET_RANGE) in told(check(directory))
        assert (read_error(directory).at, read_error(directory).rule) == (at, Rule.OFFSET_RANGE)

    def test_records_that_do_not_add_up_under_a_crc_that_fits(self, tmp_path):
        broken = build(plain(3)).copy()
        broken[batch.SIZE] ^= 0x10
        crc = crc32c(broken[batch.CHECKED_AT :].tobytes())
        broken[batch.CRC_AT : batch.CHECKED_AT] = np.frombuffer(crc.to_bytes(4, "big"), np.uint8)
        with PartitionWriter(tmp_path, "t", 0) as writer:
            writer.append_batches(broken)
        assert told(check(tmp_path / "t-0")) == [("00000000000000000000.log", 0, Rule.RECORDS)]
        assert read_error(tmp_path / "t-0").rule == Rule.RECORDS


class TestEpochs:
    """A partition with several epochs, and a cut."""

    def test_an_epoch_that_falls(self, tmp_path):
        with PartitionWriter(tmp_path, "t", 0) as writer:
            writer.append(plain(3), Form(leader_epoch=4))
            writer.append(plain(3, 3), Form(leader_epoch=3))
        at = len(build(plain(3)))
        (tmp_path / "t-0" / "leader-epoch-checkpoint").unlink()
        assert told(check(tmp_path / "t-0")) == [("00000000000000000000.log", at, Rule.EPOCHS_FALL)]

    def test_an_epoch_that_falls_from_one_segment_to_the_next(self, tmp_path):
        with PartitionWriter(tmp_path, "t", 0, SMALL) as writer:
            writer.append(plain(100), Form(leader_epoch=4))
            writer.append(plain(100, 100), Form(leader_epoch=3, batch_size=500))
        directory = tmp_path / "t-0"
        (directory / "leader-epoch-checkpoint").unlink()
        assert {rule for _, _, rule in told(check(directory))} == {Rule.EPOCHS_FALL}

    def test_an_epoch_that_the_checkpoint_does_not_have_there(self, directory):
        (directory / "leader-epoch-checkpoint").write_bytes(encode_epochs([LeaderEpoch(0, 0), LeaderEpoch(5, 200)]))
        found = check(directory)
        assert {each.rule for each in found} == {Rule.EPOCH_UNKNOWN}
        assert "2 at offset 100, where the checkpoint has 0" in str(found[0])

    def test_a_checkpoint_that_is_none(self, directory):
        path = directory / "leader-epoch-checkpoint"
        path.write_bytes(b"0\n1\nzero 0\n")
        assert told(check(directory)) == [(path.name, 4, Rule.TEXT)]
        with pytest.raises(MalformedLog, match="leader-epoch-checkpoint byte 4"):
            _ = Partition(directory).epochs


class TestIndexes:
    def test_one_that_points_beyond_the_log(self, directory):
        path = first(directory, ".index")
        last = path.stat().st_size - 8
        change(path, last + 4, (10**6).to_bytes(4, "big"))
        assert told(check(directory)) == [(path.name, last, Rule.INDEX_BEYOND)]

    def test_one_whose_entries_do_not_rise(self, directory):
        path = first(directory, ".index")
        change(path, 4, (10**6).to_bytes(4, "big"))
        assert told(check(directory)) == [(path.name, 8, Rule.INDEX_ORDER)]

    def test_one_that_points_to_where_no_batch_begins(self, directory):
        path = first(directory, ".index")
        position = int.from_bytes(path.read_bytes()[4:8], "big")
        change(path, 4, (position + 1).to_bytes(4, "big"))
        assert told(check(directory)) == [(path.name, 0, Rule.INDEX_PLACE)]
        offset = int.from_bytes(path.read_bytes()[:4], "big")
        with pytest.raises(MalformedLog, match="an index points to where its batch does not begin"):
            list(Partition(directory).read(offset))

    def test_one_beyond_the_log_when_it_is_read(self, directory):
        path = first(directory, ".index", -1)
        last = path.stat().st_size - 8
        change(path, last + 4, (10**6).to_bytes(4, "big"))
        with pytest.raises(MalformedLog, match=f"byte {last}: an index points beyond the log"):
            list(Partition(directory).read(299))

    def test_one_of_another_time(self, directory):
        path = first(directory, ".timeindex")
        time = int.from_bytes(path.read_bytes()[:8], "big")
        change(path, 0, (time - 1).to_bytes(8, "big"))
        assert told(check(directory)) == [(path.name, 0, Rule.INDEX_TIME)]

    def test_a_time_index_beyond_the_log(self, directory):
        path = first(directory, ".timeindex", -1)
        at = path.stat().st_size - 12
        change(path, at + 8, (10**6).to_bytes(4, "big"))
        assert told(check(directory)) == [(path.name, at, Rule.INDEX_BEYOND)]

    @pytest.mark.parametrize("suffix", [".index", ".timeindex"])
    def test_no_whole_number_of_entries(self, directory, suffix):
        path = first(directory, suffix)
        size = path.stat().st_size
        path.write_bytes(path.read_bytes() + b"\1")
        assert told(check(directory)) == [(path.name, size, Rule.INDEX_SIZE)]

    def test_zeros_behind_the_entries_are_those_of_a_file_that_was_not_cut(self, directory):
        for suffix in (".index", ".timeindex"):
            path = first(directory, suffix, -1)
            path.write_bytes(path.read_bytes() + bytes(240))
        assert check(directory) == []
        assert Partition(directory).end == 300

    def test_a_transaction_that_nobody_ended(self, tmp_path):
        directory = write_transactions(tmp_path)
        path = first(directory, ".txnindex")
        flip(path, 9)
        assert told(check(directory)) == [(path.name, 0, Rule.TRANSACTION)]

    def test_a_snapshot_whose_bytes_changed(self, tmp_path):
        directory = write_transactions(tmp_path)
        path = first(directory, ".snapshot")
        flip(path, 20)
        assert told(check(directory)) == [(path.name, 2, Rule.CRC)]


def test_a_sound_partition_has_nothing(directory):
    assert check(directory) == []
