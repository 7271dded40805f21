"""Tasks that wait for room in the buffer: who wakes them, and what a task that is cancelled leaves."""

import asyncio
import gc
import threading
import weakref
from collections.abc import Coroutine, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.client.standin import Standin
from tests.processes.waiting import await_
from towline.aio.producer import AsyncProducer
from towline.client.message import Message
from towline.client.send.forms import Handle
from towline.limits import KIB

WAIT_S = 10.0


@pytest.fixture
def gate() -> threading.Event:
    """The node takes no message before this is set."""
    return threading.Event()


@pytest.fixture
def node(tmp_path: Path, gate: threading.Event) -> Iterator[Standin]:
    made = Standin(tmp_path, {"t": 1})

    def wait_for_gate(_: object) -> None:
        assert gate.wait(WAIT_S)

    made.judge = wait_for_gate
    made.start()
    yield made
    gate.set()
    made.stop()


class Body(bytearray):
    """One that a weak reference may be of."""


def run(test: Coroutine[Any, Any, None]) -> None:
    async def within_a_time() -> None:
        async with asyncio.timeout(2 * WAIT_S):
            await test

    asyncio.run(within_a_time())


async def begun(call: Coroutine[Any, Any, Any]) -> "asyncio.Task[Any]":
    task = asyncio.ensure_future(call)
    await asyncio.wait({task}, timeout=0.01)
    return task


def test_room_that_a_cancelled_delivery_held_wakes_who_waits(node: Standin, gate: threading.Event) -> None:
    async def test() -> None:
        async with AsyncProducer(node.endpoint, buffer_bytes_max=1) as producer:
            await producer.route("t")
            cancelling = await begun(producer.cancel(str(Handle(1, "K" * 32, 0, "t"))))
            await asyncio.to_thread(await_, lambda: node.puts, WAIT_S, "it is at the node")
            sending = await begun(producer.send(Message("t", b"")))
            assert not sending.done()
            gate.set()
            assert (await cancelling).acknowledged
            assert (await sending).acknowledged

    run(test())


def test_a_task_that_is_cancelled_lets_go_of_its_message_while_others_wait(
    node: Standin, gate: threading.Event
) -> None:
    async def test() -> None:
        async with AsyncProducer(node.endpoint, buffer_bytes_max=1) as producer:
            await producer.route("t")
            first, second = (
                await begun(producer.send(Message("t", b"1"))),
                await begun(producer.send(Message("t", b"2"))),
            )
            body = Body(b"3")
            known = weakref.ref(body)
            third = await begun(producer.send(Message("t", body)))
            del body
            third.cancel()
            await asyncio.wait({third})
            del third
            gc.collect()
            assert known() is None
            assert not second.done()
            gate.set()
            assert (await first).queue_offset < (await second).queue_offset

    run(test())


def test_those_behind_a_task_that_is_cancelled_go_where_there_is_room_for_them(
    node: Standin, gate: threading.Event
) -> None:
    async def test() -> None:
        async with AsyncProducer(node.endpoint, buffer_bytes_max=64 * KIB, compression=None) as producer:
            await producer.route("t")
            await producer.enqueue(Message("t", bytes(10 * KIB)))
            large = await begun(producer.enqueue(Message("t", bytes(60 * KIB))))
            small = await begun(producer.enqueue(Message("t", b"small")))
            assert not small.done()
            large.cancel()
            outcome = await asyncio.wait_for(small, WAIT_S)
            assert not outcome.done()
            gate.set()
            assert (await outcome).acknowledged

    run(test())
