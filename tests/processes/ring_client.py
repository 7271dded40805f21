"""A client of a put ring without the client library, which can be told to end itself in the middle of a request.

python -m tests.processes.ring_client ENDPOINT TOPIC STEP     3 whole requests, then one that gets as far as STEP
"""

import os
import signal
import sys
import time
from typing import Final

from towline.format.wire.frames import ASK, Group, Kind, PutAnswer, decode_put_answer, encode_put, json_part, read_json
from towline.link.context import close_context, new_context
from towline.link.dealer import Link
from towline.link.poller import Poller
from towline.link.put_ring import ClientRing, Offer

from .wire import ANSWER_MAX_S, Request, records_of

FACTS: Final = {"role": "producer", "cluster": "", "store": "", "name": "ring client"}
NEVER: Final = (1 << 62) - 1
WHOLE: Final = 3
# What a request is made of, in this order. Only the last store makes it one.
STEPS: Final = ("before the word", "before the head", "inside the head", "inside the records", "before the tail")
LAST: Final = "after the tail"


class RawRing:
    """A greeted link, and a ring that put has taken."""

    def __init__(self, endpoint: str) -> None:
        self._context = new_context()
        self.link = Link(self._context, endpoint, FACTS)
        self.welcome = self.link.greet(5000)
        self._poller = Poller(self.link)
        offer = Offer.of(self.welcome)
        assert offer is not None, self.welcome
        self.ring = ClientRing(offer)
        answer = self.ask({"op": "open_ring", **self.ring.facts})
        assert "error" not in answer, answer

    def ask(self, question: dict) -> dict:
        self.link.send([ASK.pack(Kind.ASK, 0), json_part(question)])
        while (parts := self.link.receive()) is None:
            assert self._poller.poll(int(ANSWER_MAX_S * 1000)), "put does not answer"
        return read_json(parts[1])

    def head(self, request: Request, number: int = 0) -> bytes:
        return encode_put(number, 0, NEVER, [Group(request.topic, 0, len(request.records), len(request.data))])

    def put(self, request: Request, number: int = 0) -> PutAnswer:
        assert self.ring.send(self.head(request, number), request.data)
        return self.answer()

    def answer(self) -> PutAnswer:
        end = time.monotonic() + ANSWER_MAX_S
        while (answer := self.ring.receive()) is None:
            assert time.monotonic() < end, "put does not answer"
        return decode_put_answer(answer)

    def close(self) -> None:
        self.ring.close()
        self.link.close()
        close_context(self._context)


class _Words:
    def __init__(self, words: memoryview, ring: ClientRing) -> None:
        self._words, self._tail = words, 0

    def __getitem__(self, word: int) -> int:
        return int(self._words[word])

    def __setitem__(self, word: int, value: int) -> None:
        reach("before the word" if word > 64 else "before the tail")
        self._words[word] = value
        if word <= 64:
            reach("after the tail")


class _Bytes:
    def __init__(self, view: memoryview) -> None:
        self._view, self._part = view, 0

    def __setitem__(self, part: slice, data: bytes) -> None:
        name = ("head", "records")[self._part]
        reach(f"before the {name}")
        half = part.start + len(data) // 2
        self._view[part.start : half] = data[: len(data) // 2]
        reach(f"inside the {name}")
        self._view[part] = data
        self._part += 1


def reach(step: str) -> None:
    if step == sys.argv[3]:
        os.kill(os.getpid(), signal.SIGKILL)


def main() -> None:
    endpoint, topic, _ = sys.argv[1:]
    client = RawRing(endpoint)
    request = records_of(topic.encode(), 2)
    for number in range(WHOLE):
        assert client.put(request, number).status == 0
    writer = client.ring.requests
    writer._words, writer._view = _Words(writer._words, client.ring), _Bytes(writer._view)
    client.ring.send(client.head(request, WHOLE), request.data)


if __name__ == "__main__":
    main()
