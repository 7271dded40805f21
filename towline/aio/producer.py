"""The producer for asyncio: what is sent waits for room in the buffer by `await`, and its outcome is a future."""

import asyncio
import time
from collections import deque
from collections.abc import Iterable
from typing import Any

from towline.client.errors import RequestTimeout
from towline.client.message import Message, ReceivedMessage
from towline.client.producer import Producer
from towline.client.send.futures import SendFuture, SendResult

from .threaded import Threaded, awaited

Outcome = asyncio.Future[SendResult]


class AsyncProducer(Threaded[Producer]):
    """`Producer` for asyncio, with the same arguments; `linger_ms` is 0 unless given. Any number of tasks may use it.

    It belongs to the loop that is running when it is first used. The producer's I/O thread sends; the thread of this
    class asks for new topics, and chooses among several groups of nodes.
    """

    def __init__(self, endpoint: Any, **options: Any) -> None:
        super().__init__(Producer(endpoint, **{"linger_ms": 0, **options}), "producer")
        self._loop: asyncio.AbstractEventLoop | None = None
        self._waiting: deque[tuple[Message, asyncio.Future[SendFuture | None]]] = deque()  # for room, in order
        self._asked: dict[str, asyncio.Future[object]] = {}  # topics that the node is asked about
        self._finished: deque[tuple[Outcome, SendFuture]] = deque()
        self._is_told = False  # the loop knows of what has finished

    cancel = awaited(Producer.cancel)
    route = awaited(Producer.route)
    flush = awaited(Producer.flush)

    async def send(self, message: Message) -> SendResult:
        """Sends a message and waits for the outcome. Raises what `Producer.send` raises.

        Cancelled while it waits for room it sends nothing; later the message may be stored or not.
        """
        return await (await self.enqueue(message))

    async def enqueue(self, message: Message) -> Outcome:
        """Waits until the message has its place in the buffer; its outcome is a future. Messages that wait go in their
        order. Raises what `Producer.send_async` raises, but ProducerFull."""
        if self._loop is None:
            self._loop = asyncio.get_running_loop()
        sent = None if self._waiting else self._client.try_send(message)
        while sent is None:
            sent = await self._wait_to_send(message)
        outcome: Outcome = self._loop.create_future()
        sent.add_done_callback(lambda future: self._note(outcome, future))
        return outcome

    async def send_batch(self, messages: Iterable[Message]) -> list[SendResult]:
        """Sends all messages together and waits for every outcome; then raises the first error."""
        outcomes = [await self.enqueue(message) for message in messages]
        found = await asyncio.gather(*outcomes, return_exceptions=True)
        for each in found:
            if isinstance(each, BaseException):
                raise each
        return [each for each in found if isinstance(each, SendResult)]

    async def request(self, message: Message, timeout_ms: int = 3_000) -> ReceivedMessage:
        """Sends a message and waits for its reply, beside any number of others. Raises what `Producer.request` does."""
        deadline = time.monotonic() + timeout_ms / 1000
        stamped, pending = await self._call(self._client.begin_request, message, timeout_ms)
        acknowledged = False
        answered = asyncio.Event()
        loop = asyncio.get_running_loop()
        pending.told = lambda: loop.call_soon_threadsafe(answered.set)
        try:
            async with asyncio.timeout(max(0.0, deadline - time.monotonic())):
                acknowledged = (await self.send(stamped)).acknowledged
                if not pending.answered.is_set():
                    await answered.wait()
        except TimeoutError:
            raise RequestTimeout(message.topic, pending.correlation_id, timeout_ms, acknowledged) from None
        finally:
            self._client.end_request(pending)
        return pending.result()

    async def _wait_to_send(self, message: Message) -> SendFuture | None:
        """None where it has to be tried again."""
        if self._client.chooses_groups or message.broker_name is not None:
            return await self._call(self._client.send_async, message)
        if not self._client.knows(message.topic):
            await self._learn(message.topic)
        loop = asyncio.get_running_loop()
        place: asyncio.Future[SendFuture | None] = loop.create_future()
        self._waiting.append((message, place))
        self._send_waiting()
        return await place

    async def _learn(self, topic: str) -> None:
        """Asks the node once for all that wait for a topic."""
        asked = self._asked.get(topic)
        if asked is None:
            asked = self._asked[topic] = asyncio.ensure_future(self._call(self._client.route, topic))
            asked.add_done_callback(lambda _: self._asked.pop(topic, None))
        await asyncio.shield(asked)

    def _send_waiting(self) -> None:
        while self._waiting:
            message, place = self._waiting[0]
            if not place.done():
                try:
                    sent = self._client.try_send(message)
                except Exception as error:
                    place.set_exception(error)
                else:
                    if sent is None and self._client.knows(message.topic):
                        return  # there is room when something has its outcome
                    place.set_result(sent)
            self._waiting.popleft()

    def _note(self, outcome: Outcome, sent: SendFuture) -> None:
        """On the I/O thread: the loop is told once of all that has finished since it looked."""
        assert self._loop is not None
        self._finished.append((outcome, sent))
        if not self._is_told:
            self._is_told = True
            self._loop.call_soon_threadsafe(self._tell)

    def _tell(self) -> None:
        self._is_told = False
        while self._finished:
            outcome, sent = self._finished.popleft()
            if outcome.done():
                continue
            error = sent.exception()
            if error is None:
                outcome.set_result(sent.result())
            else:
                outcome.set_exception(error)
        self._send_waiting()

    async def _settle(self) -> None:
        """What waits for room comes before a flush, and before the end."""
        waiting = [place for _, place in self._waiting]
        if waiting:
            await asyncio.wait(waiting)
