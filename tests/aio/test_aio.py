"""The clients for asyncio at a node: outcomes, order, backpressure, and nothing lost to a task that is cancelled."""

import asyncio
import gc
import subprocess
import sys
import threading
from collections.abc import Coroutine, Iterator
from contextlib import suppress
from typing import Any

import pytest

from tests.processes.nodes import TestNode, check_nothing_is_left, ending, free_port
from tests.repo.trees import ROOT
from towline.aio.admin import AsyncAdminClient
from towline.aio.consumer import AsyncConsumer, AsyncGroupConsumer
from towline.aio.producer import AsyncProducer
from towline.client.errors import ClientClosed, DeliveryTimeout, RequestTimeout, UnreadableValue, UnserializableValue
from towline.client.message import Message
from towline.client.request import PendingReply, reply
from towline.errors import NoAnswer, TopicExists, TowlineError, UnknownTopic
from towline.limits import KIB

DEADLINE_MS = 20_000
DEADLINE_S = 60.0


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestNode]:
    made = TestNode("master", tmp_path_factory.mktemp("node"), listen_port=free_port(), ha_listen_port=0)
    with ending(made):
        made.start()
        yield made
        assert made.stop()
        check_nothing_is_left(made)


@pytest.fixture(scope="module")
def address(node: TestNode) -> str:
    [found] = node.facts["endpoints"]["remoting"]
    return str(found)


def run(test: Coroutine[Any, Any, None]) -> None:
    """Within a time, and without leaving a task or a thread of the clients."""

    async def alone() -> None:
        async with asyncio.timeout(DEADLINE_S):
            await test
        assert asyncio.all_tasks() == {asyncio.current_task()}

    asyncio.run(alone(), debug=False)
    for thread in threading.enumerate():
        if thread.name.startswith("towline"):
            thread.join(DEADLINE_S)
            assert not thread.is_alive(), thread.name


async def read(consumer: AsyncConsumer | AsyncGroupConsumer, count: int) -> list[bytes]:
    found: list[bytes] = []
    while len(found) < count:
        found += [message.body for message in await consumer.poll(DEADLINE_MS)]
    return found


async def cancelled(call: Coroutine[Any, Any, Any], after_s: float = 0.0) -> Any:
    """What it was done with by then, else None."""
    task = asyncio.ensure_future(call)
    await asyncio.wait({task}, timeout=after_s)
    task.cancel()
    with suppress(asyncio.CancelledError):
        return await task


def test_many_tasks_send_and_each_has_its_outcome(address: str) -> None:
    async def test() -> None:
        async with AsyncProducer(address) as producer, AsyncConsumer(address, "tasks", start="first") as consumer:
            sent = await asyncio.gather(*(producer.send(Message("tasks", b"%d" % n)) for n in range(2_000)))
            assert all(result.acknowledged for result in sent)
            assert len({(result.queue_id, result.queue_offset) for result in sent}) == 2_000
            assert sorted(await read(consumer, 2_000)) == sorted(b"%d" % n for n in range(2_000))

    run(test())


def test_what_one_task_puts_into_the_buffer_keeps_its_order(address: str) -> None:
    async def test() -> None:
        async with AsyncProducer(address, buffer_bytes_max=64 * KIB, in_flight_max=1) as producer:
            outcomes = [await producer.enqueue(Message("order", b"%d" % n, queue_id=0)) for n in range(500)]
            offsets = [(await outcome).queue_offset for outcome in outcomes]
            assert offsets == sorted(offsets)
        async with AsyncConsumer(address, "order", start="first") as consumer:
            assert await read(consumer, 500) == [b"%d" % n for n in range(500)]

    run(test())


def test_a_full_buffer_is_waited_for_without_holding_up_the_loop(address: str) -> None:
    async def test() -> None:
        ticks = 0

        def tick() -> None:
            nonlocal ticks, ticking
            ticks += 1
            ticking = asyncio.get_running_loop().call_soon(tick)

        ticking = asyncio.get_running_loop().call_soon(tick)
        async with AsyncProducer(address, buffer_bytes_max=64 * KIB, compression=None) as producer:
            await producer.send(Message("full", b"first"))
            before = ticks
            sent = await producer.send_batch(Message("full", b"x" * 10 * KIB) for _ in range(200))
            assert ticks - before > 20
            assert len(sent) == 200
        ticking.cancel()

    run(test())


