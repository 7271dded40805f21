"""Stretches end to end, and the pairs in properties, against the plain decoder."""

import numpy as np
from hypothesis import example, given
from hypothesis import strategies as st

from towline.format.record import properties
from towline.kernels.scan.pairs import SLACK, copy_stretches, find_pairs, lay_out

_texts = st.lists(
    st.sampled_from([b"\x01", b"\x02", b"\x00", b"TAGS", b"a", b"a-long-name-of-a-property", b"x" * 40, b"\xff\xfe"]),
    max_size=12,
).map(b"".join)


def end_to_end(data: bytes, bounds: list[tuple[int, int]]) -> tuple[bytes, list[int]]:
    starts, ends = (np.array([bound[side] for bound in bounds], np.int64) for side in (0, 1))
    places = np.full(len(bounds) + 1, -7, np.int32)
    total = lay_out(starts, ends, places)
    out = np.full(total + SLACK, 0xEE, np.uint8)
    copy_stretches(np.frombuffer(data, np.uint8), starts, places, out)
    return out[:total].tobytes(), places.tolist()


def pairs_of(several: list[bytes], room: int | None = None) -> list[list[tuple[bytes, bytes]]] | None:
    """Of each of the properties; None where there was no room."""
    data = b"".join(several) + bytes(SLACK)
    beginnings = np.cumsum([0, *map(len, several)])
    first = np.full(len(several) + 1, -7, np.int64)
    arrays = [np.full(len(data) if room is None else room, -7, np.int64) for _ in range(4)]
    count = find_pairs(np.frombuffer(data, np.uint8), beginnings, first, *arrays)
    if count < 0:
        return None
    row, start, middle, end = (values[:count].tolist() for values in arrays)
    assert first.tolist() == np.searchsorted(row, range(len(several) + 1)).tolist()
    found = [[] for _ in several]
    for pair in range(count):
        found[row[pair]].append((data[start[pair] : middle[pair]], data[middle[pair] + 1 : end[pair]]))
    return found


@given(st.binary(max_size=300), st.lists(st.tuples(st.integers(0, 300), st.integers(0, 100)), max_size=20))
def test_any_stretches_in_any_order(data, places):
    bounds = [(min(start, len(data)), min(start + size, len(data))) for start, size in places]
    copied, begins = end_to_end(data, bounds)
    assert copied == b"".join(data[start:end] for start, end in bounds)
    assert begins == np.cumsum([0, *(end - start for start, end in bounds)]).tolist()


def test_more_than_32_bits_reach_is_counted_and_not_laid_out():
    ends = np.full(3, 2**31 - 1, np.int64)
    places = np.zeros(4, np.int32)
    assert lay_out(np.zeros(3, np.int64), ends, places) == 3 * (2**31 - 1)
    assert places.min() == 0


@given(st.lists(_texts, max_size=6))
@example([b"TAGS\x01red\x02KEYS\x01a b\x02", b"", b"TAGS\x01", b"\x01red\x02", b"a\x01b\x01c\x02d", b"\x02\x02"])
def test_any_properties_are_read_as_the_plain_decoder_reads_them(several):
    found = pairs_of(several)
    assert found is not None
    for encoded, pairs in zip(several, found, strict=True):
        read = {name.decode("utf-8", "replace"): value.decode("utf-8", "replace") for name, value in pairs}
        assert read == properties.decode(encoded)


def test_no_room_is_said():
    several = [b"a\x01b\x02c\x01d", b"e\x01f\x02"]
    assert pairs_of(several, room=3) == [[(b"a", b"b"), (b"c", b"d")], [(b"e", b"f")]]
    assert pairs_of(several, room=2) is None
    assert pairs_of([b"a\x01b"], room=0) is None
