"""The table of statistics: what its writer adds its readers see, and what outlives what."""

import pytest

from towline.errors import PositionsUnusable
from towline.limits import RETRY_TOPIC_SIZE_MAX
from towline.runtime import store_stats
from towline.runtime.store_stats import BUCKETS_MS, SLOW_PUT_MS, StoreStats, Total


@pytest.fixture
def path(tmp_path):
    return tmp_path / "put_stats"


def test_what_is_added_is_read_by_queue_and_in_sum(path):
    own, reader = StoreStats.own(path, 7, 1_000), StoreStats.open(path)
    own.add(b"orders", 0, 3, 300)
    own.add(b"orders", 1, 1, 50)
    own.add(b"orders", 0, 2, 200)
    assert [tuple(row) for row in reader] == [(b"orders", 0, 5, 500, 2), (b"orders", 1, 1, 50, 1)]
    assert reader.table().tolist() == [[5, 500, 2], [1, 50, 1]]
    assert reader.began_ms == 1_000


def test_the_queues_of_ten_thousand_topics_with_the_longest_names_find_their_own_rows(path):
    own = StoreStats.own(path, 7, 0)
    names = [b"%RETRY%" + b"%0248d" % number for number in range(10_000)]
    assert {len(name) for name in names} == {RETRY_TOPIC_SIZE_MAX}
    queues = [(name, queue_id) for name in names for queue_id in range(4)]
    for number, (name, queue_id) in enumerate(queues):
        own.add(name, queue_id, number, 1)
    assert [(row.topic, row.queue_id, row.messages) for row in StoreStats.open(path)] == [
        (name, queue_id, number) for number, (name, queue_id) in enumerate(queues)
    ]
    assert own.total(Total.UNCOUNTED) == 0


def test_a_writer_that_starts_again_goes_on_and_a_new_start_of_the_node_begins_at_zero(path):
    first = StoreStats.own(path, 7, 1)
    first.add(b"orders", 0, 1, 10)
    first.took(3)
    again = StoreStats.own(path, 7, 2)
    again.add(b"orders", 0, 1, 10)
    assert [row.messages for row in again] == [2]
    assert (again.began_ms, sum(again.buckets())) == (1, 1)
    fresh = StoreStats.own(path, 8, 3)
    assert (list(fresh), fresh.began_ms, sum(fresh.buckets())) == ([], 3, 0)


@pytest.mark.parametrize(
    ("ms", "bucket"), [(0, 0), (1, 1), (9, 1), (10, 2), (49, 2), (50, 3), (500, 6), (501, 6), (9_999, 11), (10_000, 12)]
)
def test_a_time_falls_into_the_bucket_of_rocketmq(path, ms, bucket):
    own = StoreStats.own(path, 7, 0)
    assert own.took(ms) is (ms > SLOW_PUT_MS)
    assert [number for number, count in enumerate(own.buckets()) if count] == [bucket]
    assert len(own.buckets()) == len(BUCKETS_MS) + 1
    assert own.totals() == {
        "time_ms": ms, "time_max_ms": ms, "slow": int(ms > SLOW_PUT_MS), "empty": 0, "uncounted": 0,
    }  # fmt: skip


def test_the_longest_time_stays(path):
    own = StoreStats.own(path, 7, 0)
    for ms in (5, 900, 7):
        own.took(ms)
    assert (own.total(Total.TIME_MS), own.total(Total.TIME_MAX_MS), own.total(Total.SLOW)) == (912, 900, 1)


def test_queues_beyond_the_table_are_not_lost_without_a_word(path, monkeypatch):
    monkeypatch.setattr(store_stats, "QUEUES_MAX", 2)
    own = StoreStats.own(path, 7, 0)
    for queue_id in range(4):
        own.add(b"orders", queue_id, 5, 50)
    assert own.queue_count == 2
    assert own.total(Total.UNCOUNTED) == 10


def test_a_file_that_is_none_is_refused_by_a_reader_and_replaced_by_the_writer(path):
    with pytest.raises(PositionsUnusable, match="cannot be mapped"):
        StoreStats.open(path)
    path.write_bytes(b"x" * 4096)
    with pytest.raises(PositionsUnusable, match="not a table"):
        StoreStats.open(path)
    assert list(StoreStats.own(path, 7, 0)) == []
