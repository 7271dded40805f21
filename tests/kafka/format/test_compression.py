"""What batches are compressed with: streams of Kafka's clients, and what is no stream."""

import gzip
import time
from contextlib import suppress
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from towline.kafka.errors import MalformedBytes, RecordsTooLarge
from towline.kafka.format.batch import Compression
from towline.kafka.format.compression import BLOCK, XERIAL_MAGIC, compress, decompress, lz4_mended, xxh32

PACKED = [kind for kind in Compression if kind != Compression.NONE]
of_each = pytest.mark.parametrize("kind", PACKED, ids=lambda kind: kind.name.lower())
DATA = b"a record of a batch, " * 10_000


@given(st.sampled_from(Compression), st.binary(max_size=2000))
def test_what_was_compressed_is_restored(kind, data):
    assert decompress(compress(data, kind), kind) == data


@of_each
def test_it_gets_smaller_and_is_restored_beyond_one_block(kind):
    packed = compress(DATA, kind)
    assert len(packed) < len(DATA) / 4
    assert decompress(packed, kind) == DATA


@of_each
def test_a_stream_that_is_cut_is_refused(kind):
    with pytest.raises(MalformedBytes, match=f"no stream of {kind.name.lower()}: it ends before"):
        decompress(compress(DATA, kind)[:-7], kind)


@of_each
def test_what_is_no_stream_is_refused(kind):
    with pytest.raises(MalformedBytes, match=f"no stream of {kind.name.lower()}: "):
        decompress(b"\xff\xfe these are other bytes", kind)


@of_each
def test_what_is_larger_than_the_cap_is_refused(kind):
    assert decompress(compress(DATA, kind), kind, len(DATA)) == DATA
    with pytest.raises(RecordsTooLarge):
        decompress(compress(DATA, kind), kind, len(DATA) - 1)


def test_an_unknown_kind_is_refused():
    with pytest.raises(MalformedBytes, match="there is no compression 7"):
        decompress(b"", 7)


def test_members_of_gzip_and_frames_of_zstd_may_follow_each_other():
    assert decompress(gzip.compress(b"one ") + gzip.compress(b"two"), Compression.GZIP) == b"one two"
    frames = compress(b"one ", Compression.ZSTD) + compress(b"two", Compression.ZSTD)
    assert decompress(frames, Compression.ZSTD) == b"one two"


GZIP: Final = gzip.compress(b"a record " * 100, mtime=0)


def changed(at: int) -> bytes:
    return GZIP[:at] + bytes([GZIP[at] ^ 1]) + GZIP[at + 1 :] if at >= 0 else changed(len(GZIP) + at)


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"", "it ends before"),
        (GZIP[:9], "it ends before"),
        (GZIP[:-1], "it ends before"),
        (GZIP[:-8], "it ends before"),
        (changed(-8), "checksum"),
        (changed(-1), "checksum"),
        (changed(2), "unsupported compress method"),
        (GZIP + b"xyz", "it ends before"),
        (GZIP + b"these are no member of gzip", "Invalid gzip/zlib wrapper"),
        (GZIP + GZIP[:-3], "it ends before"),
        (GZIP + changed(-8), "checksum"),
    ],
    ids=[
        "nothing",
        "a part of its head",
        "cut in its size",
        "cut before its CRC",
        "another CRC",
        "another size",
        "another method",
        "three bytes behind it",
        "other bytes behind it",
        "a second member that is cut",
        "a second member with another CRC",
    ],
)
def test_what_is_not_whole_members_of_gzip_is_refused(data, said):
    with pytest.raises(MalformedBytes, match=rf"byte 0: what a batch holds cannot .* no stream of gzip: .*{said}"):
        decompress(data, Compression.GZIP)


@given(st.binary(max_size=3_000), st.integers(0, 9))
def test_gzip_of_any_other_library_is_restored(data, level):
    assert decompress(gzip.compress(data, level), Compression.GZIP) == data
    assert gzip.decompress(compress(data, Compression.GZIP)) == data


@given(st.integers(0, len(GZIP) - 1), st.integers(0, 255), st.integers(0, len(GZIP)))
def test_a_changed_stream_of_gzip_is_refused_or_says_the_same(at, to, end):
    with suppress(MalformedBytes):
        assert decompress((GZIP[:at] + bytes([to]) + GZIP[at + 1 :])[:end], Compression.GZIP) == gzip.decompress(GZIP)


def test_very_many_members_end_to_end_take_no_longer_than_their_bytes():
    """Where each copied what stands behind it, this would take minutes of CPU."""
    data = compress(b"", Compression.GZIP) * 200_000 + compress(b"the last", Compression.GZIP)
    started = time.process_time()
    assert decompress(data, Compression.GZIP) == b"the last"
    assert time.process_time() - started < 30


def test_a_head_of_snappy_that_is_cut_is_refused():
    with pytest.raises(MalformedBytes, match="it ends before its head does"):
        decompress(compress(DATA, Compression.SNAPPY)[:12], Compression.SNAPPY)


def test_the_cap_that_an_error_names_is_the_one_that_was_given():
    with pytest.raises(RecordsTooLarge, match=f"more than {BLOCK + 1} bytes"):
        decompress(compress(DATA, Compression.SNAPPY), Compression.SNAPPY, BLOCK + 1)


def test_snappy_has_the_framing_of_java_and_is_read_without_it():
    framed = compress(DATA, Compression.SNAPPY)
    assert framed.startswith(XERIAL_MAGIC + bytes.fromhex("00000001 00000001"))
    size = int.from_bytes(framed[16:20], "big")
    assert decompress(framed[20 : 20 + size], Compression.SNAPPY) == DATA[:BLOCK]


@pytest.mark.parametrize(
    ("data", "golden"),
    [(b"", 0x02CC5D05), (b"a", 0x550D7456), (b"abc", 0x32D153FF), (b"abcd", 0xA3643705)],
)
def test_xxhash_of_short_strings(data, golden):
    assert xxh32(data) == golden


def test_the_check_byte_of_a_frame_is_mended_and_that_of_a_right_one_stays():
    frame = compress(b"hello", Compression.LZ4)
    assert lz4_mended(frame) == frame
    broken = frame[:6] + bytes([frame[6] ^ 0xFF]) + frame[7:]
    assert lz4_mended(broken) == frame
    assert decompress(broken, Compression.LZ4, broken_lz4=True) == b"hello"
    with pytest.raises(MalformedBytes):
        decompress(broken, Compression.LZ4)
    assert lz4_mended(b"\x04\x22") == b"\x04\x22"
