"""The producer for asyncio: what is sent waits for room in the buffer by `await`, and its outcome is a future."""

import asyncio
import time
from collections import OrderedDict, deque
from collections.abc import Iterable
from concurrent.futures import Future
from contextlib import suppress
from typing import Unpack

from towline.client.errors import ProducerFull, RequestTimeout
from towline.client.link.endpoints import Endpoints
from towline.client.message import Message, ReceivedMessage
from towline.client.producer import Producer
from towline.client.request import PendingReply
from towline.client.send.futures import SendFuture, SendResult
from towline.client.values import prepared, serializer_of, tracer_of

from .options import ProducerOptions
from .threaded import Threaded, awaited

Outcome = asyncio.Future[SendResult]


class AsyncProducer(Threaded[Producer]):
    """`Producer` for asyncio, with the same arguments; `linger_ms` is 0 unless given. Any number of tasks may use it.

    It belongs to the loop that is running when it is first used. What is sent is sent by the producer's own threads;
    the thread of this class makes calls that wait.
    """

    def __init__(self, endpoint: Endpoints, **options: Unpack[ProducerOptions]) -> None:
        self._serialize = serializer_of(options.pop("value_serializer", None))
        self._traced = tracer_of(options.pop("tracing", False))  # here: the context is that of the task
        options.setdefault("linger_ms", 0)
        super().__init__(Producer(endpoint, **options), "producer")
        self._loop: asyncio.AbstractEventLoop | None = None
        self._waiting: OrderedDict[asyncio.Future[Outcome], Message] = OrderedDict()  # for room
        self._finished: deque[tuple[Outcome, SendFuture]] = deque()
        self._is_told = False  # the loop knows of what has finished

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
        ready = prepared(message, self._serialize)
        ready = ready if self._traced is None else self._traced(ready)
        sent = None if self._waiting else self._try_to_send(ready)
        return sent or await self._wait_to_send(ready)

    async def cancel(self, handle: str, *, broker_name: str | None = None) -> SendResult:
        """Cancels a message with `deliver_at`. Raises what `Producer.cancel` raises."""
        loop = asyncio.get_running_loop()

        def cancel() -> SendResult:
            try:
                return self._client.cancel(handle, broker_name=broker_name)
            finally:  # there is room again, which no outcome tells
                with suppress(RuntimeError):  # the loop is closed
                    loop.call_soon_threadsafe(self._send_waiting)

        await self._settle()
        return await self._call(cancel)

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
        stamped, pending = await self._begin_request(message, timeout_ms)
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

    async def _begin_request(self, message: Message, timeout_ms: int) -> tuple[Message, PendingReply]:
        """Who is cancelled here leaves nothing that waits for a reply."""

        def undo(begun: Future[tuple[Message, PendingReply]]) -> None:
            if not begun.cancelled() and begun.exception() is None:
                self._client.end_request(begun.result()[1])

        begun = self._submit(self._client.begin_request, message, timeout_ms)
        try:
            return await asyncio.shield(asyncio.wrap_future(begun))
        except asyncio.CancelledError:
            begun.cancel()
            begun.add_done_callback(undo)
            raise

    def _try_to_send(self, message: Message) -> Outcome | None:
        """None where there is no room. What becomes of the message is told on the loop, and lets others go on."""
        assert self._loop is not None
        try:
            sent = self._client.send_async(message)
        except ProducerFull:
            return None
        outcome: Outcome = self._loop.create_future()
        sent.add_done_callback(lambda future: self._note(outcome, future))
        return outcome

    async def _wait_to_send(self, message: Message) -> Outcome:
        """There is room when something has its outcome, or does not wait for it any more."""
        place: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()
        self._waiting[place] = message
        try:
            return await place
        except asyncio.CancelledError:
            if self._waiting.pop(place, None) is not None:
                self._send_waiting()
            elif place.done() and not place.cancelled() and place.exception() is None:
                place.result().cancel()  # it was sent in this moment, and nobody waits for what becomes of it
            raise

    def _send_waiting(self) -> None:
        while self._waiting:
            place, message = next(iter(self._waiting.items()))
            if not place.done():
                try:
                    sent = self._try_to_send(message)
                except Exception as error:
                    place.set_exception(error)
                else:
                    if sent is None:
                        return
                    place.set_result(sent)
            del self._waiting[place]

    def _note(self, outcome: Outcome, sent: SendFuture) -> None:
        """On a thread of the producer's: the loop is told once of all that has finished since it looked."""
        assert self._loop is not None
        self._finished.append((outcome, sent))
        if not self._is_told:
            self._is_told = True
            with suppress(RuntimeError):  # the loop is closed: nobody waits any more
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
        if self._waiting:
            await asyncio.wait(list(self._waiting))
