"""When the CommitLog is synced."""

import pytest

from flush.policy import FlushRealTime, GroupCommit
from towline.limits import PAGE


class TestGroupCommit:
    def test_does_nothing_when_every_appended_byte_is_durable(self):
        assert not GroupCommit().due(appended=10, flushed=10, now_ms=0)

    def test_syncs_at_once_when_a_byte_is_not_durable(self):
        assert GroupCommit().due(appended=11, flushed=10, now_ms=0)


class TestFlushRealTime:
    policy = FlushRealTime(interval_ms=500, least_pages=4, thorough_ms=10_000, last_ms=1000, last_thorough_ms=1000)

    @pytest.mark.parametrize(
        ("dirty", "now_ms", "expected"),
        [
            pytest.param(100 * PAGE, 1499, False, id="the interval is not over"),
            pytest.param(4 * PAGE, 1500, True, id="enough pages are dirty"),
            pytest.param(4 * PAGE - 1, 1500, False, id="a byte short of enough pages"),
            pytest.param(1, 11_000, True, id="thoroughly: a byte is enough"),
            pytest.param(0, 11_000, False, id="nothing is dirty"),
        ],
    )
    def test_syncs_by_interval_and_pages(self, dirty, now_ms, expected):
        assert self.policy.due(appended=dirty, flushed=0, now_ms=now_ms) is expected

    def test_a_thorough_sync_starts_the_thorough_interval_anew(self):
        later = self.policy.synced(11_000, thorough=False)
        assert (later.last_ms, later.last_thorough_ms) == (11_000, 11_000)
        assert self.policy.synced(2000, thorough=False).last_thorough_ms == 1000

    def test_sleeps_until_the_interval_is_over(self):
        assert self.policy.sleep_ms(1200) == 300
