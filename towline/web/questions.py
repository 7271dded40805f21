"""What a person asks once: a topic's queues, a group, messages by one of five means, the body of one. By threads."""

import base64
from collections.abc import Callable, Mapping
from contextlib import closing
from datetime import datetime
from typing import Any, Final

from towline.client.admin import ALWAYS_MS, AdminClient
from towline.client.link.routes import group_routes
from towline.client.lookup import Wanted, describe, find
from towline.client.message import ReceivedMessage
from towline.client.read.reader import to_ms
from towline.errors import TowlineError

from .errors import BadQuestion, NothingFound
from .source import NAME

ASK_MS: Final = 5_000
FOUND_MAX: Final = 64
BODY_SHOWN: Final = 64 * 1024  # bytes of a body in a list; a download has all of it
MEANS: Final = ("key", "unique_key", "id", "offset", "time")

Asked = Mapping[str, str]
Ways = Callable[[], dict[str, str]]  # group of nodes -> endpoint that leads to its master, or to any of its nodes


def ways_of(endpoint: str) -> Ways:
    """One way for each group of nodes that the endpoint names."""

    def ways() -> dict[str, str]:
        found = {}
        for way in group_routes(endpoint):
            nodes = way.endpoints() if callable(way.endpoints) else way.endpoints
            found[way.name] = nodes if isinstance(nodes, str) else ",".join(nodes)
        return found

    return ways


class Questions:
    """Asks over connections of their own, one for each question: a person waits for an answer, and no list does."""

    def __init__(self, ways: Ways) -> None:
        self._ways = ways

    def topic(self, asked: Asked) -> dict[str, Any]:
        """The queues of a topic in each group that has it: queue, min, max. Raises NothingFound."""
        name = _text(asked, "topic")
        found = self._each(lambda admin: sorted((queue, *ends) for queue, ends in admin.bounds(name).items()))
        if not found.answers:
            raise found.why or NothingFound(f"topic {name}")
        return {"topic": name, "groups": [{"group": group, "queues": rows} for group, rows in found.answers.items()]}

    def group(self, asked: Asked) -> dict[str, Any]:
        """Members, queues and lag of a consumer group, in each group of nodes that has it. Raises NothingFound."""
        name = _text(asked, "group")
        found = self._each(lambda admin: admin.describe_group(name), masters_only=True)
        if not found.answers:
            raise found.why or NothingFound(f"group {name}")
        return {"group": name, "nodes": [{"place": place} | facts for place, facts in found.answers.items()]}

    def messages(self, asked: Asked) -> dict[str, Any]:
        """What a search finds in all groups of nodes, the newest of each, with the remarks of the search."""
        wanted = wanted_of(asked)
        found = self._each(lambda admin: find(admin, wanted))
        if not found.answers:
            raise found.why or NothingFound("such a message")
        rows, remarks = [], []
        for group, (messages, said) in found.answers.items():
            rows += [_described(group, message) for message in messages]
            remarks += said
        return {"messages": rows, "remarks": remarks}

    def body(self, asked: Asked) -> tuple[str, bytes]:
        """The whole body of a message, and the name of a file for it. Raises NothingFound."""
        id_ = _text(asked, "id")
        found = self._each(lambda admin: admin.by_id(id_))
        for message in found.answers.values():
            if message is not None:
                return f"{message.queue_id}-{message.queue_offset}.bin", message.body
        raise found.why or NothingFound(f"message {id_}")

    def _each(self, ask: Callable[[AdminClient], Any], *, masters_only: bool = False) -> "_Answers":
        answers, why = {}, None
        for group, endpoint in self._ways().items():
            try:
                made = AdminClient(endpoint, name=NAME, timeout_ms=ASK_MS, masters_only=masters_only)
                with closing(made) as admin:
                    answers[group] = ask(admin)
            except TowlineError as error:  # another group may have it
                why = error
        return _Answers(answers, why)


class _Answers:
    """By group; `why` is the last refusal."""

    def __init__(self, answers: dict[str, Any], why: TowlineError | None) -> None:
        self.answers, self.why = answers, why


def wanted_of(asked: Asked) -> Wanted:
    """What a query string searches for. Raises BadQuestion."""
    by, value, topic = _text(asked, "by"), _text(asked, "value"), asked.get("topic", "")
    if by not in MEANS:
        raise BadQuestion(f"messages are searched by one of {', '.join(MEANS)}, not by {by!r}")
    if not topic and by not in ("id", "offset"):
        raise BadQuestion("a search by key, unique key or time needs a topic")
    given: dict[str, Any] = {by: value}
    if by == "offset":
        given = {by: _number(value)}
    elif by == "time":
        given = {by: _time(value)}
    begin, end = asked.get("begin", ""), asked.get("end", "")
    count = _number(asked.get("max", "") or "32")
    return Wanted(
        topic=topic,
        begin=_time(begin) if begin else 0,
        end=_time(end) if end else ALWAYS_MS,
        max_count=max(1, min(FOUND_MAX, count)),
        **given,
    )


def _text(asked: Asked, name: str) -> str:
    found = asked.get(name, "")
    if not found:
        raise BadQuestion(f"the question lacks {name}")
    return found


def _number(text: str) -> int:
    if not (text.isascii() and text.isdigit()) or len(text) > 18:
        raise BadQuestion(f"{text!r} is no number")
    return int(text)


def _time(text: str) -> int:
    """The ms since 1970 of a time as 2026-01-31T12:00, or of what is given in ms."""
    if text.isascii() and text.isdigit():
        return _number(text)
    try:
        return to_ms(datetime.fromisoformat(text))
    except (ValueError, OverflowError):  # of one at the ends of the calendar too
        raise BadQuestion(f"{text!r} is no time as 2026-01-31T12:00") from None


def _described(group: str, message: ReceivedMessage) -> dict[str, Any]:
    """The body as base64 of its beginning, with its size; None with the reason where it cannot be decompressed."""
    found = describe(message) | {"group": group}
    body: bytes | None = found["body"]
    if body is not None:
        found |= {"body": base64.b64encode(body[:BODY_SHOWN]).decode(), "body_size": len(body)}
    return found
