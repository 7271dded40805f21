"""What a user's Python code gets of Towline: a producer that is called for each message or for many bodies, a consumer
that makes an object of each message. `run` is that of a client process."""

import time
from collections.abc import Callable
from typing import Final

import numpy as np

from towline.client.consumer import Consumer
from towline.client.kernels import load_kernels
from towline.client.message import Message
from towline.client.producer import Producer
from towline.errors import BenchFailed
from towline.limits import MIB
from towline.loadtest.bench.consume import objects
from towline.loadtest.bench.shapes import TOPIC

from .plan import CALLS, Answer, Kind, Work, body_of

SILENT_MS: Final = 5_000
ROOM_MS: Final = 3_000


def run(address: str, work: Work, go: Callable[[], None]) -> Answer:
    """In a client process. Raises what producer and consumer raise."""
    put, serve = address.split()
    if work.kind is Kind.OBJECTS:
        return _objects(serve, work, go)
    with Producer(put) as producer:
        producer.make_topic(TOPIC)
        match work.kind:
            case Kind.SEND:
                message = Message(TOPIC, body_of(work.body), queue_id=0)
                return one_at_a_time(work, go, lambda: producer.send(message))
            case Kind.SEND_ASYNC:
                return _calls(producer, work, go)
            case _:
                return _bodies(producer, work, go)


def one_at_a_time(work: Work, go: Callable[[], None], send: Callable[[], object]) -> Answer:
    """Calls `send`, which returns when the message is acknowledged, for as long as the work says."""
    send()  # what is made for a first message is not what is measured
    us, done_s = [], []
    go()
    began = at = time.perf_counter()
    while at - began < work.seconds:
        send()
        ended = time.perf_counter()
        us.append((ended - at) * 1e6)
        done_s.append(ended - began)
        at = ended
    return Answer.of(len(us), at - began, np.array(us), np.array(done_s))


def _calls(producer: Producer, work: Work, go: Callable[[], None]) -> Answer:
    message, futures = Message(TOPIC, body_of(work.body), queue_id=0), []
    go()
    began = time.perf_counter()
    while time.perf_counter() - began < work.seconds:
        futures += [producer.send_async(message, max_block_ms=ROOM_MS) for _ in range(CALLS)]
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
    load_kernels()
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