def test_a_cancelled_send_that_waits_for_room_sends_nothing(address: str) -> None:
    async def test() -> None:
        async with AsyncProducer(address, buffer_bytes_max=64 * KIB, linger_ms=200, compression=None) as producer:
            await producer.send(Message("given-up", b"0"))
            filling = [await producer.enqueue(Message("given-up", b"x" * 10 * KIB)) for _ in range(2)]
            await cancelled(producer.send(Message("given-up", b"y" * 50 * KIB)))
            await asyncio.gather(*filling)
            await producer.send(Message("given-up", b"z"))
        async with AsyncConsumer(address, "given-up", start="first") as consumer:
            assert [body[:1] for body in await read(consumer, 4)] == [b"0", b"x", b"x", b"z"]
            assert await consumer.poll(0) == []

    run(test())


def test_a_new_topic_at_a_node_that_is_away_holds_up_neither_the_loop_nor_another_topic(address: str) -> None:
    async def test() -> None:
        producer = AsyncProducer(f"tcp://127.0.0.1:{free_port()}", delivery_timeout_ms=1_000)
        first, second = (asyncio.ensure_future(producer.send(Message(topic, b""))) for topic in ("a", "b"))
        began = asyncio.get_running_loop().time()
        await asyncio.wait({first, second}, timeout=0.01)
        assert asyncio.get_running_loop().time() - began < 0.5
        for task in (first, second):
            with pytest.raises((NoAnswer, DeliveryTimeout)):
                await task
        await producer.close()

    run(test())


def test_errors_are_those_of_the_producer(address: str) -> None:
    async def test() -> None:
        async with AsyncProducer(address) as producer:
            for topic in ("ill egal", ""):
                with pytest.raises(TowlineError):
                    await producer.send(Message(topic, b""))
            await producer.send(Message("errors", b""))
            with pytest.raises(TowlineError, match="queue"):
                await producer.send(Message("errors", b"", queue_id=99))
        with pytest.raises(ClientClosed):
            await producer.send(Message("errors", b""))

    run(test())


def test_a_poll_that_is_cancelled_has_lost_nothing(address: str) -> None:
    async def test() -> None:
        async with AsyncProducer(address) as producer, AsyncConsumer(address, "polled", start="first") as consumer:
            await producer.send(Message("polled", b"-"))
            assert await read(consumer, 1) == [b"-"]
            seen: list[bytes] = []
            for n in range(40):
                polled = cancelled(consumer.poll(DEADLINE_MS), 0.001 * (n % 8))
                found, _ = await asyncio.gather(polled, producer.send(Message("polled", b"%d" % n)))
                seen += [message.body for message in found or ()]
                if n % 8 == 7:  # another call has what came in between given back
                    await consumer.position()
            assert len(seen) < 40
            seen += await read(consumer, 40 - len(seen))
            assert sorted(seen) == sorted(b"%d" % n for n in range(40))
            assert await consumer.poll(0) == []

    run(test())


def test_another_call_that_is_cancelled_has_lost_nothing_either(address: str) -> None:
    async def test() -> None:
        async with AsyncProducer(address) as producer, AsyncConsumer(address, "called", start="first") as consumer:
            await producer.send(Message("called", b"-"))
            assert await read(consumer, 1) == [b"-"]
            seen: list[bytes] = []
            for n in range(20):
                polled = cancelled(consumer.poll(DEADLINE_MS))
                found, _ = await asyncio.gather(polled, producer.send(Message("called", b"%d" % n)))
                seen += [message.body for message in found or ()]
                await cancelled(consumer.position())
            seen += await read(consumer, 20 - len(seen))
            assert sorted(seen) == sorted(b"%d" % n for n in range(20))

    run(test())


def test_an_error_of_a_poll_is_raised_once_and_not_logged(address: str, caplog: pytest.LogCaptureFixture) -> None:
    async def test() -> None:
        async with AsyncConsumer(address, "ill egal", start="first") as consumer:
            with pytest.raises(TowlineError):
                await consumer.poll(DEADLINE_MS)

    run(test())
    gc.collect()
    assert not [each for each in caplog.records if each.name == "asyncio"]


def test_positions_are_those_of_what_was_seen(address: str) -> None:
    async def test() -> None:
        async with AsyncProducer(address) as producer, AsyncConsumer(address, "seen", start="first") as consumer:
            await producer.send_batch(Message("seen", b"%d" % n, queue_id=0) for n in range(10))
            async for message in consumer:
                if message.body == b"3":
                    break
            assert (await consumer.position())[0] == 4
            await consumer.seek(0, 1)
            assert await read(consumer, 9) == [b"%d" % n for n in range(1, 10)]

    run(test())


def test_a_consumer_that_is_closed_ends_its_loop(address: str) -> None:
    async def test() -> None:
        consumer = AsyncConsumer(address, "tasks", start="last")

        async def iterate() -> int:
            return len([message async for message in consumer])

        iterating = asyncio.ensure_future(iterate())
        await asyncio.wait({iterating}, timeout=0.05)
        await consumer.close()
        assert await iterating == 0

    run(test())


