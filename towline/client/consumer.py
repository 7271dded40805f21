"""The consumer: reads the queues of a topic, message by message or in columns."""

import logging
import os
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from functools import partial
from types import TracebackType
from typing import Final, Literal, Self

from towline.client.link.connection import own_facts, remaining_ms
from towline.client.link.endpoints import Endpoints
from towline.client.link.routes import GroupRoute, group_routes
from towline.client.link.rpc import Caller
from towline.client.read.checks import Checks
from towline.client.read.reader import MOVES_MAX, Moved, Reader, Start, Wanted
from towline.errors import NoAnswer, TowlineError, UnknownTopic
from towline.format.java_hash import string_hash
from towline.limits import DECOMPRESSED_SIZE_MAX, MIB, REQUEST_SIZE_MAX
from towline.link.context import close_context, new_context
from towline.link.poller import Poller
from towline.link.unclosed import call_in_child

from .columns import Columns
from .errors import ClientClosed, UnknownGroup
from .message import ANY_TAG, ReceivedMessage
from .values import Deserializer, deserializer_of

TAG_SEPARATOR: Final = "||"
ITERATION_MS: Final = 1_000
SUSPENDED_S: Final = 1.0  # before a group without the topic, or without a node that answers, is tried again

log = logging.getLogger(__name__)


