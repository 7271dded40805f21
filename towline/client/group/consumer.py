"""The consumer of a group: joins it, shares queues with the other members, resumes at the group's offsets."""

import logging
import os
import socket
import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Final, Literal, Self, TypeAlias, TypeVar

from towline.client.columns import Columns
from towline.client.errors import ClientClosed, ClientForked
from towline.client.link.endpoints import Endpoints, neighbour
from towline.client.link.routes import GroupRoute, group_routes, is_broker, puts_of
from towline.client.read.checks import Checks
from towline.client.read.reader import Moved, Start
from towline.client.values import Deserializer, deserializer_of
from towline.clock import boottime_s
from towline.errors import NoAnswer, TowlineError
from towline.format.record.retries import RETRIES_DEFAULT
from towline.format.wire.allocation import AVERAGE, STRATEGIES
from towline.limits import DECOMPRESSED_SIZE_MAX, MIB, REQUEST_SIZE_MAX
from towline.link.unclosed import call_in_child, on_drop, renew

from .errors import IllegalPlace, NotAssigned, NotInHand, NotStorable
from .fetch_buffer import FetchBuffer
from .member import Member
from .message import GroupMessage
from .node_groups import NodeGroup, NodeGroups, readable
from .offsets import OffsetsFile, first_offset
from .queue import Delivery, Rebalance, Stage
from .retry_topics import RetryTopics
from .send_backs import BrokerSendBacks, SendBacks
from .subscription import EVERYTHING, MemberRules, Topics, retry_topic, subscriptions_of

log = logging.getLogger(__name__)

T = TypeVar("T")
Received: TypeAlias = tuple[NodeGroup, Delivery, Columns]

ITERATION_MS: Final = 1_000
CLOSE_MS: Final = 5_000
OFFSET_MAX: Final = 2**63 - 1
SUSPEND_S: Final = 1.0  # before a message that could not be handled is tried again in its place


