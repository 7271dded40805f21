"""Entries of the indexes, and the snapshot of producers."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.kafka.golden import OFFSET_INDEX, SNAPSHOT, TIME_INDEX, TRANSACTION_INDEX
from towline.kafka.errors import MalformedBytes, Rule
from towline.kafka.format import offset_index, producer_snapshot, time_index, transaction_index
from towline.kafka.format.producer_snapshot import Producer
from towline.kafka.format.transaction_index import Aborted

INT32 = st.integers(0, 2**31 - 1)
ABORTED = Aborted(0, 3, 5, 6)
PRODUCER = Producer(0, 0, 5, 7, 1, 0x1A21FC6D329, 0, -1)


def rising(values: list[int]) -> np.ndarray:
    return np.unique(np.array(values, np.int64))


def test_an_offset_index_of_a_broker():
    offsets, positions = offset_index.decode(bytes.fromhex(OFFSET_INDEX), 1000)
    assert offsets.tolist() == [1039, 1059, 1079, 1099]
    assert positions.tolist() == [0x60E, 0x775, 0x92D, 0xB0B]
    assert offset_index.encode(1000, offsets, positions).hex() == OFFSET_INDEX


def test_a_time_index_of_a_broker():
    times, offsets = time_index.decode(bytes.fromhex(TIME_INDEX), 0)
    assert (times.tolist(), offsets.tolist()) == ([0x1A21FC6D329], [8])
    assert time_index.encode(0, times, offsets).hex() == TIME_INDEX


@given(st.lists(INT32, min_size=1, max_size=20), st.integers(0, 2**40), st.integers(0, 50))
def test_entries_read_back_and_zeros_behind_them_are_none(values, base, zeros):
    column = rising(values)
    offsets = column + base
    data = offset_index.encode(base, offsets, column) + bytes(zeros)
    found = offset_index.decode(data, base)
    if column[-1]:
        assert [each.tolist() for each in found] == [offsets.tolist(), column.tolist()]
    data = time_index.encode(base, column, offsets) + bytes(zeros)
    found = time_index.decode(data, base)
    if column[-1]:
        assert [each.tolist() for each in found] == [column.tolist(), offsets.tolist()]


def test_the_first_entry_may_be_of_the_first_offset():
    offsets, positions = offset_index.decode(bytes(8) + b"\0\0\0\1\0\0\0\7", 5)
    assert (offsets.tolist(), positions.tolist()) == ([5, 6], [0, 7])


class TestTransactionIndex:
    def test_of_a_broker(self):
        assert transaction_index.decode(bytes.fromhex(TRANSACTION_INDEX)) == [ABORTED]
        assert transaction_index.encode([ABORTED]).hex() == TRANSACTION_INDEX

    @pytest.mark.parametrize(
        ("data", "at", "rule"),
        [
            (bytes.fromhex(TRANSACTION_INDEX)[:-1], 0, Rule.INDEX_SIZE),
            (bytes.fromhex(TRANSACTION_INDEX) * 2, 34, Rule.INDEX_ORDER),
            (b"\0\1" + bytes.fromhex(TRANSACTION_INDEX)[2:], 0, Rule.VERSION),
            (transaction_index.encode([Aborted(1, 9, 8, 8)]), 0, Rule.TRANSACTION),
        ],
        ids=["cut", "twice", "version 1", "ends before it begins"],
    )
    def test_what_is_no_entry_is_refused(self, data, at, rule):
        with pytest.raises(MalformedBytes) as caught:
            transaction_index.decode(data)
        assert (caught.value.at, caught.value.rule) == (at, rule)


class TestSnapshot:
    def test_of_a_broker(self):
        assert producer_snapshot.decode(bytes.fromhex(SNAPSHOT)) == [PRODUCER]
        assert producer_snapshot.encode([PRODUCER]).hex() == SNAPSHOT

    def test_of_nobody(self):
        assert producer_snapshot.encode([]).hex() == "00014867 4bc7 00000000".replace(" ", "")
        assert producer_snapshot.decode(producer_snapshot.encode([])) == []

    @pytest.mark.parametrize(
        ("data", "rule"),
        [
            (b"", Rule.INDEX_SIZE),
            (bytes.fromhex(SNAPSHOT)[:-1], Rule.INDEX_SIZE),
            (b"\0\2" + bytes.fromhex(SNAPSHOT)[2:], Rule.VERSION),
            (bytes.fromhex(SNAPSHOT)[:-1] + b"\0", Rule.CRC),
        ],
        ids=["empty", "cut", "version 2", "a byte is another"],
    )
    def test_what_is_none_is_refused(self, data, rule):
        with pytest.raises(MalformedBytes) as caught:
            producer_snapshot.decode(data)
        assert caught.value.rule == rule
