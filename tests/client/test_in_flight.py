"""Two programs, of threads and of asyncio, that hold 100,000 messages without an outcome, and do not grow by it."""

import subprocess
import sys
import threading
from pathlib import Path

import pytest

from tests.client.standin import Put, Standin
from tests.repo.trees import ROOT

COUNT = 100_000
ROUNDS = 3
BYTES_MAX = 3_000  # of memory for each message, its future included
GROWTH_MAX = 16 << 20  # bytes, of the peak after the second round: the first leaves room that is used again
THREADS_MAX = 4

OF_THREADS = """
from towline import Message, Producer

with Producer(endpoint, send_timeout_ms=100_000) as producer:
    producer.send(Message("one", b""))
    say(peak())
    for _ in range(ROUNDS):
        futures = [producer.send_async(Message("one", b"x" * 100)) for _ in range(COUNT)]
        say(sum(not future.done() for future in futures))
        assert all(future.result(60).acknowledged for future in futures)
        del futures
        say(peak())
    say(threading.active_count())
"""

OF_ASYNCIO = """
import asyncio
from towline import Message
from towline.aio.producer import AsyncProducer


async def main():
    async with AsyncProducer(endpoint, send_timeout_ms=100_000) as producer:
        await producer.send(Message("one", b""))
        say(peak())
        for _ in range(ROUNDS):
            outcomes = [await producer.enqueue(Message("one", b"x" * 100)) for _ in range(COUNT)]
            say(sum(not outcome.done() for outcome in outcomes))
            assert all(result.acknowledged for result in await asyncio.gather(*outcomes))
            del outcomes
            say(peak())
        say(threading.active_count())


asyncio.run(main())
"""

BEGIN = f"""
import resource, sys, threading
endpoint, COUNT, ROUNDS = sys.argv[1], {COUNT}, {ROUNDS}


def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def say(number):
    print(number, flush=True)
    sys.stdin.readline()
"""


class Forgetful(Standin):
    """Keeps nothing, and answers no put while it is `held`."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.goes_on = threading.Event()
        self.goes_on.set()

    def _store(self, put: Put) -> list[tuple[int, int]]:
        self.goes_on.wait(100)
        self.puts.clear()
        return [(0, 0) for _ in put.groups]


@pytest.mark.parametrize("program", [OF_THREADS, OF_ASYNCIO], ids=["threads", "asyncio"])
def test_a_hundred_thousand_messages_in_flight_take_their_room_once(tmp_path: Path, program: str) -> None:
    node = Forgetful(tmp_path, {"one": 1})
    node.start()
    words = [sys.executable, "-c", BEGIN + program, node.endpoint]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT) as running:

        def told() -> int:
            assert running.stdout is not None
            return int(running.stdout.readline())

        def go() -> None:
            assert running.stdin is not None
            running.stdin.write("go\n")
            running.stdin.flush()

        before, peaks = told(), []
        for _ in range(ROUNDS):
            node.goes_on.clear()
            go()
            assert told() == COUNT, "none has its outcome while the node is held"
            node.goes_on.set()
            go()
            peaks.append(told())
        go()
        assert told() <= THREADS_MAX
        go()
    node.stop()
    assert running.returncode == 0
    assert (peaks[1] - before) / COUNT < BYTES_MAX
    assert peaks[-1] - peaks[1] < GROWTH_MAX, peaks
