"""Orders to a client process, and its answers."""

from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any, Final, Self

import numpy as np
import numpy.typing as npt

from towline.limits import KIB

QUANTILES: Final = (0.0, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 0.99, 0.995, 0.999, 0.9999, 1.0)
BUCKET_S: Final = 0.1  # of the curve of throughput over time
BATCH: Final = 256 * KIB  # bytes of a request at most: what our producer has by default
RECORD: Final = 256  # bytes of a record beside its body, roughly


class Kind(StrEnum):
    PUT = "put"  # `window` messages on their way for `seconds`
    SINGLE = "single"  # one at a time for `seconds`
    RATE = "rate"  # `rate` a second for `seconds`, each timed from when it was due
    TAIL = "tail"  # RATE, and a consumer at the end of the queue: timed from when it was due until it came there
    FILL = "fill"  # `count` messages, `window` on their way: for those who read
    REPLAY = "replay"  # `count` messages are read from the beginning
    FIRST = "first"  # to a server that may not listen yet: tries until one is acknowledged, which goes elsewhere
    SEND = "send"  # by Python code, one at a time, for `seconds`
    SEND_ASYNC = "send_async"  # the same, a call for each message, many on their way
    SEND_BODIES = "send_bodies"  # the same, a call for a thousand
    OBJECTS = "objects"  # REPLAY by Python code that reads each message
    JAVA_SYNC = "java-sync"  # by RocketMQ's producer in Java, one `send` after the other for `seconds`
    JAVA_BATCH = "java-batch"  # the same, each with 32 messages
    JAVA_ASYNC = "java-async"  # the same, a call for each message, `window` on their way
    JAVA_PUSH = "java-push"  # REPLAY by RocketMQ's push consumer in Java, as it comes
    IDLE = "idle"  # `count` connections that were greeted and say nothing for `seconds`
    STORED = "stored"  # by the harness: FILL; memory and disk; kill -9, restart, FIRST; REPLAY


PYTHON: Final = (Kind.SEND, Kind.SEND_ASYNC, Kind.SEND_BODIES, Kind.OBJECTS)  # by each system's own Python client
JAVA: Final = (Kind.JAVA_SYNC, Kind.JAVA_BATCH, Kind.JAVA_ASYNC, Kind.JAVA_PUSH)  # by RocketMQ's clients, 5.5
JAVA_TOGETHER: Final = 32  # messages of a batch
CALLS: Final = 1000  # of Python code between two checks of the clock


class Durability(StrEnum):
    ASYNC = "async"  # the server's own default: synced now and then
    SYNC = "sync"  # synced before each acknowledgement


class Replica(StrEnum):
    NONE = "no replica"
    BEHIND = "1 replica"  # it gets what is put, and nobody waits for it
    IN_SYNC = "1 in-sync replica"  # it has each message before that is acknowledged


@dataclass(frozen=True, slots=True, kw_only=True)
class Setup:
    """How a server is to be started.

    sync_delay_ms  every fsync, fdatasync and msync of its takes so much longer
    queues         of the one topic that there is
    replica        a second node has it too
    """

    durability: Durability = Durability.ASYNC
    sync_delay_ms: int = 0
    queues: int = 1
    replica: Replica = Replica.NONE


_ENUMS: Final[dict[str, type[StrEnum]]] = {"kind": Kind, "durability": Durability, "replica": Replica}


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """Sizes in bytes. `clients` are processes, each with a window of its own. Message i goes to queue i % `queues`."""

    kind: Kind
    body: int
    clients: int = 1
    window: int = 1024
    seconds: float = 5.0
    count: int = 0
    rate: float = 0.0
    durability: Durability = Durability.ASYNC
    sync_delay_ms: int = 0
    queues: int = 1
    replica: Replica = Replica.NONE

    @property
    def name(self) -> str:
        """What people read; no two works of a plan have the same."""
        if self.kind is Kind.IDLE:
            return f"{self.count:,} idle connections"
        what = f"{self.kind} {size_of(self.body)}"
        if self.kind in (Kind.RATE, Kind.TAIL):
            what += f" {self.rate:,.0f}/s"
        if self.kind in (Kind.REPLAY, Kind.OBJECTS, Kind.STORED, Kind.JAVA_PUSH):
            what += f" x {self.count:,}"
        parts = [what, "1 client" if self.clients == 1 else f"{self.clients} clients", str(self.durability)]
        parts += [f"+{self.sync_delay_ms} ms per sync"] if self.sync_delay_ms else []
        parts += [f"{self.queues:,} queues"] if self.queues > 1 else []
        parts += [str(self.replica)] if self.replica is not Replica.NONE else []
        return ", ".join(parts)

    @property
    def expected(self) -> int:
        """How many messages a rate amounts to."""
        return int(self.rate * self.seconds)

    @property
    def setup(self) -> Setup:
        return Setup(
            durability=self.durability, sync_delay_ms=self.sync_delay_ms, queues=self.queues, replica=self.replica
        )

    @property
    def together(self) -> int:
        """Messages in a request, of a client that sends several in one: a power of two, a quarter of the window at
        most."""
        if self.kind in (Kind.SINGLE, Kind.RATE, Kind.TAIL, Kind.FIRST, Kind.JAVA_SYNC, Kind.JAVA_ASYNC):
            return 1
        if self.kind is Kind.JAVA_BATCH:
            return JAVA_TOGETHER
        most = max(1, min(self.window // 4, BATCH // (self.body + RECORD)))
        return 1 << (most.bit_length() - 1)

    def to_json(self) -> dict[str, Any]:
        """With `together`, for programs that cannot work it out."""
        return asdict(self) | {"together": self.together}

    @classmethod
    def read(cls, found: dict[str, Any]) -> Self:
        enums = {name: enum(found[name]) for name, enum in _ENUMS.items()}
        return cls(**{key: value for key, value in found.items() if key != "together"} | enums)


def size_of(body: int) -> str:
    return f"{body} B" if body < 1024 else f"{body // 1024} KiB"


def body_of(size: int, number: int = 0) -> bytes:
    """The same letters every time: none of the marks of any server's protocol stands in them."""
    return bytes(np.random.default_rng((size, number)).integers(ord("a"), ord("z") + 1, size, dtype=np.uint8))


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """Of one client: messages done, seconds that took, quantiles of their latency in us, messages done by BUCKET_S.

    `began_ns` is CLOCK_MONOTONIC where the clock of the work was started; 0 where nobody asks.
    """

    count: int
    seconds: float
    quantiles_us: tuple[float, ...] = ()
    by_time: tuple[int, ...] = ()
    began_ns: int = 0

    @classmethod
    def of(
        cls,
        count: int,
        seconds: float,
        us: npt.NDArray[np.float64],
        done_s: npt.NDArray[np.float64],
        began_ns: int = 0,
    ) -> Self:
        """`us`: latency of each message that was timed; `done_s`: when it was done, from the beginning."""
        quantiles = tuple(np.quantile(us, QUANTILES).tolist()) if len(us) else ()
        buckets = np.bincount((done_s / BUCKET_S).astype(np.int64)) if len(done_s) else np.zeros(0, dtype=np.int64)
        by_time = tuple(buckets.tolist())
        return cls(count=count, seconds=seconds, quantiles_us=quantiles, by_time=by_time, began_ns=began_ns)
