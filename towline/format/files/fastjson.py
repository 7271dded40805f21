"""JSON as RocketMQ's fastjson lays it out: tabs, names sorted, nulls left out, no space after a colon (spec 1.3).

Below the member `offsetTable`, maps of integers to integers have keys without quotes and stand on one line, by number.
Everywhere else keys are strings, so that a topic named 7 stays one. `topics.loads_fastjson` reads both.
"""

import json
import re
from collections.abc import Mapping
from typing import Any, Final

OFFSET_TABLE: Final = "offsetTable"
_INTEGER: Final = re.compile(r"-?[0-9]{1,19}")


def dumps_fastjson(content: Mapping[str, Any]) -> str:
    """The text of the object `content`, whose keys are strings or, of a map of offsets, integers."""
    return _object(content, 0, bare=False)


def _object(content: Mapping[Any, Any], depth: int, *, bare: bool) -> str:
    if not content:
        return "{}"
    tabs = "\t" * depth
    if bare and _is_offsets(content):
        numbers = sorted((int(key), value) for key, value in content.items())
        return "{" + ",".join(f"{key}:{value}" for key, value in numbers) + f"\n{tabs}}}"
    members = [
        f"{tabs}\t{_plain(str(name))}:{_value(value, depth + 1, bare=bare or name == OFFSET_TABLE)}"
        for name, value in sorted(content.items(), key=lambda item: str(item[0]))
        if value is not None
    ]
    return "{\n" + ",\n".join(members) + f"\n{tabs}}}" if members else "{}"


def _value(value: Any, depth: int, *, bare: bool) -> str:
    if isinstance(value, Mapping):
        return _object(value, depth, bare=bare)
    if isinstance(value, list | tuple):
        return "[" + ",".join(_value(each, depth, bare=bare) for each in value) + "]"
    return _plain(value)


def _plain(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def _is_offsets(content: Mapping[Any, Any]) -> bool:
    return all(
        type(value) is int and (type(key) is int or _INTEGER.fullmatch(key) is not None)
        for key, value in content.items()
    )
