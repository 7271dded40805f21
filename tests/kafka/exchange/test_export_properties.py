"""Properties of a message as key and headers of a record of Kafka."""

import base64

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from towline.format.record.properties import decode, encode
from towline.kafka.exchange import names
from towline.kafka.exchange.export_properties import LEFT_OUT, MEANINGS, Parts, PropertyReader
from towline.kafka.format.records import Header, decode_headers, encode_headers
from towline.kernels.kafka.exports import Meaning

_TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x00\x01\x02"), min_size=1, max_size=20)
_NAMES = _TEXT | st.sampled_from([name for name in MEANINGS if not name.startswith(names.PREFIX)])
_PAIRS = st.lists(st.tuples(_NAMES, _TEXT), max_size=8)


def read(*encoded: bytes, body_sizes: int = 0) -> tuple[Parts, dict[str, int]]:
    log = np.frombuffer(b"".join(encoded), np.uint8)
    ends = np.cumsum([len(each) for each in encoded], dtype=np.int64)
    reader = PropertyReader()
    parts = reader.read(log, ends - [len(each) for each in encoded], ends, np.full(len(encoded), body_sizes))
    return parts, reader.left_out


def headers_of(parts: Parts) -> list[list[Header]]:
    return [decode_headers(blob) for blob in parts.headers.to_list()]


def base64_of(data: bytes) -> str:
    return base64.b64encode(data).decode()


@given(st.lists(_PAIRS, min_size=1, max_size=5))
def test_keys_are_the_key_and_other_properties_headers_in_order(rows):
    parts, left_out = read(*map(encode, rows))
    known = [decode(encode(pairs)) for pairs in rows]
    assert parts.key.to_list() == [row["KEYS"].encode() if "KEYS" in row else None for row in known]
    for pairs, row, headers in zip(rows, known, headers_of(parts), strict=True):
        last = {name: place for place, (name, _) in enumerate(pairs)}
        order = [name for name in sorted(row, key=last.__getitem__) if name not in MEANINGS]
        assert headers == [(name, row[name].encode()) for name in order]
    assert left_out == {name: count for name in LEFT_OUT if (count := sum(name in row for row in known))}


def test_of_equal_names_the_last_counts_and_what_is_no_pair_is_skipped():
    odd = b"a\x011\x02b\x012\x02a\x013\x02x\x02y\x01\x02\x01q\x02last\x01one"
    parts, _ = read(odd, b"\x02\x02a\x01b\x01c\x02", b"")
    assert headers_of(parts) == [[("b", b"2"), ("a", b"3"), ("last", b"one")], [("a", b"b\x01c")], []]


def test_what_an_import_made_of_a_record_becomes_again_what_it_was():
    block = encode_headers([("a", None), ("a", b"x\x01\x02"), ("", b"")])
    parts, left_out = read(
        encode([(names.KEY, base64_of(b"\x00\x01 key")), (names.HEADERS, base64_of(block))]),
        encode([(names.KEY, names.EMPTY_KEY), (names.TOMBSTONE, names.TRUE)]),
        encode([(names.TIMESTAMP, "-1"), (names.TIMESTAMP_TYPE, names.LOG_APPEND_TIME), ("plain", "header")]),
        encode([(names.PRODUCER, "1:2:3"), (names.TRANSACTIONAL, names.TRUE)]),
    )
    assert parts.key.to_list() == [b"\x00\x01 key", b"", None, None]
    assert parts.headers.to_list() == [block, encode_headers([]), encode_headers([("plain", b"header")]), b"\x00"]
    assert parts.tombstone.tolist() == [0, 1, 0, 0]
    assert (parts.has_timestamp * parts.timestamp).tolist() == [0, 0, -1, 0]
    assert parts.append_time.tolist() == [0, 0, 1, 0]
    assert left_out == {names.PRODUCER: 1, names.TRANSACTIONAL: 1}


@pytest.mark.parametrize(
    "pair",
    [
        (names.KEY, "no base64!"),
        (names.KEY, "QUJD="),
        (names.HEADERS, base64_of(b"\x08")),
        (names.TOMBSTONE, "perhaps"),
        (names.TIMESTAMP, "noon"),
        (names.TIMESTAMP_TYPE, "CreateTime"),
    ],
)
def test_a_value_that_no_import_writes_is_a_header_like_any(pair):
    parts, _ = read(encode([pair, ("more", "there")]))
    assert headers_of(parts) == [[(pair[0], pair[1].encode()), ("more", b"there")]]
    assert (parts.tombstone + parts.has_timestamp + parts.append_time).tolist() == [0]
    assert parts.key.to_list() == [None]


def test_a_tombstone_has_no_body():
    parts, _ = read(encode([(names.TOMBSTONE, names.TRUE)]), body_sizes=4)
    assert parts.tombstone.tolist() == [0]
    assert headers_of(parts) == [[(names.TOMBSTONE, b"true")]]


def test_headers_of_an_import_come_before_what_was_added_since():
    block = encode_headers([("a", None)] * 70)
    (found,) = headers_of(read(encode([("TAGS", "red"), (names.HEADERS, base64_of(block))]))[0])
    assert found == [("a", None)] * 70 + [("TAGS", b"red")]


def test_no_header_of_an_import_is_left_out():
    """An import keeps headers of these names in the block of all headers, or an export would lose them."""
    meant = {name for name, meaning in MEANINGS.items() if meaning is not Meaning.HEADER}
    prefixes = (names.PREFIX, names.SYSTEM_PREFIX)
    assert {name for name in meant if not name.startswith(prefixes)} <= names.RESERVED