@pytest.mark.parametrize("how", ["left", "cancelled", "failed"])
def test_a_member_finishes_what_was_seen_and_nothing_else(address: str, how: str) -> None:
    group, topic = f"group-{how}", f"topic-{how}"

    async def fill() -> None:
        async with AsyncProducer(address) as producer:
            await producer.send_batch(Message(topic, b"%d" % n, queue_id=0) for n in range(10))

    async def leave() -> None:
        async with AsyncGroupConsumer(address, group, topic, start="first") as consumer:
            async for message in consumer:
                if message.body == b"3":
                    match how:
                        case "failed":
                            raise KeyError(how)
                        case "cancelled":
                            asyncio.current_task().cancel()  # type: ignore[union-attr]
                            await asyncio.Event().wait()
                        case _:
                            break

    async def test() -> None:
        await fill()
        with suppress(KeyError, asyncio.CancelledError):
            await asyncio.ensure_future(leave())
        async with AsyncGroupConsumer(address, group, topic, start="first") as consumer:
            first = 4 if how == "left" else 0  # of a block that ends by an exception nothing is finished
            assert await read(consumer, 10 - first) == [b"%d" % n for n in range(first, 10)]

    run(test())


def test_a_commit_in_a_loop_commits_what_was_seen(address: str) -> None:
    async def test() -> None:
        async with AsyncProducer(address) as producer:
            await producer.send_batch(Message("committed", b"%d" % n, queue_id=0) for n in range(10))
        consumer = AsyncGroupConsumer(address, "committing", "committed", start="first", auto_commit=False)
        async for message in consumer:
            if message.body == b"5":
                await consumer.commit()
                break
        async with AsyncAdminClient(address) as admin:
            assert (await admin.group_offsets("committing", "committed"))["committed"][0] == 6
        await consumer.close()

    run(test())


def test_requests_wait_for_their_replies_beside_each_other(address: str) -> None:
    async def answer(consumer: AsyncConsumer, producer: AsyncProducer) -> None:
        async for message in consumer:
            if message.body != b"silence":
                await producer.send(reply(message, message.body.upper()))

    async def test() -> None:
        async with AsyncProducer(address) as producer, AsyncConsumer(address, "asked", start="first") as consumer:
            await producer.route("asked")
            answering = asyncio.ensure_future(answer(consumer, producer))
            silent = asyncio.ensure_future(producer.request(Message("asked", b"silence"), 1_500))
            asked = [producer.request(Message("asked", b"q%d" % n), DEADLINE_MS) for n in range(50)]
            assert [found.body for found in await asyncio.gather(*asked)] == [b"Q%d" % n for n in range(50)]
            with pytest.raises(RequestTimeout):
                await silent
            await cancelled(answering)

    run(test())


