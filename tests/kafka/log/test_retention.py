"""Which segments go: by age, by size, below the log's start; and what goes with them."""

import pytest

from tests.kafka.samples import T0, plain, rows_in, rows_of, write_plain
from towline.kafka.errors import MalformedLog
from towline.kafka.format import producer_snapshot
from towline.kafka.format.building import Form
from towline.kafka.format.checkpoints import LeaderEpoch
from towline.kafka.format.records import Records
from towline.kafka.log import retention
from towline.kafka.log.checking import check
from towline.kafka.log.partition import Partition
from towline.kafka.log.recovery import recover
from towline.kafka.log.retention import Aged, expired
from towline.kafka.log.rolling import LogConfig
from towline.kafka.log.writer import PartitionWriter

KNOWN = [Aged(0, 100, 1_000), Aged(10, 100, 3_000), Aged(20, 100, 2_000), Aged(30, 50, 4_000)]
FOR_EVER = LogConfig(retention_ms=-1)


@pytest.mark.parametrize(
    ("config", "now", "high", "start", "gone"),
    [
        (FOR_EVER, 10**9, 99, 0, []),
        (LogConfig(retention_ms=1_000), 2_000, 99, 0, []),
        (LogConfig(retention_ms=1_000), 2_001, 99, 0, [0]),
        (LogConfig(retention_ms=1_000), 3_500, 99, 0, [0]),
        (LogConfig(retention_ms=1_000), 10**9, 99, 0, [0, 10, 20]),
        (LogConfig(retention_ms=1_000), 10**9, 20, 0, [0, 10]),
        (LogConfig(retention_ms=1_000), 10**9, 19, 0, [0]),
        (LogConfig(retention_ms=-1, retention_bytes=350), 0, 99, 0, []),
        (LogConfig(retention_ms=-1, retention_bytes=251), 0, 99, 0, []),
        (LogConfig(retention_ms=-1, retention_bytes=250), 0, 99, 0, [0]),
        (LogConfig(retention_ms=-1, retention_bytes=0), 0, 99, 0, [0, 10, 20]),
        (FOR_EVER, 0, 99, 9, []),
        (FOR_EVER, 0, 99, 10, [0]),
        (FOR_EVER, 0, 99, 29, [0, 10]),
    ],
)
def test_the_oldest_go_first_and_the_last_stays(config, now, high, start, gone):
    assert [each.base for each in expired(KNOWN, config, now, high, start)] == gone


def test_segments_go_with_all_their_files_and_the_rest_begins_behind_them(tmp_path):
    directory = write_plain(tmp_path)
    bases = [segment.base for segment in Partition(directory).segments]
    config = LogConfig(retention_ms=1)
    start = retention.apply(directory, config, T0 + 10_000, high_watermark=bases[-2])
    assert start == bases[-2]
    assert sorted({int(path.name[:20]) for path in directory.glob("0*")} - {300}) == bases[-2:]
    assert rows_in(directory) == rows_of(plain(300))[start:]
    assert Partition(directory).epochs == [LeaderEpoch(0, start), LeaderEpoch(2, 100), LeaderEpoch(5, 200)]
    assert check(directory) == []


def test_producers_whose_batches_went_stay_known(tmp_path):
    config = LogConfig(segment_bytes=150)
    with PartitionWriter(tmp_path, "t", 0, config) as writer:
        for number in range(4):
            form = Form(producer_id=number, producer_epoch=2, base_sequence=5, transactional=number == 1)
            writer.append(plain(1, number), form)
    directory = tmp_path / "t-0"
    start = retention.apply(directory, LogConfig(retention_bytes=0, retention_ms=-1), 0, high_watermark=3)
    assert start == 3
    end = directory / "00000000000000000004.snapshot"
    before = end.read_bytes()
    assert [each.producer_id for each in producer_snapshot.decode(before)] == [0, 1, 2, 3]
    assert Partition(directory).transactions().last_stable_offset == 1
    recover(directory, config)
    assert end.read_bytes() == before
    PartitionWriter(tmp_path, "t", 0, config).close()
    assert end.read_bytes() == before
    (directory / "00000000000000000003.snapshot").write_bytes(b"damaged")
    recover(directory, config)
    assert [each.producer_id for each in producer_snapshot.decode(end.read_bytes())] == [3]


def test_nothing_goes_where_nothing_is_expired(tmp_path):
    directory = write_plain(tmp_path)
    before = {path.name: path.read_bytes() for path in directory.iterdir()}
    assert retention.apply(directory, LogConfig(), T0 + 400, high_watermark=300) == 0
    assert {path.name: path.read_bytes() for path in directory.iterdir()} == before


def test_a_segment_without_times_is_as_old_as_its_file(tmp_path):
    with PartitionWriter(tmp_path, "t", 0) as writer:
        writer.append(Records.of([0], [-1], [None], [b"v"]))
    partition = Partition(tmp_path / "t-0")
    (found,) = retention.ages(partition)
    assert found.timestamp == int(partition.segments[0].log.stat().st_mtime * 1000)


def test_the_age_of_a_segment_is_that_of_its_log_whatever_its_time_index_lacks(tmp_path):
    """Else a segment of which the index was cut would go too soon."""
    directory = write_plain(tmp_path)
    before = retention.ages(Partition(directory))
    paths = sorted(directory.glob("*.timeindex"))
    paths[0].write_bytes(paths[0].read_bytes()[:-12])
    paths[1].unlink()
    assert retention.ages(Partition(directory)) == before
    held = bytearray(paths[2].read_bytes())
    held[-5] ^= 1  # of the last entry's time
    paths[2].write_bytes(held)
    with pytest.raises(MalformedLog, match="an index names another time than its batch has"):
        retention.ages(Partition(directory))
