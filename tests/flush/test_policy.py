"""When the CommitLog is committed and synced, and the queues."""

from dataclasses import replace

import pytest

from towline.flush.policy import FAR_MS, CommitRealTime, FlushRealTime, GroupCommit, QueueFlush
from towline.limits import PAGE


class TestGroupCommit:
    def test_does_nothing_when_every_appended_byte_is_durable(self):
        assert not GroupCommit().due(end=10, done=10, now_ms=0)

    def test_syncs_at_once_when_a_byte_is_not_durable(self):
        assert GroupCommit().due(end=11, done=10, now_ms=0)


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
        assert self.policy.due(end=dirty, done=0, now_ms=now_ms) is expected

    def test_a_thorough_sync_starts_the_thorough_interval_anew(self):
        later = self.policy.after(11_000)
        assert (later.last_ms, later.last_thorough_ms) == (11_000, 11_000)
        assert self.policy.after(2000).last_thorough_ms == 1000

    @pytest.mark.parametrize(
        ("dirty", "now_ms", "expected"),
        [
            pytest.param(4 * PAGE, 1200, 300, id="until the interval is over"),
            pytest.param(1, 1200, 9800, id="too few pages: until the thorough one"),
            pytest.param(1, 12_000, 1, id="the thorough one is due"),
            pytest.param(0, 90_000, FAR_MS, id="nothing is dirty: as long as it may"),
        ],
    )
    def test_sleeps_until_it_is_due_by_the_clock(self, dirty, now_ms, expected):
        assert self.policy.sleep_ms(dirty, 0, now_ms) == expected

    @pytest.mark.parametrize(
        ("dirty", "now_ms", "expected"),
        [
            pytest.param(4 * PAGE, 1001, True, id="pages enough end the pause"),
            pytest.param(4 * PAGE - 1, 1999, False, id="a byte short of them"),
            pytest.param(1, 11_000, True, id="thoroughly: a byte is enough"),
        ],
    )
    def test_a_put_that_wakes_us_ends_the_pause(self, dirty, now_ms, expected):
        assert replace(self.policy, timed=False).due(end=dirty, done=0, now_ms=now_ms) is expected


class TestCommitRealTime:
    policy = CommitRealTime(200, 4, 200, timed=True, last_ms=1000, last_thorough_ms=1000, segment_size=1 << 20)

    @pytest.mark.parametrize(
        ("end", "done", "now_ms", "expected"),
        [
            pytest.param(4 * PAGE, 0, 1199, False, id="the interval is not over"),
            pytest.param(1, 0, 1200, True, id="both intervals are over: a byte is enough"),
            pytest.param(1 << 20, (1 << 20) - 1, 1001, True, id="a full segment waits for nothing"),
            pytest.param(1 << 20, 1 << 20, 9000, False, id="nothing to commit"),
        ],
    )
    def test_commits_by_interval_and_pages_and_a_full_segment_at_once(self, end, done, now_ms, expected):
        assert self.policy.due(end, done, now_ms) is expected


class TestQueueFlush:
    policy = QueueFlush(interval_ms=1000, least_pages=2, thorough_ms=60_000, last_ms=5000, last_thorough_ms=5000)

    def test_looks_every_interval_and_thoroughly_every_thorough_interval(self):
        assert [self.policy.due(now) for now in (5999, 6000)] == [False, True]
        assert [self.policy.thorough(now) for now in (64_999, 65_000)] == [False, True]
        later = self.policy.after(6000, thorough=False)
        assert (later.last_ms, later.last_thorough_ms) == (6000, 5000)
        assert self.policy.after(65_000, thorough=True).last_thorough_ms == 65_000

    def test_a_queue_is_worth_a_sync_from_so_many_pages_and_thoroughly_from_a_byte(self):
        assert self.policy.least_bytes(thorough=False) == 2 * PAGE
        assert self.policy.least_bytes(thorough=True) == 1
