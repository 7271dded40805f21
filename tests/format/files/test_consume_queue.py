"""Entries of a ConsumeQueue."""

import struct

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from towline.format.files import consume_queue
from towline.format.files.consume_queue import Entry, decode, encode, tags_code

INT64 = st.integers(-(2**63), 2**63 - 1)
INT32 = st.integers(-(2**31), 2**31 - 1)


@pytest.mark.parametrize(
    ("tag", "code"),
    [
        (None, "0000000000000000"),
        ("", "0000000000000000"),
        ("*", "000000000000002a"),
        ("TagA", "000000000027a807"),
        ("hello", "0000000005e918d2"),
        ("order-create", "ffffffffcdb2505b"),
        ("中文", "000000000009dcfa"),
        ("😀", "00000000001b0d63"),
        ("😀tag", "000000004c1c9357"),
        ("polygenelubricants", "ffffffff80000000"),
    ],
)
def test_the_tags_code_is_the_java_hash_with_its_sign_extended(tag, code):
    assert tags_code(tag).to_bytes(8, "big", signed=True).hex() == code


@pytest.mark.parametrize(
    ("entry", "golden"),
    [
        ((4260, 165, tags_code("TagA")), "00000000000010a4 000000a5 000000000027a807"),
        ((4260, 165, tags_code("order-create")), "00000000000010a4 000000a5 ffffffffcdb2505b"),
        ((4260, 165, tags_code("😀tag")), "00000000000010a4 000000a5 000000004c1c9357"),
        ((388, 161, 1700000000123 + 10_000), "0000000000000184 000000a1 0000018bcfe58f8b"),
    ],
    ids=["TagA", "negative hash", "beyond the BMP", "delivery time of delay level 3"],
)
def test_golden_entries(entry, golden):
    assert encode(*entry) == bytes.fromhex(golden)


def test_the_filler_is_an_entry_of_the_greatest_size_at_the_beginning_of_the_log():
    assert bytes.fromhex("0000000000000000 7fffffff 0000000000000000") == consume_queue.FILLER
    assert decode(consume_queue.FILLER) == Entry(0, consume_queue.FILLER_RECORD_SIZE, 0)


@given(INT64, INT32, INT64)
def test_an_entry_reads_back_as_it_was_written(physical_offset, record_size, code):
    encoded = b"before" + encode(physical_offset, record_size, code)
    assert decode(encoded, 6) == Entry(physical_offset, record_size, code)


@given(st.lists(st.tuples(INT64, INT32, INT64), max_size=20))
def test_the_numpy_columns_read_what_the_encoder_wrote(entries):
    columns = np.frombuffer(b"".join(encode(*entry) for entry in entries), consume_queue.ENTRY)
    assert [tuple(row.tolist()) for row in columns] == entries


def test_fewer_than_20_bytes_are_not_an_entry():
    with pytest.raises(struct.error):
        decode(bytes(19))
