"""Serves the live page in this process until it is ended: uvicorn, without its clock and its log.

Nothing wakes up while nobody asks: uvicorn's own loop would look ten times a second whether it is to end.
"""

import asyncio
import secrets
import signal
import socket
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import uvicorn

from .app import Parts, app_of
from .errors import BadToken, NotServed
from .guard import is_loopback

SIGNALS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
TOKEN_MIN: Final = 16  # characters
ENDS_S: Final = 3  # then what a browser still waits for is broken off
BACKLOG: Final = 64


class _Server(uvicorn.Server):
    """Sleeps until a signal comes, and does not raise it again: Ctrl-C is the usual way to end it."""

    def __init__(self, config: uvicorn.Config, end_browsers: Callable[[], None]) -> None:
        super().__init__(config)
        self._end_browsers = end_browsers
        self._over = asyncio.Event()

    async def main_loop(self) -> None:
        await self._over.wait()
        self._end_browsers()  # uvicorn waits for what is still answered

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        loop = asyncio.get_running_loop()
        for number in SIGNALS:
            loop.add_signal_handler(number, self._over.set)
        yield
        for number in SIGNALS:
            loop.remove_signal_handler(number)


def bound(host: str, port: int) -> socket.socket:
    """A socket that listens there. Raises NotServed."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family, backlog=BACKLOG)
    except OSError as error:
        raise NotServed(f"{host}:{port}", error.strerror or str(error)) from None


def token_of(host: str, file: Path | None) -> tuple[str | None, bool]:
    """The token that browsers have to show, and whether it was made here; None for none. Raises BadToken.

    Beyond this machine there always is one.
    """
    if file is None:
        return (None, False) if is_loopback(host) else (secrets.token_urlsafe(24), True)
    try:
        mode = file.stat().st_mode
        text = file.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise BadToken(str(file), getattr(error, "strerror", None) or "it is no text") from None
    if stat.S_IMODE(mode) & 0o077:
        raise BadToken(str(file), "others may read it: `chmod 600` it")
    if len(text) < TOKEN_MIN or not text.isascii() or not text.isprintable() or " " in text:
        raise BadToken(str(file), f"it has no line of {TOKEN_MIN} characters or more without a space")
    return text, False


def url_of(listening: socket.socket) -> str:
    """Where a browser of this machine finds it."""
    host, port = listening.getsockname()[:2]
    shown = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
    return f"http://[{shown}]:{port}/" if ":" in shown else f"http://{shown}:{port}/"


def serve(make: Callable[[], Parts], listening: socket.socket, token: str | None, ready: Callable[[], None]) -> None:
    """Until SIGINT, SIGTERM or SIGHUP. `make` and `ready` are called once the loop runs."""
    asyncio.run(_serve(make, listening, token, ready))


async def _serve(
    make: Callable[[], Parts], listening: socket.socket, token: str | None, ready: Callable[[], None]
) -> None:
    parts = make()
    config = uvicorn.Config(
        app_of(parts, token),
        http="h11",
        ws="none",
        lifespan="on",
        access_log=False,
        log_config=None,
        server_header=False,
        date_header=False,
        proxy_headers=False,
        timeout_graceful_shutdown=ENDS_S,
    )
    ending: list[asyncio.Task[None]] = []
    server = _Server(config, lambda: ending.append(asyncio.ensure_future(parts.hub.end())))
    asyncio.get_running_loop().call_soon(ready)
    await server.serve(sockets=[listening])
    await asyncio.gather(*ending)
