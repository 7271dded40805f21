"""Lines of name=value, as Java's Properties write and read them."""

import re
from collections.abc import Mapping
from typing import Final

from towline.errors import MalformedFrame

LINES_MAX: Final = 1_024
_COMMENTS: Final = ("#", "!")
_BACKSLASHED: Final = re.compile(r"\\(.?)")
_CONTROLS: Final = {"n": "\n", "r": "\r", "t": "\t"}


def properties_text(table: Mapping[str, str]) -> bytes:
    """In the order of names."""
    return "".join(f"{name}={_escaped(value)}\n" for name, value in sorted(table.items())).encode()


def read_properties(data: bytes) -> dict[str, str]:
    """Lines with a `=` and no continued ones, which is what tools send. Raises MalformedFrame."""
    try:
        lines = data.decode().splitlines()
    except UnicodeDecodeError:
        raise MalformedFrame("the properties are no UTF-8") from None
    if len(lines) > LINES_MAX:
        raise MalformedFrame(f"there are {len(lines)} lines of properties; {LINES_MAX} are allowed")
    found = {}
    for line in map(str.strip, lines):
        if not line or line.startswith(_COMMENTS):
            continue
        name, sign, value = line.partition("=")
        if not sign or not name.strip():
            raise MalformedFrame(f"{line[:100]!r} is no line of name=value")
        found[name.strip()] = _plain(value.strip())
    return found


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace("\r", "\\r").replace("\n", "\\n")


def _plain(value: str) -> str:
    """A value without the backslashes that Java puts before what might be read otherwise."""
    return _BACKSLASHED.sub(lambda found: _CONTROLS.get(found[1], found[1]), value)
