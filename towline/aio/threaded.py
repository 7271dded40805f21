"""A client of the package on one thread of its own, for coroutines: calls are made there one after the other."""

import asyncio
from collections.abc import Callable, Coroutine
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial, wraps
from types import TracebackType
from typing import Any, Concatenate, Generic, ParamSpec, Protocol, Self, TypeVar, cast

from towline.client.errors import ClientClosed

P = ParamSpec("P")
T = TypeVar("T")


class Client(Protocol):
    """The calls that every client has."""

    def close(self) -> None: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None: ...


C = TypeVar("C", bound=Client)


class Threaded(Generic[C]):
    """A client whose calls are made on a thread of its own."""

    def __init__(self, client: C, name: str) -> None:
        self._client, self._name = client, name
        self._is_over = False
        self._executor = ThreadPoolExecutor(1, f"towline aio {name}")

    async def _call(self, function: Callable[P, T], *arguments: P.args, **named: P.kwargs) -> T:
        """Makes a call there. It goes on when who awaits it is cancelled. Raises ClientClosed."""
        return await asyncio.shield(asyncio.wrap_future(self._submit(function, *arguments, **named)))

    def _submit(self, function: Callable[P, T], *arguments: P.args, **named: P.kwargs) -> Future[T]:
        if self._is_over:
            raise ClientClosed(self._name)
        return self._executor.submit(partial(function, *arguments, **named))

    async def _settle(self) -> None:
        """Undoes, before another call, what was begun for somebody who was cancelled."""

    async def close(self) -> None:
        """Closes the client, as its own `close` does, also where who awaits it is cancelled."""
        await self._end(self._client.close, settles=True)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._end(partial(self._client.__exit__, kind, error, trace), settles=kind is None)

    async def _end(self, close: Callable[[], object], *, settles: bool) -> None:
        async def end() -> None:
            if self._is_over:
                return
            if settles:
                await self._settle()
            try:
                await self._call(close)
            finally:
                self._is_over = True
                self._executor.shutdown(wait=False)

        await asyncio.shield(asyncio.ensure_future(end()))


def awaited(method: Callable[Concatenate[C, P], T]) -> Callable[Concatenate[Any, P], Coroutine[Any, Any, T]]:
    """The method of a client as one of its Threaded: with the same arguments, results and errors."""

    @wraps(method)
    async def call(self: Threaded[C], *arguments: P.args, **named: P.kwargs) -> T:
        await self._settle()
        return await self._call(method, self._client, *arguments, **named)

    return cast(Callable[Concatenate[Any, P], Coroutine[Any, Any, T]], call)
