"""Decoders with a mistake each, as they are made: the fuzzer has to find it."""

import ctypes
import json
import os
import struct
import zlib
from typing import Final

from towline.errors import MalformedFrame

from .target import Grammar, Target, hold

_HEAD: Final = struct.Struct(">HHI")
_MAGIC: Final = 0x544F


def made(body: bytes = b"sound bytes", kind: int = 1) -> bytes:
    """Magic, kind, CRC, size in two bytes, body."""
    return _HEAD.pack(_MAGIC, kind, zlib.crc32(body)) + struct.pack(">H", len(body)) + body


def _mended(data: bytes) -> bytes:
    return data[:4] + zlib.crc32(data[10:]).to_bytes(4, "big") + data[8:] if len(data) > 10 else data


def _read(data: bytes) -> tuple[int, int, int]:
    """Kind, CRC and size. Raises MalformedFrame."""
    if len(data) < _HEAD.size + 2:
        raise MalformedFrame("too short")
    magic, kind, crc = _HEAD.unpack_from(data)
    if magic != _MAGIC:
        raise MalformedFrame("no magic")
    return kind, crc, int.from_bytes(data[8:10], "big")


def _sound(data: bytes) -> object:
    kind, crc, size = _read(data)
    body = data[10 : 10 + size]
    if len(body) != size or zlib.crc32(body) != crc:
        raise MalformedFrame("it is cut, or its CRC differs")
    return kind > 1


def _talking(data: bytes) -> object:
    """As a library does that has lines of its own for whoever reads standard output."""
    os.write(1, b"\n")
    return _sound(data)


def _unchecked_length(data: bytes) -> object:
    *_, size = _read(data)
    return data[10 + size - 1]


def _unchecked_crc(data: bytes) -> object:
    *_, size = _read(data)
    body = data[10 : 10 + size]
    if len(body) != size:
        raise MalformedFrame("it is cut")
    hold(zlib.crc32(body) == _read(data)[1], "a wrong byte is never handed out")
    return size > 20


def _other_error(data: bytes) -> object:
    kind, _, _ = _read(data)
    if kind not in (1, 2):
        raise ValueError("no such kind")
    return kind


def _no_end(data: bytes) -> object:
    _read(data)
    at, count = 8, 0
    while at < len(data) - 1:
        at += int.from_bytes(data[at : at + 2], "big")  # nothing says that it is above 0
        count += 1
    return count > 1


def _slow(data: bytes) -> object:
    """The bytes of a name are doubled with each level that it stands in."""
    found = len(data)
    try:
        value = json.loads(data)
    except (ValueError, RecursionError):
        raise MalformedFrame("no JSON") from None
    text = "x"
    while isinstance(value, list) and value:
        value = value[0]
        text = json.dumps(text) if len(text) < 1 << 24 else text
    return found > 9 and len(text) > 9


def _unbounded_memory(data: bytes) -> object:
    kind, _, size = _read(data)
    return len(bytearray(size << 9)) > 0 if kind > 2 else None


def _beyond_memory(data: bytes) -> object:
    """As a kernel does that does not look at its bounds."""
    kind, _, size = _read(data)
    held = ctypes.create_string_buffer(data)
    return ctypes.string_at(ctypes.addressof(held) + (size << 24 if kind > 2 else 0), 4)


def _deep(data: bytes) -> object:
    try:
        found = json.loads(data)
    except (ValueError, RecursionError):
        raise MalformedFrame("no JSON") from None

    def depth(value: object) -> int:
        return 1 + max(map(depth, value), default=0) if isinstance(value, list) else 0

    return depth(found)


def _infinite(data: bytes) -> object:
    try:
        return int(json.loads(data)["count"]) > 3
    except (ValueError, TypeError, KeyError, RecursionError):
        raise MalformedFrame("no count") from None


def _target(name: str, run: object, **more: object) -> Target:
    facts = {
        "covers": (),
        "seeds": lambda: [made(), made(b"x" * 40, 2)],
        "refusals": (MalformedFrame,),
        "mend": _mended,
    }
    return Target(name=name, run=run, **{**facts, **more})  # type: ignore[arg-type]


_JSON: Final = {"grammar": Grammar.JSON, "mend": None}

SOUND: Final = _target("planted.sound", _sound)
TALKING: Final = _target("planted.talking", _talking)
# Target -> a word of what has to be found.
DEFECTS: Final = {
    _target("planted.length", _unchecked_length): "IndexError",
    _target("planted.crc", _unchecked_crc): "a wrong byte is never handed out",
    _target("planted.error", _other_error): "ValueError",
    _target("planted.endless", _no_end): "no end within",
    _target("planted.memory", _unbounded_memory, memory_mib=8): "memory",
    _target("planted.beyond", _beyond_memory): "died of signal 11",
    _target("planted.deep", _deep, seeds=lambda: [b"[[1,2],3]"], **_JSON): "RecursionError",
    _target("planted.doubled", _slow, seeds=lambda: [b"[[1,2],3]"], memory_mib=24, **_JSON): "memory",
    _target("planted.infinite", _infinite, seeds=lambda: [b'{"count":5}'], **_JSON): "OverflowError",
}
TARGETS: Final = (SOUND, TALKING, *DEFECTS)