class Consumer:
    """Reads one topic from a node. Used by one thread.

    endpoint       tcp://host:port, tls://host:port?ca=file, or ipc://path of its serve; master or slave. Of
                   several (a text with commas, or a sequence) one that answers, and when it does not any more, another.
                   Or cluster:PATH of a cluster file: every group of nodes is read, and one that is out of reach is
                   passed over until it is back
    tags           "*", one tag, or several as "a || b"
    sql            a filter on properties in SQL92, as "a > 3 AND b IS NOT NULL"; the node evaluates it
    group          whose filter it is, for nodes that compute bitmaps of filters
    queues         queue ids; by default all that the topic has at the beginning, of which one that it has no more is
                   waited for
    start          "first", "last" (after what is there now), a datetime or ms since 1970 (store time)
    max_count, max_bytes  of one pull; the first record comes whatever its size
    suspend_ms     how long the node may hold a pull while nothing arrives
    timeout_ms     how long the node, or every group, may be out of reach before NoAnswer
    body_size_max  cap on a decompressed body, bytes
    reads_files    on the node's machine (ipc, loopback TCP), where this process may open the node's files: records that
                   stand back to back are read from the log, and only their places come over the link; messages at the
                   end of the log are read without asking while they follow each other closely
    check_crcs     the CRC of each body is compared before it is handed out. What does not fit is read from another node
                   of the group, where one is known; else it raises DamagedMessage, and `seek` leads behind it
    value_deserializer  makes `value` of a message of its body, when that is read: "json", or a function of the bytes

    Each queue has one pull out at any time, and the next is sent before an answer is decoded. A lost link is made anew
    and reading goes on at the positions. Where the node has deleted what comes next, it goes on at the first message
    that is left, and under a new master at the first message that this one has on its own account: `moved` says
    where, `missed` how many were passed over. Nothing is connected before the first call that needs the node.
    Raises InvalidEndpoint, UnreadableCluster, BadCluster, ValueError.
    """

    def __init__(
        self,
        endpoint: Endpoints | Callable[[], Endpoints],
        topic: str,
        *,
        tags: str = ANY_TAG,
        sql: str = "",
        group: str = "",
        queues: Sequence[int] | None = None,
        start: Start = "first",
        max_count: int = 10_000,
        max_bytes: int = MIB,
        suspend_ms: int = 15_000,
        timeout_ms: int = 10_000,
        body_size_max: int = DECOMPRESSED_SIZE_MAX,
        reads_files: bool = True,
        check_crcs: bool = True,
        value_deserializer: Deserializer | Literal["json"] | None = None,
        name: str = "",
        cluster: str = "",
    ) -> None:
        if not 0 < max_bytes <= REQUEST_SIZE_MAX or max_count < 1:
            raise ValueError(f"max_bytes is 1 to {REQUEST_SIZE_MAX} and max_count at least 1")
        if isinstance(start, str) and start not in ("first", "last"):
            raise ValueError(f"start is {start!r}; first, last, a datetime or ms since 1970 are allowed")
        self.topic = topic
        self.moved: deque[Moved] = deque(maxlen=MOVES_MAX)
        self._body_size_max, self._deserialize = body_size_max, deserializer_of(value_deserializer)
        self._timeout_ms = timeout_ms
        kept = _tags(tags)
        codes = tuple(string_hash(tag) for tag in sorted(kept))
        wanted = Wanted(
            topic,
            frozenset(tag.encode() for tag in kept),
            codes,
            sql,
            group,
            queues,
            start,
            max_count,
            max_bytes,
            suspend_ms,
            timeout_ms,
            reads_files,
            check_crcs,
        )
        found = (GroupRoute("", endpoint),) if callable(endpoint) else group_routes(endpoint)
        name = name or f"consumer-{os.getpid()}"
        facts = own_facts("consumer", name, cluster)
        self._closed = False
        self._context, self._poller = new_context(), Poller()
        callers = [Caller(way.endpoints, facts, self._context, self._poller) for way in found]
        self._readers = [
            Reader(way.name, wanted, caller, self.moved, Checks(partial(_nodes_of, caller), name, cluster))
            for way, caller in zip(found, callers, strict=True)
        ]
        self._suspended: dict[str, tuple[float, TowlineError]] = {}  # group -> until when, why
        self._next = 0
        call_in_child(self)

    # --- reading

    def poll(self, timeout_ms: int) -> list[ReceivedMessage]:
        """The next messages of one queue, or none when nothing came within `timeout_ms`.

        Raises UnknownTopic, also of one that was deleted, UnknownQueue of one of `queues`, NoAnswer when the node is
        out of reach, FilterRefused, ReadRefused, DamagedMessage, LinkRefused, ClientClosed; reading goes on afterwards
        where it stood, behind a damaged message after
        `seek(error.queue_id, error.queue_offset + 1, error.broker_name)`.
        """
        columns = self.poll_columns(timeout_ms)
        return [] if columns is None else columns.messages(self._body_size_max, self._deserialize)

    def poll_columns(self, timeout_ms: int) -> Columns | None:
        """The next records as columns: the cheap way for many messages."""
        deadline = time.monotonic() + timeout_ms / 1000
        while True:
            columns = self._poll_groups(remaining_ms(deadline))
            if columns is not None:
                return columns
            if remaining_ms(deadline) == 0:
                return None
            self._wait(deadline)

    def __iter__(self) -> Iterator[ReceivedMessage]:
        """Every message, until the consumer is closed; waits for new ones."""
        while not self._closed:
            columns = self.poll_columns(ITERATION_MS)
            if columns is not None:
                yield from columns.each(self._body_size_max, self._deserialize)

    def batches(self) -> Iterator[Columns]:
        """Every message in columns, until the consumer is closed; waits for new ones."""
        while not self._closed:
            columns = self.poll_columns(ITERATION_MS)
            if columns is not None:
                yield columns

    # --- positions

    @property
    def groups(self) -> list[str]:
        """The groups of nodes that are read. A single one has the name ""."""
        return [reader.name for reader in self._readers]

    def position(self, broker_name: str = "") -> dict[int, int]:
        """Queue id -> offset of the next message to come from `poll`. Of several groups, `broker_name` names one.

        Like the calls below it raises what `poll` does, and UnknownGroup.
        """
        reader = self._begun(broker_name)
        return {queue.queue_id: queue.position for queue in reader.queues.values()}

    def seek(self, queue_id: int, offset: int, broker_name: str = "") -> None:
        """The next message of this queue is the one at `offset`. Raises KeyError for a queue that is not read."""
        reader = self._begun(broker_name)
        reader.seek(reader.queues[queue_id], offset)

    def seek_to_time(self, when: datetime | int) -> None:
        """Each queue goes to its first message stored at or after `when`, a datetime or ms since 1970."""
        for name in self.groups:
            reader = self._begun(name)
            for queue in reader.queues.values():
                reader.seek(queue, reader.offset_at(queue.queue_id, when))

    def pause(self, *queue_ids: int) -> None:
        """Nothing more comes from these queues (all, when none is named) until `resume`. Of every group."""
        for name in self.groups:
            reader = self._begun(name)
            for queue_id in queue_ids or reader.queues:
                queue = reader.queues[queue_id]
                queue.paused = True
                reader.seek(queue, queue.position)

    def resume(self, *queue_ids: int) -> None:
        for name in self.groups:
            reader = self._begun(name)
            for queue_id in queue_ids or reader.queues:
                reader.queues[queue_id].paused = False

    @property
    def at_end(self) -> bool:
        """Whether all that was readable at the nodes' last answers has come, in every queue that is not paused.

        A group without the topic has nothing to come; one that is out of reach may have.
        """
        return any(reader.at_end for reader in self._readers) and all(
            reader.at_end or isinstance(self._why_suspended(reader), UnknownTopic) for reader in self._readers
        )

    def has_begun(self, *, everywhere: bool = True) -> bool:
        """Whether the first positions are fixed: of every group, or of one at least."""
        return (all if everywhere else any)(reader.queues for reader in self._readers)

    @property
    def missed(self) -> int:
        """How many queue offsets the node deleted before they were read."""
        return sum(reader.missed for reader in self._readers)

    @property
    def far_behind(self) -> bool:
        """Whether a node said last that a slave should be read instead (its setting slave_read_enable)."""
        return any(reader.far_behind for reader in self._readers)

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            for reader in self._readers:
                reader.close()
            close_context(self._context)

    def forked(self) -> None:
        """Clears suspended groups; every reader then raises ClientForked."""
        self._suspended.clear()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # --- inside

    def _begun(self, name: str) -> Reader:
        for reader in self._readers:
            if reader.name == name or (not name and len(self._readers) == 1):
                reader.begin()
                return reader
        raise UnknownGroup(name, ", ".join(self.groups))

    def _poll_groups(self, timeout_ms: int) -> Columns | None:
        """Records of the group whose turn it is, or of the next that has some."""
        if len(self._readers) == 1:
            return self._readers[0].poll(timeout_ms)
        for _ in self._readers:
            self._next = (self._next + 1) % len(self._readers)
            reader = self._readers[self._next]
            until, _ = self._suspended.get(reader.name, (0.0, None))
            if until > time.monotonic():
                continue
            try:
                columns = reader.poll(0)
            except (UnknownTopic, NoAnswer) as error:
                self._suspend(reader, error)
                continue
            if columns is not None:
                self._suspended.pop(reader.name, None)
                return columns
            if reader.queues and reader.is_linked:
                self._suspended.pop(reader.name, None)
        return None

    def _suspend(self, reader: Reader, error: TowlineError) -> None:
        """Raises the error when no group is left."""
        if self._closed:
            raise ClientClosed("consumer")
        if reader.name not in self._suspended:
            log.warning("group %s is not read for now: %s", reader.name, error.describe())
        self._suspended[reader.name] = time.monotonic() + SUSPENDED_S, error
        if len(self._suspended) == len(self._readers):
            self._suspended.clear()
            raise error

    def _why_suspended(self, reader: Reader) -> TowlineError | None:
        return self._suspended.get(reader.name, (0.0, None))[1]

    def _wait(self, deadline: float) -> None:
        rests = [reader.rest_s for reader in self._readers if reader.follows]
        if rests:
            time.sleep(min(rests))
            return
        suspended = {name for name, (until, _) in self._suspended.items() if until > time.monotonic()}
        dues = [reader.due(deadline) for reader in self._readers if reader.name not in suspended]
        dues += [until for name, (until, _) in self._suspended.items() if name in suspended]
        if not any(reader.has_kept for reader in self._readers):
            self._poller.poll(remaining_ms(min([deadline, *dues])))


def _nodes_of(caller: Caller) -> tuple[str, ...]:
    return caller.connection.everywhere


def _tags(tags: str) -> set[str]:
    """Empty for every tag."""
    wanted = {tag.strip() for tag in tags.split(TAG_SEPARATOR)}
    if ANY_TAG in wanted:
        return set()
    if "" in wanted:
        raise ValueError(f"tags {tags!r}: write *, a tag, or several as 'a || b'")
    return wanted
