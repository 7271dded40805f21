"""The Java string hash against its definition and values computed by Java."""

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from towline.format.java_hash import index_hash, index_hashes, signed_32, string_hash, unsigned_hash

GOLDEN = [
    ("", 0, 0),
    ("*", 42, 42),
    ("TagA", 2598919, 2598919),
    ("hello", 99162322, 4162322),
    ("order-create", -843952037, 3952037),
    ("中文", 646394, 646394),
    ("😀", 1772899, 1772899),
    ("😀tag", 1276941143, 1941143),
    ("TopicTest#KEY-1", 173552481, 3552481),
    ("polygenelubricants", -2147483648, 0),
]


def naive_hash(text: str) -> int:
    """The sum of unit * 31 ** (what follows), as the Java documentation writes it."""
    units = [unit for (unit,) in struct.iter_unpack(">H", text.encode("utf-16-be", "surrogatepass"))]
    total = sum(unit * 31 ** (len(units) - 1 - at) for at, unit in enumerate(units)) % 2**32
    return total - 2**32 if total >= 2**31 else total


@pytest.mark.parametrize(("text", "hashed", "slot"), GOLDEN, ids=[text or "(empty)" for text, _, _ in GOLDEN])
def test_golden_hashes_are_those_of_java(text, hashed, slot):
    assert string_hash(text) == hashed
    assert index_hash(text) % 5_000_000 == slot


def test_the_index_hash_is_absolute_and_of_the_smallest_int_it_is_zero():
    assert index_hash("order-create") == 843952037
    assert index_hash("polygenelubricants") == 0


@given(st.text(st.characters(codec=None)))
def test_every_text_hashes_as_the_definition_says(text):
    assert string_hash(text) == naive_hash(text)
    assert unsigned_hash(text) == naive_hash(text) % 2**32


@given(st.text())
def test_an_index_hash_is_never_negative(text):
    assert 0 <= index_hash(text) < 2**31


@given(st.integers(-(2**63), 2**63))
def test_reading_a_word_as_signed_keeps_its_32_bits(word):
    assert -(2**31) <= signed_32(word) < 2**31
    assert (signed_32(word) - word) % 2**32 == 0


@given(st.lists(st.text(st.characters(codec=None), max_size=12), max_size=30))
def test_many_keys_at_once_have_the_same_hashes_as_each_alone(keys):
    keys += [text for text, _, _ in GOLDEN]
    assert index_hashes(keys).tolist() == [index_hash(key) for key in keys]
    assert index_hashes([]).tolist() == []
