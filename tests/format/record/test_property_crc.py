"""The property CRC as bytes: a golden record, its form, its digits (spec 2.7, golden value G5)."""

import zlib
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from towline.errors import MalformedRecord
from towline.format.record import property_crc
from towline.format.record.properties import decode as decode_properties
from towline.format.record.record import Host, MessageEncoder, Record, decode, encode
from towline.limits import PROPERTIES_SIZE_MAX

RECORD = Record(
    topic=b"TopicA",
    body=b"hello",
    properties=b"TAGS\x01TagA\x02",
    flag=7,
    queue_offset=5,
    physical_offset=4260,
    born_timestamp=1_700_000_000_000,
    born_host=Host(bytes([127, 0, 0, 1]), 12345),
    store_timestamp=1_700_000_000_123,
    store_host=Host(bytes([10, 0, 0, 1]), 10911),
    reconsume_times=3,
)
GOLDEN = bytes.fromhex(
    "00000084daa320a73610a6860000000000000007000000000000000500000000000010a4000000000000018bcfe568007f00000100003039"
    "0000018bcfe5687b0a00000100002a9f0000000300000000000000000000000568656c6c6f06546f70696341001e5441475301546167410"
    "25f5f435243333223013435373837333632313102"
)


def sealed(record: Record) -> bytes:
    """As a store writes it that appends property CRCs."""
    return property_crc.filled(encode(replace(record, properties=property_crc.appended(record.properties))))


def test_golden_record() -> None:
    assert sealed(RECORD) == GOLDEN
    assert GOLDEN.endswith(property_crc.encode(1_126_378_754))
    assert property_crc.encode(1_126_378_754)[9:19] == b"4578736211"
    found = decode(GOLDEN)
    assert decode_properties(found.properties) == {"TAGS": "TagA", "__CRC32#": "4578736211"}


@given(st.integers(0, 2**31 - 1))
def test_ten_digits_from_the_least_significant_on(crc: int) -> None:
    encoded = property_crc.encode(crc)
    assert len(encoded) == 20
    assert sum(int(chr(digit)) * 10**place for place, digit in enumerate(encoded[9:19])) == crc


@pytest.mark.parametrize(
    ("properties", "wanted"),
    [
        (b"", b""),
        (b"A\x01b\x02", b"A\x01b\x02"),
        (b"A\x01b", b"A\x01b\x02"),
    ],
)
def test_a_placeholder_begins_behind_a_separator(properties: bytes, wanted: bytes) -> None:
    assert property_crc.appended(properties) == wanted + b"__CRC32#\x010000000000\x02"


@pytest.mark.parametrize(
    ("properties", "is_one"),
    [
        (b"__CRC32#\x011234567890\x02", True),
        (b"A\x01b\x02__CRC32#\x011234567890\x02", True),
        (b"A\x01b__CRC32#\x011234567890\x02", False),
        (b"__CRC32#\x011234567890", False),
        (b"__CRC32#\x01123456789\x02", False),
        (b"__CRC32#\x0112345678901\x02", False),
        (b"__CRC32#\x011234567890\x02A\x01b\x02", False),
        (b"__CRC33#\x011234567890\x02", False),
        (b"", False),
    ],
)
def test_the_form(properties: bytes, is_one: bool) -> None:
    assert property_crc.ends_with(properties) is is_one


@given(st.binary(max_size=60), st.binary(max_size=40).map(bytes.hex), st.data())
def test_decode_that_insists_finds_any_flipped_bit(body: bytes, value: str, data: st.DataObject) -> None:
    properties = f"A\x01{value}\x02".encode() if value else b""
    damaged = bytearray(sealed(replace(RECORD, body=body, properties=properties)))
    assert decode(damaged, force_property_crc=True).body == body
    at = data.draw(st.integers(0, len(damaged) - 1))
    damaged[at] ^= 1 << data.draw(st.integers(0, 7))
    with pytest.raises(MalformedRecord):
        decode(damaged, force_property_crc=True)


def test_decode_takes_one_of_another_record_unless_it_insists() -> None:
    copied = encode(replace(RECORD, properties=GOLDEN[-property_crc.SIZE :]))
    assert decode(copied).properties == GOLDEN[-property_crc.SIZE :]
    with pytest.raises(MalformedRecord, match="PROPERTY_CRC at"):
        decode(copied, force_property_crc=True)
    with pytest.raises(MalformedRecord, match="PROPERTY_CRC_MISSING"):
        decode(encode(RECORD), force_property_crc=True)


class TestTheEncoder:
    def test_it_leaves_room_that_is_counted(self) -> None:
        plain = MessageEncoder(b"TopicA").encode(0, b"hello", b"TAGS\x01TagA\x02")
        roomy = MessageEncoder(b"TopicA", append_property_crc=True).encode(0, b"hello", b"TAGS\x01TagA\x02")
        assert len(roomy) == len(plain) + 20 == int.from_bytes(roomy[:4], "big")
        assert decode(property_crc.filled(roomy)).properties.startswith(b"TAGS\x01TagA\x02__CRC32#\x01")

    def test_the_limit_counts_it(self) -> None:
        encoder = MessageEncoder(b"TopicA", append_property_crc=True)
        longest = b"A\x01" + b"x" * (PROPERTIES_SIZE_MAX - 20 - 3) + b"\x02"
        assert len(encoder.encode(0, b"", longest)) == 88 + 1 + 6 + 2 + PROPERTIES_SIZE_MAX
        with pytest.raises(MalformedRecord, match="PROPERTIES_TOO_LARGE"):
            encoder.encode(0, b"", b"B" + longest)


def test_the_crc_is_of_everything_before_it() -> None:
    record = sealed(RECORD)
    digits = record[-11:-1][::-1]
    assert int(digits) == zlib.crc32(record[:-20]) & 0x7FFF_FFFF
