"""What a user's Python code gets of Towline: a producer that is called for each message or for many bodies, a consumer
that makes an object of each message."""

import time
from collections.abc import Callable
from typing import Final

from loadtest.bench.consume import objects
from loadtest.bench.shapes import TOPIC
from towline.client.body_crcs import load_crc_kernel
from towline.client.consumer import Consumer
from towline.client.message import Message
from towline.client.producer import Producer
from towline.errors import BenchFailed
from towline.limits import MIB

from .plan import Answer, Kind, Work, body_of

CALLS: Final = 1000  # between two checks of the clock
SILENT_MS: Final = 5_000


def run(address: str, work: Work, go: Callable[[], None]) -> Answer:
    """In a client process. Raises what producer and consumer raise."""
    put, serve = address.split()
    if work.kind is Kind.OBJECTS:
        return _objects(serve, work, go)
    with Producer(put) as producer:
        producer.make_topic(TOPIC)
        return _calls(producer, work, go) if work.kind is Kind.SEND_ASYNC else _bodies(producer, work, go)


def _calls(producer: Producer, work: Work, go: Callable[[], None]) -> Answer:
    message, futures = Message(TOPIC, body_of(work.body), queue_id=0), []
    go()
    began = time.perf_counter()
    while time.perf_counter() - began < work.seconds:
        futures += [producer.send_async(message) for _ in range(CALLS)]
    producer.flush()
    seconds = time.perf_counter() - began
    for future in futures:
        future.result()  # raises where one was refused
    return Answer(count=len(futures), seconds=seconds)


def _bodies(producer: Producer, work: Work, go: Callable[[], None]) -> Answer:
    bodies, futures, count = [body_of(work.body, number) for number in range(CALLS)], [], 0
    go()
    began = time.perf_counter()
    while time.perf_counter() - began < work.seconds:
        futures += producer.send_bodies_async(TOPIC, bodies, queue_id=0)
        count += len(bodies)
    producer.flush()
    seconds = time.perf_counter() - began
    for future in futures:
        future.result()
    return Answer(count=count, seconds=seconds)


def _objects(serve: str, work: Work, go: Callable[[], None]) -> Answer:
    load_crc_kernel()
    with Consumer(serve, TOPIC, suspend_ms=0, max_bytes=MIB) as consumer:
        go()
        began, done = time.perf_counter(), 0
        while done < work.count:
            columns = consumer.poll_columns(SILENT_MS)
            if columns is None:
                raise BenchFailed(f"{done} of {work.count} messages came")
            objects(columns)
            done += len(columns)
        return Answer(count=done, seconds=time.perf_counter() - began)
