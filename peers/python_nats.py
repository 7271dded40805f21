"""NATS JetStream by nats-py: a publish that is awaited, many on their way, an ordered consumer. `run` is that of a
client process."""

import asyncio
import time
from collections.abc import Callable
from typing import Final

import nats
from nats.js.api import StorageType, StreamConfig
from nats.js.client import JetStreamContext

from towline.errors import BenchFailed

from .nats import STREAM
from .plan import CALLS, Answer, Kind, Work, body_of
from .python_api import one_at_a_time
from .server import HOST

SUBJECT: Final = f"{STREAM}.0"
SILENT_S: Final = 5.0


def run(address: str, work: Work, go: Callable[[], None]) -> Answer:
    with asyncio.Runner() as runner:
        client = runner.run(nats.connect(f"nats://{HOST}:{address}"))
        try:
            stream = client.jetstream(publish_async_max_pending=CALLS)
            config = StreamConfig(name=STREAM, subjects=[f"{STREAM}.*"], storage=StorageType.FILE)
            runner.run(stream.add_stream(config))
            match work.kind:
                case Kind.SEND:
                    body = body_of(work.body)
                    return one_at_a_time(work, go, lambda: runner.run(stream.publish(SUBJECT, body)))
                case Kind.SEND_ASYNC:
                    return runner.run(_calls(stream, work, go))
                case _:
                    return runner.run(_objects(stream, work, go))
        finally:
            runner.run(client.close())


async def _calls(stream: JetStreamContext, work: Work, go: Callable[[], None]) -> Answer:
    body, futures = body_of(work.body), []
    go()
    began = time.perf_counter()
    while time.perf_counter() - began < work.seconds:
        futures += [await stream.publish_async(SUBJECT, body) for _ in range(CALLS)]
    await stream.publish_async_completed()
    seconds = time.perf_counter() - began
    for future in futures:
        future.result()
    return Answer(count=len(futures), seconds=seconds)


async def _objects(stream: JetStreamContext, work: Work, go: Callable[[], None]) -> Answer:
    go()
    began, done, size = time.perf_counter(), 0, 0
    subscription = await stream.subscribe(SUBJECT, ordered_consumer=True)
    while done < work.count:
        try:
            message = await subscription.next_msg(timeout=SILENT_S)
        except TimeoutError:
            raise BenchFailed(f"{done} of {work.count} messages came") from None
        size += len(message.data)
        done += 1
    assert size == work.count * work.body
    return Answer(count=done, seconds=time.perf_counter() - began)
