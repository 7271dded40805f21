"""A remoting command: one frame of RocketMQ's clients, name servers and brokers, in both forms (spec 11.1).

    at  len  field
     0    4  length     of everything behind it, at most FRAME_MAX
     4    4  mark       top byte: form of the header (0 JSON, 1 ROCKETMQ); the other three: bytes of the header
     8    h  header
   8+h       body       length - 4 - h bytes

A JSON header is an object in UTF-8: `code`, `language`, `version`, `opaque`, `flag`, `remark`, `extFields` (text to
text), `serializeTypeCurrentRPC`. Members that are not known are passed over. The other form, big-endian:

    i2 code | u1 language | i2 version | i4 opaque | i4 flag | i4 length, remark | i4 length, fields
    each field: i2 length, name | i4 length, value

An answer has the form of its request and the same `opaque`. Flag bit 0 is set in answers, bit 1 in requests that want
none.
"""

import json
import struct
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any, Final, Self, TypeGuard

import orjson

from towline.errors import MalformedFrame
from towline.format.wire.frames import Buffer

FRAME_MAX: Final = 16 << 20  # bytes behind the length, as RocketMQ's decoder has it
JSON_BODY_MAX: Final = 1 << 20  # bytes of a heartbeat and the like
HEADER_MAX: Final = 0xFF_FFFF
FIELDS_MAX: Final = 256  # of one header; RocketMQ's largest request has 15
LENGTH: Final = struct.Struct(">I")
ANSWER: Final = 1
ONE_WAY: Final = 2
VERSION: Final = 479  # RocketMQ 5.3.3: clients ask it for what a broker can
LANGUAGES: Final = (
    "JAVA",
    "CPP",
    "DOTNET",
    "PYTHON",
    "DELPHI",
    "ERLANG",
    "RUBY",
    "OTHER",
    "HTTP",
    "GO",
    "PHP",
    "OMS",
    "RUST",
    "NODE_JS",
)
_JSON_FORM: Final = "JSON"
_ESCAPE: Final = b"\\u"
_HEAD: Final = struct.Struct(">hBhii")
_SIZE: Final = struct.Struct(">i")
_NAME: Final = struct.Struct(">h")


class Form(IntEnum):
    """How a header is written."""

    JSON = 0
    ROCKETMQ = 1


@dataclass(frozen=True, slots=True)
class Command:
    """A request or an answer. `fields` are text, as they are on the wire; `remark` "" where there is none."""

    code: int
    opaque: int = 0
    flag: int = 0
    remark: str = ""
    fields: Mapping[str, str] = field(default_factory=dict)
    body: Buffer = b""
    form: Form = Form.JSON
    version: int = VERSION
    language: str = "JAVA"

    @property
    def is_answer(self) -> bool:
        return bool(self.flag & ANSWER)

    @property
    def is_one_way(self) -> bool:
        return bool(self.flag & ONE_WAY)

    def json(self) -> Any:
        """The JSON of its body. Raises MalformedFrame."""
        if len(self.body) > JSON_BODY_MAX:
            raise MalformedFrame(f"a body of {len(self.body)} bytes; {JSON_BODY_MAX} are allowed")
        return _loads(bytes(self.body), "the body")

    def answer(self, code: int, fields: Mapping[str, str] | None = None, body: Buffer = b"", remark: str = "") -> Self:
        """The answer to this request: a client takes an empty `extFields` for one that is missing."""
        kind = type(self)
        return kind(code, self.opaque, ANSWER, remark, fields or {}, body, self.form, VERSION, "JAVA")


def frame_size(data: Buffer, at: int = 0) -> int:
    """Bytes of the frame at `at`, its length included; 0 while those four have not come.

    Raises MalformedFrame for a length that no frame has.
    """
    if len(data) - at < LENGTH.size:
        return 0
    (length,) = LENGTH.unpack_from(data, at)
    if not LENGTH.size <= length <= FRAME_MAX:
        raise MalformedFrame(f"a frame of {length} bytes; {LENGTH.size} to {FRAME_MAX} are allowed")
    return int(LENGTH.size + length)


def decode(frame: Buffer) -> Command:
    """The command of a whole frame, its length included. Raises MalformedFrame."""
    if len(frame) < 2 * LENGTH.size or frame_size(frame) != len(frame):
        raise MalformedFrame(f"{len(frame)} bytes are no whole frame")
    (mark,) = LENGTH.unpack_from(frame, LENGTH.size)
    begin, end = 2 * LENGTH.size, 2 * LENGTH.size + (mark & HEADER_MAX)
    if end > len(frame):
        raise MalformedFrame(f"a header of {mark & HEADER_MAX} bytes in a frame of {len(frame)}")
    header, body = bytes(frame[begin:end]), frame[end:]
    match mark >> 24:
        case Form.JSON:
            return _from_json(header, body)
        case Form.ROCKETMQ:
            return _from_binary(header, body)
        case form:
            raise MalformedFrame(f"a header of the unknown form {form}")


def encode(command: Command) -> list[Buffer]:
    """The frame in parts: length, mark and header; the body, which is not copied. Raises MalformedFrame."""
    header = _to_json(command) if command.form is Form.JSON else _to_binary(command)
    length = LENGTH.size + len(header) + len(command.body)
    if length > FRAME_MAX:
        raise MalformedFrame(f"a frame of {length} bytes; {FRAME_MAX} are allowed")
    head = LENGTH.pack(length) + LENGTH.pack(command.form << 24 | len(header)) + header
    return [head, command.body] if len(command.body) else [head]


