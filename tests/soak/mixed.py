"""A mixed load: several topics, single messages and batches, bodies from nothing to 256 KiB; told to a ledger."""

import random
import threading
import time
import zlib
from typing import Final

from towline.client.errors import ClientClosed
from towline.client.message import Message
from towline.client.producer import Producer
from towline.client.send.futures import SendFuture
from towline.errors import TowlineError
from towline.format.record.properties import UNIQ_KEY

from .ledger import Ledger

TOPICS: Final = ("orders", "payments", "clicks")
SIZES: Final = (0, 20, 20, 200, 200, 200, 1000, 1000, 4000, 30_000)
LARGE: Final = 256 << 10
LARGE_SHARE: Final = 0.004
BATCH_SHARE: Final = 0.15
WAIT_SHARE: Final = 0.05
BATCH_MAX: Final = 60
WINDOW: Final = 400
BYTES_MAX: Final = 6 << 20  # of a round: a full check at the end reads all of it


class MixedLoad(threading.Thread):
    """One round's load, until `stop` or until it has sent `bytes_max`. No message is sent twice."""

    def __init__(self, endpoint: str, ledger: Ledger, number: int, seed: int, *, bytes_max: int = BYTES_MAX) -> None:
        super().__init__(name=f"load {number}", daemon=True)
        self.error: BaseException | None = None
        self._ledger = ledger
        self._number = number
        self._random = random.Random(seed)
        self._noise = self._random.randbytes(2 * LARGE)
        self._room = threading.Semaphore(WINDOW)
        self._acked = threading.Event()
        self._stopped = False
        self._count = self._bytes = 0
        self._bytes_max = bytes_max
        batch = self._random.choice((8 << 10, 64 << 10, 512 << 10))
        self._producer = Producer(
            endpoint, linger_ms=1, batch_bytes_max=batch, in_flight_max=8, retries=0, compression=None
        )

    def await_acked(self, deadline_s: float = 20.0) -> None:
        """Until the first acknowledgement of this load."""
        assert self._acked.wait(deadline_s), f"nothing was acknowledged within {deadline_s} s: {self.error}"

    def stop(self) -> None:
        """What has no outcome yet gets none."""
        self._stopped = True
        self._producer.close(flush=False)
        self._room.release(WINDOW)
        self.join(20.0)
        assert not self.is_alive(), "the load does not end"
        assert self.error is None, self.error

    def run(self) -> None:
        try:
            while not self._stopped and self._bytes < self._bytes_max:
                self._send_some()
        except ClientClosed:
            assert self._stopped
        except TowlineError as error:
            if not self._stopped:
                self._ledger.outcomes[type(error).__name__] += 1  # the node was killed under a question
        except BaseException as error:
            self.error = error

    def _send_some(self) -> None:
        topic = self._random.choice(TOPICS)
        kind = self._random.random()
        if kind < BATCH_SHARE:
            for _ in range(self._random.randint(2, BATCH_MAX)):
                self._send(topic, queue_id=0)
        else:
            future = self._send(topic)
            if kind < BATCH_SHARE + WAIT_SHARE:
                future.exception()

    def _send(self, topic: str, queue_id: int | None = None) -> SendFuture:
        self._room.acquire()
        size = LARGE if self._random.random() < LARGE_SHARE else self._random.choice(SIZES)
        start = self._random.randrange(LARGE)
        body = self._noise[start : start + size]
        key = f"{self._number:06X}{self._count:010d}"
        self._count += 1
        self._bytes += size + 200
        message = Message(
            topic, body, tags="mixed", keys=[f"{topic}-{self._count}"], properties={UNIQ_KEY: key}, queue_id=queue_id
        )
        with self._ledger.lock:
            self._ledger.sent[key] = topic, zlib.crc32(body)
        future = self._producer.send_async(message)
        future.add_done_callback(self._done)
        return future

    def _done(self, future: SendFuture) -> None:
        error = future.exception()
        with self._ledger.lock:
            if error is None:
                result = future.result()
                self._ledger.outcomes[result.status.name] += 1
                if result.acknowledged:
                    self._ledger.acked_at[future.unique_key] = time.monotonic()
                    self._ledger.acked[future.unique_key] = result.physical_offset
                    self._acked.set()
            else:
                self._ledger.outcomes[type(error).__name__] += 1
        self._room.release()
