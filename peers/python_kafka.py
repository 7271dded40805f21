"""Apache Kafka by confluent-kafka: one message at a time, many on their way, reading. `run`: of a client process."""

import time
from collections.abc import Callable
from typing import Any, Final

from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from towline.errors import BenchFailed

from .plan import CALLS, Answer, Kind, Work, body_of
from .python_api import one_at_a_time

TOPIC: Final = "bench"
SILENT_S: Final = 5.0
SHARED: Final = {"acks": "all", "linger.ms": 0}


def run(address: str, work: Work, go: Callable[[], None]) -> Answer:
    _make_topic(address)
    match work.kind:
        case Kind.SEND:
            return _one_at_a_time(address, work, go)
        case Kind.SEND_ASYNC:
            return _calls(address, work, go)
        case _:
            return _objects(address, work, go)


def _make_topic(address: str) -> None:
    admin = AdminClient({"bootstrap.servers": address})
    for made in admin.create_topics([NewTopic(TOPIC, 1, 1)]).values():
        error = made.exception()
        if error is not None and error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
            raise BenchFailed(f"no topic was made: {error}")


class _Reports:
    """How many messages were acknowledged."""

    def __init__(self) -> None:
        self.count = 0

    def __call__(self, error: Any, _: Any) -> None:
        if error is not None:
            raise BenchFailed(f"a message was refused: {error}")
        self.count += 1


def _one_at_a_time(address: str, work: Work, go: Callable[[], None]) -> Answer:
    producer, reports, body = Producer({"bootstrap.servers": address} | SHARED), _Reports(), body_of(work.body)

    def send() -> None:
        before = reports.count
        producer.produce(TOPIC, body, on_delivery=reports)
        while reports.count == before:
            producer.poll(SILENT_S)

    return one_at_a_time(work, go, send)


def _calls(address: str, work: Work, go: Callable[[], None]) -> Answer:
    producer = Producer({"bootstrap.servers": address, "acks": "all"})  # with its own linger
    body, reports = body_of(work.body), _Reports()
    go()
    began = time.perf_counter()
    while time.perf_counter() - began < work.seconds:
        for _ in range(CALLS):
            _produce(producer, body, reports)
        producer.poll(0)
    producer.flush()
    return Answer(count=reports.count, seconds=time.perf_counter() - began)


def _produce(producer: Producer, body: bytes, reports: _Reports) -> None:
    while True:
        try:
            producer.produce(TOPIC, body, on_delivery=reports)
            return
        except BufferError:  # its queue is full
            producer.poll(SILENT_S)


def _objects(address: str, work: Work, go: Callable[[], None]) -> Answer:
    consumer = Consumer({"bootstrap.servers": address, "group.id": TOPIC, "enable.auto.commit": False})
    consumer.assign([TopicPartition(TOPIC, 0, 0)])
    go()
    began, done, size = time.perf_counter(), 0, 0
    while done < work.count:
        messages = consumer.consume(CALLS, SILENT_S)
        if not messages:
            raise BenchFailed(f"{done} of {work.count} messages came")
        for message in messages:
            if message.error() is not None:
                raise BenchFailed(f"a message was not read: {message.error()}")
            size += len(message.value() or b"")
        done += len(messages)
    seconds = time.perf_counter() - began
    consumer.close()
    assert size == work.count * work.body
    return Answer(count=done, seconds=seconds)
