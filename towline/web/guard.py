"""Who may ask the live page, and what every answer says of itself: an ASGI app around the page's own.

Without a token the page is for browsers on this machine, and answers under loopback names alone: a name of a stranger
that leads here (DNS rebinding) is refused. With a token it has any name. What another site asks for is refused either
way, and nothing is changed by any request.
"""

import hmac
from collections.abc import Awaitable, Callable, MutableMapping
from hashlib import sha256
from ipaddress import ip_address
from typing import Any, Final
from urllib.parse import parse_qs

from starlette.datastructures import Headers
from starlette.requests import HTTPConnection
from starlette.responses import JSONResponse, Response

from .errors import HostRefused, OtherSite, ReadOnlyPage, TokenMissing, WebRefused

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

COOKIE: Final = "towline-web"
START: Final = "/"
# Scripts and styles are files of ours, and nothing is loaded from elsewhere.
POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
HEADERS: Final = (
    (b"content-security-policy", POLICY.encode()),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"cross-origin-opener-policy", b"same-origin"),
)


class Guard:
    """Passes on what may be asked. `token` is None where everybody on this machine may."""

    def __init__(self, app: App, token: str | None) -> None:
        self._app, self._token = app, token

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":  # lifespan, which has no answer
            await self._app(scope, receive, send)
            return

        async def guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message.get("headers", ()), *HEADERS]
            await send(message)

        try:
            answer = self._check(scope)
        except WebRefused as error:
            answer = refusal(error)
        await (self._app if answer is None else answer)(scope, receive, guarded)

    def _check(self, scope: Scope) -> Response | None:
        """None for a request that is passed on. Raises WebRefused."""
        headers = Headers(scope=scope)
        path = scope["path"]
        if scope["method"] != "GET":
            raise ReadOnlyPage(scope["method"])
        if self._token is None and not is_loopback(_name_of(headers.get("host", ""))):
            raise HostRefused(headers.get("host", ""))
        if path != START and headers.get("sec-fetch-site") in ("cross-site", "same-site"):
            raise OtherSite(path)
        if self._token is None:
            return None
        given = parse_qs(scope["query_string"].decode("latin-1")).get("token", [""])[0] if path == START else ""
        if given and _same(given, self._token):
            return self._welcome(scope)
        if not self._knows(HTTPConnection(scope)):
            raise TokenMissing()
        return None

    def _welcome(self, scope: Scope) -> Response:
        """The page without the token in its address, which a browser keeps in its history."""
        answer = Response(status_code=303, headers={"location": START, "cache-control": "no-store"})
        secure = scope.get("scheme") == "https"
        # A strict one would be left out of what this answer leads to, where the link stands in a page of another site.
        answer.set_cookie(_cookie_name(scope), self._session, path="/", httponly=True, samesite="lax", secure=secure)
        return answer

    def _knows(self, asked: HTTPConnection) -> bool:
        """Whether the request has the token, or the cookie of one that had it."""
        assert self._token is not None
        kind, _, given = asked.headers.get("authorization", "").partition(" ")
        if kind.lower() == "bearer" and _same(given.strip(), self._token):
            return True
        ours = [value for name, value in asked.cookies.items() if name.startswith(f"{COOKIE}-")]
        return any(_same(value, self._session) for value in ours)

    @property
    def _session(self) -> str:
        """What the cookie holds: it opens this page alone, and does not tell the token."""
        assert self._token is not None
        return hmac.new(self._token.encode(), b"a browser that showed the token", sha256).hexdigest()


def is_loopback(host: str) -> bool:
    """Whether the name or address is one by which this machine reaches itself, whatever a name server says."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def refusal(error: WebRefused) -> Response:
    """By name, with what to do about it."""
    said = {"error": type(error).__name__, "sentence": error.describe(), "remedy": error.advice}
    return JSONResponse(said, error.status, headers={"cache-control": "no-store"})


def _name_of(host: str) -> str:
    """The name in a Host header, without the port."""
    if host.startswith("["):
        return host[1:].partition("]")[0]
    return host.partition(":")[0].lower()


def _cookie_name(scope: Scope) -> str:
    """Cookies are not of a port: two pages on one machine would take each other's."""
    server = scope.get("server") or ("", 0)
    return f"{COOKIE}-{server[1] or 0}"


def _same(given: str, wanted: str) -> bool:
    """Compared in a time that says nothing of where they differ."""
    return hmac.compare_digest(given.encode("utf-8", "surrogatepass"), wanted.encode())
