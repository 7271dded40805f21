"""Messages of magic 0 and 1, as the classes of Kafka's client make them."""

import zlib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.kafka.golden import APPENDED, APPENDED_AT, BATCHES, KEYS, MESSAGES, OFFSETS, TIMES, VALUES
from tests.kafka.samples import rows_of
from towline.kafka.errors import MalformedBytes, Rule
from towline.kafka.format import message_set
from towline.kafka.format.batch import Compression
from towline.kafka.format.compression import compress
from towline.kafka.log.reading import decode
from towline.kafka.log.scan import scan


def held(text: str) -> np.ndarray:
    return np.frombuffer(bytes.fromhex(text), np.uint8)


def sealed(data: np.ndarray) -> np.ndarray:
    """The first message with the CRC that it should have."""
    size = int.from_bytes(data[8:12].tobytes(), "big") + 12
    crc = zlib.crc32(data[16:size].tobytes())
    return np.concatenate([data[:12], np.frombuffer(crc.to_bytes(4, "big"), np.uint8), data[16:]])


@pytest.mark.parametrize(("magic", "kind"), MESSAGES, ids=lambda each: getattr(each, "name", each))
def test_what_kafka_made_is_read(magic, kind):
    data = held(MESSAGES[magic, kind])
    found = scan(data, check_crcs=True)
    assert (found.fault, found.end) == (None, len(data))
    columns = decode(data, found.batches)
    times = TIMES if magic else [-1] * 3
    assert rows_of(columns.records) == list(zip(OFFSETS, times, KEYS, VALUES, [[]] * 3, strict=True))
    assert columns.of_batch("magic").tolist() == [magic] * 3
    assert columns.sequences().tolist() == [-1] * 3
    assert found.batches["last_offset"].tolist() == (OFFSETS[-1:] if kind else OFFSETS)


def test_the_time_of_the_append_is_that_of_every_message_inside():
    data = held(APPENDED)
    columns = decode(data, scan(data, check_crcs=True).batches)
    assert columns.records.offset.tolist() == OFFSETS
    assert columns.records.timestamp.tolist() == [APPENDED_AT] * 3


def test_a_log_may_begin_with_messages_and_go_on_with_batches():
    older = held(MESSAGES[0, Compression.LZ4])
    plain = held(MESSAGES[1, Compression.NONE]).copy()
    newer = held(BATCHES[Compression.GZIP]).copy()
    for row, at in enumerate((0, 44, 87)):
        plain[at : at + 8] = np.frombuffer((50 + row).to_bytes(8, "big"), np.uint8)
    newer[:8] = np.frombuffer((60).to_bytes(8, "big"), np.uint8)
    data = np.concatenate([older, plain, newer])
    found = scan(data, check_crcs=True)
    assert found.fault is None
    columns = decode(data, found.batches)
    assert columns.records.offset.tolist() == [40, 41, 42, 50, 51, 52, 60, 61, 62]
    assert columns.records.key.to_list() == KEYS * 3
    assert columns.records.value.to_list() == VALUES * 3
    assert columns.of_batch("magic").tolist() == [0] * 3 + [1] * 3 + [2] * 3


@pytest.mark.parametrize(
    ("at", "to", "said"),
    [(18 + 3, 0x7F, "goes beyond its end"), (18 + 3, 0, "do not fill|goes beyond its end"), (18, 0x70, "goes beyond")],
)
def test_sizes_that_do_not_add_up_are_refused(at, to, said):
    data = held(MESSAGES[0, Compression.NONE]).copy()
    data[at] = to
    data = sealed(data)
    with pytest.raises(MalformedBytes, match=said) as caught:
        decode(data, scan(data, check_crcs=True).batches)
    assert (caught.value.rule, caught.value.at) == (Rule.RECORDS, 0)


def test_a_wrong_crc_is_found_at_its_message():
    data = held(MESSAGES[1, Compression.NONE]).copy()
    data[44 + 40] ^= 1
    found = scan(data, check_crcs=True)
    assert found.fault is not None
    assert (found.fault.rule, found.fault.at, len(found.batches)) == (Rule.CRC, 44, 1)


def test_what_a_compressed_message_holds_is_checked():
    data = held(MESSAGES[1, Compression.GZIP]).copy()
    data[17] = Compression.SNAPPY
    with pytest.raises(MalformedBytes, match="cannot be decompressed: no stream of snappy"):
        decode(data, scan(data).batches)


class TestOffsetsInside:
    """Of messages in a compressed one; no head says them, so they are compared with what it says."""

    def refused(self, data: np.ndarray, said: str, base: int = 0) -> None:
        found = scan(data, base=base)
        assert found.fault is None
        with pytest.raises(MalformedBytes, match=said) as caught:
            decode(data, found.batches)
        assert (caught.value.rule, caught.value.at) == (Rule.RECORDS, 0)

    def test_of_magic_0_that_go_beyond_the_outer_one(self):
        data = held(MESSAGES[0, Compression.SNAPPY]).copy()
        data[7] -= 1
        self.refused(data, "offset 42 in a compressed message that ends with 41")

    def test_that_begin_before_their_segment(self):
        self.refused(held(MESSAGES[0, Compression.GZIP]), "offset 40 in a compressed message that ends", base=41)
        self.refused(held(MESSAGES[1, Compression.GZIP]), "offset 40 in a compressed message that ends", base=41)

    def test_that_do_not_rise(self):
        plain = held(MESSAGES[1, Compression.NONE]).copy()
        plain[44 + 7] = 40
        self.refused(packed(plain, 1, 42), "offset 40 in a compressed message that ends with 42")

    def test_in_a_segment_that_begins_elsewhere(self):
        data = held(MESSAGES[0, Compression.LZ4])
        found = scan(data, base=40)
        assert found.batches["base_offset"].tolist() == [40]
        assert decode(data, found.batches).records.offset.tolist() == OFFSETS

    def test_a_size_inside_that_no_message_has(self):
        plain = held(MESSAGES[0, Compression.NONE]).copy()
        plain[36 + 8 : 36 + 12] = 0
        data = packed(plain, 0, 42)
        with pytest.raises(MalformedBytes, match="12 bytes; 26 are the least"):
            decode(data, scan(data).batches)


def packed(messages: np.ndarray, magic: int, offset: int) -> np.ndarray:
    """A message that holds these, compressed."""
    value = compress(messages.tobytes(), Compression.GZIP)
    body = bytes([magic, Compression.GZIP]) + (bytes(8) if magic else b"") + b"\xff" * 4
    body += len(value).to_bytes(4, "big") + value
    data = offset.to_bytes(8, "big") + (len(body) + 4).to_bytes(4, "big")
    return np.frombuffer(data + zlib.crc32(body).to_bytes(4, "big") + body, np.uint8)


def test_a_part_of_a_message_at_the_end_of_a_set_is_left_out():
    data = held(MESSAGES[1, Compression.NONE])
    starts, ends = message_set.split(data[:-1])
    assert (starts.tolist(), ends.tolist()) == ([0, 44], [44, 87])


@given(st.sampled_from(sorted(MESSAGES)), st.data())
def test_whatever_a_byte_becomes_is_read_or_refused(which, drawn):
    data = held(MESSAGES[which]).copy()
    at = drawn.draw(st.integers(12, len(data) - 1))
    data[at] = drawn.draw(st.integers(0, 255))
    found = scan(data)
    if found.fault is None and (found.batches["magic"] < 2).all():
        bad = None
        try:
            decode(data, found.batches)
        except MalformedBytes as error:
            bad = error
        assert bad is None or 0 <= bad.at < len(data)
