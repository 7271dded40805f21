"""A server and a link that meet in one thread."""

import time
from collections.abc import Callable
from typing import Any

from towline.errors import NoAnswer
from towline.link.dealer import Link
from towline.link.server import Request, Server

DEADLINE_S = 60.0


def until(found: Callable[[], Any], what: str) -> Any:
    deadline = time.monotonic() + DEADLINE_S
    while time.monotonic() < deadline:
        value = found()
        if value:
            return value
    raise AssertionError(f"{what} did not come")


def greet(link: Link, server: Server) -> dict[str, Any]:
    """`greet` gets a moment, the server a turn, until the link stands."""

    def attempt() -> dict[str, Any] | None:
        try:
            return link.greet(20)
        except NoAnswer:
            assert server.receive() is None
            return None

    welcome: dict[str, Any] = until(attempt, "the welcome")
    return welcome


def receive(server: Server) -> Request:
    request: Request = until(server.receive, "the request")
    return request
