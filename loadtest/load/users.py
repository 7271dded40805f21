"""Users that Locust runs: each has clients of its own, the public ones, and reports every request to Locust.

A request that was stored but not promised (FLUSH_DISK_TIMEOUT and the like) is a failure named by its status. A batch
is one request, and its messages are counted beside it.
"""

import os
import time
import uuid
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from locust import User, constant, constant_throughput, task
from locust.env import Environment

from towline.client.columns import Columns
from towline.client.consumer import Consumer
from towline.client.message import Message
from towline.client.producer import Producer
from towline.client.send.futures import SendResult
from towline.errors import TowlineError

from .plan import LoadPlan

PLAN: Final = LoadPlan.read()
KEYS: Final = "acknowledged-{}.txt"  # one unique key in a line
MESSAGES: Final[Counter[str]] = Counter()  # kind of request -> messages, of this process, not at the master yet
POLL_MS: Final = 500
SLOW_COUNT: Final = 32
SLOW_S: Final = 0.5
MS: Final = 1000.0


class NotPromised(Exception):
    """Stored, and the answer was no acknowledgement."""


class Kept:
    """The unique keys that were acknowledged to this process; a line each, written at once."""

    def __init__(self, directory: Path | None) -> None:
        self._file = None
        if directory is not None:
            path = directory / KEYS.format(f"{os.getpid()}-{uuid.uuid4().hex[:8]}")
            self._file = path.open("w", encoding="ascii", buffering=1)

    def add(self, results: list[SendResult]) -> None:
        if self._file is not None:
            self._file.write("".join(f"{result.unique_key}\n" for result in results))


KEPT: Final = Kept(PLAN.directory)


class TowlineUser(User):
    """What all users share."""

    abstract = True
    wait_time = constant_throughput(PLAN.per_user) if PLAN.per_user > 0 else constant(0)

    def __init__(self, environment: Environment) -> None:
        super().__init__(environment)
        self._body = os.urandom(PLAN.body_size)
        self._producer: Producer | None = None
        self._consumer: Consumer | None = None

    def on_stop(self) -> None:
        for client in (self._producer, self._consumer):
            if client is not None:
                client.close()

    @property
    def producer(self) -> Producer:
        if self._producer is None:
            self._producer = Producer(PLAN.put, serve=PLAN.serve)
        return self._producer

    def consumer(self, start: Any, max_count: int = 10_000) -> Consumer:
        if self._consumer is None:
            self._consumer = Consumer(PLAN.serve, PLAN.topic, start=start, max_count=max_count, suspend_ms=POLL_MS)
        return self._consumer

    @contextmanager
    def request(self, kind: str) -> Iterator[dict[str, int]]:
        """Times what is inside; the dict takes `bytes` and `messages`."""
        done, failure = {"bytes": 0, "messages": 0}, None
        begun = time.perf_counter()
        try:
            yield done
        except (TowlineError, NotPromised) as error:
            failure = error
        self.report(kind, (time.perf_counter() - begun) * MS, done["bytes"], failure)
        MESSAGES[kind] += done["messages"]

    def report(self, kind: str, ms: float, size: int = 0, failure: Exception | None = None) -> None:
        self.environment.events.request.fire(
            request_type=kind, name=PLAN.topic, response_time=ms, response_length=size, exception=failure, context={}
        )

    def put(self) -> None:
        with self.request("PUT") as done:
            _promised([self.producer.send(Message(PLAN.topic, self._body))], done)

    def put_batch(self) -> None:
        messages = [Message(PLAN.topic, self._body) for _ in range(PLAN.batch)]
        with self.request("PUT_BATCH") as done:
            _promised(self.producer.send_batch(messages), done)

    def pull(self, consumer: Consumer) -> Columns | None:
        """What came, if anything did."""
        columns = None
        with self.request("PULL") as done:
            columns = consumer.poll_columns(POLL_MS)
            if columns is not None:
                done["bytes"], done["messages"] = int(columns.size.sum()), len(columns)
        return columns

    def pull_at_the_end(self) -> None:
        """END_TO_END is how long ago the oldest message of an answer was born."""
        columns = self.pull(self.consumer("last"))
        if columns is not None:
            self.report("END_TO_END", max(0.0, time.time() * MS - float(columns.born_timestamp.min())))


def _promised(results: list[SendResult], done: dict[str, int]) -> None:
    """Raises NotPromised."""
    kept = [result for result in results if result.acknowledged]
    KEPT.add(kept)
    done["messages"], done["bytes"] = len(kept), len(kept) * PLAN.body_size
    missing = sorted({result.status.name for result in results if not result.acknowledged})
    if missing:
        raise NotPromised(", ".join(missing))


class PutUser(TowlineUser):
    """Sends one message and waits for its acknowledgement."""

    @task
    def send(self) -> None:
        self.put()


class BatchPutUser(TowlineUser):
    """Sends a batch and waits for all of it."""

    @task
    def send(self) -> None:
        self.put_batch()


class PullUser(TowlineUser):
    """Reads at the end of all queues."""

    @task
    def read(self) -> None:
        self.pull_at_the_end()


class MixedUser(TowlineUser):
    """Three single messages, one batch and four pulls in the mean."""

    @task(3)
    def send(self) -> None:
        self.put()

    @task(1)
    def send_batch(self) -> None:
        self.put_batch()

    @task(4)
    def read(self) -> None:
        self.pull_at_the_end()


class SlowUser(TowlineUser):
    """Reads everything from the beginning, a few messages at a time, and works on them for long."""

    @task
    def read(self) -> None:
        if self.pull(self.consumer("first", SLOW_COUNT)) is not None:
            time.sleep(SLOW_S)  # gevent's, which lets the others go on
