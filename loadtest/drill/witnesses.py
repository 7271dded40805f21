"""Clients beside the load that note what a judge of the end cannot see: what was read, and when.

Readers follow the load's queues. Keepers write values into registers and read them back. A register is a queue, and its
value the last one that was sent there. A read of it sends a message of its own and takes the value that stands before
that, once it has read up to there: it says what the log held when that message was stored, through any failover.
"""

import random
import threading
import time
import zlib
from abc import ABC, abstractmethod
from collections import defaultdict, deque
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

from towline.client.consumer import Consumer
from towline.client.errors import ClientClosed, ReadRefused
from towline.client.message import Message, ReceivedMessage
from towline.client.producer import Producer
from towline.client.send.futures import SendResult
from towline.errors import LinkRefused, NoAnswer, TowlineError

from .errors import DrillFailed
from .history import write_lines
from .load import DELIVERY_MS, FINISH_MAX_S, QUEUES
from .operations import READ, WITNESSED, WRITE, Operation, in_places, list_of, register_of, value_of

TURN_S: Final = 0.02
POLL_MS: Final = 20
AWAY_MS: Final = 1000  # how long a node may be out of reach before it is asked anew
VISIBLE_MAX_S: Final = 60.0  # what was acknowledged is to be read by then, also when its master died
_NO_NODE: Final = (NoAnswer, LinkRefused, ReadRefused)  # the master has died, or is none any more


class Witness(ABC, threading.Thread):
    """`noted` are its operations; `error` is what ended it before it was stopped."""

    def __init__(self, who: str, began: float) -> None:
        super().__init__(name=f"drill {who}", daemon=True)
        self.noted: list[Operation] = []
        self.error: BaseException | None = None
        self.stopping = threading.Event()
        self._who, self._began = who, began

    def run(self) -> None:
        try:
            while not self.stopping.wait(TURN_S):
                self.turn()
        except ClientClosed:  # the drill was interrupted
            pass
        except BaseException as error:
            self.error = error
        finally:
            self.close()

    @abstractmethod
    def turn(self) -> None: ...

    @abstractmethod
    def close(self) -> None:
        """At its end, by its own thread."""

    def give_up(self) -> None:
        """By another thread: it waits for no outcome any more."""
        self.stopping.set()

    def now(self) -> float:
        return time.monotonic() - self._began


class Reader(Witness):
    """Follows all queues of some topics from their beginning. What comes is one read of one list."""

    def __init__(self, number: int, endpoint: str, topics: Sequence[str], began: float) -> None:
        super().__init__(f"reader {number}", began)
        self._consumers = {
            topic: Consumer(endpoint, topic, timeout_ms=AWAY_MS, name=f"drill-reader-{number}") for topic in topics
        }
        self._next: defaultdict[tuple[str, int], int] = defaultdict(int)  # by topic and queue: the offset that is due

    def turn(self) -> None:
        for topic, consumer in self._consumers.items():
            began = self.now()
            try:
                messages = consumer.poll(POLL_MS)
            except _NO_NODE:
                continue
            if messages:
                self._note(topic, messages, began)

    def close(self) -> None:
        for consumer in self._consumers.values():
            consumer.close()

    def _note(self, topic: str, messages: Sequence[ReceivedMessage], began: float) -> None:
        queue = messages[0].queue_id
        first = min(self._next[topic, queue], messages[0].queue_offset)
        found = ((each.queue_offset, value_of(each.unique_key or "", zlib.crc32(each.body))) for each in messages)
        values = in_places(first, found)
        self._next[topic, queue] = first + len(values)
        read = {"from": first, "values": values, "whole": False}
        self.noted.append(Operation(self._who, list_of(topic, queue), READ, began, self.now(), {}, read))


