"""Bodies compressed by the sender and restored by the reader; the store keeps them as they come (spec 2.4)."""

import zlib
from collections.abc import Callable
from typing import Final

import lz4.frame
import zstandard

from towline.errors import Remedy, TowlineError
from towline.limits import DECOMPRESSED_SIZE_MAX

from .record import COMPRESSED, COMPRESSION_LZ4, COMPRESSION_MASK, COMPRESSION_ZLIB, COMPRESSION_ZSTD

COMPRESS_ABOVE: Final = 4096
LEVEL: Final = 5
ZSTD_STEP: Final = 256  # input bytes at a time; four may stand for 128 KiB, so this bounds what goes beyond the cap


class DecompressedTooLarge(TowlineError, remedy=Remedy.FIX_CALL):
    size_max: int
    template = "the body decompresses to more than the cap of {size_max} bytes"
    advice = "raise body_size_max of the reader if the sender is to be trusted"


class UnreadableBody(TowlineError, remedy=Remedy.FIX_CALL):
    kind: str
    problem: str
    template = "the body is no {kind} stream: {problem}"
    advice = "look at the sender: the store keeps bodies as it receives them"


def _lz4_compress(body: bytes) -> bytes:
    return bytes(lz4.frame.compress(body))


def _zlib_compress(body: bytes) -> bytes:
    return zlib.compress(body, LEVEL)


def _zstd_compress(body: bytes) -> bytes:
    return zstandard.compress(body, LEVEL)


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
    except (zlib.error, RuntimeError, zstandard.ZstdError, EOFError) as problem:
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
    stated = zstandard.frame_content_size(body)
    if stated >= room:
        raise DecompressedTooLarge(room - 1)
    if stated >= 0:
        return zstandard.ZstdDecompressor().decompress(body, max_output_size=room)
    stream = zstandard.ZstdDecompressor().decompressobj()
    restored = bytearray()
    for at in range(0, len(body), ZSTD_STEP):
        if stream.eof or len(restored) >= room:
            break
        restored += stream.decompress(body[at : at + ZSTD_STEP])
    return bytes(restored) if stream.eof or len(restored) >= room else None


_DECOMPRESS: Final[dict[int, tuple[str, Callable[[bytes, int], bytes | None]]]] = {
    0: ("zlib", _zlib_decompress),
    COMPRESSION_ZLIB: ("zlib", _zlib_decompress),
    COMPRESSION_LZ4: ("lz4", _lz4_decompress),
    COMPRESSION_ZSTD: ("zstd", _zstd_decompress),
}
