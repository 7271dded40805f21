"""JSON as brokers and name servers of RocketMQ write it: keys may be numbers, `{0:"host:port"}`, and objects
(`{{"queueId":0,"topic":"T"}:{}}`), which is no JSON (spec 11.3).

A key that is an object is read as its text, with its members in the order of their names.
"""

import json
import re
from typing import Any, Final

from towline.errors import MalformedFrame
from towline.format.finite import finite, no_number
from towline.format.wire.frames import Buffer

DEPTH_MAX: Final = 32
KEY_MAX: Final = 4_096  # characters of a key that is an object; one in another doubles with each level
_SPACE: Final = re.compile(r"[ \t\r\n]*")
_PLAIN_KEY: Final = re.compile(r"-?\w+")
_SCAN: Final = json.JSONDecoder(parse_float=finite, parse_constant=no_number).raw_decode


def loads(data: Buffer) -> Any:
    """Raises MalformedFrame."""
    try:
        text = bytes(data).decode()
    except UnicodeDecodeError:
        raise MalformedFrame("a body is no UTF-8") from None
    try:
        return json.loads(text, parse_float=finite, parse_constant=no_number)
    except (ValueError, RecursionError):
        pass  # then it is read by the rules above
    try:
        found, end = _value(text, _skip(text, 0), 0)
    except (ValueError, IndexError):
        raise MalformedFrame("a body is no JSON, and not what RocketMQ writes in its place") from None
    if _skip(text, end) != len(text):
        raise MalformedFrame("a body goes on behind its JSON")
    return found


def _skip(text: str, at: int) -> int:
    found = _SPACE.match(text, at)
    return found.end() if found is not None else at


def _value(text: str, at: int, depth: int) -> tuple[Any, int]:
    if depth > DEPTH_MAX:
        raise ValueError
    if text[at] == "{":
        return _object(text, at, depth)
    if text[at] == "[":
        return _list(text, at, depth)
    return _SCAN(text, at)


def _list(text: str, at: int, depth: int) -> tuple[list[Any], int]:
    found: list[Any] = []
    at = _skip(text, at + 1)
    while text[at] != "]":
        value, at = _value(text, at, depth + 1)
        found.append(value)
        at = _next(text, at, "]")
    return found, at + 1


def _object(text: str, at: int, depth: int) -> tuple[dict[str, Any], int]:
    found: dict[str, Any] = {}
    at = _skip(text, at + 1)
    while text[at] != "}":
        key, at = _key(text, at, depth)
        at = _skip(text, at)
        if text[at] != ":":
            raise ValueError
        found[key], at = _value(text, _skip(text, at + 1), depth + 1)
        at = _next(text, at, "}")
    return found, at + 1


def _key(text: str, at: int, depth: int) -> tuple[str, int]:
    if text[at] in '{"':
        key, at = _value(text, at, depth + 1)
        if isinstance(key, str):
            return key, at
        named = json.dumps(key, sort_keys=True)
        if len(named) > KEY_MAX:
            raise ValueError
        return named, at
    plain = _PLAIN_KEY.match(text, at)
    if plain is None:
        raise ValueError
    return plain[0], plain.end()


def _next(text: str, at: int, end: str) -> int:
    """Where the next member begins, or the end of the whole."""
    at = _skip(text, at)
    if text[at] == ",":
        return _skip(text, at + 1)
    if text[at] != end:
        raise ValueError
    return at
