"""The options of the clients for asyncio, which are those of the threaded ones: `Producer`, `Consumer` and the others
say what each means. A test compares names and types with their constructors.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Literal, TypedDict

from towline.client.link.endpoints import Endpoints
from towline.client.read.reader import Start
from towline.client.values import Deserializer, Propagator, Serializer


class ProducerOptions(TypedDict, total=False):
    """Options of `AsyncProducer`; `linger_ms` is 0 there unless given."""

    name: str
    cluster: str
    linger_ms: float
    batch_bytes_max: int
    in_flight_max: int
    buffer_bytes_max: int
    send_timeout_ms: int
    take_timeout_ms: int | None
    delivery_timeout_ms: int
    retries: int
    retry_unpromised: bool
    idempotent: bool
    compression: str | None
    compress_above: int
    serve: Endpoints
    check_crcs: bool
    value_serializer: Serializer | Literal["json"] | None
    pass_over: bool
    tracing: Propagator | bool


class ConsumerOptions(TypedDict, total=False):
    """Options of `AsyncConsumer`."""

    tags: str
    sql: str
    group: str
    queues: Sequence[int] | None
    start: Start
    max_count: int
    max_bytes: int
    suspend_ms: int
    timeout_ms: int
    body_size_max: int
    reads_files: bool
    check_crcs: bool
    value_deserializer: Deserializer | Literal["json"] | None
    name: str
    cluster: str


class GroupConsumerOptions(TypedDict, total=False):
    """Options of `AsyncGroupConsumer`."""

    member: str
    model: Literal["clustering", "broadcasting"]
    start: Start
    strategy: str
    ordered: bool
    auto_commit: bool
    commit_interval_ms: int
    offsets_file: Path | str | None
    max_count: int
    max_bytes: int
    buffer_bytes: int
    suspend_ms: int
    timeout_ms: int
    body_size_max: int
    check_crcs: bool
    value_deserializer: Deserializer | Literal["json"] | None
    put_endpoint: Endpoints
    cluster: str


class AdminOptions(TypedDict, total=False):
    """Options of `AsyncAdminClient`."""

    name: str
    cluster: str
    timeout_ms: int
    masters_only: bool
