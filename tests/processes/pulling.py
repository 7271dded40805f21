"""Pulls as they go over a link, without the client library."""

import time
from dataclasses import dataclass
from typing import Any, Final, Self

import numpy as np

from towline.format.wire.frames import PULL_ANSWER, RECORDS_IN_FILE, Kind, Pull, encode_pull, expect, read_json
from towline.format.wire.status import GetStatus
from towline.link.context import close_context, new_context
from towline.link.dealer import Link
from towline.link.log_files import LogFiles
from towline.link.poller import Poller

from .nodes import TestNode

ANSWER_MAX_S: Final = 60.0
MANY: Final = 1 << 20


def serve_of(node: TestNode) -> str:
    return next(str(each) for each in node.facts["endpoints"]["serve"] if str(each).startswith("ipc"))


@dataclass(frozen=True, slots=True)
class Answer:
    """`error` is that of a refusal. `in_file`: only the place of the records came over the link."""

    status: GetStatus
    following: int
    low: int
    high: int
    sizes: list[int]
    records: bytes
    in_file: bool
    error: str

    @property
    def table_row(self) -> tuple[GetStatus, int, int, int]:
        return self.status, self.following, self.low, self.high


class PullLink:
    """One greeted link to a node's serve process. `raw` names a pull, and `answer` is what it gets."""

    def __init__(self, node: TestNode) -> None:
        self._context, endpoint = new_context(), serve_of(node)
        self.link = Link(self._context, endpoint, {"role": "consumer", "cluster": "", "store": "", "name": "test"})
        self._files = LogFiles.of(endpoint, self.link.greet(10_000))

    def send(self, topic: str, queue: int, offset: int, **more: Any) -> None:
        given = {"max_count": MANY, "max_bytes": 4 * MANY, "suspend": 0} | more
        assert self.link.send(encode_pull(Pull(1, topic.encode(), queue, offset, **given)))

    def answer(self, timeout_s: float = ANSWER_MAX_S) -> Answer | None:
        """None when nothing came in time."""
        poller, deadline = Poller(self.link), time.monotonic() + timeout_s
        while (parts := self.link.receive()) is None:
            left = deadline - time.monotonic()
            if left <= 0:
                return None
            poller.poll(max(1, int(1000 * left)))
        assert parts[0][0] == Kind.PULL_ANSWER
        _, status, _, _, count, following, low, high, flags = expect(PULL_ANSWER, parts[0])
        refused = status == GetStatus.REFUSED
        in_file = bool(flags & RECORDS_IN_FILE)
        records = parts[2] if count else b""
        if in_file:
            assert self._files is not None
            records = self._files.read(records)
            assert records is not None
        return Answer(
            GetStatus(status),
            following,
            low,
            high,
            np.frombuffer(parts[1], dtype=">u4").tolist() if count else [],
            bytes(records),
            in_file,
            str(read_json(parts[1])["error"]) if refused else "",
        )

    def pull(self, topic: str, queue: int, offset: int, **more: Any) -> Answer:
        self.send(topic, queue, offset, **more)
        found = self.answer()
        assert found is not None
        return found

    def close(self) -> None:
        if self._files is not None:
            self._files.close()
        self.link.close()
        close_context(self._context)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
