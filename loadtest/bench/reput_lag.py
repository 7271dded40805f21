"""How far reput of a running node is behind while messages are put at a steady rate."""

import select
import tempfile
import time
from pathlib import Path
from typing import Any, Final

import numpy as np

from towline.link.context import close_context, new_context

from .client import PutClient
from .node import BenchNode, bench_node
from .shapes import Load, Shape, load_of

SHAPE: Final = Shape(500, 100)
REQUESTS_AT_ONCE: Final = 8
STEP_S: Final = 0.0005


def measure_lag(rate: int, seconds: float, segment_size: int) -> dict[str, Any]:
    """`rate` is messages a second, of 100 bytes with TAGS and UNIQ_KEY, index on. Lags in ms at the rate reached."""
    load = load_of(SHAPE)
    context = new_context()
    try:
        with (
            tempfile.TemporaryDirectory(prefix="towline-bench-") as directory,
            bench_node(Path(directory), segment_size) as node,
        ):
            client = PutClient(context, node.put_endpoint("ipc"))
            try:
                client.make_topic()
                node.settle()
                return _sampled(node, client, load, rate, seconds)
            finally:
                client.close()
    finally:
        close_context(context)


def _sampled(node: BenchNode, client: PutClient, load: Load, rate: int, seconds: float) -> dict[str, Any]:
    lags: list[int] = []
    sent, started = 0, time.monotonic()
    while (passed := time.monotonic() - started) < seconds:
        if sent < passed * rate:
            client.send(load, REQUESTS_AT_ONCE)
            sent += REQUESTS_AT_ONCE * SHAPE.records
        else:
            select.select([], [], [], STEP_S)
        lags.append(node.lag())
    reached = sent / (time.monotonic() - started)
    left = node.await_dispatched()
    per_ms = reached * load.record_size / 1000
    halves = np.array_split(np.array(lags), 2)
    return {
        "rate": rate,
        "reached": reached,
        "seconds": seconds,
        "p50_ms": float(np.median(lags)) / per_ms,
        "p99_ms": float(np.quantile(lags, 0.99)) / per_ms,
        "max_ms": float(np.max(lags)) / per_ms,
        "first_half_p50_ms": float(np.median(halves[0])) / per_ms,
        "second_half_p50_ms": float(np.median(halves[1])) / per_ms,
        "caught_up_s": left,
    }
