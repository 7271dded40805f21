"""A put client without the client library: requests as bytes, so that a test can send what no honest client would."""

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from towline.format.record.record import MessageEncoder
from towline.format.wire.frames import (
    ASK,
    Group,
    Kind,
    PutAnswer,
    decode_put_answer,
    encode_put,
    json_part,
    kind_of,
    read_json,
)
from towline.link.context import close_context, new_context
from towline.link.dealer import Link
from towline.link.poller import Poller

ANSWER_MAX_S = 60.0


@dataclass
class Request:
    """One group of equal records; `damage` changes its bytes before they are sent."""

    topic: bytes
    queue_id: int
    records: list[bytes]

    @property
    def data(self) -> bytes:
        return b"".join(self.records)

    def start_of(self, number: int) -> int:
        return sum(len(record) for record in self.records[:number])


def records_of(topic: bytes, count: int, *, queue_id: int = 0, size: int = 100) -> Request:
    encoder = MessageEncoder(topic)
    properties = b"UNIQ_KEY\x01%08d\x02TAGS\x01red\x02"
    now = time.time_ns() // 1_000_000
    records = [
        encoder.encode(queue_id, b"%04d" % number + b"x" * (size - 4), properties % number, born_timestamp=now)
        for number in range(count)
    ]
    return Request(topic, queue_id, records)


class WireClient:
    """One greeted link to the put process of a node."""

    opened: ClassVar[set["WireClient"]] = set()

    def __init__(self, endpoint: str) -> None:
        self.opened.add(self)
        self.context = new_context()
        self.link = Link(self.context, endpoint, {"role": "producer", "cluster": "", "store": "", "name": "wire"})
        self.welcome = self.link.greet(60_000)
        self._poller = Poller(self.link)
        self._next = 0

    def create_topic(self, topic: str, queues: int) -> None:
        """Creates it unless it is there."""
        self.ask({"op": "create_topic", "topic": topic, "queues": queues})

    def ask(self, question: dict[str, Any]) -> dict[str, Any]:
        """The facts of the answer to a question."""
        assert self.link.send([ASK.pack(Kind.ASK, 0), json_part(question)])
        parts = self.receive(ANSWER_MAX_S)
        assert parts is not None, "no answer came in time"
        return read_json(parts[1])

    def put(self, request: Request, data: bytes | None = None, *, count: int | None = None) -> PutAnswer:
        self.send(request, data, count=count)
        return self.answer()

    def send(self, request: Request, data: bytes | None = None, *, count: int | None = None) -> None:
        data = request.data if data is None else data
        group = Group(request.topic, request.queue_id, len(request.records) if count is None else count, len(data))
        self._next += 1
        deadline = int(self.welcome["now"]) + 600_000
        assert self.link.send([encode_put(self._next, 0, deadline, [group]), data])

    def answer(self, timeout_s: float = ANSWER_MAX_S) -> PutAnswer:
        parts = self.receive(timeout_s)
        assert parts is not None, "no answer came in time"
        assert kind_of(parts[0]) == Kind.PUT_ANSWER
        return decode_put_answer(parts[0])

    def receive(self, timeout_s: float) -> list | None:
        """The next message; None when none came in time or the link was cut."""
        deadline = time.monotonic() + timeout_s
        while (left := deadline - time.monotonic()) > 0 and not self.link.lost:
            parts = self.link.receive()
            if parts is not None:
                return parts
            self._poller.poll(max(1, int(left * 1000)))
        return None

    def close(self) -> None:
        self.opened.discard(self)
        self.link.close()
        close_context(self.context)


def endpoint_of(runtime: Path) -> str:
    return f"ipc://{runtime / 'put.sock'}"
