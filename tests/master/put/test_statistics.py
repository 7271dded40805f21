"""What put counts of the requests it stored, and when the log hears of slow ones."""

import logging

import pytest

from tests.serve.building import Built
from towline.master.put.statistics import REPORT_EVERY_MS, PutStatistics
from towline.runtime.store_stats import StoreStats, Total


@pytest.fixture
def built(tmp_path):
    made = Built(tmp_path)
    yield made
    made.close()


def test_what_was_stored_is_counted_by_queue(built):
    statistics = PutStatistics(built.node())
    for counts in (("orders", 0, 3, 300, 1), ("orders", 1, 1, 90, 1), ("orders", 0, 2, 250, 2)):
        statistics.stored(counts[0].encode(), *counts[1:])
    assert [tuple(row) for row in StoreStats.open(built.runtime.put_stats)] == [
        (b"orders", 0, 5, 550, 3), (b"orders", 1, 1, 90, 1),
    ]  # fmt: skip


def test_the_log_hears_of_slow_puts_once_in_a_while_and_of_others_never(built, caplog):
    statistics = PutStatistics(built.node())
    with caplog.at_level(logging.WARNING):
        statistics.answered(0, 500)
        assert caplog.messages == []
        for waited in (501, 700, 900):
            statistics.answered(0, waited)
        assert caplog.messages == [
            "1 puts took more than 500 ms from their arrival to their answer, the slowest 501 ms"
        ]
        statistics.answered(501 + REPORT_EVERY_MS - 600, 501 + REPORT_EVERY_MS)
    assert caplog.messages[1:] == [
        "3 puts took more than 500 ms from their arrival to their answer, the slowest 900 ms"
    ]
    assert StoreStats.open(built.runtime.put_stats).total(Total.SLOW) == 4
