"""Measures a stream from one topic into another at a steady rate: latency from the sender to the last reader.

The message's body holds when it was sent. It is put into a node, read by a micro-batch out of the store's files,
written by the sink into the second topic, and pulled from there: the time of all of this is its latency. Messages
before the stream runs evenly, when Spark starts and compiles, are not counted.

The session has the settings that docs/spark.md recommends for streams with low latency, and its result names them.
"""

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from pyspark.sql import SparkSession

from towline.client.consumer import Consumer
from towline.client.message import Message
from towline.client.producer import Producer
from towline.limits import MIB
from towline.node.process.context import runtime_of
from towline.pipeline.session import end, session

from .node import await_, bench_node

OUT_OF: Final = "sent"
INTO: Final = "streamed"
TICK_S: Final = 0.005
EVEN_S: Final = 5.0  # after the first message has come through
ROOM_MS: Final = 3_000
SEGMENT: Final = 64 * MIB
COLUMNS: Final = "body"
LOW_LATENCY: Final[Mapping[str, str]] = {
    "spark.sql.streaming.checkpointFileManagerClass": (
        "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
    ),
    "spark.sql.streaming.checkpoint.fileChecksum.enabled": "false",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.adaptive.enabled": "false",
    "spark.driver.extraJavaOptions": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1",
}
_POLL_MS: Final = 100
_NS: Final = 1e9

Integers = NDArray[np.int64]


class Sender(threading.Thread):
    """Sends numbered messages at a rate until it is stopped; `sent` is the number of the next."""

    def __init__(self, endpoint: str, rate: int) -> None:
        super().__init__(name="sender", daemon=True)
        self._endpoint, self._rate = endpoint, rate
        self._stopped = threading.Event()
        self.sent = 0

    def run(self) -> None:
        with Producer(self._endpoint, linger_ms=1.0) as producer:
            began = time.monotonic()
            while not self._stopped.wait(TICK_S):
                due = int((time.monotonic() - began) * self._rate)
                for number in range(self.sent, due):
                    producer.send_async(Message(OUT_OF, f"{number} {time.time_ns()}".encode()), max_block_ms=ROOM_MS)
                self.sent = due

    def stop(self) -> None:
        self._stopped.set()
        self.join()


class Receiver(threading.Thread):
    """Pulls what the stream wrote: number and latency in ns of each message, in the order they came."""

    def __init__(self, endpoint: str) -> None:
        super().__init__(name="receiver", daemon=True)
        self._endpoint = endpoint
        self._stopped = threading.Event()
        self._found: list[Integers] = []
        self.received = 0

    def run(self) -> None:
        with Consumer(self._endpoint, INTO) as consumer:
            while not self._stopped.is_set():
                columns = consumer.poll_columns(_POLL_MS)
                if columns is not None:
                    now = time.time_ns()
                    rows = np.array([body.split() for body in columns.bodies()]).astype(np.int64)
                    rows[:, 1] = now - rows[:, 1]
                    self._found.append(rows)
                    self.received += len(rows)

    def stop(self) -> Integers:
        """Rows of (number, latency in ns)."""
        self._stopped.set()
        self.join()
        return np.concatenate(self._found) if self._found else np.empty((0, 2), dtype=np.int64)


def measure(
    directory: Path,
    rate: int,
    seconds: float,
    note: Callable[[str], None],
    settings: Mapping[str, str] = LOW_LATENCY,
) -> dict[str, float]:
    """Latencies in seconds of what is sent in `seconds`, how many came, and how many did not or more than once.

    Also the median ms that a micro-batch took, of its parts as Spark names them.
    """
    directory.mkdir(parents=True, exist_ok=True)
    store = directory / "store"
    with bench_node(directory, SEGMENT):
        runtime = runtime_of(store)
        put, serve = (f"ipc://{runtime.socket(service)}" for service in ("put", "serve"))
        with Producer(put) as producer:
            for topic in (INTO, OUT_OF):
                producer.route(topic)
        spark = session(None, "towline bench", **settings)
        try:
            with _streaming(spark, store, directory / "checkpoint") as query:
                return _measured(put, serve, query, rate, seconds, note)
        finally:
            end(spark)


@contextmanager
def _streaming(spark: SparkSession, store: Path, checkpoint: Path) -> Iterator[Any]:
    source = spark.readStream.format("towline").options(subscribe=OUT_OF, columns=COLUMNS, startingOffsets="earliest")
    sink = source.load(str(store)).writeStream.format("towline").options(path=str(store), topic=INTO)
    query = sink.option("checkpointLocation", str(checkpoint)).start()
    try:
        yield query
    finally:
        query.stop()


def _measured(
    put: str, serve: str, query: Any, rate: int, seconds: float, note: Callable[[str], None]
) -> dict[str, float]:
    receiver, sender = Receiver(serve), Sender(put, rate)
    receiver.start()
    sender.start()
    try:
        await_(lambda: receiver.received > 0 or not query.isActive, "no message came through the stream")
        _raise_from(query)
        note(f"a stream at {rate:,} messages/s for {seconds:.0f} s")
        time.sleep(EVEN_S)
        first = sender.sent
        time.sleep(seconds)
        last = sender.sent
    finally:
        sender.stop()
    try:
        await_(lambda: receiver.received >= sender.sent or not query.isActive, "not everything came through the stream")
        _raise_from(query)
    finally:
        rows = receiver.stop()
    rows = rows[(rows[:, 0] >= first) & (rows[:, 0] < last)]
    distinct = len(np.unique(rows[:, 0]))
    latencies = rows[:, 1] / _NS
    return _parts(query) | {
        "rate_per_s": float(rate),
        "p50_s": float(np.percentile(latencies, 50)),
        "p99_s": float(np.percentile(latencies, 99)),
        "max_s": float(latencies.max()),
        "received": float(len(rows)),
        "lost": float(last - first - distinct),
        "doubled": float(len(rows) - distinct),
    }


def _raise_from(query: Any) -> None:
    """What has ended the query, if anything has."""
    error = query.exception()
    if error is not None:
        raise error


def _parts(query: Any) -> dict[str, float]:
    """Of the newest micro-batches that Spark keeps the progress of, a hundred by default."""
    durations = [progress.durationMs for progress in query.recentProgress if progress.numInputRows]
    names = sorted({name for parts in durations for name in parts})
    return {f"{name}_ms": float(np.median([parts.get(name, 0) for parts in durations])) for name in names}
