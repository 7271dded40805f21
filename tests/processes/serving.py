"""The read process turn by turn in the thread of a test, with real links to it."""

import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from tests.closing import closed_afterwards
from tests.serve.building import Built
from tests.serve.conftest import build
from towline.errors import NoAnswer
from towline.format.wire.frames import ANSWER, ASK, PULL_ANSWER, Kind, Pull, encode_pull, expect, json_part
from towline.format.wire.status import GetStatus
from towline.link.context import close_context, new_context
from towline.link.dealer import Link
from towline.runtime.doorbell import Doorbell
from towline.runtime.positions import Duty
from towline.serve.service import ServeAgent

__all__ = ["build", "serve"]  # the fixtures

DEADLINE_S = 60.0
MANY = 1 << 20


class Serving:
    """The agent and a peer in one thread."""

    def __init__(self, built: Built) -> None:
        self.built = built
        self.node = built.node()
        self.bell = Doorbell(built.runtime.bell(Duty.SERVE.label), self.node.line)
        self.agent = ServeAgent(self.node)
        self.agent.on_start(self.bell)
        self.context = new_context()
        self.links: list[Link] = []
        self.link = self.connect()

    def connect(self, **facts: str) -> Link:
        said = {"role": "consumer", "cluster": "DefaultCluster", "store": "", "name": "test"} | facts
        link = Link(self.context, self.agent.endpoints[0], said)
        self.links.append(link)
        self.until(lambda: self._greeted(link), "the welcome")
        return link

    def _greeted(self, link: Link) -> bool:
        try:
            self.welcome = link.greet(20)
        except NoAnswer:
            return False
        return True

    def until(self, found: Callable[[], Any], what: str) -> Any:
        """A turn of the agent, a look, until it is there."""
        deadline = time.monotonic() + DEADLINE_S
        while time.monotonic() < deadline:
            self.agent.do_work()
            value = found()
            if value:
                return value
        raise AssertionError(f"{what} did not come")

    def pull(
        self, offset: int = 0, *, request_id: int = 1, suspend: int = 0, link: Link | None = None, **more: Any
    ) -> None:
        asked = Pull(request_id, b"t", 0, offset, MANY, MANY, suspend)
        for name, value in more.items():
            setattr(asked, name, value)
        assert (link or self.link).send(encode_pull(asked))

    def answer(self, link: Link | None = None) -> tuple[tuple[Any, ...], list[Any]]:
        parts = self.until((link or self.link).receive, "the answer")
        assert parts[0][0] == Kind.PULL_ANSWER
        return expect(PULL_ANSWER, parts[0]), parts

    def status(self, link: Link | None = None) -> tuple[GetStatus, int]:
        """(status, next offset) of the next answer."""
        (_, status, _, _, _, following, *_), _ = self.answer(link)
        return GetStatus(status), following

    def hold(self, offset: int, **more: Any) -> None:
        """A pull that is held when this returns."""
        before = len(self.agent._held_pulls)
        self.pull(offset, suspend=1_000, **more)
        self.until(lambda: len(self.agent._held_pulls) == before + 1, "the held pull")

    def quiet(self) -> None:
        """No answer is under way: one that would have been sent is there before the answer to this question."""
        self.link.send([ASK.pack(Kind.ASK, 99), json_part({"op": "topics"})])
        parts = self.until(self.link.receive, "the answer")
        assert parts[0][0] == Kind.ANSWER

    def ask(self, **question: Any) -> tuple[int, dict[str, Any], list[Any]]:
        assert self.link.send([ASK.pack(Kind.ASK, 5), json_part(question)])
        parts = self.until(self.link.receive, "the answer")
        _, status, request_id, count = expect(ANSWER, parts[0])
        assert request_id == 5
        assert len(parts) == (4 if count else 2)
        return status, json.loads(bytes(parts[1])), parts[2:]

    def close(self) -> None:
        self.agent.drain()
        for link in self.links:
            link.close()
        close_context(self.context)
        self.agent.on_close()
        self.bell.close()


Serve = Callable[[Built], Serving]


@pytest.fixture
def serve() -> Iterator[Serve]:
    made: list[Serving] = []

    def new(built: Built) -> Serving:
        made.append(Serving(built))
        return made[-1]

    with contextmanager(closed_afterwards)():
        yield new
        for serving in made:
            serving.close()


def pull_of(request_id: int) -> bytes:
    return encode_pull(Pull(request_id, b"t", 0, 0, MANY, MANY, 0))[0]
