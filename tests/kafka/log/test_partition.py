"""A partition that is read: from an offset on, by time, what is committed."""

import pytest

from tests.kafka.samples import T0, plain, read, rows_of, write_plain, write_transactions
from towline.kafka.errors import CleaningCut, MalformedLog, NoPartitionHere, OffsetOutOfRange, Rule
from towline.kafka.format import offset_index
from towline.kafka.format.building import Form
from towline.kafka.format.checkpoints import LeaderEpoch, encode_epochs
from towline.kafka.format.records import Records
from towline.kafka.format.transaction_index import Aborted
from towline.kafka.log.checking import check
from towline.kafka.log.partition import Partition
from towline.kafka.log.rolling import LogConfig
from towline.kafka.log.writer import PartitionWriter


@pytest.fixture
def partition(tmp_path):
    return Partition(write_plain(tmp_path))


@pytest.mark.parametrize("start", [0, 1, 99, 100, 101, 250, 299, 300])
def test_it_is_read_from_any_offset(partition, start):
    assert read(list(partition.read(start))) == rows_of(plain(300))[start:]


@pytest.mark.parametrize(("start", "end"), [(0, 1), (5, 5), (7, 205), (299, 300), (0, 10_000)])
def test_it_is_read_up_to_an_offset(partition, start, end):
    assert read(list(partition.read(start, end))) == rows_of(plain(300))[start:end]


def test_it_is_read_without_its_indexes(partition):
    for path in partition.directory.glob("*index"):
        path.unlink()
    assert read(list(partition.read(150))) == rows_of(plain(300))[150:]
    assert partition.offset_at(T0 + 151) == 151


def test_an_offset_that_is_not_there_is_refused(partition):
    with pytest.raises(OffsetOutOfRange, match="no offset 301: it has those from 0 up to 300"):
        list(partition.read(301))
    later = Partition(partition.directory, log_start=100)
    with pytest.raises(OffsetOutOfRange, match="no offset 99: it has those from 100 up to 300"):
        list(later.read(99))
    assert read(list(later.read())) == rows_of(plain(300))[100:]


@pytest.mark.parametrize("after", [-5, 0, 1, 77, 123, 299])
def test_an_offset_is_found_by_its_time(partition, after):
    assert partition.offset_at(T0 + after) == max(after, 0)


def test_no_offset_is_found_behind_the_last_time(partition):
    assert partition.offset_at(T0 + 300) is None


def test_an_offset_is_found_where_times_fall(tmp_path):
    times = [5, 9, 7, 8, 20, 11, 12, 30]
    with PartitionWriter(tmp_path, "t", 0, LogConfig(index_interval_bytes=0)) as writer:
        for offset, time in enumerate(times):
            writer.append(Records.of([offset], [time], [None], [b"v"]))
    found = Partition(tmp_path / "t-0")
    wanted = [next(offset for offset, each in enumerate(times) if each >= time) for time in range(31)]
    assert [found.offset_at(time) for time in range(31)] == wanted


class TestTransactions:
    def test_those_that_were_aborted_and_the_first_that_is_open(self, tmp_path):
        found = Partition(write_transactions(tmp_path)).transactions()
        assert found.aborted == [Aborted(7, 6, 8, 4)]
        assert found.last_stable_offset == 4

    def test_who_reads_what_is_committed_gets_nothing_of_open_and_aborted_ones(self, tmp_path):
        partition = Partition(write_transactions(tmp_path))
        (columns,) = partition.read()
        kept = partition.transactions().are_committed(columns)
        assert columns.records.offset[kept].tolist() == [0, 1, 2]
        assert columns.taken(kept).records.value.to_list() == plain(3).value.to_list()

    def test_what_is_read_as_columns_has_its_producers(self, tmp_path):
        (columns,) = Partition(write_transactions(tmp_path)).read()
        assert columns.of_batch("producer_id").tolist() == [-1, 7, 7, 7, 8, 8, 7, 7, 7, 9, 9, 9]
        assert columns.of_batch("producer_epoch").tolist() == [-1] + [3] * 11
        assert columns.sequences().tolist() == [-1, 1, 2, -1, 4, 5, 6, 7, -1, 9, 10, -1]

    def test_a_transaction_over_several_segments(self, tmp_path):
        form = Form(producer_id=1, producer_epoch=0, base_sequence=0, transactional=True)
        with PartitionWriter(tmp_path, "t", 0, LogConfig(segment_bytes=300)) as writer:
            for offset in range(0, 20, 2):
                writer.append(plain(2, offset), form)
        partition = Partition(tmp_path / "t-0")
        assert len(partition.segments) > 3
        assert partition.transactions().last_stable_offset == 0


