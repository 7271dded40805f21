"""IndexFiles, and a plain model of how entries are put and found."""

from datetime import datetime

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from towline.format.files import index_file
from towline.format.files.index_file import Entry, Header, decode_entry, decode_header, encode_entry, encode_header
from towline.format.java_hash import index_hash

INT64 = st.integers(-(2**63), 2**63 - 1)
INT32 = st.integers(-(2**31), 2**31 - 1)
COUNT = st.integers(1, 2**31 - 1)


def time_diff(store_timestamp: int, begin_timestamp: int) -> int:
    """Seconds to store in an entry, from two times in ms; 0 while the file has no begin, or before it."""
    if begin_timestamp <= 0:
        return 0
    return min(max(store_timestamp - begin_timestamp, 0) // 1000, index_file.TIME_DIFF_MAX)


class ReferenceIndex:
    """Puts and queries as the specification words them, one entry at a time."""

    def __init__(self, slots: int, indexes: int, header: Header) -> None:
        self.slots, self.indexes, self.header = slots, indexes, header
        self.data = bytearray(index_file.file_size(slots, indexes))
        self._write(0, encode_header(header))

    def put(self, key: str, physical_offset: int, store_timestamp: int) -> bool:
        header = self.header
        number = header.index_count
        if number >= self.indexes:
            return False
        hashed = index_hash(key)
        cell_at = index_file.slot_at(index_file.slot_of(hashed, self.slots))
        previous = self._cell(cell_at)
        if not 0 < previous <= number:
            previous = 0
        seconds = time_diff(store_timestamp, header.begin_timestamp)
        self._write(
            index_file.entry_at(self.slots, number), encode_entry(Entry(hashed, physical_offset, seconds, previous))
        )
        self._write(cell_at, number.to_bytes(index_file.SLOT_SIZE, "big"))
        first = number <= 1
        self.header = Header(
            begin_timestamp=store_timestamp if first else header.begin_timestamp,
            end_timestamp=store_timestamp,
            begin_physical_offset=physical_offset if first else header.begin_physical_offset,
            end_physical_offset=physical_offset,
            hash_slot_count=header.hash_slot_count + (previous == 0),
            index_count=number + 1,
        )
        self._write(0, encode_header(self.header))
        return True

    def query(self, key: str, begin: int = 0, end: int = 2**63 - 1) -> list[int]:
        hashed = index_hash(key)
        number = self._cell(index_file.slot_at(index_file.slot_of(hashed, self.slots)))
        found = []
        while 0 < number <= self.header.index_count:
            entry = decode_entry(self.data, index_file.entry_at(self.slots, number))
            entry_time = self.header.begin_timestamp + entry.time_diff * 1000
            if entry.time_diff < 0 or entry_time < begin:
                break
            if entry.key_hash == hashed and entry_time <= end:
                found.append(entry.physical_offset)
            number = entry.previous
        return found

    def _cell(self, at: int) -> int:
        return int.from_bytes(self.data[at : at + index_file.SLOT_SIZE], "big", signed=True)

    def _write(self, at: int, content: bytes) -> None:
        self.data[at : at + len(content)] = content


@pytest.fixture
def rolled() -> ReferenceIndex:
    """A file made when the one before it ended at offset 9000, filled up."""
    index = ReferenceIndex(7, 6, Header(1700000000000, 1700000000000, 9000, 9000))
    assert index.put("TopicA#k1", 9100, 1700000005500)
    assert index.put("TopicA#k2", 9200, 1700000007999)
    assert index.put("TopicA#k1", 9300, 1700000009500)
    assert index.put("TopicA#polygenelubricants", 9400, 1700000004000)
    assert index.put("polygenelubricants", 9500, 1700000099000)
    return index


class TestRolledFile:
    def test_the_golden_188_bytes(self, rolled):
        assert rolled.data == bytes.fromhex(
            """
            0000018bcfe57d7c 0000018bcfe6eab8 000000000000238c 000000000000251c 00000003 00000006
            00000005 00000002 00000003 00000000 00000000 00000000 00000000
            00000000 0000000000000000 00000000 00000000
            717125c9 000000000000238c 00000005 00000000
            717125c8 00000000000023f0 00000002 00000000
            717125c9 0000000000002454 00000004 00000001
            6b6374ef 00000000000024b8 00000000 00000000
            00000000 000000000000251c 0000005d 00000004
            """
        )

    def test_is_full_after_one_entry_less_than_its_indexes(self, rolled):
        assert not rolled.put("TopicA#k9", 9600, 1700000100000)

    @pytest.mark.parametrize(
        ("times", "found"),
        [
            ((), [9300, 9100]),
            ((1700000008000,), [9300, 9100]),
            ((1700000009500, 1700000009500), [9300]),
        ],
        ids=["all times", "from a time on", "one moment"],
    )
    def test_golden_queries(self, rolled, times, found):
        assert rolled.query("TopicA#k1", *times) == found

    def test_the_numpy_columns_read_the_same_file(self, rolled):
        slots = np.frombuffer(rolled.data, index_file.SLOT, 7, index_file.slot_at(0))
        entries = np.frombuffer(rolled.data, index_file.ENTRY, 6, index_file.entry_at(7, 0))
        header = np.frombuffer(rolled.data, index_file.HEADER, 1)[0]
        assert slots.tolist() == [5, 2, 3, 0, 0, 0, 0]
        assert entries["physical_offset"].tolist() == [0, 9100, 9200, 9300, 9400, 9500]
        assert Header(*header.tolist()) == decode_header(rolled.data) == rolled.header


@pytest.mark.parametrize(
    ("slots", "indexes", "size"), [(5_000_000, 20_000_000, 420_000_040), (16, 12, 344), (7, 6, 188)]
)
def test_golden_file_sizes(slots, indexes, size):
    assert index_file.file_size(slots, indexes) == size


def test_the_first_entry_of_a_default_file_stands_behind_its_slots():
    assert index_file.entry_at(index_file.SLOTS_DEFAULT, 1) == 20_000_060


def test_the_hash_is_of_topic_and_key_joined():
    assert index_file.key_hash("TopicTest", "KEY-1") == 173552481
    assert index_file.slot_of(173552481, 5_000_000) == 3552481


def test_the_time_of_an_entry_is_clamped_and_zero_before_the_file_has_a_begin():
    assert time_diff(5_999, 1_000) == 4
    assert time_diff(1_000, 5_000) == 0
    assert time_diff(5_000, 0) == 0
    assert time_diff(2**62, 1) == index_file.TIME_DIFF_MAX


def test_the_file_name_is_the_local_time_of_its_making():
    assert index_file.file_name(datetime(2025, 3, 9, 7, 5, 2, 7_999)) == "20250309070502007"


@given(st.builds(Header, INT64, INT64, INT64, INT64, INT32, COUNT))
def test_a_header_reads_back_as_it_was_written(header):
    assert decode_header(encode_header(header)) == header


def test_a_count_of_zero_or_less_reads_as_one():
    assert decode_header(bytes(40)).index_count == 1
    assert decode_header(encode_header(Header(index_count=-5))).index_count == 1


@given(st.builds(Entry, INT32, INT64, INT32, INT32))
def test_an_entry_reads_back_as_it_was_written(entry):
    assert decode_entry(b"x" + encode_entry(entry), 1) == entry
