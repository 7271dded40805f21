"""The place of an idempotent producer's record: its bytes, one by one and by columns."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from towline.format.record import property_crc, sequence
from towline.format.record.properties import OF_THE_STORE, decode
from towline.format.record.record import MessageEncoder
from towline.format.record.sequence import Place
from towline.format.record.sequence_columns import find, numbered

PLACES = st.builds(
    Place,
    st.integers(0, sequence.PRODUCER_MAX),
    st.integers(0, sequence.EPOCH_MAX),
    st.integers(0, sequence.NUMBER_MAX - 100),
)
GOLDEN = b"__PSEQ__\x0100000000000000004711-1782579200000004103-000000000000042\x02"


def records_of(sizes: list[int], *, crc: bool = False) -> tuple[bytes, np.ndarray]:
    """Encoded records with room for a place, and where the properties that hold it end."""
    encoder = MessageEncoder(b"orders", append_property_crc=crc, sequenced=True)
    records = [encoder.encode(3, b"x" * size, b"KEYS\x01k") for size in sizes]
    return b"".join(records), np.cumsum([len(record) for record in records]) - (property_crc.SIZE if crc else 0)


def test_a_place_is_66_bytes_which_stay_as_they_are():
    assert sequence.encode(Place(4711, 1_700_000_000_000 * 2**20 + 1 * 2**12 + 7, 42)) == GOLDEN
    assert len(GOLDEN) == sequence.SIZE == 66
    assert decode(GOLDEN) == {"__PSEQ__": "00000000000000004711-1782579200000004103-000000000000042"}


@given(PLACES)
def test_a_place_is_read_as_it_was_written(place):
    assert sequence.decode(sequence.encode(place)) == place


@pytest.mark.parametrize(
    "damage",
    [
        lambda data: data[1:],
        lambda data: data + b"\x02",
        lambda data: b"__PSEX__" + data[8:],
        lambda data: data[:-1] + b"\x01",
        lambda data: data[:20] + b"-" + data[21:],
        lambda data: data[:20] + b"x" + data[21:],
        lambda data: data[:9] + b"9" * 20 + data[29:],
    ],
    ids=["too short", "too long", "another name", "no end", "a dash too many", "no digit", "a producer too large"],
)
def test_other_bytes_are_no_place(damage):
    assert sequence.decode(damage(GOLDEN)) is None


@given(PLACES, st.lists(st.integers(0, 200), min_size=1, max_size=90), st.booleans())
def test_the_records_of_a_batch_get_places_in_a_row_and_nothing_else_changes(first, sizes, crc):
    records, ends = records_of(sizes, crc=crc)
    found = numbered(records, ends, first)
    places = [sequence.decode(found[end - sequence.SIZE : end]) for end in ends.tolist()]
    assert places == [first._replace(number=first.number + row) for row in range(len(sizes))]
    blank = bytearray(found)
    for end in ends.tolist():
        blank[end - sequence.SIZE : end] = sequence.ROOM
    assert bytes(blank) == records


@given(PLACES, st.lists(st.integers(0, 200), min_size=1, max_size=9), st.booleans())
def test_columns_of_places_are_those_that_are_read_one_by_one(first, sizes, crc):
    records, ends = records_of(sizes, crc=crc)
    found = find(np.frombuffer(numbered(records, ends, first), np.uint8), ends)
    assert found.rows.tolist() == list(range(len(sizes)))
    rows = zip(found.producers.tolist(), found.epochs.tolist(), found.numbers.tolist(), strict=True)
    assert [Place(*row) for row in rows] == [first._replace(number=first.number + row) for row in range(len(sizes))]


def test_records_of_other_producers_have_no_place():
    encoder = MessageEncoder(b"orders")
    plain = [encoder.encode(0, body, b"A\x01b\x02") for body in (b"", b"x" * 300, GOLDEN)]
    data, ends = b"".join(plain), np.cumsum([len(record) for record in plain])
    assert not len(find(np.frombuffer(data, np.uint8), ends).rows)


@pytest.mark.parametrize("crc", [False, True], ids=["without property CRCs", "with property CRCs"])
@pytest.mark.parametrize(
    ("before", "is_place"), [(b"", True), (b"A\x01b\x02", True), (b"a", False), (b"A\x01b\x02a", False)]
)
def test_a_column_has_the_places_whose_name_is_a_propertys_whole_name(before, is_place, crc):
    properties = before + GOLDEN + (b"__CRC32#\x010123456789\x02" if crc else b"")
    data = bytes(90) + len(properties).to_bytes(2) + properties
    behind = property_crc.SIZE if crc else 0
    found = find(np.frombuffer(data, np.uint8), np.array([len(data) - behind]), behind)
    assert found.rows.tolist() == [0] * is_place


@pytest.mark.parametrize("digits", [(9, 29), (30, 49)], ids=["producer", "epoch"])
def test_a_column_has_no_place_whose_numbers_are_too_large(digits):
    first, end = digits
    data = bytes(90) + b"\x00\x42" + GOLDEN[:first] + b"9" * (end - first) + GOLDEN[end:]
    assert not len(find(np.frombuffer(data, np.uint8), np.array([len(data)])).rows)


def test_readers_of_messages_do_not_see_it():
    assert OF_THE_STORE == ("__CRC32#", "__PSEQ__")