class TestDirectories:
    @pytest.mark.parametrize("name", ["topic", "topic-x", "topic-0.6c1fd1a4-delete", "a b-0"])
    def test_a_name_that_is_none_is_refused(self, name, tmp_path):
        (tmp_path / name).mkdir()
        with pytest.raises(NoPartitionHere, match="<topic>-<number>"):
            Partition(tmp_path / name)

    def test_one_without_segments_is_refused(self, tmp_path):
        (tmp_path / "t-0").mkdir()
        with pytest.raises(NoPartitionHere, match="it has no segment"):
            Partition(tmp_path / "t-0")
        with pytest.raises(NoPartitionHere):
            Partition(tmp_path / "t-1")

    def test_a_cleaning_that_was_cut_off_is_refused(self, partition):
        (partition.directory / "00000000000000000000.log.swap").touch()
        with pytest.raises(CleaningCut):
            Partition(partition.directory)

    def test_what_is_to_be_deleted_is_left_out(self, partition):
        (partition.directory / "00000000000000000000.log.deleted").touch()
        (partition.directory / "00000000000000000000.log.cleaned").touch()
        assert Partition(partition.directory).end == 300


class TestIndexesOfBrokersBefore40:
    """They made one entry of batches that were appended together."""

    def test_one_entry_of_several_batches_is_right(self, partition):
        segment = partition.segments[0]
        path = segment.path(".index")
        offsets, positions = offset_index.decode(path.read_bytes(), segment.base)
        path.write_bytes(offset_index.encode(segment.base, offsets[1:], positions[:-1]))
        for start in range(0, 300, 7):
            assert read(list(Partition(partition.directory).read(start))) == rows_of(plain(300))[start:]
        assert check(partition.directory) == []

    def test_an_entry_whose_batch_begins_behind_its_offset_is_not(self, partition):
        segment = partition.segments[0]
        path = segment.path(".index")
        offsets, positions = offset_index.decode(path.read_bytes(), segment.base)
        path.write_bytes(offset_index.encode(segment.base, offsets[:-1], positions[1:]))
        with pytest.raises(MalformedLog, match="an index points to where its batch does not begin"):
            list(partition.read(int(offsets[0])))
        assert [each.rule for each in check(partition.directory)] == [Rule.INDEX_PLACE]


def test_a_time_index_of_which_entries_are_missing_gives_the_same_offsets(partition):
    wanted = [partition.offset_at(T0 + number) for number in range(0, 301, 3)]
    for number, path in enumerate(sorted(partition.directory.glob("*.timeindex"))):
        path.write_bytes(path.read_bytes()[: -12 * (number % 3)] if number % 3 else b"")
    assert [partition.offset_at(T0 + number) for number in range(0, 301, 3)] == wanted


@pytest.mark.parametrize("byte", [7, 11], ids=["its time", "its offset"])
def test_an_entry_of_a_time_index_that_changed_is_named(partition, byte):
    path = partition.segments[0].path(".timeindex")
    held = bytearray(path.read_bytes())
    held[byte] ^= 0x10
    path.write_bytes(held)
    with pytest.raises(MalformedLog, match=r"timeindex byte 0: an index names another time than its batch has"):
        [partition.offset_at(T0 + number) for number in range(300)]


def test_an_empty_last_segment_says_where_the_log_ends(partition):
    """Compaction may have taken what stood before it."""
    (partition.directory / f"{500:020d}.log").touch()
    later = Partition(partition.directory)
    assert later.end == 500
    assert list(later.read(500)) == []
    assert read(list(later.read(299))) == rows_of(plain(300))[299:]


def test_the_last_segment_of_a_broker_that_died_is_searched_to_its_end(partition):
    """Its time index has no entry for the greatest time yet."""
    path = partition.segments[-1].path(".timeindex")
    path.write_bytes(path.read_bytes()[:12] + bytes(24))
    assert partition.offset_at(T0 + 299) == 299


def test_a_log_that_begins_inside_a_segment_is_compared_with_its_epochs_from_there(partition):
    (partition.directory / "leader-epoch-checkpoint").write_bytes(
        encode_epochs([LeaderEpoch(2, 150), LeaderEpoch(5, 200)])
    )
    assert check(partition.directory) == []
