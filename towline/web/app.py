"""The routes of the live page: its own files, what happens now, questions, reports. Nothing is changed by any."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from importlib.resources import files
from typing import Any, Final

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import FileResponse, JSONResponse, Response
from starlette.routing import Route

from towline.errors import NoAnswer, TowlineError, UnknownTopic

from .errors import NoSuchPage, WebRefused
from .guard import Guard, Receive, Scope, Send, refusal
from .hub import Hub
from .questions import Questions
from .reports import Reports

QUESTIONS_MAX: Final = 4  # at once: a node answers no more about itself
KINDS: Final = {".html": "text/html", ".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}
BINARY: Final = "application/octet-stream"
NO_STORE: Final = {"cache-control": "no-store"}
PAGE: Final = "index.html"

Answer = Callable[[Request], Awaitable[Response]]


@dataclass(frozen=True, slots=True)
class Parts:
    """What the routes ask."""

    hub: Hub
    questions: Questions
    reports: Reports


class Said(JSONResponse):
    """An answer as JSON in ASCII, so that names which are no text do not keep it from being sent."""

    def render(self, content: Any) -> bytes:
        return json.dumps(content, allow_nan=False, separators=(",", ":")).encode()


class Live(Response):
    """Server-sent events until the browser goes, or the server does."""

    def __init__(self, hub: Hub, parts: list[str]) -> None:
        self._hub, self._parts = hub, parts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            browser = self._hub.subscribe(self._parts)
        except WebRefused as error:
            await refusal(error)(scope, receive, send)
            return
        headers = [
            (b"content-type", b"text/event-stream"),
            (b"cache-control", b"no-store"),
            (b"x-accel-buffering", b"no"),
        ]
        gone = asyncio.ensure_future(_gone(receive))
        try:
            await send({"type": "http.response.start", "status": 200, "headers": headers})
            while True:
                next_ = asyncio.ensure_future(browser.queue.get())
                await asyncio.wait([next_, gone], return_when=asyncio.FIRST_COMPLETED)
                if not next_.done():
                    next_.cancel()
                    return
                said = next_.result()
                await send({"type": "http.response.body", "body": said or b"", "more_body": said is not None})
                if said is None:
                    return
        finally:
            gone.cancel()
            self._hub.leave(browser)


async def _gone(receive: Receive) -> None:
    """Until the browser has closed its connection."""
    while (await receive())["type"] != "http.disconnect":
        pass


def page_files() -> dict[str, tuple[bytes, str]]:
    """Path -> bytes and media type of each file of the page."""
    found = {}
    for file in (files(__package__) / "static").iterdir():
        suffix = "." + file.name.rpartition(".")[2]
        if suffix in KINDS:
            path = "/" if file.name == PAGE else f"/{file.name}"
            found[path] = file.read_bytes(), KINDS[suffix]
    return found


def app_of(parts: Parts, token: str | None = None) -> Guard:
    """The app. Without a token it answers browsers of this machine alone."""
    own = page_files()
    limit = asyncio.Semaphore(QUESTIONS_MAX)

    async def file(request: Request) -> Response:
        body, kind = own[request.url.path]
        return Response(body, media_type=kind, headers={"cache-control": "no-cache"})

    async def live(request: Request) -> Response:
        return Live(parts.hub, request.query_params.get("parts", "").split(","))

    def asked(ask: Callable[[Mapping[str, str]], Any]) -> Answer:
        async def answer(request: Request) -> Response:
            async with limit:
                found = await run_in_threadpool(ask, request.query_params)
            return found if isinstance(found, Response) else Said(found, headers=NO_STORE)

        return answer

    questions, reports = parts.questions, parts.reports
    routes = [
        *(Route(path, file) for path in own),
        Route("/api/live", live),
        Route("/api/topic", asked(questions.topic)),
        Route("/api/group", asked(questions.group)),
        Route("/api/messages", asked(questions.messages)),
        Route("/api/body", asked(lambda given: _attached(*questions.body(given)))),
        Route("/api/reports", asked(lambda given: reports.all())),
        Route("/api/report", asked(lambda given: reports.one(given.get("path", "")))),
        Route("/api/file", asked(lambda given: _file(reports, given.get("path", "")))),
    ]

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        yield
        await parts.hub.end()

    handlers: Any = {TowlineError: _refused, HTTPException: _missing}
    return Guard(Starlette(routes=routes, exception_handlers=handlers, lifespan=lifespan), token)


def _attached(name: str, body: bytes) -> Response:
    """A download: never anything that a browser runs or shows."""
    headers = NO_STORE | {"content-disposition": f'attachment; filename="{name}"'}
    return Response(body, media_type=BINARY, headers=headers)


def _file(reports: Reports, name: str) -> Response:
    """A picture is shown; whatever else is downloaded."""
    path, is_picture = reports.file(name)
    if is_picture:
        return FileResponse(path, media_type="image/png", headers=NO_STORE)
    return FileResponse(path, media_type=BINARY, filename=path.name, headers=NO_STORE)


async def _refused(request: Request, error: TowlineError) -> Response:
    if isinstance(error, WebRefused):
        return refusal(error)
    status = 404 if isinstance(error, UnknownTopic) else 504 if isinstance(error, NoAnswer) else 409
    said = {"error": type(error).__name__, "sentence": error.describe(), "remedy": error.advice}
    named = getattr(error, "error", "")  # of a question that a node refused
    return Said(said | ({"error": named} if named else {}), status, headers=NO_STORE)


async def _missing(request: Request, error: HTTPException) -> Response:
    return refusal(NoSuchPage(request.url.path))
