"""Consumers for asyncio: messages are awaited, and none is lost to a task that is cancelled.

A client is asked on its thread in short slices, so that other calls wait for no longer than one. What a slice has
brought for a task that was cancelled meanwhile is kept for the next that asks, or given back to the client before
another call is made.
"""

import asyncio
import time
from collections import deque
from collections.abc import AsyncIterator, Callable
from concurrent.futures import Future
from contextlib import suppress
from typing import Any, Final, Generic, Protocol, TypeVar, Unpack

from towline.client.consumer import Consumer
from towline.client.errors import ClientClosed
from towline.client.group.consumer import GroupConsumer
from towline.client.group.message import GroupMessage
from towline.client.group.subscription import Topics
from towline.client.link.endpoints import Endpoints
from towline.client.message import ReceivedMessage
from towline.errors import TowlineError

from .options import ConsumerOptions, GroupConsumerOptions
from .threaded import Client, Threaded, awaited

SLICE_MS: Final = 250

M = TypeVar("M", bound=ReceivedMessage)


class Source(Client, Protocol[M]):
    """A client that messages are polled from."""

    def poll(self, timeout_ms: int) -> list[M]: ...


S = TypeVar("S", bound=Source[Any])


class _Polled(Threaded[S], Generic[S, M]):
    """Used by one task at a time."""

    def __init__(self, client: S, name: str, give_back: Callable[[list[M]], object]) -> None:
        """`give_back`, on the thread, has messages that the client has handed out come again."""
        super().__init__(client, name)
        self._give_back = give_back
        self._slice: Future[list[M]] | None = None  # that nobody has taken the result of
        self._left: deque[M] = deque()  # of a batch, for who iterates
        self._is_closed = False

    async def poll(self, timeout_ms: int) -> list[M]:
        """The next messages of one queue, or none when nothing came within `timeout_ms`. Raises what the client's
        `poll` does. A task that is cancelled here has lost nothing: the next call has what came."""
        if self._left:
            found, self._left = list(self._left), deque()
            return found
        deadline = time.monotonic() + timeout_ms / 1000
        while True:
            left_ms = max(0, round(1000 * (deadline - time.monotonic())))
            found = await self._next_slice(min(left_ms, SLICE_MS))
            if found or left_ms <= SLICE_MS:
                return found

    async def _next_slice(self, timeout_ms: int) -> list[M]:
        if self._is_over:
            raise ClientClosed(self._name)
        if self._slice is None:
            self._slice = self._executor.submit(self._client.poll, timeout_ms)
        return await self._take_slice(self._slice)

    async def _take_slice(self, asked: Future[list[M]]) -> list[M]:
        """What it has brought. Who is cancelled here leaves it to the next."""
        try:
            found = await asyncio.shield(asyncio.wrap_future(asked))
        except Exception:
            self._slice = None
            raise
        self._slice = None
        return found

    def __aiter__(self) -> AsyncIterator[M]:
        return self

    async def __anext__(self) -> M:
        """Every message, until the client is closed; waits for new ones."""
        while not self._left:
            if self._is_closed:
                raise StopAsyncIteration
            try:
                self._left.extend(await self.poll(SLICE_MS))
            except ClientClosed:
                if not self._is_closed:
                    raise
        return self._left.popleft()

    async def _settle(self) -> None:
        """What was handed out and not seen comes again."""
        if self._slice is not None:
            with suppress(TowlineError):  # nobody asked for it any more; the next poll meets it again
                self._left.extend(await self._take_slice(self._slice))
        if self._left:
            unseen, self._left = list(self._left), deque()
            await self._call(self._give_back, unseen)

    async def _end(self, close: Callable[[], object], *, settles: bool) -> None:
        self._is_closed = True
        await super()._end(close, settles=settles)


class AsyncConsumer(_Polled[Consumer, ReceivedMessage]):
    """`Consumer` for asyncio: the same arguments; `async for`, and its calls, each awaited. For one task at a time."""

    def __init__(
        self, endpoint: Endpoints | Callable[[], Endpoints], topic: str, **options: Unpack[ConsumerOptions]
    ) -> None:
        client = Consumer(endpoint, topic, **options)

        def give_back(unseen: list[ReceivedMessage]) -> None:
            first = unseen[0]
            client.seek(first.queue_id, first.queue_offset, first.broker_name)

        super().__init__(client, "consumer", give_back)

    position = awaited(Consumer.position)
    seek = awaited(Consumer.seek)
    seek_to_time = awaited(Consumer.seek_to_time)
    pause = awaited(Consumer.pause)
    resume = awaited(Consumer.resume)

    async def _settle(self) -> None:
        """When it is closed nothing has to come again."""
        if not self._is_closed:
            await super()._settle()

    @property
    def missed(self) -> int:
        """How many queue offsets the node deleted before they were read."""
        return self._client.missed


class AsyncGroupConsumer(_Polled[GroupConsumer, GroupMessage]):
    """`GroupConsumer` for asyncio: the same arguments; `async for`, and its calls, each awaited.

    What `poll` has returned counts as finished when the next `poll` is awaited, what is iterated over when the next
    batch is fetched, both when the consumer is closed; with `auto_commit=False` when `commit` says so. What a task has
    not seen when it is cancelled, or leaves its loop, is not finished. Used by one task at a time.
    """

    def __init__(
        self, endpoint: Endpoints, group: str, topics: Topics, **options: Unpack[GroupConsumerOptions]
    ) -> None:
        client = GroupConsumer(endpoint, group, topics, **options)
        super().__init__(client, "group consumer", lambda unseen: client.requeue(unseen[0]))

    commit = awaited(GroupConsumer.commit)
    seek = awaited(GroupConsumer.seek)
    seek_to_time = awaited(GroupConsumer.seek_to_time)
    pause = awaited(GroupConsumer.pause)
    resume = awaited(GroupConsumer.resume)
    assignment = awaited(GroupConsumer.assignment)

    async def retry_later(self, message: GroupMessage, level: int | None = None) -> None:
        """Sends a message back, to come again later (`GroupMessage.retry_later`)."""
        await self._call(message.retry_later, level)

    @property
    def members(self) -> list[str]:
        """The group's members as the nodes said last."""
        return self._client.members
