"""Bodies compressed by the sender and restored by the reader; the store keeps them as they come (spec 2.4)."""

import sys
import zlib
from collections.abc import Callable
from typing import Final

import lz4.frame

from towline.errors import DecompressedTooLarge, UnreadableBody
from towline.limits import DECOMPRESSED_SIZE_MAX

from .record import COMPRESSED, COMPRESSION_LZ4, COMPRESSION_MASK, COMPRESSION_ZLIB, COMPRESSION_ZSTD

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

COMPRESS_ABOVE: Final = 4096
LEVEL: Final = 5


def _lz4_compress(body: bytes) -> bytes:
    return bytes(lz4.frame.compress(body))


def _zlib_compress(body: bytes) -> bytes:
    return zlib.compress(body, LEVEL)


def _zstd_compress(body: bytes) -> bytes:
    return zstd.compress(body, LEVEL)


_COMPRESS: Final[dict[str, tuple[int, Callable[[bytes], bytes]]]] = {
    "zlib": (COMPRESSION_ZLIB, _zlib_compress),
    "lz4": (COMPRESSION_LZ4, _lz4_compress),
    "zstd": (COMPRESSION_ZSTD, _zstd_compress),
}
KINDS: Final = tuple(_COMPRESS)


class Compressor:
    """Compresses bodies longer than `above` bytes by `kind` (zlib, lz4 or zstd; None leaves every body as it is)."""

    def __init__(self, kind: str | None, above: int = COMPRESS_ABOVE) -> None:
        if kind is not None and kind not in _COMPRESS:
            raise ValueError(f"compression {kind!r} is unknown; choose one of {', '.join(KINDS)} or None")
        self._flag, self._compress = _COMPRESS[kind] if kind else (0, bytes)
        self.above = above if kind else DECOMPRESSED_SIZE_MAX

    def compress(self, body: bytes) -> tuple[bytes, int]:
        """The body to store and its SYSFLAG bits. A body that does not get smaller stays as it is."""
        if len(body) <= self.above:
            return body, 0
        compressed = self._compress(body)
        return (compressed, COMPRESSED | self._flag) if len(compressed) < len(body) else (body, 0)


def decompress(body: bytes, sys_flag: int, size_max: int = DECOMPRESSED_SIZE_MAX) -> bytes:
    """The body the sender had. Raises DecompressedTooLarge above `size_max` bytes, UnreadableBody when it is broken."""
    if not sys_flag & COMPRESSED:
        return body
    kind, restore = _DECOMPRESS.get(sys_flag & COMPRESSION_MASK, ("zlib", _zlib_decompress))
    try:
        restored = restore(body, size_max + 1)
    except (zlib.error, RuntimeError, zstd.ZstdError, EOFError) as problem:
        raise UnreadableBody(kind, str(problem)) from None
    if restored is None:
        raise UnreadableBody(kind, "it ends before its stream does")
    if len(restored) > size_max:
        raise DecompressedTooLarge(size_max)
    return restored


def _zlib_decompress(body: bytes, room: int) -> bytes | None:
    stream = zlib.decompressobj()
    restored = stream.decompress(body, room)
    return restored if stream.eof or len(restored) >= room else None


def _lz4_decompress(body: bytes, room: int) -> bytes | None:
    stream = lz4.frame.LZ4FrameDecompressor()
    restored = bytes(stream.decompress(body, max_length=room))
    return restored if stream.eof or len(restored) >= room else None


def _zstd_decompress(body: bytes, room: int) -> bytes | None:
    # A frame that states its size is refused before anything is allocated for it.
    stated = zstd.get_frame_info(body).decompressed_size
    if stated is not None and stated >= room:
        raise DecompressedTooLarge(room - 1)
    stream = zstd.ZstdDecompressor()
    restored = stream.decompress(body, room)
    return restored if stream.eof or len(restored) >= room else None


_DECOMPRESS: Final[dict[int, tuple[str, Callable[[bytes, int], bytes | None]]]] = {
    0: ("zlib", _zlib_decompress),
    COMPRESSION_ZLIB: ("zlib", _zlib_decompress),
    COMPRESSION_LZ4: ("lz4", _lz4_decompress),
    COMPRESSION_ZSTD: ("zstd", _zstd_decompress),
}
