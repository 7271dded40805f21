"""The consumer of a group: it joins, shares the queues with the other members, and goes on where the group stood."""

import logging
import os
import secrets
import socket
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from types import TracebackType
from typing import Final, Literal, Self

import numpy as np

from towline.client.columns import Columns
from towline.client.consumer import Moved, Start
from towline.client.errors import ClientClosed
from towline.client.neighbours import neighbour
from towline.errors import NoAnswer, TowlineError
from towline.format.allocation import AVERAGE, STRATEGIES
from towline.limits import DECOMPRESSED_SIZE_MAX, MIB, REQUEST_SIZE_MAX
from towline.link.endpoints import parse

from .back import RETRIES_DEFAULT, WayBack
from .errors import NotAssigned
from .member import Member, Rebalance
from .message import GroupMessage
from .offsets import OffsetsFile
from .places import first_offset
from .queue import Handed, Stage
from .rules import Rules
from .shelf import Shelf
from .subscription import EVERYTHING, Topics, retry_topic, subscriptions_of

log = logging.getLogger(__name__)

ITERATION_MS: Final = 1_000
CLOSE_MS: Final = 5_000
SUSPEND_S: Final = 1.0  # before a message that could not be handled is tried again in its place


class GroupConsumer:
    """A member of a consumer group. Any number of threads may take messages; each is given others.

    endpoint        of a master's serve process: tcp://host:port or ipc://path
    topics          one topic, several, or {topic: what}, where what is "*", tags as "a || b", or Sql("price > 10")
    member          name in the group, unique; made up by default
    model           clustering: the members share the queues. broadcasting: each reads all, and keeps its offsets in
                    `offsets_file`
    start           where a group begins that is new to a topic: first, last, a datetime or ms since 1970 (store time).
                    A group that is known goes on where it stood, whatever this says
    ordered         a queue is locked to one member, and its messages go to one thread at a time
    auto_commit     what is finished is committed each `commit_interval_ms`, before a queue is given away, and by
                    `close`. Otherwise by `commit` alone
    buffer_bytes    bytes of messages fetched ahead, over all queues; max_count and max_bytes limit one pull
    timeout_ms      how long the node may be out of reach before NoAnswer; reading goes on afterwards
    put_endpoint    of the same node's put process, for `retry_later`; found through the node by default
    cluster         for the greeting; an empty one fits any

    What was handed out counts as finished when its thread asks for more, or closes. With manual commits it is finished
    when `commit` says so. A crash therefore loses nothing: what was not finished comes again, to whoever has the queue
    then. In a `with` block that ends by an exception, what is in hand is not finished.
    Raises InvalidEndpoint, ValueError, OffsetsFileTaken. Nothing is connected before the first message is asked for.
    """

    def __init__(
        self,
        endpoint: str,
        group: str,
        topics: Topics,
        *,
        member: str = "",
        model: Literal["clustering", "broadcasting"] = "clustering",
        start: Start = "last",
        strategy: str = AVERAGE,
        ordered: bool = False,
        auto_commit: bool = True,
        commit_interval_ms: int = 5_000,
        offsets_file: Path | str | None = None,
        max_count: int = 1_000,
        max_bytes: int = MIB,
        buffer_bytes: int = 32 * MIB,
        suspend_ms: int = 15_000,
        timeout_ms: int = 10_000,
        body_size_max: int = DECOMPRESSED_SIZE_MAX,
        put_endpoint: str = "",
        cluster: str = "",
    ) -> None:
        self._endpoint = str(parse(endpoint))
        broadcasting = model == "broadcasting"
        _check(start, model, strategy)
        _check_sizes(max_bytes, max_count, buffer_bytes, commit_interval_ms)
        if broadcasting and (offsets_file is None or ordered):
            raise ValueError("a broadcasting consumer needs an offsets_file of its own, and has no queue locks")
        subscriptions = subscriptions_of(topics)
        retry = frozenset() if broadcasting else frozenset({retry_topic(group)})
        self._rules = Rules(
            group=group,
            member=member or f"{socket.gethostname()}@{os.getpid()}#{secrets.token_hex(4)}",
            instance=secrets.token_hex(8),
            cluster=cluster,
            subscriptions=subscriptions | dict.fromkeys(retry, EVERYTHING),
            optional=retry,
            broadcasting=broadcasting,
            ordered=ordered,
            start=start,
            strategy=strategy,
            auto_commit=auto_commit,
            commit_interval_ms=commit_interval_ms,
            max_count=max_count,
            max_bytes=max_bytes,
            buffer_bytes=buffer_bytes,
            suspend_ms=suspend_ms,
            timeout_ms=timeout_ms,
        )
        self._body_size_max = body_size_max
        self._offsets = OffsetsFile(Path(offsets_file)) if broadcasting and offsets_file is not None else None
        self._shelf = Shelf(ordered=ordered, manual=not auto_commit)
        self._member = Member(self._endpoint, self._rules, self._shelf, self._offsets)
        self._put_endpoint = put_endpoint
        self._back = WayBack(group, cluster, self._find_put, self._retries_max, timeout_ms)
        self._begun = threading.Lock()
        self._closed, self._ended = threading.Event(), False
        self._listening: set[int] = set()  # threads that call back
        self.failures = 0  # messages that `listen` passed over because nobody could handle them

    # --- messages

    def poll(self, timeout_ms: int) -> list[GroupMessage]:
        """The next messages of one queue, or none when nothing came within `timeout_ms`.

        Raises UnknownTopic, AskRefused (such as CONSUME_DISABLED), MemberTaken, FilterRefused, NoAnswer when the node
        is out of reach, LinkRefused, MalformedRecord, ClientClosed.
        """
        columns = self.poll_columns(timeout_ms)
        return [] if columns is None else self._messages(columns)

    def poll_columns(self, timeout_ms: int) -> Columns | None:
        """The same as columns: the cheap way for many messages."""
        taken = self._take(time.monotonic() + timeout_ms / 1000, whole=True)
        return None if taken is None else taken[1]

    def __iter__(self) -> Iterator[GroupMessage]:
        """Every message, until the consumer is closed; each is finished when the next is asked for."""
        while (taken := self._take_next(whole=False)) is not None:
            handed, columns = taken
            offsets = columns.queue_offset.tolist()
            for message, offset in zip(self._messages(columns), offsets, strict=True):
                if self._closed.is_set() or not self._shelf.gives(handed, offset):
                    break
                yield message
            else:
                self._shelf.done()

    def batches(self) -> Iterator[Columns]:
        """Every message in columns, until the consumer is closed."""
        while (taken := self._take_next(whole=True)) is not None:
            yield taken[1]

    def listen(
        self, callback: Callable[[GroupMessage], object], *, threads: int = 1, attempts_max: int | None = None
    ) -> None:
        """Calls `callback` with every message, in so many threads, until `close` is called. Closes the consumer.

        A message whose callback raises an Exception is sent back and comes again later (`retry_later`). With `ordered`
        or broadcasting it is tried again in its place each second, for ever or `attempts_max` times: nothing of its
        queue overtakes it. Then it becomes a dead letter; a broadcasting consumer passes over it, and counts it in
        `failures`. Raises what `poll` raises, except NoAnswer: that is waited for.
        """
        errors: list[BaseException] = []

        def work() -> None:
            with self._shelf.lock:
                self._listening.add(threading.get_ident())
            try:
                self._listen(callback, attempts_max)
            except ClientClosed:
                return
            except BaseException as error:
                errors.append(error)
                self._stop()
            finally:
                with self._shelf.lock:
                    self._listening.discard(threading.get_ident())
                    self._shelf.lock.notify_all()

        workers = [
            threading.Thread(target=work, name=f"listener {number}", daemon=True) for number in range(1, threads)
        ]
        for worker in workers:
            worker.start()
        work()
        for worker in workers:
            worker.join()
        self._end()
        if errors:
            raise errors[0]

    # --- committing

    def commit(self, message: GroupMessage | None = None) -> None:
        """Commits what this thread was given so far, or of the message's queue everything up to it; waits for it.

        Raises AskRefused, NoAnswer, LinkRefused, ClientClosed; then the offsets are committed later, or messages come
        again.
        """
        if message is None:
            self._shelf.finish()
        else:
            self._shelf.finish_up_to((message.stored_topic, message.queue_id), message.queue_offset + 1)
        self._member.commit(self._rules.timeout_ms)

    # --- positions

    def assignment(self) -> dict[tuple[str, int], int]:
        """(topic, queue id) of every queue that is read now -> offset of the next message to be handed out."""
        with self._shelf.lock:
            return {key: queue.next for key, queue in self._shelf.queues.items() if queue.stage is Stage.READING}

    def seek(self, topic: str, queue_id: int, offset: int) -> None:
        """The next message of this queue is the one at `offset`, which the next commit commits. Raises NotAssigned."""
        with self._shelf.lock:
            queue = self._shelf.queues.get((topic, queue_id))
            if queue is None or queue.stage is not Stage.READING:
                raise NotAssigned(topic, queue_id)
            queue.go(offset)
        self._member.ring()

    def seek_to_time(self, when: datetime | int) -> None:
        """Each queue of now goes to its first message stored at or after `when`, a datetime or ms since 1970."""
        for topic, queue_id in self.assignment():
            if topic not in self._rules.optional:
                self.seek(
                    topic, queue_id, first_offset(self._member.ask, topic, queue_id, when, self._rules.timeout_ms)
                )

    def pause(self, *queues: tuple[str, int]) -> None:
        """Nothing more comes from these queues of ours (all, when none is named) until `resume`, or a rebalance."""
        self._set_paused(queues, True)

    def resume(self, *queues: tuple[str, int]) -> None:
        self._set_paused(queues, False)

    # --- what is going on

    @property
    def group(self) -> str:
        return self._rules.group

    @property
    def member(self) -> str:
        return self._rules.member

    @property
    def members(self) -> list[str]:
        """The group's members as the node said last."""
        return list(self._member.members)

    @property
    def generation(self) -> int:
        """Grows by one with each change of the group; 0 before it was joined."""
        return self._member.generation

    @property
    def rebalances(self) -> deque[Rebalance]:
        """The newest comings and goings of queues."""
        return self._member.rebalances

    @property
    def moved(self) -> deque[Moved]:
        """Where reading went on elsewhere than it stood: messages may have been deleted before they were read."""
        return self._member.pulling.moved

    @property
    def missed(self) -> int:
        """Queue offsets passed over because the node deleted them before they were read."""
        return self._member.pulling.missed

    @property
    def warnings(self) -> list[str]:
        """What the node finds strange about the group, such as members that subscribe differently."""
        return list(self._member.warnings)

    def close(self) -> None:
        """Commits what is finished, what this thread has in hand included, and leaves the group.

        A callback of `listen` may call it: the message in its hand is finished when the callback returns.
        """
        if threading.get_ident() in self._listening:
            self._stop()
        else:
            self._shelf.finish()
            self._end()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self.close()
        else:
            self._shelf.put_back()
            self._end()

    # --- inside

    def _begin(self) -> None:
        if self._closed.is_set():
            raise ClientClosed("consumer")
        with self._begun:
            if self._member.ident is None:
                self._member.start()

    def _stop(self) -> None:
        """Nothing more is handed out."""
        self._closed.set()
        self._shelf.fail(ClientClosed("consumer"), fatal=True)

    def _end(self) -> None:
        self._stop()
        with self._shelf.lock:  # what listeners have in hand is finished, if they manage in time
            self._shelf.lock.wait_for(lambda: not self._listening, CLOSE_MS / 1000)
        with self._begun:
            if self._ended:
                return
            self._ended = True
            if self._member.ident is not None:
                self._member.close(CLOSE_MS)
            else:
                self._member.never()
            self._back.close()
            if self._offsets is not None:
                self._offsets.close()

    def _take(self, deadline: float, *, whole: bool) -> tuple[Handed, Columns] | None:
        self._begin()
        while True:
            handed = self._shelf.take(deadline, whole=whole)
            self._member.ring()
            if handed is None:
                return None
            try:
                kept = self._wanted(handed)
            except TowlineError:
                self._shelf.refuse(handed)
                raise
            if kept is not None:
                return handed, kept
            self._shelf.done()

    def _take_next(self, *, whole: bool) -> tuple[Handed, Columns] | None:
        """Waits for it; None when the consumer is closed."""
        while not self._closed.is_set():
            try:
                taken = self._take(time.monotonic() + ITERATION_MS / 1000, whole=whole)
            except ClientClosed:
                if not self._closed.is_set():
                    raise
                return None
            if taken is not None:
                return taken
        return None

    def _wanted(self, handed: Handed) -> Columns | None:
        """The node compares hashes of tags; different tags may share one. None when nothing is left."""
        answer = handed.answer
        columns = Columns(answer.sizes, answer.records, queue_id=handed.queue.queue_id)
        if int(columns.queue_offset[0]) < answer.first:  # some of it was given before
            columns = columns.select(columns.queue_offset >= answer.first)
        tags = handed.queue.subscription.tags
        if not tags:
            return columns
        kept = np.fromiter((tag in tags for tag in columns.tags()), dtype=np.bool_, count=len(columns))
        if kept.all():
            return columns
        return columns.select(kept) if kept.any() else None

    def _messages(self, columns: Columns) -> list[GroupMessage]:
        rows, size, back = columns.rows(), self._body_size_max, self._back.send
        return [GroupMessage(rows, row, body_size_max=size, send_back=back) for row in range(len(columns))]

    def _listen(self, callback: Callable[[GroupMessage], object], attempts_max: int | None) -> None:
        messages = iter(self)
        in_place = self._rules.ordered or self._rules.broadcasting
        while not self._closed.is_set():
            try:
                message = next(messages, None)
            except NoAnswer as error:
                log.warning("group %s: %s", self.group, error.describe())
                messages = iter(self)
                continue
            if message is None:
                break
            with self._kept_on_failure():
                if in_place:
                    self._handle_in_place(callback, message, attempts_max)
                else:
                    self._handle(callback, message)
        self._shelf.finish()

    @contextmanager
    def _kept_on_failure(self) -> Iterator[None]:
        """Whatever ends the thread, the message in its hand is not finished."""
        try:
            yield
        except BaseException:
            self._shelf.put_back()
            raise

    def _handle(self, callback: Callable[[GroupMessage], object], message: GroupMessage) -> None:
        try:
            callback(message)
        except Exception:
            log.exception("%r could not be handled and is sent back", message)
            self._send_back(message, None)

    def _handle_in_place(
        self, callback: Callable[[GroupMessage], object], message: GroupMessage, attempts_max: int | None
    ) -> None:
        attempts = 0
        while attempts_max is None or attempts < attempts_max:
            try:
                callback(message)
                return
            except Exception:
                log.exception("%r could not be handled", message)
            attempts += 1
            if self._closed.wait(SUSPEND_S if attempts != attempts_max else 0):
                raise ClientClosed("consumer")
        self.failures += 1
        if not self._rules.broadcasting:
            self._send_back(message, -1)

    def _send_back(self, message: GroupMessage, level: int | None) -> None:
        """Until it is stored: a message that could not be handled is not passed over because put is away."""
        while True:
            try:
                message.retry_later(level)
                return
            except TowlineError as error:
                log.warning("%r cannot be sent back now: %s", message, error.describe())
            if self._closed.wait(SUSPEND_S):
                raise ClientClosed("consumer")

    def _retries_max(self) -> int:
        return int(self._member.settings.get("retryMaxTimes", RETRIES_DEFAULT))

    def _find_put(self) -> str:
        return self._put_endpoint or neighbour(self._endpoint, "put", self._member.welcome)

    def _set_paused(self, queues: tuple[tuple[str, int], ...], paused: bool) -> None:
        with self._shelf.lock:
            for key in queues or list(self._shelf.queues):
                if key not in self._shelf.queues:
                    raise NotAssigned(*key)
                self._shelf.queues[key].paused = paused
                self._shelf.list(self._shelf.queues[key])
        self._member.ring()


def _check(start: Start, model: str, strategy: str) -> None:
    if isinstance(start, str) and start not in ("first", "last"):
        raise ValueError(f"start is {start!r}; first, last, a datetime or ms since 1970 are allowed")
    if model not in ("clustering", "broadcasting"):
        raise ValueError(f"model is {model!r}; clustering or broadcasting are allowed")
    if strategy not in STRATEGIES:
        raise ValueError(f"strategy is {strategy!r}; {' or '.join(STRATEGIES)} are allowed")


def _check_sizes(max_bytes: int, *others: int) -> None:
    if not 0 < max_bytes <= REQUEST_SIZE_MAX or min(others) < 1:
        raise ValueError(f"max_bytes is 1 to {REQUEST_SIZE_MAX}; counts, sizes and intervals are at least 1")
