"""Partitions that are written: what a broker would have written, byte for byte, and what is refused."""

import resource
from collections import deque
from dataclasses import replace
from itertools import count
from pathlib import Path
from uuid import UUID

import numpy as np
import pytest

from tests.kafka.golden import OFFSET_INDEX, SNAPSHOT, TIME_INDEX, TRANSACTION_INDEX, TRANSACTIONS_LOG
from tests.kafka.samples import SMALL, T0, plain, read, rows_in, rows_of, write_plain, write_transactions
from towline.kafka.errors import IllegalTopicName, NotAppended
from towline.kafka.format import partition_metadata
from towline.kafka.format.building import Form, build
from towline.kafka.format.checkpoints import LeaderEpoch
from towline.kafka.format.records import Blobs, Records
from towline.kafka.log.checking import check
from towline.kafka.log.files import DERIVED
from towline.kafka.log.partition import Partition
from towline.kafka.log.recovery import recover
from towline.kafka.log.rolling import LogConfig
from towline.kafka.log.writer import PartitionWriter


def names(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir())


def contents(directory: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in directory.iterdir()}


def test_batches_of_a_broker_get_the_files_that_it_wrote_with_them(tmp_path):
    with PartitionWriter(tmp_path, "tx", 0) as writer:
        writer.append_batches(np.frombuffer(bytes.fromhex(TRANSACTIONS_LOG), np.uint8))
    assert {name: data.hex() for name, data in contents(tmp_path / "tx-0").items()} == {
        "00000000000000000000.index": "",
        "00000000000000000000.log": TRANSACTIONS_LOG,
        "00000000000000000000.timeindex": TIME_INDEX,
        "00000000000000000000.txnindex": TRANSACTION_INDEX,
        "00000000000000000009.snapshot": SNAPSHOT,
        "leader-epoch-checkpoint": b"0\n1\n0 0\n".hex(),
    }


def test_an_index_has_an_entry_for_more_than_the_interval():
    """The sizes of the five batches that made the index of a broker with index.interval.bytes=100."""
    positions = [int(OFFSET_INDEX[at : at + 8], 16) for at in range(8, len(OFFSET_INDEX), 16)]
    assert positions == sorted(positions)
    assert positions[0] > 100


def test_what_was_written_is_read_with_keys_nulls_headers_and_times(tmp_path):
    directory = write_plain(tmp_path)
    assert rows_in(directory) == rows_of(plain(300))
    assert check(directory) == []
    assert Partition(directory).epochs == [LeaderEpoch(0, 0), LeaderEpoch(2, 100), LeaderEpoch(5, 200)]


def test_each_segment_has_its_files_and_snapshots_stand_between_them_and_at_the_end(tmp_path):
    directory = write_plain(tmp_path)
    bases = [segment.base for segment in Partition(directory).segments]
    assert len(bases) > 2
    stems = {f"{base:020d}" for base in bases}
    assert {name for name in names(directory) if name.endswith(".log")} == {f"{stem}.log" for stem in stems}
    assert {name.partition(".")[0] for name in names(directory) if name.endswith(".timeindex")} == stems
    found = {name for name in names(directory) if name.endswith(".snapshot")}
    assert found == {f"{base:020d}.snapshot" for base in [*bases[1:], 300]}
    assert all((directory / f"{stem}.log").stat().st_size <= SMALL.segment_bytes for stem in stems)


def test_offsets_may_have_holes_and_begin_anywhere(tmp_path):
    with PartitionWriter(tmp_path, "t", 3, SMALL, start=1_000) as writer:
        for first in (1_000, 5_000, 2**31 + 5_000, 2**33):
            writer.append(plain(5, first))
    directory = tmp_path / "t-3"
    assert [row[0] for row in rows_in(directory)][::5] == [1_000, 5_000, 2**31 + 5_000, 2**33]
    assert [segment.base for segment in Partition(directory).segments] == [1_000, 2**31 + 5_000, 2**33]
    assert check(directory) == []


def test_an_empty_segment_whose_base_is_too_far_away_goes(tmp_path):
    with PartitionWriter(tmp_path, "t", 0) as writer:
        writer.append(plain(5, 2**40))
    assert [segment.base for segment in Partition(tmp_path / "t-0").segments] == [2**40]


