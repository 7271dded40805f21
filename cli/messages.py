"""Renders messages as tables, as JSON, and by a template."""

import re
from collections.abc import Callable, Sequence
from typing import Any, Final

from rich.console import Console

from towline.client.message import ReceivedMessage

from .output import add_row, progress_console, table

_BODY_SHOWN = 120
# What stands for a part of a message in a template, as in kcat where that has it.
TOKENS: Final[dict[str, tuple[str, Callable[[ReceivedMessage], object]]]] = {
    "t": ("topic", lambda message: message.topic),
    "q": ("queue", lambda message: message.queue_id),
    "o": ("offset in it", lambda message: message.queue_offset),
    "k": ("sharding key, else the keys", lambda message: message.sharding_key or " ".join(message.keys)),
    "v": ("body", lambda message: message.body.decode("utf-8", "backslashreplace")),
    "g": ("tag", lambda message: message.tags or ""),
    "u": ("unique key", lambda message: message.unique_key or ""),
    "s": ("when it was stored, ms since 1970", lambda message: message.store_timestamp),
    "S": ("bytes of the body", lambda message: len(message.body)),
    "%": ("a percent sign", lambda _: "%"),
}
_TOKEN = re.compile(r"%(.?)|\\(.?)", re.DOTALL)
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "0": "\0", "\\": "\\"}


def print_messages(console: Console, described: list[dict[str, Any]], remarks: Sequence[str] = ()) -> None:
    """A table, and the remarks beside it, which are no results."""
    made = table("#queue", "#offset", "tag", "keys", "unique key", "body")
    for message in described:
        add_row(
            made,
            message["queue_id"],
            message["queue_offset"],
            message["tags"] or "",
            " ".join(message["keys"]),
            message["unique_key"] or "",
            shown_body(message["body"]),
        )
    console.print(made)
    for remark in remarks:
        progress_console().print(remark, markup=False, soft_wrap=True)


def parse_template(template: str) -> Callable[[ReceivedMessage], str]:
    """What renders a message by a template such as '%t %q %o %k %v\\n'. Raises ValueError, naming what it knows."""
    known = ", ".join(f"%{token} {what}" for token, (what, _) in TOKENS.items())
    for token, escape in _TOKEN.findall(template):
        if not escape and token not in TOKENS:
            raise ValueError(f"%{token} is nothing here; {known}")
        if escape and escape not in _ESCAPES:
            raise ValueError(f"\\{escape} is nothing here; \\n, \\t, \\r, \\0 and \\\\ are")

    def render(message: ReceivedMessage) -> str:
        def part(found: re.Match[str]) -> str:
            return _ESCAPES[found[2]] if found[2] else str(TOKENS[found[1]][1](message))

        return _TOKEN.sub(part, template)

    return render


def shown_body(body: bytes | None) -> str:
    """The beginning of a body, as text."""
    if body is None:
        return "(not readable)"
    text = body[:_BODY_SHOWN].decode("utf-8", "backslashreplace")
    return text + ("..." if len(body) > _BODY_SHOWN else "")
