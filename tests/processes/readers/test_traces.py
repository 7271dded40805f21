"""Traces through a real node: the span of who reads a message has that of who sent it as its parent."""

import asyncio
import threading
from collections.abc import Iterator
from contextlib import suppress

import pytest
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from tests.processes.nodes import TestNode, ending, free_port
from towline.aio import AsyncConsumer, AsyncGroupConsumer, AsyncProducer
from towline.client.consumer import Consumer
from towline.client.errors import ClientClosed
from towline.client.group.consumer import GroupConsumer
from towline.client.message import Message, ReceivedMessage
from towline.client.producer import Producer
from towline.client.request import reply
from towline.client.tracing import extract
from towline.client.transaction import State, TransactionProducer
from towline.limits import KIB

WAIT_MS = 30_000
WAIT_S = WAIT_MS / 1000


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    node = TestNode("master", tmp_path_factory.mktemp("node"), listen_port=free_port())
    with ending(node):
        node.start()
        yield str(node.facts["endpoints"]["remoting"][0])
        assert node.stop()


class Spans:
    """What a program records of itself."""

    def __init__(self) -> None:
        self._exporter, provider = InMemorySpanExporter(), TracerProvider()
        provider.add_span_processor(SimpleSpanProcessor(self._exporter))
        self.tracer = provider.get_tracer("test")

    def received(self, message: ReceivedMessage) -> None:
        with self.tracer.start_as_current_span(f"received {message.body.decode()}", context=extract(message)):
            pass

    def check(self, *names: str) -> None:
        """Each message that was sent within a span was received within a child of that, in the same trace."""
        spans: dict[str, ReadableSpan] = {span.name: span for span in self._exporter.get_finished_spans()}
        for name in names:
            sent, received = spans[f"sent {name}"], spans[f"received {name}"]
            assert received.parent is not None, name
            assert received.parent.span_id == sent.context.span_id, name
            assert received.context.trace_id == sent.context.trace_id, name
        assert len({span.context.trace_id for name, span in spans.items() if name.startswith("sent")}) == len(names)


@pytest.fixture
def spans() -> Spans:
    return Spans()


def test_from_a_producer_to_a_consumer_and_a_group(address: str, spans: Spans) -> None:
    def commit(_: Message) -> State:
        return State.COMMIT

    with (
        Producer(address, tracing=True) as producer,
        TransactionProducer(address, "payers", tracing=True) as payer,
        Producer(address) as plain,
    ):
        for name, send in (
            ("a", producer.send),
            ("b", lambda message: producer.send_async(message).result(WAIT_S)),
            ("c", lambda message: producer.send_batch([message])),
            ("d", lambda message: payer.send(message, commit)),
        ):
            with spans.tracer.start_as_current_span(f"sent {name}"):
                send(Message("traced", name.encode(), key=1))
        with spans.tracer.start_as_current_span("not told"):
            plain.send(Message("traced", b"e", key=1))
    found: dict[bytes, ReceivedMessage] = {}
    with Consumer(address, "traced", timeout_ms=WAIT_MS) as consumer:
        while len(found) < 5:
            found |= {message.body: message for message in consumer.poll(WAIT_MS)}
    for message in found.values():
        spans.received(message)
    spans.check("a", "b", "c", "d")
    assert "traceparent" not in found[b"e"].properties
    seen: dict[bytes, str] = {}
    with GroupConsumer(address, "readers", "traced", start="first") as group:
        while len(seen) < 5:
            seen |= {message.body: message.properties.get("traceparent", "") for message in group.poll(WAIT_MS)}
    assert seen == {body: message.properties.get("traceparent", "") for body, message in found.items()}


def test_a_request_and_its_reply_are_of_one_trace(address: str, spans: Spans) -> None:
    ready = threading.Event()

    def serve(consumer: Consumer, producer: Producer) -> None:
        with suppress(ClientClosed):
            consumer.position()
            ready.set()
            while not (found := consumer.poll(100)):
                continue
            with spans.tracer.start_as_current_span("received question", context=extract(found[0])):
                producer.send(reply(found[0], b"reply"))

    with Producer(address, tracing=True) as asker, Producer(address, tracing=True) as producer:
        asker.make_topic("questions")
        with Consumer(address, "questions") as consumer:
            server = threading.Thread(target=serve, args=(consumer, producer))
            server.start()
            assert ready.wait(WAIT_S)
            with spans.tracer.start_as_current_span("sent question") as sent:
                answer = asker.request(Message("questions", b"question"), WAIT_MS)
            server.join(WAIT_S)
    spans.check("question")
    assert f"{sent.get_span_context().trace_id:032x}" in answer.properties["traceparent"]


def test_each_task_sends_its_own_context_also_one_that_waits_for_room(address: str, spans: Spans) -> None:
    names = [str(number) for number in range(50)]

    async def send(producer: AsyncProducer, name: str) -> None:
        with spans.tracer.start_as_current_span(f"sent {name}"):
            await producer.send(Message("of-tasks", name.encode().ljust(KIB)))

    async def work() -> None:
        async with AsyncProducer(address, tracing=True, buffer_bytes_max=2 * KIB, batch_bytes_max=KIB) as producer:
            await asyncio.gather(*(send(producer, name) for name in names))
        found: dict[str, ReceivedMessage] = {}
        async with AsyncConsumer(address, "of-tasks", start="first") as consumer:
            while len(found) < len(names):
                found |= {message.body.decode().strip(): message for message in await consumer.poll(WAIT_MS)}
        for name, message in found.items():
            with spans.tracer.start_as_current_span(f"received {name}", context=extract(message)):
                pass
        seen = 0
        async with AsyncGroupConsumer(address, "tasks", "of-tasks", start="first") as group:
            while seen < len(names):
                messages = await group.poll(WAIT_MS)
                assert all("traceparent" in message.properties for message in messages)
                seen += len(messages)

    asyncio.run(asyncio.wait_for(work(), 2 * WAIT_S))
    spans.check(*names)
