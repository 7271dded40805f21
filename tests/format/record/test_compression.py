import zlib
from random import Random

import lz4.frame
import pytest
from hypothesis import given
from hypothesis import strategies as st

from towline.client.message import ReceivedMessage
from towline.errors import DecompressedTooLarge, UnreadableBody
from towline.format.record.compression import KINDS, Compressor, decompress, zstd
from towline.format.record.record import COMPRESSED, COMPRESSION_LZ4, COMPRESSION_ZLIB, COMPRESSION_ZSTD, Record, encode

BODY = b"a body that repeats itself. " * 500
FLAGS = {"zlib": COMPRESSION_ZLIB, "lz4": COMPRESSION_LZ4, "zstd": COMPRESSION_ZSTD}


def streamed(body: bytes) -> bytes:
    """A zstd frame that does not state its size, as Java's stream writes it."""
    stream = zstd.ZstdCompressor()
    return stream.compress(body) + stream.flush()


STREAMS = {
    "zlib": (zlib.compress, COMPRESSION_ZLIB),
    "zlib without a type": (zlib.compress, 0),
    "lz4": (lz4.frame.compress, COMPRESSION_LZ4),
    "zstd": (zstd.compress, COMPRESSION_ZSTD),
    "zstd streamed": (streamed, COMPRESSION_ZSTD),
}
each_stream = pytest.mark.parametrize(("compress", "flag"), STREAMS.values(), ids=STREAMS)


@pytest.mark.parametrize("kind", KINDS)
@given(body=st.binary(max_size=3_000).map(lambda body: body * 3))
def test_what_was_compressed_comes_back(kind: str, body: bytes) -> None:
    stored, flag = Compressor(kind, above=10).compress(body)
    assert decompress(stored, flag) == body
    assert len(stored) <= len(body)


@pytest.mark.parametrize("kind", KINDS)
def test_the_kind_is_written_into_sysflag(kind: str) -> None:
    assert Compressor(kind).compress(BODY)[1] == COMPRESSED | FLAGS[kind]


@pytest.mark.parametrize(
    ("compressor", "body"),
    [
        (Compressor("zlib", above=len(BODY)), BODY),
        (Compressor(None), BODY),
        (Compressor("lz4"), Random(0).randbytes(5_000)),
    ],
    ids=["small", "off", "would not shrink"],
)
def test_a_body_stays_as_it_is(compressor: Compressor, body: bytes) -> None:
    assert compressor.compress(body) == (body, 0)


@each_stream
def test_every_form_of_a_stream_is_read(compress, flag) -> None:  # type: ignore[no-untyped-def]
    assert decompress(compress(BODY), COMPRESSED | flag) == BODY
    assert decompress(compress(BODY), COMPRESSED | flag, len(BODY)) == BODY


@each_stream
def test_a_body_beyond_the_cap_is_refused_naming_the_cap(compress, flag) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(DecompressedTooLarge, match=f"cap of {len(BODY) - 1} bytes"):
        decompress(compress(BODY), COMPRESSED | flag, len(BODY) - 1)
    with pytest.raises(DecompressedTooLarge, match="cap of 1000 bytes"):
        decompress(compress(bytes(50_000_000)), COMPRESSED | flag, 1_000)


@each_stream
def test_a_broken_stream_is_refused(compress, flag) -> None:  # type: ignore[no-untyped-def]
    whole = compress(BODY)
    for broken in (whole[:-5], whole[: len(whole) // 2], b"", b"no stream at all", b"\xff" + whole[1:]):
        with pytest.raises(UnreadableBody):
            decompress(broken, COMPRESSED | flag)


def test_a_message_decompresses_to_its_own_cap() -> None:
    stored, flag = Compressor("zstd").compress(BODY)
    record = encode(Record(topic=b"t", body=stored, sys_flag=flag))
    assert ReceivedMessage(record).body == BODY
    with pytest.raises(DecompressedTooLarge, match="cap of 100 bytes"):
        _ = ReceivedMessage(record, body_size_max=100).body
