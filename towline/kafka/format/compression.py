"""What a batch's records, or the messages in a message of magic 0 and 1, are compressed with.

gzip is one member or several, by ISA-L, which restores them twice as fast as zlib; lz4 a frame; zstd frames, one or
several. Snappy comes in the framing of Java's snappy library: a head, and blocks of 32 KiB, each with its size before
it in 4 bytes; or as one raw block.

    at  len  field
     0  8  magic      82 S N A P P Y 00
     8  4  version    1
    12  4  compatible 1

In a message of magic 0 the check byte of an lz4 frame's head was made of the frame's magic too: `lz4_mended`.
"""

import sys
import zlib
from collections.abc import Callable
from typing import Final, Protocol, cast

import cramjam
import lz4.frame
from isal import isal_zlib

from towline.format.layout import Field, Layout
from towline.kafka.errors import MalformedBytes, RecordsTooLarge, Rule
from towline.limits import MIB

from .batch import Compression

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

XERIAL: Final = Layout(
    Field("magic", "8s", "82 S N A P P Y 00"),
    Field("version", "i", "1"),
    Field("compatible", "i", "1"),
)
XERIAL_MAGIC: Final = b"\x82SNAPPY\x00"
BLOCK: Final = 32 * 1024
DECOMPRESSED_SIZE_MAX: Final = 256 * MIB
_SIZE_BYTES: Final = 4
_FED: Final = 64 * 1024  # bytes that a stream is given at once: what stands behind its end is copied for each
_GZIP: Final = zlib.MAX_WBITS | 16
_GZIP_LEVEL: Final = 2  # of ISA-L, of 0 to 3: as small as zlib's 6, which Java takes
_ISAL_ERROR: Final = cast("type[Exception]", isal_zlib.error)  # its stub says that it is an instance
_WORD: Final = 0xFFFF_FFFF


def compress(data: bytes | memoryview, kind: Compression) -> bytes:
    """As a Java client does it, at the library's own level."""
    return _COMPRESS[kind](bytes(data))


def decompress(
    data: bytes | memoryview, kind: int, size_max: int = DECOMPRESSED_SIZE_MAX, *, broken_lz4: bool = False
) -> bytes:
    """`broken_lz4`: of magic 0. Raises MalformedBytes where it is no such stream, RecordsTooLarge above `size_max`."""
    restore = _DECOMPRESS.get(kind)
    if restore is None:
        raise MalformedBytes(Rule.COMPRESSION, 0, f"there is no compression {kind}")
    held = bytes(data)
    if broken_lz4 and kind == Compression.LZ4:
        held = lz4_mended(held)
    try:
        return restore(held, size_max)
    except (_ISAL_ERROR, EOFError, RuntimeError, zstd.ZstdError, cramjam.DecompressionError, ValueError) as error:
        said = f"no stream of {Compression(kind).name.lower()}: {error}"
        raise MalformedBytes(Rule.COMPRESSION, 0, said) from None


# --- snappy


def _snappy_compress(data: bytes) -> bytes:
    parts = [XERIAL.pack(XERIAL_MAGIC, 1, 1)]
    for at in range(0, len(data), BLOCK):
        block = bytes(cramjam.snappy.compress_raw(data[at : at + BLOCK]))
        parts += [len(block).to_bytes(_SIZE_BYTES, "big"), block]
    return b"".join(parts)


def _snappy_decompress(data: bytes, size_max: int) -> bytes:
    if not data.startswith(XERIAL_MAGIC):
        return _snappy_block(data, size_max, size_max)
    if len(data) < XERIAL.size:
        raise EOFError("it ends before its head does")
    at, held, parts = XERIAL.size, 0, []
    while at < len(data):
        size = int.from_bytes(data[at : at + _SIZE_BYTES], "big")
        at += _SIZE_BYTES
        if size > len(data) - at:
            raise EOFError("it ends before its last block does")
        parts.append(_snappy_block(data[at : at + size], size_max - held, size_max))
        held += len(parts[-1])
        at += size
    return b"".join(parts)


def _snappy_block(block: bytes, room: int, size_max: int) -> bytes:
    if cramjam.snappy.decompress_raw_len(block) > room:
        raise RecordsTooLarge(size_max)
    return bytes(cramjam.snappy.decompress_raw(block))


