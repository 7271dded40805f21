"""A put client at wire level: requests encoded beforehand, a window of them on their way, answers counted."""

import time
from typing import Any, Final, cast

import zmq

from towline.client.link.wires import link_to
from towline.errors import BenchFailed, LinkRefused, NoAnswer, TopicExists
from towline.format.wire.frames import ANSWER, ASK, Buffer, Kind, decode_put_answer, expect, json_part, read_json
from towline.format.wire.status import PutStatus
from towline.link.context import Context
from towline.link.dealer import await_any
from towline.link.poller import Poller
from towline.link.wire import Link

from .shapes import TOPIC, Load

ANSWER_MAX_MS: Final = 10_000
FACTS: Final = {"role": "producer", "cluster": "", "store": "", "name": "bench"}
STATUS_AT: Final = 1  # byte of a PUT_ANSWER


class PutClient:
    """One greeted link to a put process: over ZeroMQ, or plain TCP where the endpoint is a remoting port."""

    def __init__(self, context: Context, endpoint: str) -> None:
        self._link, self.welcome = greeted(context, endpoint)
        self._poller = Poller(self._link)

    def make_topic(self, topic: str = TOPIC, queues: int = 0) -> None:
        """A topic of so many queues, unless it is there; 0: as many as a topic has by default. Raises BenchFailed."""
        question = (
            {"op": "create_topic", "topic": topic, "queues": queues} if queues else {"op": "route", "topic": topic}
        )
        self._link.send([ASK.pack(Kind.ASK, 0), json_part(question)])
        head, facts = self._receive()
        if expect(ANSWER, head)[1] and read_json(facts).get("error") != TopicExists.__name__:
            raise BenchFailed(f"the topic was not made: {read_json(facts).get('sentence')}")

    def measure(self, load: Load, requests: int) -> float:
        """Seconds for `requests` requests, from the first one sent to the last one acknowledged."""
        self.send(load, load.shape.window)
        started = time.perf_counter()
        self.send(load, requests)
        return time.perf_counter() - started

    def send(self, load: Load, requests: int) -> None:
        """Returns when all of them are acknowledged. Raises BenchFailed."""
        link, heads, window = self._link, load.heads, load.shape.window
        records = cast(Buffer, zmq.Frame(load.records, copy=False))  # sent many times, copied never
        sent = acknowledged = 0
        while acknowledged < requests:
            while sent < requests and sent - acknowledged < window and link.send([heads[sent % len(heads)], records]):
                sent += 1
            answer: list[Buffer] | None = self._receive()
            while answer is not None:
                if answer[0][STATUS_AT] != PutStatus.PUT_OK:
                    raise BenchFailed(f"a put was refused: {decode_put_answer(answer[0]).sentence}")
                acknowledged += 1
                answer = link.receive() if acknowledged < requests else None

    def close(self) -> None:
        self._link.close()

    def _receive(self) -> list[Buffer]:
        """The next message; waits for it."""
        while (parts := self._link.receive()) is None:
            if self._link.lost or not self._poller.poll(ANSWER_MAX_MS):
                raise BenchFailed("the put process does not answer")
        return parts


def greeted(context: Context, endpoint: str) -> tuple[Link, dict[str, Any]]:
    """A link to this endpoint, and the welcome there. Raises NoAnswer, LinkRefused."""
    deadline = time.monotonic() + ANSWER_MAX_MS / 1000
    link = link_to(context, endpoint, FACTS, None)
    while True:
        try:
            welcome = link.try_greet()
        except NoAnswer:
            link.close()
            if time.monotonic() > deadline:
                raise
            link, welcome = link_to(context, endpoint, FACTS, None), None
        except LinkRefused:
            link.close()
            raise
        if welcome is not None:
            return link, welcome
        remaining_ms = int((deadline - time.monotonic()) * 1000) + 1
        if remaining_ms <= 0:
            link.close()
            raise NoAnswer(endpoint, ANSWER_MAX_MS, link.trouble)
        await_any((link,), remaining_ms)