class Keeper(Witness):
    """Writes registers and reads them, by turns that its seed gives."""

    def __init__(self, number: int, endpoint: str, topic: str, began: float, seed: int) -> None:
        super().__init__(f"keeper {number}", began)
        self._number, self._topic, self._random = number, topic, random.Random(seed)
        self._written = 0
        self._given_up = threading.Event()
        self._values: defaultdict[int, str] = defaultdict(str)  # by queue
        self._next: defaultdict[int, int] = defaultdict(int)
        self._coming: defaultdict[int, deque[ReceivedMessage]] = defaultdict(deque)  # behind what was read so far
        self._known: set[str | None] = set()  # unique keys: a second copy of a message writes nothing
        self._producer = Producer(
            endpoint,
            name=f"drill-keeper-{number}",
            in_flight_max=1,
            retries=1_000_000,
            send_timeout_ms=1500,
            delivery_timeout_ms=DELIVERY_MS,
        )
        self._consumer = Consumer(endpoint, topic, timeout_ms=AWAY_MS, name=f"drill-keeper-{number}")

    def turn(self) -> None:
        queue = self._random.randrange(QUEUES)
        if self._random.random() < 0.5:
            self._write(queue)
        else:
            self._read(queue)

    def close(self) -> None:
        self._producer.close(flush=False)
        self._consumer.close()

    def give_up(self) -> None:
        super().give_up()
        self._given_up.set()
        self._producer.close(flush=False)

    def _write(self, queue: int) -> None:
        self._written += 1
        value, began = f"{self._number}.{self._written}", self.now()
        result = None
        try:
            result = self._send(queue, WRITE, value)
        finally:  # also one that was given up may be in the log
            acknowledged = result is not None and result.acknowledged
            ended = self.now() if acknowledged else None
            found: dict[str, Any] | None = {} if acknowledged else None
            where = register_of(self._topic, queue)
            self.noted.append(Operation(self._who, where, WRITE, began, ended, {"value": value}, found))

    def _read(self, queue: int) -> None:
        began = self.now()
        mark = self._send(queue, READ, "")
        if mark is not None and mark.acknowledged:
            found = {"value": self._value_before(queue, mark.queue_offset)}
            self.noted.append(Operation(self._who, register_of(self._topic, queue), READ, began, self.now(), {}, found))

    def _send(self, queue: int, tag: str, value: str) -> SendResult | None:
        """None where nobody knows what became of it."""
        try:
            return self._producer.send(Message(self._topic, value.encode(), queue_id=queue, tags=tag))
        except ClientClosed:
            raise
        except TowlineError:
            return None

    def _value_before(self, queue: int, offset: int) -> str:
        """Raises DrillFailed where the message at `offset`, which was acknowledged, does not come."""
        deadline = time.monotonic() + VISIBLE_MAX_S
        while self._next[queue] <= offset:
            if self._given_up.is_set():
                raise ClientClosed("keeper")
            if time.monotonic() > deadline:
                what = f"what was acknowledged at {offset} of queue {queue} of {self._topic}"
                raise DrillFailed(f"{what} was not to be read in {VISIBLE_MAX_S:.0f} s")
            try:
                messages = self._consumer.poll(POLL_MS)
            except _NO_NODE:
                continue
            for message in messages:
                self._coming[message.queue_id].append(message)
                self._next[message.queue_id] = message.queue_offset + 1
        coming = self._coming[queue]
        while coming and coming[0].queue_offset < offset:
            self._take(queue, coming.popleft())
        return self._values[queue]

    def _take(self, queue: int, message: ReceivedMessage) -> None:
        if message.tags == WRITE and message.unique_key not in self._known:
            self._known.add(message.unique_key)
            self._values[queue] = message.body.decode()


class Witnesses:
    """A reader and a keeper for each of `endpoints`. `topics` are to be made before they start."""

    def __init__(self, endpoints: Sequence[str], load: Sequence[str], began: float, seed: int) -> None:
        draw = random.Random(seed)
        topic = f"{load[0].rpartition('-')[0]}-registers"
        self.topics = [topic] if endpoints else []
        self._all: list[Witness] = []
        for number, endpoint in enumerate(endpoints):
            self._all.append(Reader(number, endpoint, load, began))
            self._all.append(Keeper(number, endpoint, topic, began, draw.getrandbits(32)))

    def start(self) -> None:
        for witness in self._all:
            witness.start()

    def finish(self) -> None:
        """They begin nothing more, and what they began has its outcome. Raises DrillFailed."""
        deadline = time.monotonic() + FINISH_MAX_S
        for witness in self._all:
            witness.stopping.set()
        for witness in self._all:
            witness.join(max(0.0, deadline - time.monotonic()))
            if witness.is_alive():
                raise DrillFailed(f"{witness.name} has not ended after {FINISH_MAX_S:.0f} s")
            if witness.error is not None:
                raise DrillFailed(f"{witness.name} ended with {type(witness.error).__name__}: {witness.error}")

    def close(self, directory: Path) -> None:
        """Writes what they noted."""
        for witness in self._all:
            witness.give_up()
        for witness in self._all:
            if witness.ident is None:
                witness.close()  # it was never started
            else:
                witness.join(5.0)
        write_lines(directory / WITNESSED, (asdict(one) for witness in self._all for one in witness.noted))
