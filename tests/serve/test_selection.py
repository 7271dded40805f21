"""What a pull gets, from numbers alone."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from towline.format.files.consume_queue import ENTRY, FILLER, encode, tags_code
from towline.format.wire.status import GetStatus
from towline.node.store.pull_rules import Limits
from towline.serve.selection import adjoining, fitting, matching, may_wait, outside


class TestOutside:
    @pytest.mark.parametrize("corrects", [True, False], ids=["on a master", "on a slave"])
    @pytest.mark.parametrize(
        ("low", "high", "offset", "status", "corrected"),
        [
            pytest.param(0, 0, 0, GetStatus.NO_MESSAGE_IN_QUEUE, 0, id="empty, from the beginning"),
            pytest.param(0, 0, 9, GetStatus.NO_MESSAGE_IN_QUEUE, 0, id="empty, from elsewhere"),
            pytest.param(5, 9, 4, GetStatus.OFFSET_TOO_SMALL, 5, id="before the first"),
            pytest.param(5, 9, -1, GetStatus.OFFSET_TOO_SMALL, 5, id="negative"),
            pytest.param(5, 9, 9, GetStatus.OFFSET_OVERFLOW_ONE, 9, id="at the end"),
            pytest.param(9, 9, 9, GetStatus.OFFSET_OVERFLOW_ONE, 9, id="at the end of nothing"),
            pytest.param(5, 9, 10, GetStatus.OFFSET_OVERFLOW_BADLY, 9, id="beyond the end"),
        ],
    )
    def test_the_status_and_where_to_go_on(self, low, high, offset, status, corrected, corrects):
        following = corrected if corrects else offset
        assert outside(low, high, offset, corrects=corrects) == (status, following)

    @pytest.mark.parametrize("offset", [5, 8])
    def test_an_offset_in_the_queue_is_not(self, offset):
        assert outside(5, 9, offset, corrects=True) is None


class TestMayWait:
    def test_at_the_end_of_a_queue_and_in_an_empty_one(self):
        assert may_wait(GetStatus.OFFSET_OVERFLOW_ONE, 9, 9)
        assert may_wait(GetStatus.NO_MESSAGE_IN_QUEUE, 0, 0)

    def test_on_a_slave_that_is_behind_its_master(self):
        assert may_wait(GetStatus.OFFSET_OVERFLOW_BADLY, 10, 10)

    @pytest.mark.parametrize("status", list(GetStatus), ids=lambda status: status.name)
    def test_never_when_the_answer_moves_the_reader(self, status):
        assert not may_wait(status, 10, 9)

    @pytest.mark.parametrize(
        "status",
        [
            GetStatus.FOUND,
            GetStatus.NO_MATCHED_MESSAGE,
            GetStatus.NO_MATCHED_LOGIC_QUEUE,
            GetStatus.OFFSET_TOO_SMALL,
            GetStatus.OFFSET_FOUND_NULL,
            GetStatus.MESSAGE_WAS_REMOVING,
        ],
        ids=lambda status: status.name,
    )
    def test_never_when_waiting_would_not_help(self, status):
        assert not may_wait(status, 10, 10)


def entries(*codes: int | None) -> np.ndarray:
    """None is a filler."""
    data = b"".join(FILLER if code is None else encode(100, 200, code) for code in codes)
    return np.frombuffer(data, dtype=ENTRY)


class TestMatching:
    def test_without_codes_everything_but_fillers(self):
        assert matching(entries(None, 0, 5), ()).tolist() == [False, True, True]

    def test_the_low_32_bits_are_compared(self):
        wanted = tags_code("order-create")  # negative: sign-extended in the entry
        kept = matching(entries(wanted, wanted & 0xFFFF_FFFF, wanted + 1, 7), (wanted,))
        assert kept.tolist() == [True, True, False, False]

    def test_several_codes_and_a_filler(self):
        assert matching(entries(None, 1, 2, 3), (0, 1, 3)).tolist() == [False, True, False, True]

    def test_two_tags_of_one_hash_pass_together(self):
        assert tags_code("Aa") == tags_code("BB")
        assert matching(entries(tags_code("Aa"), tags_code("BB")), (tags_code("Aa"),)).all()


@given(
    sizes=st.lists(st.integers(100, 300), min_size=1, max_size=20),
    gaps=st.lists(st.integers(0, 50), min_size=20, max_size=20),
    border=st.integers(1, 5000),
    count=st.integers(-1, 25),
    size=st.integers(0, 4000),
)
def test_records_are_added_while_they_fit_and_the_first_always_does(sizes, gaps, border, count, size):
    physical, at = [], 0
    for number, length in enumerate(sizes):
        at += gaps[number]
        physical.append(at)
        at += length
    taken = total = 0
    for place, length in zip(physical, sizes, strict=True):
        total += length
        if taken and (place >= border or total > size or taken >= count):
            break
        taken += 1
    found = fitting(np.array(physical, np.int64), np.array(sizes, np.int64), border, Limits(count, size))
    assert found == taken


def test_records_adjoin_when_none_stands_between():
    sizes = np.array([10, 20, 30], np.int64)
    assert adjoining(np.array([5, 15, 35], np.int64), sizes)
    assert not adjoining(np.array([5, 16, 36], np.int64), sizes)
    assert adjoining(np.array([5], np.int64), sizes[:1])