# --- gzip, lz4, zstd


class _Stream(Protocol):
    @property
    def eof(self) -> bool: ...
    @property
    def unused_data(self) -> bytes: ...
    def decompress(self, data: bytes, max_length: int, /) -> bytes: ...


def _streams(data: bytes, size_max: int, opened: Callable[[], _Stream]) -> bytes:
    """Of one or several end to end. Bytes behind the last are the beginning of another, or refused as such."""
    at, held, parts = 0, 0, []
    while True:
        stream = opened()
        while not stream.eof:
            fed = data[at : at + _FED]
            if not fed:
                raise EOFError("it ends before its stream does")
            parts.append(stream.decompress(fed, size_max - held + 1))
            held += len(parts[-1])
            if held > size_max:
                raise RecordsTooLarge(size_max)
            at += len(fed)
        at -= len(stream.unused_data)
        if at == len(data):
            return b"".join(parts)


def _gzip_decompress(data: bytes, size_max: int) -> bytes:
    return _streams(data, size_max, lambda: isal_zlib.decompressobj(_GZIP))


def _lz4_compress(data: bytes) -> bytes:
    return bytes(lz4.frame.compress(data, block_size=lz4.frame.BLOCKSIZE_MAX64KB, block_linked=False, store_size=False))


def _lz4_decompress(data: bytes, size_max: int) -> bytes:
    stream = lz4.frame.LZ4FrameDecompressor()
    found = bytes(stream.decompress(data, max_length=size_max + 1))
    if len(found) > size_max:
        raise RecordsTooLarge(size_max)
    if not stream.eof:
        raise EOFError("it ends before its frame does")
    return found


def _zstd_decompress(data: bytes, size_max: int) -> bytes:
    return _streams(data, size_max, zstd.ZstdDecompressor)


def _none(data: bytes, size_max: int) -> bytes:
    return data


_COMPRESS: Final[dict[Compression, Callable[[bytes], bytes]]] = {
    Compression.NONE: bytes,
    Compression.GZIP: lambda data: isal_zlib.compress(data, _GZIP_LEVEL, _GZIP),
    Compression.SNAPPY: _snappy_compress,
    Compression.LZ4: _lz4_compress,
    Compression.ZSTD: lambda data: zstd.compress(data, 3),
}
_DECOMPRESS: Final[dict[int, Callable[[bytes, int], bytes]]] = {
    Compression.NONE: _none,
    Compression.GZIP: _gzip_decompress,
    Compression.SNAPPY: _snappy_decompress,
    Compression.LZ4: _lz4_decompress,
    Compression.ZSTD: _zstd_decompress,
}

# --- the check byte of an lz4 frame's head

_LZ4_MAGIC_SIZE: Final = 4
_CONTENT_SIZE: Final = 1 << 3  # a flag: 8 more bytes of head
_PRIMES: Final = (2654435761, 2246822519, 3266489917, 668265263, 374761393)


def lz4_mended(frame: bytes) -> bytes:
    """A frame of magic 0 with the check byte that its head should have. What is too short stays as it is."""
    if len(frame) < _LZ4_MAGIC_SIZE + 3:
        return frame
    size = 10 if frame[_LZ4_MAGIC_SIZE] & _CONTENT_SIZE else 2
    check_at = _LZ4_MAGIC_SIZE + size
    check = xxh32(frame[_LZ4_MAGIC_SIZE:check_at]) >> 8 & 0xFF
    return frame[:check_at] + bytes([check]) + frame[check_at + 1 :]


def xxh32(data: bytes) -> int:
    """xxHash of 32 bits with seed 0, of fewer than 16 bytes."""
    assert len(data) < 16
    first, second, third, fourth, fifth = _PRIMES
    value = fifth + len(data)
    at = 0
    while at + 4 <= len(data):
        value = _rotated(value + int.from_bytes(data[at : at + 4], "little") * third, 17) * fourth
        at += 4
    for byte in data[at:]:
        value = _rotated(value + byte * fifth, 11) * first
    value &= _WORD
    value = (value ^ value >> 15) * second & _WORD
    value = (value ^ value >> 13) * third & _WORD
    return value ^ value >> 16


def _rotated(value: int, bits: int) -> int:
    value &= _WORD
    return (value << bits | value >> (32 - bits)) & _WORD
