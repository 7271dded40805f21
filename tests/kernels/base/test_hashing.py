"""Java hashes from bytes, against the golden values and against the model in `towline.format.java_hash`."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.kernels.base import entries
from towline.format import java_hash as model

GOLDEN = [
    ("", 0, 0),
    ("*", 42, 42),
    ("TagA", 2598919, 2598919),
    ("hello", 99162322, 99162322),
    ("order-create", -843952037, 843952037),
    ("中文", 646394, 646394),
    ("😀", 1772899, 1772899),
    ("😀tag", 1276941143, 1276941143),
    ("TopicTest#KEY-1", 173552481, 173552481),
    ("polygenelubricants", -2147483648, 0),
]


def hash_of(encoded: bytes) -> int:
    return entries.java_hash(np.frombuffer(b"<" + encoded + b">", np.uint8), 1, len(encoded))


@pytest.mark.parametrize(("text", "hashed", "indexed"), GOLDEN)
def test_golden_values(text: str, hashed: int, indexed: int) -> None:
    encoded = text.encode()
    assert hash_of(encoded) == hashed
    assert entries.key_hash(np.frombuffer(encoded, np.uint8), 0, len(encoded)) == indexed


@given(st.text(max_size=60))
def test_any_text(text: str) -> None:
    assert hash_of(text.encode()) == model.string_hash(text)


@given(st.binary(max_size=40) | st.lists(st.sampled_from([0x7F, 0x80, 0xBF, 0xC2, 0xE0, 0xED, 0xF0, 0xF4, 0xFF])))
def test_bytes_that_are_not_utf8_count_as_replaced(encoded: bytes | list[int]) -> None:
    encoded = bytes(encoded)
    assert hash_of(encoded) == model.string_hash(encoded.decode("utf-8", "replace"))


@given(st.text(max_size=40))
def test_index_hash(text: str) -> None:
    encoded = text.encode()
    assert entries.key_hash(np.frombuffer(encoded, np.uint8), 0, len(encoded)) == model.index_hash(text)
