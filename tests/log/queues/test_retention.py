"""Where a queue begins by time and by bytes: against a model that looks at every entry."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from towline.log.queues import retention
from towline.log.queues.retention import SizeWindow, first_unexpired

PER_FILE = 7


@given(st.integers(0, 40), st.integers(0, 60), st.integers(0, 60))
def test_the_first_that_is_not_expired_is_found_in_few_looks(low, size, expired):
    looked = []

    def is_expired(number):
        looked.append(number)
        return number < low + expired

    assert first_unexpired(low, low + size, is_expired) == min(low + expired, low + size)
    assert len(looked) <= size.bit_length() + 1
    assert all(low <= number < low + size for number in looked)


def test_a_queue_of_which_nothing_is_expired_costs_one_look():
    assert first_unexpired(3, 1 << 40, [3].index) == 3


class AQueueWithALimitOfBytes(RuleBasedStateMachine):
    """Messages come, the log takes some from the front, the window is asked, and the queue is cut as it says."""

    @initialize(limit=st.integers(1, 60), before=st.lists(st.integers(1, 20), max_size=40))
    def begin(self, limit, before):
        self.sizes = before
        self.low = 0
        self.window = SizeWindow(limit, PER_FILE)
        self.kept = None
        self.reads = 0

    def read(self, first, count):
        assert first // PER_FILE == (first + count - 1) // PER_FILE, "entries of one file"
        assert self.low <= first, "what the log has taken may be gone"
        assert 0 < count <= retention.STEP_ENTRIES
        self.reads += count
        return np.array(self.sizes[first : first + count], dtype=np.int64)

    @rule(sizes=st.lists(st.integers(1, 20), max_size=20))
    def put(self, sizes):
        self.sizes += sizes
        self.kept = None

    @precondition(lambda self: self.low < len(self.sizes))
    @rule(share=st.floats(0, 1))
    def the_log_takes_some(self, share):
        self.low += int(share * (len(self.sizes) - self.low))
        self.kept = None

    @rule(steps=st.integers(1, 40))
    def look(self, steps):
        for _ in range(steps):
            self.kept = self.window.advance(self.low, len(self.sizes), self.read)
            if self.kept is not None:
                self.low = max(self.low, self.kept)
                return

    @rule()
    def look_again_at_once(self):
        if self.kept is not None:
            before = self.reads
            assert self.window.advance(self.low, len(self.sizes), self.read) == self.kept
            assert self.reads == before

    @invariant()
    def the_answer_is_that_of_who_looks_at_all(self):
        if getattr(self, "kept", None) is None:
            return
        first = len(self.sizes)
        while first > self.low and (sum(self.sizes[first - 1 :]) <= self.window.limit or first == len(self.sizes)):
            first -= 1
        assert self.kept == first


TestAQueueWithALimitOfBytes = AQueueWithALimitOfBytes.TestCase
TestAQueueWithALimitOfBytes.settings = settings(max_examples=200, stateful_step_count=30, deadline=None)


def test_the_newest_message_stays_though_it_alone_is_too_much():
    window = SizeWindow(10, PER_FILE)
    kept = None
    while kept is None:
        kept = window.advance(0, 3, lambda first, count: np.full(count, 50, dtype=np.int64))
    assert kept == 2


@pytest.mark.parametrize("limit", [1_000, 10_000])
def test_what_was_read_is_not_read_again_when_more_comes(limit):
    """A queue of 1,000 messages of 10 bytes, of which one comes at a time: all reads together are few."""
    window, low, reads = SizeWindow(limit, 1 << 20), 0, 0

    def read(_, count):
        nonlocal reads
        reads += count
        return np.full(count, 10, dtype=np.int64)

    for high in range(1000, 1500):
        while (kept := window.advance(low, high, read)) is None:
            pass
        low = max(low, kept)
        assert high - low == limit // 10
    assert reads <= 1000 + 500 * (1 + retention.DROP_ENTRIES + 2)
