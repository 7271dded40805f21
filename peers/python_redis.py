"""Redis Streams by redis-py: XADD, pipelines of many, XREAD. `run` is that of a client process."""

import time
from collections.abc import Callable
from typing import Any

import redis

from towline.errors import BenchFailed

from .plan import CALLS, Answer, Kind, Work, body_of
from .python_api import one_at_a_time
from .redis import FIELD, STREAM
from .server import HOST


def run(address: str, work: Work, go: Callable[[], None]) -> Answer:
    with redis.Redis(host=HOST, port=int(address)) as client:
        match work.kind:
            case Kind.SEND:
                entry = {FIELD: body_of(work.body)}
                return one_at_a_time(work, go, lambda: client.xadd(STREAM, entry))
            case Kind.SEND_ASYNC:
                return _calls(client, work, go)
            case _:
                return _objects(client, work, go)


def _calls(client: Any, work: Work, go: Callable[[], None]) -> Answer:
    entry, count = {FIELD: body_of(work.body)}, 0
    go()
    began = time.perf_counter()
    while time.perf_counter() - began < work.seconds:
        pipeline = client.pipeline(transaction=False)
        for _ in range(CALLS):
            pipeline.xadd(STREAM, entry)
        count += len(pipeline.execute())
    return Answer(count=count, seconds=time.perf_counter() - began)


def _objects(client: Any, work: Work, go: Callable[[], None]) -> Answer:
    go()
    began, done, size, after = time.perf_counter(), 0, 0, b"0"
    while done < work.count:
        found = client.xread({STREAM: after}, count=CALLS)
        if not found:
            raise BenchFailed(f"{done} of {work.count} messages came")
        entries = found[STREAM][0] if isinstance(found, dict) else found[0][1]
        size += sum(len(entry[FIELD]) for _, entry in entries)
        done, after = done + len(entries), entries[-1][0]
    assert size == work.count * work.body
    return Answer(count=done, seconds=time.perf_counter() - began)
