"""A verified load: producers that send at a steady rate, and a history of what became of every message."""

import random
import threading
import time
import zlib
from collections import Counter, deque
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from towline.client.errors import ClientClosed
from towline.client.message import Message
from towline.client.producer import Producer
from towline.client.send.futures import Batch, SendFuture
from towline.errors import TowlineError
from towline.format.record.properties import UNIQ_KEY

from .errors import DrillFailed
from .history import ACKNOWLEDGED, HISTORY, STORED, UNKNOWN, Outcome, key_of, line_of, topic_of

QUEUES: Final = 4
TURN_S: Final = 0.01
BEHIND_MAX_S: Final = 0.1  # what an outage held up is not made up for
WINDOW: Final = 1000  # messages of one producer without an outcome; while it is full nothing is sent
REQUESTS: Final = 16  # of an idempotent producer under way, at most one for each queue
IN_A_ROW: Final = 8  # messages to one queue before the next one's turn
SIZES: Final = (40, 200, 200, 400, 1000)
NOISE: Final = 64 << 10
DELIVERY_MS: Final = 90_000
FINISH_MAX_S: Final = 100.0


class SendingThread(threading.Thread):
    """One producer, with a topic and a thread of its own.

    It has one request under way at a time, or is idempotent: a queue's order is the order of sending, through retries
    and from one node to another. Where it is idempotent no message stands twice.
    """

    def __init__(
        self, number: int, endpoint: str, began: float, rate: float, run: int, seed: int, *, idempotent: bool
    ) -> None:
        super().__init__(name=f"drill load {number}", daemon=True)
        self.counts: Counter[str] = Counter()
        self.reasons: Counter[str] = Counter()  # statuses and errors of what was not acknowledged
        self.ended: deque[Outcome] = deque()
        self.error: BaseException | None = None
        self._number, self._run_id, self._began = number, run, began
        self._random = random.Random(seed)
        self._noise = self._random.randbytes(2 * NOISE)
        self._topic = topic_of(run, number)
        self._per_turn = max(1, round(rate * TURN_S))
        self._sent = 0
        self._room = threading.Semaphore(WINDOW)
        self._lock = threading.Lock()
        self._stopping = threading.Event()
        self._producer = Producer(
            endpoint,
            name=f"drill-{run:08x}-{number}",
            linger_ms=2,
            in_flight_max=REQUESTS if idempotent else 1,
            idempotent=idempotent,
            retries=1_000_000,
            send_timeout_ms=1500,
            delivery_timeout_ms=DELIVERY_MS,
            compression=None,
        )

    def stop(self) -> None:
        """Sends nothing more."""
        self._stopping.set()

    def await_outcomes(self, deadline: float) -> bool:
        """Whether every message has one before that monotonic time."""
        self.join(max(0.0, deadline - time.monotonic()))
        taken = 0
        while taken < WINDOW and self._room.acquire(timeout=max(0.0, deadline - time.monotonic())):
            taken += 1
        return taken == WINDOW

    def close(self) -> None:
        """What has no outcome gets the one that the producer gives it now."""
        self.stop()
        self._producer.close(flush=False)
        self.join(5.0)

    def run(self) -> None:
        try:
            self._send_all()
        except ClientClosed:  # it was closed before its end: the drill was interrupted
            self.stop()
        except BaseException as error:
            self.error = error

    def _send_all(self) -> None:
        due = time.monotonic()
        while not self._stopping.wait(max(0.0, due - time.monotonic())):
            for _ in range(self._per_turn):
                if not self._room.acquire(timeout=TURN_S):
                    break
                self._send()
            due = max(due + TURN_S, time.monotonic() - BEHIND_MAX_S)

    def _send(self) -> None:
        start = self._random.randrange(NOISE)
        body = self._noise[start : start + self._random.choice(SIZES)]
        key, queue = key_of(self._run_id, self._number, self._sent), self._sent // IN_A_ROW % QUEUES
        self._sent += 1
        crc, began = zlib.crc32(body), self._now()
        message = Message(self._topic, body, queue_id=queue, properties={UNIQ_KEY: key})
        try:
            future = self._producer.send_async(message)
        except ClientClosed:
            raise
        except TowlineError as error:  # a topic's route, or room in the buffer, was not to be had
            self._note(Outcome(key, self._topic, queue, -1, crc, UNKNOWN, 0, began, self._now()), type(error).__name__)
            return
        future.add_done_callback(lambda done: self._done(done, crc, queue, began))

    def _done(self, future: SendFuture, crc: int, queue: int, began: float) -> None:
        error, offset, status, reason = future.exception(), -1, UNKNOWN, ""
        if error is not None:
            reason = type(error).__name__
        else:
            result = future.result()
            offset, status = result.queue_offset, ACKNOWLEDGED if result.acknowledged else STORED
            reason = "" if result.acknowledged else result.status.name
        attempts = future.batch.attempts if isinstance(future.batch, Batch) else 0  # it never came into a batch
        ended = Outcome(future.unique_key, self._topic, queue, offset, crc, status, attempts, began, self._now())
        self._note(ended, reason)

    def _note(self, outcome: Outcome, reason: str) -> None:
        with self._lock:
            self.counts[outcome.status] += 1
            if reason:
                self.reasons[reason] += 1
        self.ended.append(outcome)
        self._room.release()

    def _now(self) -> float:
        return time.monotonic() - self._began


class VerifiedLoad:
    """A sending thread for each of `endpoints`, `rate` messages a second together. `flush` writes what has ended."""

    def __init__(
        self, directory: Path, endpoints: Sequence[str], began: float, *, rate: int, seed: int, idempotent: bool
    ) -> None:
        draw = random.Random(seed)
        run, share = draw.getrandbits(32), rate / len(endpoints)
        self.topics = [topic_of(run, number) for number in range(len(endpoints))]
        self._threads = [
            SendingThread(number, endpoint, began, share, run, draw.getrandbits(32), idempotent=idempotent)
            for number, endpoint in enumerate(endpoints)
        ]
        self._writing = threading.Lock()
        self._file = (directory / HISTORY).open("ab")

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    @property
    def counts(self) -> Counter[str]:
        """Messages by status, so far."""
        return sum((thread.counts for thread in self._threads), Counter())

    @property
    def reasons(self) -> Counter[str]:
        """Messages that were not acknowledged, by status or error."""
        return sum((thread.reasons for thread in self._threads), Counter())

    @property
    def acknowledged(self) -> int:
        return sum(thread.counts[ACKNOWLEDGED] for thread in self._threads)

    def check(self) -> None:
        """Raises DrillFailed when the load itself has broken."""
        for thread in self._threads:
            if thread.error is not None:
                raise DrillFailed(f"the load ended with {type(thread.error).__name__}: {thread.error}")

    def flush(self) -> None:
        """By any thread; nothing after `close`."""
        with self._writing:
            for thread in [] if self._file.closed else self._threads:
                self._file.write(b"".join(line_of(thread.ended.popleft()) for _ in range(len(thread.ended))))

    def finish(self) -> None:
        """Sends nothing more and waits until every message has its outcome. Raises DrillFailed."""
        deadline = time.monotonic() + FINISH_MAX_S
        for thread in self._threads:
            thread.stop()
        whole = [thread.await_outcomes(deadline) for thread in self._threads]
        self.close()
        self.check()
        if not all(whole):
            raise DrillFailed(f"messages of the load have no outcome after {FINISH_MAX_S:.0f} s")

    def close(self) -> None:
        for thread in self._threads:
            thread.close()
        self.flush()
        with self._writing:
            self._file.close()