class GroupConsumer:
    """A member of a consumer group. Any number of threads may take messages; each is given others.

    endpoint        of a master, tcp://host:port or ipc://path of its serve; those of several nodes, in a text with
                    commas or a sequence, of which the one that is master is found. Or cluster:PATH of a cluster file:
                    queues of all its groups of nodes are shared out, and one without a master is passed over
    topics          one topic, several, or {topic: what}, where what is "*", tags as "a || b", or Sql("price > 10")
    member          name in the group, unique; made up by default
    model           clustering: the members share the queues. broadcasting: each reads all, and keeps its offsets in
                    `offsets_file`
    start           where a group begins that is new to a topic: first, last, a datetime or ms since 1970 (store time).
                    A group that is known goes on where it stood, whatever this says
    strategy        how the members share the queues: average (neighbours) or circle (one by one); the same for all
    ordered         a queue is locked to one member, and its messages go to one thread at a time
    auto_commit     what is finished is committed each `commit_interval_ms`, before a queue is given away, and by
                    `close`. Otherwise by `commit` alone
    buffer_bytes    bytes of messages fetched ahead, over all queues; max_count and max_bytes limit one pull
    suspend_ms      how long the node holds a pull that finds nothing
    timeout_ms      how long the node may be out of reach before NoAnswer; reading goes on afterwards
    body_size_max   bytes of a body after decompression
    check_crcs      the CRC of each body is compared before it is handed out. What does not fit is read from another
                    node of its group of nodes, where one is known; else it raises DamagedMessage, and comes again
                    until somebody seeks behind it
    value_deserializer  makes `value` of a message of its body, when that is read: "json", or a function of the bytes
    put_endpoint    of the same node, for `retry_later`; found through the node by default
    cluster         for the greeting; an empty one fits any

    What was handed out counts as finished when its thread asks for more, or closes. With manual commits it is finished
    when `commit` says so. A crash therefore loses nothing: what was not finished comes again, to whoever has the queue
    then. In a `with` block that ends by an exception, what is in hand is not finished.
    Raises InvalidEndpoint, ValueError, OffsetsFileTaken. Nothing is connected before the first message is asked for.
    """

    def __init__(
        self,
        endpoint: Endpoints,
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
        check_crcs: bool = True,
        value_deserializer: Deserializer | Literal["json"] | None = None,
        put_endpoint: Endpoints = "",
        cluster: str = "",
    ) -> None:
        found = group_routes(endpoint)
        broadcasting = model == "broadcasting"
        _check(start, model, strategy, alone=offsets_file is not None and not ordered)
        _check_sizes(max_bytes, max_count, buffer_bytes, commit_interval_ms)
        subscriptions = subscriptions_of(topics)
        retry = frozenset() if broadcasting else frozenset({retry_topic(group)})
        self._rules = MemberRules(
            group=group,
            member=member or f"{socket.gethostname()}@{os.getpid()}#{os.urandom(4).hex()}",
            instance=os.urandom(8).hex(),
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
            buffer_bytes=max(1, buffer_bytes // len(found)),
            suspend_ms=suspend_ms,
            timeout_ms=timeout_ms,
            check_crcs=check_crcs,
        )
        self._body_size_max, self._deserialize = body_size_max, deserializer_of(value_deserializer)
        self._node_groups = self._make_node_groups(found, puts_of(endpoint, put_endpoint), offsets_file)
        self._start_lock, self._closed, self._ended = threading.Lock(), threading.Event(), False
        self._listening: set[int] = set()  # threads that call back
        self._gone: ClientClosed | None = None
        self.failures = 0  # messages that `listen` passed over because nobody could handle them
        call_in_child(self)
        for node_group in self._node_groups.all:
            on_drop(self, node_group.member.leave, CLOSE_MS)

    def _make_node_groups(
        self, found: tuple[GroupRoute, ...], puts: tuple[GroupRoute, ...], offsets_file: Path | str | None
    ) -> NodeGroups:
        lock = threading.Condition()
        made = []
        for place, way in enumerate(found):
            offsets = None
            if self._rules.broadcasting and offsets_file is not None:
                offsets = OffsetsFile(Path(f"{offsets_file}.{way.name}" if len(found) > 1 else offsets_file))
            rules = replace(self._rules, place=place)
            buffer = FetchBuffer(ordered=rules.ordered, manual=not rules.auto_commit, lock=lock)
            member = Member(way.endpoints, rules, buffer, offsets)
            send_backs = self._make_send_backs(member, way, puts[place] if puts else None)
            checks = Checks(partial(_nodes_of, member), rules.member, rules.cluster) if rules.check_crcs else None
            made.append(NodeGroup(way.name, member, buffer, send_backs, offsets, checks))
        return NodeGroups(made, lock)

    def _make_send_backs(self, member: Member, way: GroupRoute, put: GroupRoute | None) -> SendBacks:
        if is_broker(way):
            return BrokerSendBacks(member)
        return RetryTopics(
            self._rules.group,
            self._rules.cluster,
            partial(_put_of, member, put),
            partial(_setting_of, member, "retryMaxTimes", RETRIES_DEFAULT),
            partial(_setting_of, member, "retryQueueNums", 1),
            self._rules.timeout_ms,
        )

    # --- messages

    def poll(self, timeout_ms: int) -> list[GroupMessage]:
        """The next messages of one queue, or none when nothing came within `timeout_ms`.

        Raises UnknownTopic, AskRefused, ConsumeDisabled, MemberTaken, FilterRefused, NoAnswer when the node
        is out of reach, LinkRefused, DamagedMessage, MalformedRecord, ClientClosed. A damaged message comes again until
        `seek(error.topic, error.queue_id, error.queue_offset + 1, error.broker_name)`.
        """
        received = self._receive(boottime_s() + timeout_ms / 1000, whole=True)
        return [] if received is None else self._messages(*received)

    def poll_columns(self, timeout_ms: int) -> Columns | None:
        """The next records as columns: the cheap way for many messages."""
        received = self._receive(boottime_s() + timeout_ms / 1000, whole=True)
        return None if received is None else received[2]

    def __iter__(self) -> Iterator[GroupMessage]:
        """Every message, until the consumer is closed; each is finished when the next is asked for."""
        while (received := self._receive_next(whole=False)) is not None:
            node_group, delivery, columns = received
            offsets = columns.queue_offset.tolist()
            for message, offset in zip(self._messages(node_group, delivery, columns), offsets, strict=True):
                if self._closed.is_set() or not node_group.buffer.deliver(delivery, offset):
                    break
                yield message
            else:
                node_group.buffer.done()

    def batches(self) -> Iterator[Columns]:
        """Every message in columns, until the consumer is closed."""
        while (received := self._receive_next(whole=True)) is not None:
            yield received[2]

    def listen(
        self, callback: Callable[[GroupMessage], object], *, threads: int = 1, attempts_max: int | None = None
    ) -> None:
        """Calls `callback` with every message, in so many threads, until `close` is called. Closes the consumer.

        A message whose callback raises an Exception is sent back and comes again later (`retry_later`). With `ordered`
        or broadcasting it is tried again in its place each second, for ever or `attempts_max` times: nothing of its
        queue overtakes it. Then it becomes a dead letter; a broadcasting consumer passes over it. Both are counted in
        `failures`, as is a message of which no copy can ever be stored (NotStorable): that is logged as critical, with
        its place, and passed over. Raises what `poll` raises, except NoAnswer: that is waited for.
        """
        errors: list[BaseException] = []

        def work() -> None:
            with self._node_groups.lock:
                self._listening.add(threading.get_ident())
            try:
                self._listen(callback, attempts_max)
            except ClientClosed:
                return
            except BaseException as error:
                errors.append(error)
                self._stop()
            finally:
                with self._node_groups.lock:
                    self._listening.discard(threading.get_ident())
                    self._node_groups.lock.notify_all()

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
        """Commits what this thread was given so far, or of the message's queue everything up to it that the thread was
        given which took it: this one or another. Waits for it.

        What other threads hold before it keeps the queue's offset back until that is finished too. Raises NotInHand
        for a message that is nobody's any more; AskRefused, NoAnswer, LinkRefused, ClientClosed: then the offsets are
        committed later, or messages come again.
        """
        if message is None:
            self._finish()
            self._node_groups.each(lambda node_group: node_group.member.commit(self._rules.timeout_ms))
        else:
            node_group = self._node_groups.named(message.broker_name)
            if not node_group.buffer.finish_up_to(message.delivery, message.queue_offset + 1):
                raise NotInHand(message.stored_topic, message.queue_id, message.queue_offset)
            node_group.member.commit(self._rules.timeout_ms)

    def requeue(self, message: GroupMessage) -> None:
        """Returns this message, and those that `poll` gave this thread behind it: they come again, to any thread. What
        stands before it is finished, as when more is asked for. Nothing happens where they are not in hand any more."""
        node_group = self._node_groups.named(message.broker_name)
        node_group.buffer.requeue_from(message.delivery, message.queue_offset)

    # --- positions

    @property
    def broker_names(self) -> list[str]:
        """The groups of nodes that are read. A single one has the name ""."""
        return [node_group.name for node_group in self._node_groups.all]

    def assignment(self, broker_name: str = "") -> dict[tuple[str, int], int]:
        """(topic, queue id) of every queue that is read now -> offset of the next message to be handed out.

        Of several groups of nodes `broker_name` names one. Raises UnknownGroup.
        """
        buffer = self._node_groups.named(broker_name).buffer
        with buffer.lock:
            return {key: queue.next for key, queue in buffer.queues.items() if queue.stage is Stage.READING}

    def seek(self, topic: str, queue_id: int, offset: int, broker_name: str = "") -> None:
        """The next message of this queue is the one at `offset`, which the next commit commits.

        Before the first message that is kept, or beyond the last, reading goes on at that end, as `moved` shows.
        Raises IllegalPlace, NotAssigned, UnknownGroup.
        """
        if not 0 <= offset <= OFFSET_MAX:
            raise IllegalPlace(topic, queue_id, offset)
        node_group = self._node_groups.named(broker_name)
        with node_group.buffer.lock:
            queue = node_group.buffer.queues.get((topic, queue_id))
            if queue is None or queue.stage is not Stage.READING:
                raise NotAssigned(topic, queue_id)
            queue.seek(offset)
        node_group.member.wake()

    def seek_to_time(self, when: datetime | int) -> None:
        """Moves each assigned queue to its first message stored at or after `when`, a datetime or ms since 1970."""
        for node_group in self._node_groups.all:
            for topic, queue_id in self.assignment(node_group.name):
                if topic not in self._rules.optional:
                    offset = first_offset(node_group.member.ask, topic, queue_id, when, self._rules.timeout_ms)
                    self.seek(topic, queue_id, offset, node_group.name)

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
        """The group's members as the nodes said last."""
        return sorted({member for node_group in self._node_groups.all for member in node_group.member.members})

    @property
    def generation(self) -> int:
        """The group's generation, which grows with each change of the group; 0 before joining.

        Of several groups of nodes, the sum.
        """
        return sum(node_group.member.generation for node_group in self._node_groups.all)

    @property
    def rebalances(self) -> deque[Rebalance]:
        """The newest changes of the assignment."""
        return _together([node_group.member.rebalances for node_group in self._node_groups.all])

    @property
    def moved(self) -> deque[Moved]:
        """Where reading went on at another offset: messages may have been deleted before they were read."""
        return _together([node_group.member.puller.moved for node_group in self._node_groups.all])

    @property
    def missed(self) -> int:
        """How many queue offsets the node deleted before they were read."""
        return sum(node_group.member.puller.missed for node_group in self._node_groups.all)

    @property
    def from_slaves(self) -> int:
        """How many messages came from slaves, after a master asked for that (its setting slave_read_enable)."""
        return sum(node_group.member.puller.from_slaves for node_group in self._node_groups.all)

    @property
    def warnings(self) -> list[str]:
        """The nodes' warnings about the group, such as members that subscribe differently."""
        return [warning for node_group in self._node_groups.all for warning in node_group.member.warnings]

    def close(self) -> None:
        """Commits what is finished, what this thread has in hand included, and leaves the group.

        A callback of `listen` may call it: the message in its hand is finished when the callback returns.
        """
        if threading.get_ident() in self._listening:
            self._stop()
        else:
            self._finish()
            self._end()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self.close()
        else:
            self._abandon()
            self._end()

    def forked(self) -> None:
        """Ends the child's copy: the members are the parent's, and leave their groups when it closes."""
        renew(self._start_lock, self._closed)
        self._gone, self._ended = ClientForked.here("consumer"), True
        self._listening.clear()
        for node_group in self._node_groups.all:
            node_group.member.gone = self._gone

    # --- inside

    def _begin(self) -> None:
        if self._gone is not None or self._closed.is_set():
            raise self._gone or ClientClosed("consumer")
        with self._start_lock:
            for node_group in self._node_groups.all:
                if node_group.member.ident is None:
                    node_group.member.start()

    def _stop(self) -> None:
        """Nothing more is handed out."""
        self._closed.set()
        for node_group in self._node_groups.all:
            node_group.buffer.fail(ClientClosed("consumer"), fatal=True)

    def _finish(self) -> None:
        """All that this thread was given, of every group of nodes."""
        for node_group in self._node_groups.all:
            node_group.buffer.finish()

    def _abandon(self) -> None:
        for node_group in self._node_groups.all:
            node_group.buffer.abandon()

    def _end(self) -> None:
        self._stop()
        with self._node_groups.lock:  # what listeners have in hand is finished, if they manage in time
            self._node_groups.lock.wait_for(lambda: not self._listening, CLOSE_MS / 1000)
        with self._start_lock:
            if self._ended:
                return
            self._ended = True
            for node_group in self._node_groups.all:
                node_group.member.close(CLOSE_MS)
                node_group.send_backs.close()
                if node_group.offsets is not None:
                    node_group.offsets.close()

    def _receive(self, deadline: float, *, whole: bool) -> Received | None:
        self._begin()
        while True:
            found = self._node_groups.receive(deadline, whole=whole)
            for node_group in self._node_groups.all:
                node_group.member.wake()
            if found is None:
                return None
            node_group, delivery = found
            kept = readable(node_group, delivery)
            if kept is not None:
                return node_group, delivery, kept
            node_group.buffer.done()

    def _receive_next(self, *, whole: bool) -> Received | None:
        """Waits for it; None when the consumer is closed."""
        while not self._closed.is_set():
            try:
                received = self._receive(boottime_s() + ITERATION_MS / 1000, whole=whole)
            except ClientClosed:
                if not self._closed.is_set():
                    raise
                return None
            if received is not None:
                return received
        return None

    def _messages(self, node_group: NodeGroup, delivery: Delivery, columns: Columns) -> list[GroupMessage]:
        rows, size, send_back = columns.rows(self._deserialize), self._body_size_max, node_group.send_backs.send
        numbers = range(len(columns))
        return [GroupMessage(rows, row, body_size_max=size, send_back=send_back, delivery=delivery) for row in numbers]

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
        self._finish()

    @contextmanager
    def _kept_on_failure(self) -> Iterator[None]:
        """Whatever ends the thread, the message in its hand is not finished."""
        try:
            yield
        except BaseException:
            self._abandon()
            raise

    def _handle(self, callback: Callable[[GroupMessage], object], message: GroupMessage) -> None:
        try:
            callback(message)
        except Exception:
            log.exception("%r could not be handled and is sent back", message)
            if not self._send_back(message, None):
                self._failed()

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
        self._failed()
        if not self._rules.broadcasting:
            self._send_back(message, -1)

    def _failed(self) -> None:
        with self._node_groups.lock:
            self.failures += 1

    def _send_back(self, message: GroupMessage, level: int | None) -> bool:
        """Until it is stored: a message that could not be handled is not passed over because put is away. False when no
        time would help: one such message does not stop its queue.
        """
        while True:
            try:
                message.retry_later(level)
                return True
            except NotStorable as error:
                place = f"offset {message.queue_offset} of queue {message.queue_id} of {message.stored_topic}"
                log.critical("%s (%s) is passed over: %s", message.message_id, place, error)
                return False
            except TowlineError as error:
                log.warning("%r cannot be sent back now: %s", message, error.describe())
            if self._closed.wait(SUSPEND_S):
                raise ClientClosed("consumer")

    def _set_paused(self, queues: tuple[tuple[str, int], ...], paused: bool) -> None:
        known = False
        for node_group in self._node_groups.all:
            with node_group.buffer.lock:
                for key in queues or list(node_group.buffer.queues):
                    if key in node_group.buffer.queues:
                        known = True
                        node_group.buffer.queues[key].paused = paused
                        node_group.buffer.enqueue(node_group.buffer.queues[key])
            node_group.member.wake()
        if queues and not known:
            raise NotAssigned(*queues[0])


def _nodes_of(member: Member) -> tuple[str, ...]:
    return member.connection.everywhere


def _put_of(member: Member, put: GroupRoute | None) -> Endpoints:
    """Where messages go back to: as it was named, or the put process beside the serve that is read."""
    if put is None:
        return neighbour(member.connection.endpoint, "put")
    return put.endpoints() if callable(put.endpoints) else put.endpoints


def _setting_of(member: Member, name: str, default: int) -> int:
    """Of the group, as the node said last."""
    return int(member.settings.get(name, default))


def _together(parts: list[deque[T]]) -> deque[T]:
    """The one, or what there is of all."""
    return parts[0] if len(parts) == 1 else deque(item for part in parts for item in part)


def _check(start: Start, model: str, strategy: str, *, alone: bool) -> None:
    """`alone`: it keeps its offsets itself, and locks no queue."""
    if isinstance(start, str) and start not in ("first", "last"):
        raise ValueError(f"start is {start!r}; first, last, a datetime or ms since 1970 are allowed")
    if model not in ("clustering", "broadcasting"):
        raise ValueError(f"model is {model!r}; clustering or broadcasting are allowed")
    if strategy not in STRATEGIES:
        raise ValueError(f"strategy is {strategy!r}; {' or '.join(STRATEGIES)} are allowed")
    if model == "broadcasting" and not alone:
        raise ValueError("a broadcasting consumer needs an offsets_file of its own, and has no queue locks")


def _check_sizes(max_bytes: int, *others: int) -> None:
    if not 0 < max_bytes <= REQUEST_SIZE_MAX or min(others) < 1:
        raise ValueError(f"max_bytes is 1 to {REQUEST_SIZE_MAX}; counts, sizes and intervals are at least 1")