def test_a_request_that_is_cancelled_while_it_begins_leaves_nothing_that_waits(
    address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def test() -> None:
        async with AsyncProducer(address) as producer:
            client = producer._client
            client.end_request((await producer._begin_request(Message("begun", b""), DEADLINE_MS))[1])
            begins, goes_on, begin, pending = threading.Event(), threading.Event(), client.begin_request, []

            def begin_slowly(message: Message, timeout_ms: int) -> tuple[Message, PendingReply]:
                begins.set()
                assert goes_on.wait(DEADLINE_S)
                begun = begin(message, timeout_ms)
                pending.append(dict(client._requester._replies._pending))  # type: ignore[union-attr]
                return begun

            monkeypatch.setattr(client, "begin_request", begin_slowly)
            asked = asyncio.ensure_future(producer.request(Message("begun", b"slow"), DEADLINE_MS))
            behind = asyncio.ensure_future(producer.request(Message("begun", b"never begins"), DEADLINE_MS))
            await asyncio.to_thread(begins.wait, DEADLINE_S)
            for task in (asked, behind):
                task.cancel()
                await asyncio.wait({task})
            goes_on.set()
            await producer.flush()  # on the same thread, behind it
            assert [len(found) for found in pending] == [1]
            assert client._requester._replies._pending == {}  # type: ignore[union-attr]

    run(test())


def test_values_are_made_and_read_as_by_the_other_clients(address: str) -> None:
    async def test() -> None:
        async with AsyncProducer(address, value_serializer="json") as producer:
            results = await producer.send_batch(Message("values", {"n": n}, key="one") for n in range(5))
            assert len({result.queue_id for result in results}) == 1
            with pytest.raises(UnserializableValue):
                await producer.send(Message("values", b"bytes are no JSON"))
        async with AsyncConsumer(address, "values", start="first", value_deserializer="json") as consumer:
            seen = []
            async for message in consumer:
                seen.append((message.key, message.value["n"]))
                if len(seen) == 5:
                    break
            assert seen == [("one", n) for n in range(5)]

    run(test())


def test_a_value_that_no_member_can_read_is_not_finished_by_who_fails_at_it(address: str) -> None:
    async def member(seen: list[object]) -> None:
        async with AsyncGroupConsumer(
            address, "readers", "unreadable", start="first", value_deserializer="json"
        ) as consumer:
            while len(seen) < 3:
                for message in await consumer.poll(DEADLINE_MS):
                    seen.append(message.value)

    async def test() -> None:
        async with AsyncProducer(address) as producer:
            await producer.send_batch(Message("unreadable", body, queue_id=0) for body in (b"0", b"{", b"2"))
        for _ in range(2):
            seen: list[object] = []
            with pytest.raises(UnreadableValue, match="message 1 of queue 0 of unreadable"):
                await asyncio.ensure_future(member(seen))
            assert seen == [0]

    run(test())


def test_an_admin_asks_and_changes(address: str) -> None:
    async def test() -> None:
        async with AsyncAdminClient(address) as admin:
            await admin.create_topic("made", 3)
            assert next(each for each in await admin.topics() if each["topic"] == "made")["write_queues"] == 3
            with pytest.raises(TowlineError, match=TopicExists.__name__):
                await admin.create_topic("made", 3)
            assert len(await asyncio.gather(*(admin.bounds("made") for _ in range(20)))) == 20
            with pytest.raises(UnknownTopic):
                await admin.bounds("nobody")

    run(test())


def public(kind: type) -> set[str]:
    return {name for name in dir(kind) if not name.startswith("_")}


@pytest.mark.parametrize(
    ("ours", "theirs", "left_out"),
    [
        (AsyncAdminClient, "towline.client.admin.AdminClient", set()),
        (
            AsyncConsumer,
            "towline.client.consumer.Consumer",
            {"batches", "forked", "poll_columns", "groups", "at_end", "has_begun", "far_behind"},
        ),
    ],
)
def test_each_call_of_a_client_is_there(ours: type, theirs: str, left_out: set[str]) -> None:
    module, _, name = theirs.rpartition(".")
    client = getattr(__import__(module, fromlist=[name]), name)
    instance_only = {"topic", "moved"}
    assert public(client) - public(ours) - instance_only == left_out


LEFT_OPEN = 100


def leave_open(address: str, topic: str) -> list[object]:
    """Each client, used once and not closed, with messages on their way."""

    async def use() -> list[object]:
        producer, admin = AsyncProducer(address), AsyncAdminClient(address)
        consumer = AsyncConsumer(address, topic, start="first")
        member = AsyncGroupConsumer(address, f"of-{topic}", topic, start="first")
        assert (await producer.send(Message(topic, b"waited for"))).acknowledged
        assert await admin.bounds(topic)
        for reader in (consumer, member):
            assert await read(reader, 1)
        for _ in range(LEFT_OPEN):
            await producer.enqueue(Message(topic, b"not waited for"))
        return [producer, admin, consumer, member]

    return asyncio.run(use())


def are_stored(address: str, topic: str) -> bool:
    async def bounds() -> dict[int, tuple[int, int]]:
        async with AsyncAdminClient(address) as admin:
            return await admin.bounds(topic)

    return sum(end - first for first, end in asyncio.run(bounds()).values()) == LEFT_OPEN + 1


ENDINGS = {
    "kept": "kept = leave_open(*sys.argv[1:])\n",
    "collected": (
        "leave_open(*sys.argv[1:])\n"
        "def ours():\n    gc.collect()\n    return [each for each in threading.enumerate() if 'towline' in each.name]\n"
        "await_(lambda: not ours(), 30, 'their threads end')\n"
    ),
}


@pytest.mark.parametrize("way", ENDINGS)
def test_clients_that_nobody_closes_hold_nothing_up_and_lose_nothing(address: str, way: str) -> None:
    imports = "from tests.aio.test_aio import leave_open\nfrom tests.processes.waiting import await_\n"
    program = f"import gc, sys, threading\n{imports}{ENDINGS[way]}"
    words = [sys.executable, "-c", program, address, f"left-open-{way}"]
    done = subprocess.run(words, capture_output=True, text=True, timeout=100, check=False, cwd=ROOT)
    assert (done.returncode, done.stderr) == (0, "")
    assert are_stored(address, f"left-open-{way}")
