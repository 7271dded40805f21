"""After a crash: a torn end goes, indexes are derived anew; damage with anything behind it stays, and is named."""

from pathlib import Path

import pytest

from tests.kafka.samples import SMALL, T0, plain, rows_in, rows_of, write_plain, write_transactions
from towline.kafka.errors import MalformedLog, OffsetOutOfRange, Rule
from towline.kafka.format.building import Form, build
from towline.kafka.format.checkpoints import LeaderEpoch
from towline.kafka.format.records import Records
from towline.kafka.log.checking import check
from towline.kafka.log.partition import Partition
from towline.kafka.log.recovery import Recovered, cut, recover
from towline.kafka.log.scan import mapped, scan
from towline.kafka.log.writer import PartitionWriter
from towline.limits import MIB


@pytest.fixture(params=[write_plain, write_transactions], ids=["plain", "transactions"])
def directory(request, tmp_path) -> Path:
    return request.param(tmp_path)


def contents(directory: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in directory.iterdir()}


def last_log(directory: Path) -> Path:
    return Partition(directory).segments[-1].log


def flip(path: Path, at: int) -> None:
    held = bytearray(path.read_bytes())
    held[at] ^= 0xFF
    path.write_bytes(held)


def test_a_sound_partition_stays_as_it_is(directory):
    before, end = contents(directory), Partition(directory).end
    assert recover(directory, SMALL) == Recovered(end, 0, None)
    assert contents(directory) == before


def test_what_is_derived_is_made_anew(directory):
    before = contents(directory)
    for path in directory.iterdir():
        if not path.name.endswith(".log"):
            path.unlink()
    recover(directory, SMALL)
    assert contents(directory) == before


@pytest.mark.parametrize("damage", ["cut", "flipped", "zeros"])
def test_a_torn_end_is_cut_and_all_before_it_stays(directory, damage):
    path, rows = last_log(directory), rows_in(directory)
    batches = scan(mapped(path)).batches
    at, size = int(batches["position"][-1]), path.stat().st_size
    if damage == "cut":
        path.write_bytes(path.read_bytes()[:-3])
    elif damage == "flipped":
        flip(path, size - 1)
    else:
        path.write_bytes(path.read_bytes()[:at] + bytes(100))
    found = recover(directory, SMALL)
    assert found.end == int(batches["base_offset"][-1])
    assert found.torn is not None
    assert (found.torn.path, found.torn.at) == (str(path), at)
    assert found.cut > 0
    assert path.stat().st_size == at
    assert rows_in(directory) == [row for row in rows if row[0] < found.end]
    assert check(directory) == []


def test_damage_with_a_batch_behind_it_is_never_cut(directory):
    path = last_log(directory)
    batches = scan(mapped(path)).batches
    at = int(batches["position"][-2])
    flip(path, at + 70)
    before = contents(directory)
    with pytest.raises(MalformedLog, match=f"byte {at}: {Rule.CRC}"):
        recover(directory, SMALL)
    assert contents(directory) == before


@pytest.mark.parametrize("size", [b"\0\1\0\0", b"\x7f\xff\xff\xff"], ids=["65,536", "2 GiB"])
def test_a_size_that_changed_amid_the_log_is_no_torn_end(directory, size):
    """The batch seems to go beyond the end, and others stand behind it."""
    path = last_log(directory)
    at = int(scan(mapped(path)).batches["position"][-2])
    held = bytearray(path.read_bytes())
    held[at + 8 : at + 12] = size
    path.write_bytes(held)
    before = contents(directory)
    with pytest.raises(MalformedLog, match=f"byte {at}: {Rule.TORN_BATCH}"):
        recover(directory, SMALL)
    assert contents(directory) == before


def test_a_damaged_batch_before_preallocated_zeros_is_torn(directory):
    path, rows = last_log(directory), rows_in(directory)
    batches = scan(mapped(path)).batches
    flip(path, path.stat().st_size - 1)
    path.write_bytes(path.read_bytes() + bytes(5_000))
    assert recover(directory, SMALL).end == int(batches["base_offset"][-1])
    assert rows_in(directory) == [row for row in rows if row[0] < int(batches["base_offset"][-1])]


def test_a_batch_far_behind_a_torn_one_is_found(tmp_path):
    """Beyond what is looked at together."""
    with PartitionWriter(tmp_path, "t", 0) as writer:
        writer.append(Records.of([0, 1, 2], [T0] * 3, [None] * 3, [b"a", b"b" * 3 * MIB, b"c"]), Form(batch_size=100))
    path = tmp_path / "t-0" / f"{0:020d}.log"
    at = int(scan(mapped(path)).batches["position"][1])
    held = bytearray(path.read_bytes())
    held[at + 8 : at + 12] = b"\x7f\xff\xff\xff"
    path.write_bytes(held)
    with pytest.raises(MalformedLog, match=f"byte {at}: {Rule.TORN_BATCH}"):
        recover(tmp_path / "t-0")
    path.write_bytes(held[: -len(build(Records.of([2], [T0], [None], [b"c"])))])
    assert recover(tmp_path / "t-0").end == 1


def test_what_a_crash_left_of_small_files_goes(directory):
    before = contents(directory)
    (directory / "00000000000000000300.snapshot.tmp").write_bytes(b"half")
    recover(directory, SMALL)
    assert contents(directory) == before


def test_damage_in_a_segment_before_the_last_is_never_cut(tmp_path):
    directory = write_plain(tmp_path)
    path = Partition(directory).segments[0].log
    size = path.stat().st_size
    path.write_bytes(path.read_bytes()[: size - 4])
    with pytest.raises(MalformedLog, match=path.name):
        recover(directory, SMALL)
    assert path.stat().st_size == size - 4


class TestCut:
    @pytest.mark.parametrize("end", [0, 1, 99, 100, 150, 210, 300])
    def test_what_begins_behind_it_goes_and_epochs_with_it(self, tmp_path, end):
        directory = write_plain(tmp_path)
        found = cut(directory, end, SMALL)
        assert found.end <= end
        assert rows_in(directory) == rows_of(plain(300))[: found.end]
        wanted = [LeaderEpoch(0, 0), LeaderEpoch(2, 100), LeaderEpoch(5, 200)]
        assert Partition(directory).epochs == [epoch for epoch in wanted if epoch.start < found.end]
        assert check(directory) == []

    def test_a_transaction_whose_end_is_cut_is_open_again(self, tmp_path):
        directory = write_transactions(tmp_path)
        cut(directory, 8, SMALL)
        found = Partition(directory).transactions()
        assert (found.aborted, found.last_stable_offset) == ([], 4)
        assert not list(directory.glob("*.txnindex"))

    def test_an_offset_that_is_not_there_is_refused(self, tmp_path):
        directory = write_plain(tmp_path)
        with pytest.raises(OffsetOutOfRange):
            cut(directory, 301)
