"""Heads of records, walked and read, against the plain decoder; what is not sound is not taken."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from towline.errors import MalformedRecord
from towline.format.record import blank, record
from towline.format.record.record import LAYOUT, Host, Record
from towline.kernels.scan.heads import PARTS, read_heads, walk_heads

BASE = 1 << 40
WORDS = ["queue_id", "flag", "body_crc", "sys_flag", "reconsume_times", "total_size"]
LONGS = ["queue_offset", "physical_offset", "born_timestamp", "store_timestamp", "prepared_transaction_offset"]
V4, V6 = Host(bytes([10, 0, 0, 1]), 10911), Host(bytes(range(16)), 65_535)

_i4 = st.integers(-(2**31), 2**31 - 1)
_i8 = st.integers(-(2**63), 2**63 - 1)
_records = st.builds(
    Record,
    topic=st.sampled_from([b"t", b"orders", b"%RETRY%" + b"g" * 130]),
    body=st.binary(max_size=40),
    properties=st.sampled_from([b"", b"TAGS\x01red\x02", b"a\x01b"]),
    queue_id=_i4,
    flag=_i4,
    queue_offset=_i8,
    born_timestamp=_i8,
    born_host=st.sampled_from([V4, V6]),
    store_timestamp=_i8,
    store_host=st.sampled_from([V4, V6]),
    reconsume_times=_i4,
    prepared_transaction_offset=_i8,
)


def log_of(records: list[Record]) -> bytes:
    log = bytearray()
    for one in records:
        log += record.encode(replace(one, physical_offset=BASE + len(log)))
    return bytes(log)


def walked(log: bytes, room: int = 100, start: int = 0, end: int | None = None) -> tuple[list[int], int]:
    """Positions, and where the walk ended."""
    positions = np.full(room + 1, -7, np.int64)
    count = walk_heads(np.frombuffer(log, np.uint8), BASE, start, len(log) if end is None else end, positions)
    return positions[:count].tolist(), int(positions[count])


def heads_of(log: bytes, positions: list[int], *, placed: bool = True) -> tuple[int, dict[str, list[int]]]:
    """How many are sound, and what is read of these."""
    count, stride = len(positions), len(positions) + 3
    words, longs = np.zeros(len(WORDS) * stride, np.int32), np.zeros((len(PARTS) + len(LONGS)) * stride, np.int64)
    places = (np.array([LAYOUT.offset[name] for name in names], np.int64) for names in (WORDS, LONGS))
    array = np.frombuffer(log, np.uint8)
    sound = read_heads(array, BASE, np.array(positions, np.int64), placed, *places, stride, words, longs)
    found = {name: words[row * stride :][:sound].tolist() for row, name in enumerate(WORDS)}
    found |= {name: longs[row * stride :][:sound].tolist() for row, name in enumerate((*PARTS, *LONGS)) if count}
    return sound, found


def plainly_placed(log: bytes, at: int) -> bool:
    """Whether the plain decoder takes the record, and it names its own place."""
    try:
        return record.decode(log, at, check_crc=False).physical_offset == BASE + at
    except MalformedRecord:
        return False


@given(st.lists(_records, min_size=1, max_size=6))
def test_fields_and_parts_are_those_of_the_plain_decoder(records: list[Record]) -> None:
    log = log_of(records)
    positions, end = walked(log)
    assert end == len(log)
    sound, found = heads_of(log, positions)
    assert sound == len(records) == len(positions)
    for row, at in enumerate(positions):
        one = record.decode(log, at, check_crc=False)
        for name in (*WORDS, *LONGS):
            if name not in ("body_crc", "total_size"):
                assert found[name][row] == getattr(one, name), name
        start, size = found["body_start"][row], found["body_size"][row]
        assert log[start : start + size] == one.body
        start, size = found["topic_start"][row], found["topic_size"][row]
        assert log[start : start + size] == one.topic
        end = at + found["size"][row]
        assert found["size"][row] == found["total_size"][row]
        assert log[found["properties_start"][row] : end] == one.properties


@given(st.lists(_records, min_size=1, max_size=4), st.data())
def test_whatever_one_byte_becomes_only_what_the_plain_decoder_takes_is_taken(
    records: list[Record], data: st.DataObject
) -> None:
    sound = log_of(records)
    starts = walked(sound)[0]
    at = data.draw(st.integers(0, len(sound) - 1))
    log = sound[:at] + bytes([data.draw(st.integers(0, 255))]) + sound[at + 1 :]
    positions, end = walked(log)
    for place in positions:
        assert int.from_bytes(log[place + 28 : place + 36], "big") == BASE + place
    taken, found = heads_of(log, starts)
    for row in range(taken):
        one = record.decode(log, starts[row], check_crc=False)  # raises where it is not sound
        assert found["physical_offset"][row] == one.physical_offset == BASE + starts[row]
    if taken < len(starts):
        assert plainly_placed(log, starts[taken]) is False
    assert end <= len(log)


def test_a_walk_ends_at_the_blank_at_its_end_or_where_nothing_more_fits() -> None:
    records = [Record(topic=b"t", body=b"x" * size) for size in range(5)]
    log = log_of(records)
    starts = [*walked(log)[0], len(log)]
    behind = log + blank.encode(100) + bytes(92)
    assert walked(behind) == (starts[:-1], len(log))
    assert walked(log + bytes(200)) == (starts[:-1], len(log))
    assert walked(log[:-1]) == (starts[:-2], starts[-2])
    assert walked(log, room=2) == (starts[:2], starts[2])
    assert walked(log, room=0) == ([], 0)
    assert walked(log, start=starts[1], end=starts[2] + 1) == (starts[1:3], starts[3])
    assert walked(log, start=starts[1], end=starts[1]) == ([], starts[1])
    assert walked(b"") == ([], 0)


@pytest.mark.parametrize("at", [-1, 1, 10**9, -(2**60)])
def test_a_place_without_a_record_is_not_taken(at: int) -> None:
    log = log_of([Record(topic=b"t", body=b"")])
    assert heads_of(log, [0, at])[0] == 1


def test_a_record_that_stands_elsewhere_is_taken_only_where_that_is_asked() -> None:
    log = record.encode(Record(topic=b"t", body=b"", physical_offset=5))
    assert heads_of(log, [0])[0] == 0
    assert heads_of(log, [0], placed=False)[0] == 1
    assert walked(log) == ([], 0)