# --- JSON


def _loads(data: bytes, what: str) -> Any:
    """JSON in UTF-8, without half surrogate pairs, which could be sent to nobody. Raises MalformedFrame.

    What orjson refuses may be what others write and json takes, such as NaN.
    """
    with suppress(orjson.JSONDecodeError):
        return orjson.loads(data)
    try:
        found = json.loads(data.decode())
        if _ESCAPE in data:
            json.dumps(found, ensure_ascii=False).encode()
    except (ValueError, RecursionError):
        raise MalformedFrame(f"{what} is no JSON in UTF-8") from None
    return found


def _from_json(header: bytes, body: Buffer) -> Command:
    members = _loads(header, "the header")
    if not isinstance(members, dict):
        raise MalformedFrame("the header is no JSON object")
    found = members.get("extFields") or {}
    if not isinstance(found, dict) or len(found) > FIELDS_MAX:
        raise MalformedFrame(f"extFields is no object of at most {FIELDS_MAX} members")
    fields = {name: _text_of(name, value) for name, value in found.items() if value is not None}
    language, version, remark = members.get("language", "JAVA"), members.get("version"), members.get("remark")
    return Command(
        _integer(members, "code"),
        _integer(members, "opaque", 0),
        _integer(members, "flag", 0),
        remark if isinstance(remark, str) else "",
        fields,
        body,
        Form.JSON,
        version if _is_integer(version) else 0,
        language if isinstance(language, str) else "OTHER",
    )


def _text_of(name: str, value: Any) -> str:
    """A field as text: some clients write numbers and booleans as such."""
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return str(value)
    raise MalformedFrame(f"the header field {name} is neither text nor a number")


def _integer(members: Mapping[str, Any], name: str, default: int | None = None) -> int:
    value = members.get(name, default)
    if not _is_integer(value):
        shown = repr(value) if isinstance(value, str | int | float | None) else f"a {type(value).__name__}"
        raise MalformedFrame(f"{name} in the header is {shown}; a number of 32 bits is wanted")
    return value


def _is_integer(value: Any) -> TypeGuard[int]:
    """Whether it is a number of 32 bits."""
    return isinstance(value, int) and not isinstance(value, bool) and -(1 << 31) <= value < 1 << 31


def _to_json(command: Command) -> bytes:
    members: dict[str, Any] = {
        "code": command.code,
        "extFields": dict(command.fields),
        "flag": command.flag,
        "language": command.language,
        "opaque": command.opaque,
        "serializeTypeCurrentRPC": _JSON_FORM,
        "version": command.version,
    }
    if command.remark:
        members["remark"] = command.remark
    return orjson.dumps(members)


# --- ROCKETMQ


def _from_binary(header: bytes, body: Buffer) -> Command:
    reader = _Reader(header)
    code, language, version, opaque, flag = reader.unpack(_HEAD)
    remark = reader.text(_SIZE)
    (size,) = reader.unpack(_SIZE)
    end = reader.at + size
    if size < 0 or end > len(header):
        raise MalformedFrame(f"{size} bytes of fields in a header of {len(header)}")
    fields: dict[str, str] = {}
    while reader.at < end:
        name = reader.text(_NAME)
        fields[name] = reader.text(_SIZE)
        if len(fields) > FIELDS_MAX:
            raise MalformedFrame(f"more than {FIELDS_MAX} fields in a header")
    if reader.at != end:
        raise MalformedFrame("the last field of the header reaches beyond the others' end")
    name_of = LANGUAGES[language] if language < len(LANGUAGES) else "OTHER"
    return Command(code, opaque, flag, remark, fields, body, Form.ROCKETMQ, version, name_of)


class _Reader:
    """Reads a header from its first byte on. Raises MalformedFrame where it ends too soon."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self.at = 0

    def unpack(self, layout: struct.Struct) -> tuple[Any, ...]:
        if len(self._data) - self.at < layout.size:
            raise MalformedFrame(f"the header ends at byte {len(self._data)}, inside a number")
        found = layout.unpack_from(self._data, self.at)
        self.at += layout.size
        return found

    def text(self, length: struct.Struct) -> str:
        (size,) = self.unpack(length)
        if size < 0 or size > len(self._data) - self.at:
            raise MalformedFrame(f"a text of {size} bytes at byte {self.at} of a header of {len(self._data)}")
        found = self._data[self.at : self.at + size]
        self.at += size
        try:
            return found.decode()
        except UnicodeDecodeError:
            raise MalformedFrame(f"the text at byte {self.at - size} of the header is no UTF-8") from None


def _to_binary(command: Command) -> bytes:
    language = LANGUAGES.index(command.language) if command.language in LANGUAGES else LANGUAGES.index("OTHER")
    remark = command.remark.encode()
    fields = b"".join(
        _NAME.pack(len(name)) + name + _SIZE.pack(len(value)) + value
        for name, value in ((name.encode(), value.encode()) for name, value in command.fields.items())
    )
    head = _HEAD.pack(command.code, language, command.version, command.opaque, command.flag)
    return head + _SIZE.pack(len(remark)) + remark + _SIZE.pack(len(fields)) + fields
