"""`towline bench steps`: where a message is at which time, from `send` to its acknowledgement and to its consumer.

A whole master runs with `TOWLINE_FAILPOINTS=trace:DIRECTORY`, so its processes write down when they get to a failpoint.
This process sends with a `Producer` over the ring (or TCP) at a steady rate; another one reads with a `Consumer` at the
end of the queue. Of each message a step's time is that of the first event behind the step before it.

This module is also the process that reads: `python -m towline.loadtest.bench.steps ENDPOINT COUNT [--reads-files]`.
"""

import json
import os
import struct
import subprocess
import sys
import tempfile
import time
from bisect import bisect_left
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from towline.client.consumer import Consumer
from towline.client.message import Message
from towline.client.producer import Producer
from towline.errors import BenchFailed
from towline.limits import KIB, MIB
from towline.runtime.failpoints import ENVIRONMENT, NAMES
from towline.runtime.trace import read_trace
from towline.start import home

from .node import BenchNode, bench_node

SEGMENT: Final = 256 * MIB
TOPIC: Final = "steps"
SILENT_MS: Final = 10_000
READS_FILES: Final = "--reads-files"
NUMBER: Final = struct.Struct(">Q")  # of the message, in front of its body
NS: Final = 1_000_000_000
# In the order of a message's way; each begins behind the one before.
STEPS: Final = {
    "put.after_publish": "stored: APPENDED moved",
    "reput.before_queues": "reput has found it",
    "reput.after_dispatched": "its queue has it: DISPATCHED moved",
    "serve.woken": "serve has found the pull that waits for it",
    "serve.answered": "serve has given the answer to ZeroMQ",
}
PULLED: Final = ("serve.woken", "serve.answered")  # steps of a consumer that pulls alone
QUANTILES: Final = {"p50_us": 50.0, "p99_us": 99.0, "max_us": 100.0}

Times = npt.NDArray[np.int64]
Note = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Plan:
    """Messages of `body` bytes at each of `rates` a second, for `seconds`, but no more than `most`.

    transport    ipc, which makes the producer use the ring, or tcp
    reads_files  the consumer may follow the log's end in the node's files; otherwise it pulls
    """

    rates: tuple[int, ...] = (10, 1_000, 5_000)
    seconds: float = 6.0
    body: int = KIB
    transport: str = "ipc"
    reads_files: bool = True
    most: int = 20_000


QUICK: Final = Plan(rates=(200,), seconds=1.0)


def measure(plan: Plan, note: Note) -> dict[str, Any]:
    """Everything `towline bench steps` shows, as JSON can carry it."""
    started, load = time.monotonic(), os.getloadavg()[0]
    rows = []
    for rate in plan.rates:
        note(f"{rate:,} messages a second, one at a time")
        rows.append(_of_rate(plan, rate))
    return {
        "transport": plan.transport,
        "reads_files": plan.reads_files,
        "body": plan.body,
        "rates": rows,
        "machine": {"cpus": os.cpu_count(), "load_before": load},
        "seconds": time.monotonic() - started,
    }


def _of_rate(plan: Plan, rate: int) -> dict[str, Any]:
    with tempfile.TemporaryDirectory(prefix="towline-bench-") as directory:
        trace = Path(directory) / "trace"
        trace.mkdir()
        with _traced(trace), bench_node(Path(directory), SEGMENT) as node:
            node.await_segments()
            before = node.cpu_ns()
            sent, acked, came = _send_and_read(node, plan, rate)
            spent = {label: now - before.get(label, 0) for label, now in node.cpu_ns().items()}
        events = read_trace(trace, NAMES)
    seconds = float(came[-1] - sent[0]) / NS
    rows = [{"step": "acknowledged: send returned", **_quantiles(acked - sent)}]
    at = sent
    for name, meaning in STEPS.items():
        if name in PULLED and plan.reads_files:
            continue
        at = first_from(events[name], at)
        rows.append({"step": meaning, **_quantiles(at - sent)})
    rows.append({"step": "the consumer has it", **_quantiles(came - sent)})
    return {
        "rate": rate,
        "messages": len(sent),
        "steps": rows,
        "cpu_percent": {label: 100 * ns / NS / seconds for label, ns in spent.items()},
    }


@contextmanager
def _traced(directory: Path) -> Iterator[None]:
    """Nodes that are started meanwhile write their trace there."""
    os.environ[ENVIRONMENT] = f"trace:{directory}"
    try:
        yield
    finally:
        del os.environ[ENVIRONMENT]


def _send_and_read(node: BenchNode, plan: Plan, rate: int) -> tuple[Times, Times, Times]:
    """When each message was sent, acknowledged and read. Raises BenchFailed."""
    count = min(plan.most, max(10, int(rate * plan.seconds)))
    padding = bytes(plan.body - NUMBER.size)
    sent, acked = np.zeros(count, dtype=np.int64), np.zeros(count, dtype=np.int64)
    with Producer(node.put_endpoint(plan.transport)) as producer:
        producer.make_topic(TOPIC)
        producer.send(Message(TOPIC, bytes(plan.body), queue_id=0))
        command = [sys.executable, "-m", __name__, node.serve_endpoint_of(plan.transport), str(count)]
        if plan.reads_files:
            command.append(READS_FILES)
        with subprocess.Popen(command, cwd=home(), stdout=subprocess.PIPE, text=True) as reader:
            assert reader.stdout is not None
            reader.stdout.readline()
            began = time.monotonic_ns()
            for number in range(count):
                while (left := began + number * NS // rate - time.monotonic_ns()) > 0:
                    time.sleep(left / NS)
                message = Message(TOPIC, NUMBER.pack(number) + padding, queue_id=0)
                sent[number] = time.monotonic_ns()
                producer.send(message)
                acked[number] = time.monotonic_ns()
            came = np.array(json.loads(reader.stdout.readline() or "[]"), dtype=np.int64)
    if len(came) != count:
        raise BenchFailed(f"{len(came)} of {count} messages came")
    return sent, acked, came


def first_from(events: list[int], starts: Times) -> Times:
    """For each start the first event that is not before it; the last one for those behind all."""
    if not events:
        raise BenchFailed("a process of the node has written no trace")
    last = len(events) - 1
    return np.array([events[min(last, bisect_left(events, int(start)))] for start in starts], dtype=np.int64)


def _quantiles(durations_ns: Times) -> dict[str, float]:
    return {name: float(np.percentile(durations_ns, quantile)) / 1000.0 for name, quantile in QUANTILES.items()}


def main() -> None:
    """Reads `count` messages at the end of the queue, and says when each came."""
    endpoint, count = sys.argv[1], int(sys.argv[2])
    reads_files = READS_FILES in sys.argv
    came: list[int] = []
    with Consumer(endpoint, TOPIC, start="last", reads_files=reads_files) as consumer:
        consumer.position()  # the end of the queue, from here on
        sys.stdout.write("\n")
        sys.stdout.flush()
        while len(came) < count:
            messages = consumer.poll(SILENT_MS)
            if not messages:
                break
            now = time.monotonic_ns()
            for message in messages:
                if message.body[: NUMBER.size] != NUMBER.pack(len(came)):
                    raise BenchFailed(f"a message came where number {len(came)} was due")
                came.append(now)
    sys.stdout.write(f"{json.dumps(came)}\n")


if __name__ == "__main__":
    main()
