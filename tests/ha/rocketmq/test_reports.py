"""What slaves of RocketMQ report, and where the stream goes on by that."""

import logging

import pytest

from towline.ha.rocketmq.refusal_log import RefusalLog
from towline.ha.rocketmq.reports import REPORT, LogEnds, Refusal, Rule, begin_at, check_next, newest

SEGMENT = 1_000
LOG = LogEnds(first=2_000, confirmed=5_300, written=5_900)


class TestReports:
    def test_the_last_whole_one_counts(self):
        three = b"".join(map(REPORT.pack, (5, 6, 7)))
        assert newest(b"", three) == (7, b"")

    def test_one_comes_in_pieces(self):
        data = REPORT.pack(77)
        assert newest(b"", data[:3]) == (None, data[:3])
        assert newest(data[:3], data[3:] + b"\0") == (77, b"\0")


class TestTheBeginning:
    @pytest.mark.parametrize(
        ("reported", "expected"),
        [
            pytest.param(5_300, 5_300, id="all that is confirmed is there"),
            pytest.param(2_000, 2_000, id="the first byte is the next"),
            pytest.param(4_444, 4_444, id="in the middle"),
            pytest.param(5_900, 5_900, id="more than is confirmed, of what is written: it waits"),
            pytest.param(0, 5_000, id="nothing: the segment of the confirmed end"),
        ],
    )
    def test_is_where_the_slaves_log_ends(self, reported, expected):
        assert begin_at(reported, LOG, SEGMENT, from_oldest=False) == expected

    def test_of_an_empty_slave_is_the_oldest_segment_where_the_settings_say_so(self):
        assert begin_at(0, LOG, SEGMENT, from_oldest=True) == 2_000

    def test_of_an_empty_slave_is_never_before_our_log(self):
        fresh = LogEnds(first=2_000, confirmed=0, written=2_000)
        assert begin_at(0, fresh, SEGMENT, from_oldest=False) == 2_000

    @pytest.mark.parametrize(
        ("reported", "rule"),
        [
            pytest.param(-1, Rule.NO_OFFSET, id="below 0"),
            pytest.param(1_999, Rule.BEFORE, id="before our log"),
            pytest.param(5_901, Rule.AHEAD, id="behind our log"),
            pytest.param(int.from_bytes(b"GET / HT", "big"), Rule.AHEAD, id="a browser"),
        ],
    )
    def test_is_refused_by_name_outside_the_log(self, reported, rule):
        refused = begin_at(reported, LOG, SEGMENT, from_oldest=False)
        assert isinstance(refused, Refusal)
        assert refused.rule is rule
        assert rule.remedy in str(refused)
        assert str(reported) in str(refused)


class TestFurtherReports:
    @pytest.mark.parametrize(
        ("reported", "before"),
        [
            pytest.param(5_100, 5_000, id="more than before"),
            pytest.param(5_100, 5_100, id="as before: it says that it lives"),
            pytest.param(0, 0, id="still empty"),
            pytest.param(5_200, 0, id="its first bytes"),
        ],
    )
    def test_are_of_what_was_sent(self, reported, before):
        assert check_next(reported, before, start=5_000, sent=5_200) is None

    @pytest.mark.parametrize(
        ("reported", "before"),
        [
            pytest.param(5_201, 5_000, id="more than was sent"),
            pytest.param(5_099, 5_100, id="less than before"),
            pytest.param(-5, 5_100, id="below 0"),
            pytest.param(4_000, 0, id="empty before, and now what it was not sent"),
        ],
    )
    def test_of_anything_else_are_nobodys(self, reported, before):
        refused = check_next(reported, before, start=5_000, sent=5_200)
        assert refused is not None
        assert refused.rule is Rule.FOREIGN


class TestTheLog:
    def test_names_each_host_and_rule_once_a_minute_with_how_many_there_were(self, caplog):
        said, refusal = RefusalLog(_logger(caplog)), Refusal(Rule.SILENT, "nothing came")
        for ms in range(10):
            said.say("10.0.0.1", "10.0.0.1:5", refusal, ms)
        said.say("10.0.0.2", "10.0.0.2:5", refusal, 11)
        assert len(caplog.messages) == 2
        said.say("10.0.0.1", "10.0.0.1:6", refusal, 60_000)
        assert "9 more of 10.0.0.1" in caplog.messages[-1]

    def test_keeps_a_bounded_number_of_hosts(self, caplog):
        said, refusal = RefusalLog(_logger(caplog)), Refusal(Rule.FULL, "64 have connected")
        for number in range(1_000):
            said.say(f"host-{number}", "x", refusal, 0)
        assert len(said._known) <= 256


def _logger(caplog):
    caplog.set_level(logging.WARNING)
    return logging.getLogger("rocketmq_ha")
