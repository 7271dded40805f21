"""A load with a real Producer in a thread of its own. What it sends is known beforehand, so losses have names."""

import random
import threading
import time
import zlib
from collections import Counter
from typing import Final

from towline.client.message import Message
from towline.client.producer import Producer
from towline.client.send.futures import Batch, SendFuture
from towline.format.record.properties import UNIQ_KEY
from towline.format.record.record import body_crc

BODY_SIZE: Final = 200  # all of one size: then a stale record behind a cut would fit exactly (H1)
BATCH_BYTES: Final = 8 << 10
DELIVERY_MS: Final = 100_000
OUTCOMES_S: Final = 150.0  # for the last outcome: a message that nobody answers has its own by DELIVERY_MS
RATE: Final = 6000.0
CREDIT_S: Final = 0.005  # what was not sent in a longer pause is not made up for: it would come all at once
TAGS: Final = ("red", "green", "blue")


class Load(threading.Thread):
    """`count` messages to one topic, at most `window` of them without an outcome. Ends when all have one.

    `rate`: at most so many messages in a second, so that a load lasts while something else happens to it, however fast
    the machine is.

    `sent` maps each unique key to its body's CRC. `acked` holds the keys that were promised, in the order of their
    acknowledgements; `outcomes` counts statuses, and the names of errors for what was refused; `attempts` how often
    each was sent.

    What is to be sent after a restart is kept back by `hold` until `finish`: however long the restart takes, the load
    does not run out meanwhile.
    """

    def __init__(
        self,
        endpoint: str,
        topic: str,
        seed: int,
        *,
        count: int = 6000,
        window: int = 400,
        rate: float = RATE,
        idempotent: bool = False,
    ) -> None:
        super().__init__(name=f"load {topic}", daemon=True)
        self.topic = topic
        self.seed = seed
        self.count = count
        self.acked: list[str] = []
        self.outcomes: Counter[str] = Counter()
        self.attempts: Counter[str] = Counter()
        self.error: BaseException | None = None
        self._endpoint = endpoint
        self._random = random.Random(seed)
        self._bodies = [self._random.randbytes(BODY_SIZE) for _ in range(count)]
        self.keys = [f"{zlib.crc32(topic.encode()):08X}{seed & 0xFFFF:04X}{number:08d}" for number in range(count)]
        self.sent = {key: body_crc(body) for key, body in zip(self.keys, self._bodies, strict=True)}
        self._room = threading.Semaphore(window)
        self._rate, self._idempotent = rate, idempotent
        self._moved = threading.Condition()
        self._stopped = threading.Event()
        self._held = 0
        self._goes_on = threading.Event()

    def hold(self, count: int) -> None:
        """The last `count` messages are sent when `finish` is called. Before the load starts."""
        self._held = count

    def moment(self, acks_after: int = 1000) -> int:
        """A number of acknowledgements between 10% and 90% of the load; the last `acks_after` messages are held."""
        self.hold(acks_after)
        return self._random.randint(self.count // 10, min(self.count * 9 // 10, self.count - acks_after - 200))

    def await_acked(self, count: int, deadline_s: float = 90.0) -> None:
        with self._moved:
            reached = self._moved.wait_for(lambda: len(self.acked) >= count or self.error, deadline_s)
        assert reached, f"{len(self.acked)} of {count} acknowledgements within {deadline_s} s, {dict(self.outcomes)}"
        assert self.error is None, self.error

    def finish(self, deadline_s: float = OUTCOMES_S) -> None:
        """Until every message has its outcome."""
        self._goes_on.set()
        self.join(deadline_s)
        assert not self.is_alive(), f"messages without an outcome after {deadline_s} s: {dict(self.outcomes)}"
        assert self.error is None, self.error
        assert sum(self.outcomes.values()) == self.count

    def stop(self) -> None:
        """Sends nothing more; what is under way gets its outcome."""
        self._stopped.set()
        self._goes_on.set()

    def run(self) -> None:
        try:
            self._run()
        except BaseException as error:
            with self._moved:
                self.error = error
                self._moved.notify_all()

    def _run(self) -> None:
        settings = {"batch_bytes_max": BATCH_BYTES, "in_flight_max": 4, "retries": 1000, "idempotent": self._idempotent}
        with Producer(self._endpoint, linger_ms=1, delivery_timeout_ms=DELIVERY_MS, **settings) as producer:
            at = time.monotonic()
            for number, (key, body) in enumerate(zip(self.keys, self._bodies, strict=True)):
                if number == self.count - self._held:
                    self._goes_on.wait()
                self._room.acquire()
                now = time.monotonic()
                at = max(at, now - CREDIT_S)
                early, at = at - now, at + 1 / self._rate
                if self._stopped.wait(early) if early > 0.001 else self._stopped.is_set():
                    return
                message = Message(
                    self.topic,
                    body,
                    tags=TAGS[number % len(TAGS)],
                    keys=[f"{self.topic}-{number // 2}"],
                    properties={UNIQ_KEY: key},
                )
                producer.send_async(message).add_done_callback(self._done)

    def _done(self, future: SendFuture) -> None:
        error = future.exception()
        outcome = type(error).__name__ if error is not None else future.result().status.name
        with self._moved:
            self.outcomes[outcome] += 1
            self.attempts[future.unique_key] = future.batch.attempts if isinstance(future.batch, Batch) else 0
            if outcome == "PUT_OK":
                self.acked.append(future.unique_key)
            self._moved.notify_all()
        self._room.release()