def test_a_partition_that_was_closed_goes_on_as_if_it_had_not_been(tmp_path):
    whole, parted = tmp_path / "whole", tmp_path / "parted"
    with PartitionWriter(whole, "t", 0, SMALL) as writer:
        for first in range(0, 200, 10):
            writer.append(plain(10, first), Form(leader_epoch=first // 60, batch_size=300))
    for begin in range(0, 200, 50):
        with PartitionWriter(parted, "t", 0, SMALL) as writer:
            for first in range(begin, begin + 50, 10):
                writer.append(plain(10, first), Form(leader_epoch=first // 60, batch_size=300))
    assert contents(parted / "t-0") == contents(whole / "t-0")


def test_transactions_go_on_behind_a_close(tmp_path):
    directory = write_transactions(tmp_path)
    with PartitionWriter(tmp_path, "tx", 0, SMALL) as writer:
        writer.append(plain(1, 12))
    assert check(directory) == []
    assert Partition(directory).transactions().last_stable_offset == 4


def test_the_id_of_the_topic_is_kept(tmp_path):
    topic_id = UUID(int=7)
    PartitionWriter(tmp_path, "t", 0, topic_id=topic_id).close()
    directory = tmp_path / "t-0"
    assert Partition(directory).topic_id == topic_id
    assert partition_metadata.NAME in names(directory)
    assert rows_in(directory) == []


def test_closing_twice_does_nothing(tmp_path):
    writer = PartitionWriter(tmp_path, "t", 0)
    writer.close()
    before = contents(tmp_path / "t-0")
    writer.close()
    assert contents(tmp_path / "t-0") == before


class TestRolls:
    def bases(self, root: Path, config: LogConfig, times: list[int], **more) -> list[int]:
        with PartitionWriter(root, "t", 0, config, **more) as writer:
            for offset, time in enumerate(times):
                writer.append(Records.of([offset], [time], [None], [b"v"]))
        assert check(root / "t-0") == []
        return [segment.base for segment in Partition(root / "t-0").segments]

    def test_by_time_from_the_first_batch_to_the_new_one(self, tmp_path):
        times = [T0, T0 + 1_000, T0 + 500, T0 + 1_001, T0 + 2_001, T0 + 2_002]
        assert self.bases(tmp_path, LogConfig(segment_ms=1_000), times) == [0, 3, 5]

    def test_sooner_by_the_jitter(self, tmp_path):
        times = [T0, T0 + 600, T0 + 700, T0 + 1_000]
        config = LogConfig(segment_ms=1_000, segment_jitter_ms=500)
        assert self.bases(tmp_path, config, times, jitter=lambda: 400) == [0, 2]

    def test_by_the_clock_where_batches_have_no_times(self, tmp_path):
        clock = iter([0, 10, 20, 1_001, 1_001, 1_001, 1_002])
        bases = self.bases(tmp_path, LogConfig(segment_ms=1_000), [-1] * 4, now_ms=lambda: next(clock, 1_002))
        assert bases == [0, 2]

    def test_by_a_full_index(self, tmp_path):
        config = LogConfig(segment_index_bytes=24, index_interval_bytes=0)
        times = [T0 + number for number in range(12)]
        assert self.bases(tmp_path, config, times) == [0, 2, 4, 6, 8, 10]
        falling = [T0 - number for number in range(12)]
        assert self.bases(tmp_path / "2", config, falling) == [0, 2, 4, 6, 8, 10]


class TestFailures:
    def test_a_disk_that_refuses_closes_the_writer_and_what_it_took_is_recovered(self, tmp_path):
        """The limit of this process's files stands in for a full disk."""
        before = resource.getrlimit(resource.RLIMIT_FSIZE)
        writer = PartitionWriter(tmp_path, "t", 0, LogConfig(segment_bytes=60_000))
        resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, before[1]))
        try:
            with pytest.raises(OSError, match="File too large"), writer:
                deque((writer.append(plain(50, first), Form(batch_size=700)) for first in count(0, 50)), maxlen=0)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, before)
        with pytest.raises(NotAppended, match="the writer is closed"):
            writer.append(plain(1, 10**6))
        directory = tmp_path / "t-0"
        assert names(directory) == ["00000000000000000000.log"], "nothing says that it is whole"
        end = recover(directory).end
        assert end > 300
        assert rows_in(directory) == rows_of(plain(end))
        assert check(directory) == []

    def test_nothing_is_appended_to_a_writer_that_was_closed(self, tmp_path):
        writer = PartitionWriter(tmp_path, "t", 0)
        writer.close()
        before = contents(tmp_path / "t-0")
        for append in (lambda: writer.append(plain(1)), lambda: writer.append_batches(build(plain(1)))):
            with pytest.raises(NotAppended, match="the writer is closed"):
                append()
        assert contents(tmp_path / "t-0") == before

    def test_while_it_goes_on_no_index_says_that_the_segment_is_whole(self, tmp_path):
        """So that a broker which was stopped cleanly before looks at the log itself, if the writer is killed."""
        directory = write_plain(tmp_path)
        last = Partition(directory).segments[-1]
        writer = PartitionWriter(tmp_path, "topic", 0, SMALL)
        assert not [suffix for suffix in DERIVED if last.path(suffix).exists()]
        writer.close()
        assert check(directory) == []

    def test_byte_strings_that_lie_elsewhere_are_refused(self, tmp_path):
        """Kernels copy them without looking at bounds."""
        sound = plain(3)
        for starts, sizes in (([0, 0, 10**9], [1, 1, 1]), ([0, 0, -5], [1, 1, 1]), ([0, 0, 0], [1, 1, 10**12])):
            value = Blobs(sound.value.data, np.array(starts), np.array(sizes))
            with PartitionWriter(tmp_path, "t", 0) as writer, pytest.raises(ValueError, match="are not all within"):
                writer.append(replace(sound, value=value))


class TestRefusals:
    def test_offsets_that_do_not_rise(self, tmp_path):
        with PartitionWriter(tmp_path, "t", 0) as writer:
            writer.append(plain(3))
            for records in (plain(3), Records.of([3, 3], [0, 0], [None] * 2, [None] * 2)):
                with pytest.raises(NotAppended, match="offsets that rise from 3 on"):
                    writer.append(records)
            with pytest.raises(NotAppended, match="offset 2, the partition ends at 3"):
                writer.append_batches(build(plain(3, 2)))
        assert rows_in(tmp_path / "t-0") == rows_of(plain(3))

    def test_batches_that_are_not_whole_or_have_another_crc(self, tmp_path):
        with PartitionWriter(tmp_path, "t", 0) as writer:
            data = build(plain(3))
            with pytest.raises(NotAppended, match="beyond the end"):
                writer.append_batches(data[:-1])
            changed = data.copy()
            changed[-1] ^= 1
            with pytest.raises(NotAppended, match="the CRC of a batch"):
                writer.append_batches(changed)
        assert rows_in(tmp_path / "t-0") == []

    def test_a_control_batch_that_ends_nothing_known(self, tmp_path):
        form = Form(producer_id=1, producer_epoch=0, transactional=True, control=True)
        with PartitionWriter(tmp_path, "t", 0) as writer:
            for key, value in ((None, None), (b"\0", b""), (bytes(4), b"\0")):
                with pytest.raises(NotAppended, match="the records of a batch do not add up"):
                    writer.append(Records.of([0], [0], [key], [value]), form)
        assert rows_in(tmp_path / "t-0") == []

    def test_a_batch_that_no_segment_holds(self, tmp_path):
        with (
            PartitionWriter(tmp_path, "t", 0, SMALL) as writer,
            pytest.raises(NotAppended, match="larger than a segment of 4000"),
        ):
            writer.append(Records.of([0], [0], [None], [b"x" * 4_000]))

    @pytest.mark.parametrize("name", ["", ".", "..", "a/b", "a b", "ü", "t" * 250])
    def test_a_name_that_is_none(self, name, tmp_path):
        with pytest.raises(IllegalTopicName):
            PartitionWriter(tmp_path, name, 0)


def test_a_large_append_is_one_of_many_segments(tmp_path):
    config = LogConfig(segment_bytes=200_000)
    with PartitionWriter(tmp_path, "t", 0, config) as writer:
        writer.append(plain(20_000), Form(batch_size=1_000))
    partition = Partition(tmp_path / "t-0")
    assert len(partition.segments) > 5
    pieces = list(partition.read(piece_size=50_000))
    assert len(pieces) > len(partition.segments)
    assert read(pieces) == rows_of(plain(20_000))
    assert check(partition.directory) == []
