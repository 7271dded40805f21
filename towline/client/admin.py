"""Administration of one node: topics, consumer groups, transactions, and messages by key, id, offset and time."""

import contextlib
import os
from collections.abc import Callable, Iterable
from contextlib import closing
from datetime import datetime
from types import TracebackType
from typing import Any, Final, Literal, Self

from towline.client.link.connection import own_facts
from towline.client.link.endpoints import Endpoints, anybody, masters
from towline.client.link.routes import check_one_node
from towline.client.link.rpc import Caller, Reply
from towline.client.read.reader import to_ms
from towline.errors import RecordDamaged, TowlineError

from .consumer import Consumer
from .errors import AskRefused
from .message import ReceivedMessage

ALWAYS_MS: Final = (1 << 63) - 1
FOUND_MAX: Final = 64
CHANGE_MS: Final = 10_000  # a node waits so long for its processes to take a change


class Found(list[ReceivedMessage]):
    """Messages that a search found, in the order of the log.

    truncated  older ones may be there too: ask for a time that ends before the first of these
    complete   the node's index held everything that was readable when it was asked; if not, the newest may be missing
    damaged    how many messages the node passed over that have, or share the hash of, the key, since they are not what
               was stored
    """

    def __init__(
        self, messages: Iterable[ReceivedMessage], *, truncated: bool, complete: bool, damaged: int = 0
    ) -> None:
        super().__init__(messages)
        self.truncated, self.complete, self.damaged = truncated, complete, damaged


class AdminClient:
    """Asks a node; by ipc://path one process of it, put for topics and their changes. Used by one thread.

    Of several endpoints (a text with commas, or a sequence) the first that answers is asked, and where only a master
    answers, that one; with `masters_only` always a master. Questions about a node itself take an endpoint of one node:
    InvalidEndpoint.

    A node gives no message whose CRC does not fit: AskRefused RecordDamaged, unless another endpoint has it whole.
    Every call raises AskRefused, UnknownTopic, NoAnswer after `timeout_ms`, LinkRefused, ClientClosed. Times are
    datetimes or ms since 1970.
    """

    def __init__(
        self,
        endpoint: Endpoints | Callable[[], Endpoints],
        *,
        name: str = "",
        cluster: str = "",
        timeout_ms: int = 5_000,
        masters_only: bool = False,
    ) -> None:
        self._endpoint, self._cluster, self._timeout_ms = endpoint, cluster, timeout_ms
        self._masters_only = masters_only
        self._facts = own_facts("admin", name or f"admin-{os.getpid()}", cluster)
        self._caller = Caller(endpoint, self._facts, fit=masters if masters_only else anybody)

    def ask(self, op: str, **facts: Any) -> Reply:
        """Asks any question; the reply has the answer's facts, and its records in columns."""
        return self._caller.ask(op, facts, self._timeout_ms)

    def welcome(self) -> dict[str, Any]:
        """The process's welcome."""
        self._caller.link(self._timeout_ms)
        return self._caller.welcome

    def _ask_any(self, op: str, **facts: Any) -> Reply:
        """What stands at a place of the log: where the node has it damaged, of the others."""
        try:
            return self.ask(op, **facts)
        except AskRefused as refused:
            if refused.error != RecordDamaged.__name__:
                raise
            for endpoint in self._caller.connection.everywhere[1:]:
                with contextlib.suppress(TowlineError), closing(Caller(endpoint, self._facts)) as caller:
                    return caller.ask(op, facts, self._timeout_ms)
            raise

    # --- topics

    def topics(self) -> list[dict[str, Any]]:
        """One dict for each topic: topic, write_queues, read_queues, perm (a sum of 4 read, 2 write), order,
        filter_type, system, retention_ms, retention_bytes (None: as long, or as much, as the log holds)."""
        return list(self.ask("topics").facts["topics"])

    def create_topic(
        self,
        topic: str,
        queues: int,
        *,
        read_queues: int | None = None,
        write_queues: int | None = None,
        perm: int | None = None,
        order: bool | None = None,
        retention_ms: int | None = None,
        retention_bytes: int | None = None,
    ) -> dict[str, Any]:
        """Makes a topic and returns it like one of `topics`; `queues` is for both kinds.

        Nobody reads messages that are older than `retention_ms`, or of a queue that has `retention_bytes` newer ones.
        """
        more = _given(read_queues, write_queues, perm, order, retention_ms, retention_bytes)
        return self.ask("create_topic", topic=topic, queues=queues, **more).facts

    def alter_topic(
        self,
        topic: str,
        *,
        read_queues: int | None = None,
        write_queues: int | None = None,
        perm: int | None = None,
        order: bool | None = None,
        retention_ms: int | None = None,
        retention_bytes: int | None = None,
    ) -> dict[str, Any]:
        """What is None stays; a retention of -1 is taken away. The topic as it is then.

        Queues become fewer in two steps: the write queues, and when the others were read to their end, the read queues.
        """
        more = _given(read_queues, write_queues, perm, order, retention_ms, retention_bytes)
        return self.ask("alter_topic", topic=topic, **more).facts

    def delete_topic(self, topic: str) -> dict[str, Any]:
        """The topic, and `log_offset`, before which the log holds its messages until they expire.

        Nobody reads them any more, though; queues of a new topic of this name go on with their numbers.
        """
        return self.ask("delete_topic", topic=topic).facts

    def bounds(self, topic: str) -> dict[int, tuple[int, int]]:
        """Queue id -> lowest offset, and the offset after the newest message."""
        rows = self.ask("bounds", topic=topic).facts["queues"]
        return {int(row["queue"]): (int(row["min"]), int(row["max"])) for row in rows}

    # --- messages

    def by_key(
        self,
        topic: str,
        key: str,
        *,
        begin: datetime | int = 0,
        end: datetime | int = ALWAYS_MS,
        max_count: int = FOUND_MAX,
    ) -> Found:
        """The newest `max_count` messages with this key stored between `begin` and `end`, or fewer.

        The node's settings max_msgs_num_batch and pull_bytes_max bound the answer.
        """
        reply = self.ask("query_key", topic=topic, key=key, begin=to_ms(begin), end=to_ms(end), max=max_count)
        return _found(reply, lambda message: message.topic == topic and key in message.keys)

    def by_unique_key(
        self,
        topic: str,
        unique_key: str,
        *,
        begin: datetime | int = 0,
        end: datetime | int = ALWAYS_MS,
        max_count: int = FOUND_MAX,
    ) -> Found:
        """Messages with this unique key: usually one, more after a retry. As `by_key`."""
        facts = {"topic": topic, "key": unique_key, "begin": to_ms(begin), "end": to_ms(end), "max": max_count}
        reply = self.ask("query_unique_key", **facts)
        return _found(reply, lambda message: message.topic == topic and message.unique_key == unique_key)

    def by_id(self, message_id: str) -> ReceivedMessage | None:
        """The message of an offset id, as `ReceivedMessage.message_id` and RocketMQ show it; None without one.

        AskRefused says what stands there when it is no message, or one of another store.
        """
        return _first(self._ask_any("query_id", id=message_id))

    def by_offset(self, physical_offset: int) -> ReceivedMessage | None:
        """The message that begins at this byte of the CommitLog. AskRefused says why there is none."""
        return _first(self._ask_any("query_offset", offset=physical_offset))

    def offset_at(
        self, topic: str, queue_id: int, when: datetime | int, *, boundary: Literal["lower", "upper"] = "lower"
    ) -> int:
        """Offset of the queue's first message stored at or after `when`; upper: of the last one at or before it."""
        facts = {"topic": topic, "queue": queue_id, "time": to_ms(when), "boundary": boundary}
        return int(self.ask("offset_by_time", **facts).facts["offset"])

    def by_time(
        self, topic: str, when: datetime | int, *, end: datetime | int = ALWAYS_MS, max_count: int = FOUND_MAX
    ) -> list[ReceivedMessage]:
        """The first messages stored at or after `when`, and not after `end`, over all queues, in the order they were
        stored. Raises DamagedMessage too."""
        found: list[ReceivedMessage] = []
        with Consumer(
            self._endpoint,
            topic,
            start=to_ms(when),
            max_count=max_count,
            suspend_ms=0,
            timeout_ms=self._timeout_ms,
            cluster=self._cluster,
        ) as consumer:
            for queue_id in consumer.position():
                consumer.pause()
                consumer.resume(queue_id)
                found += _from_one_queue(consumer, max_count, self._timeout_ms)
        found.sort(key=lambda message: (message.store_timestamp, message.physical_offset))
        last = to_ms(end)
        return [message for message in found[:max_count] if message.store_timestamp <= last]

    # --- consumer groups: of a master's serve

    def groups(self, *, lag: bool = False) -> list[dict[str, Any]]:
        """One dict for each group: group, model, members (how many), topics; with `lag` also that, in messages."""
        return list(self.ask("group_list", lag=lag).facts["groups"])

    def describe_group(self, group: str) -> dict[str, Any]:
        """Members, model, strategy, settings, warnings (such as SUBSCRIPTION_DIFFERS), lag, and for each queue: topic,
        queue, min, max, offset (-1 for none), lag, owner."""
        return self.ask("group_describe", group=group).facts

    def group_offsets(self, group: str, *topics: str) -> dict[str, dict[int, int]]:
        """Topic -> queue id -> the offset at which the group goes on, -1 for none. A slave answers it too."""
        found = self.ask("group_offsets", group=group, topics=list(topics)).facts["offsets"]
        return {topic: {int(queue): int(offset) for queue, offset in queues.items()} for topic, queues in found.items()}

    def reset_offsets(
        self, group: str, topic: str, to: Literal["first", "last"] | datetime | int, *, queue_id: int | None = None
    ) -> dict[int, int]:
        """Moves the group to the first message, behind the last one, or to the first one stored at or after a time.

        `to` as a number is ms since 1970. All queues, unless `queue_id` names one. Members that are there go on from
        the new offsets at once. Returns queue id -> offset.
        """
        return self._reset(group, topic, to if isinstance(to, str) else {"timestamp": to_ms(to)}, queue_id)

    def set_offset(self, group: str, topic: str, queue_id: int, offset: int) -> int:
        """Moves the group to this offset of one queue, within the queue's bounds. Returns the offset that was set."""
        return self._reset(group, topic, {"offset": offset}, queue_id)[queue_id]

    def delete_group(self, group: str) -> list[str]:
        """Deletes the group's offsets and settings. AskRefused GROUP_IN_USE while it has members.

        Returns the topics of its retries and dead letters that are left: a group of the same name reads such retries.
        """
        return list(self.ask("group_delete", group=group).facts.get("topics", ()))

    def configure_group(self, group: str, **settings: Any) -> dict[str, Any]:
        """Sets members of subscriptionGroup.json, such as retryMaxTimes=3; the group is made where there is none.

        These count, from the moment this returns, for members that are there too: consumeEnable and
        consumeBroadcastEnable (off: its consumers raise ConsumeDisabled, and go on when it is on again), retryMaxTimes
        (then a message is a dead letter), retryQueueNums (queues with which the retry topic is made; copies are spread
        over so many of those it has). The others are kept for a real broker, which reads the same file. Returns all
        settings of the group.
        """
        return dict(self.ask("group_configure", group=group, settings=settings).facts["settings"])

    def _reset(self, group: str, topic: str, to: str | dict[str, int], queue_id: int | None) -> dict[int, int]:
        one = {} if queue_id is None else {"queue": queue_id}
        found = self.ask("group_reset", group=group, topic=topic, to=to, **one).facts["offsets"]
        return {int(queue): int(offset) for queue, offset in found.items()}

    # --- the node itself: of any node's serve

    def _ask_node(self, op: str, more_ms: int = 0, **facts: Any) -> dict[str, Any]:
        if not self._masters_only:
            check_one_node(self._endpoint() if callable(self._endpoint) else self._endpoint)
        return self._caller.ask(op, facts, more_ms + self._timeout_ms).facts

    def node_status(self, *, brief: bool = False) -> dict[str, Any]:
        """What `towline master status --json` prints. With `brief`, for who asks often, without what takes long: the
        memory of the processes, `disk` and `config_backups`."""
        return self._ask_node("node_status", brief=brief)

    def node_stats(self, interval_ms: int = 1_000, *, top: int = 10, topic: str | None = None) -> dict[str, Any]:
        """What `towline stats --json` prints: counters, and rates over `interval_ms`, 10,000 at most; of the `top`
        busiest topics, or of the queues of one."""
        return self._ask_node("node_stats", interval_ms, interval_ms=interval_ms, top=top, topic=topic)

    def node_segments(self) -> dict[str, Any]:
        """The segments of the node's log: size, log_min, end, now_ms, reserved_ms (the age from which one is due to be
        deleted), keeps (whether that waits for the archive), older (how many are left out), and segments, the oldest
        first: base, modified_ms, allocated bytes, share in memory from 0 to 1, archived."""
        return self._ask_node("node_segments")

    def node_settings(self) -> list[dict[str, Any]]:
        """One dict for each setting: key, value, default, live (the processes that take a change while the node runs,
        "" where only a start does), kept (whether such a change was kept)."""
        return list(self._ask_node("node_settings")["settings"])

    def configure_node(self, /, *, keep: bool = False, **settings: Any) -> dict[str, Any]:
        """Changes settings of the running node, all or none; with `keep` they hold at its next start too.

        Returns settings: as they are then; kept; waiting: processes that have not taken them yet and will, since they
        are in one long call; node: whose they are, with broker_name, broker_id, role and store. AskRefused FixedSetting
        names those that only a start changes.
        """
        return self._ask_node("node_configure", CHANGE_MS, settings=settings, keep=keep)

    def forget_settings(self, *keys: str) -> dict[str, Any]:
        """Takes back what `configure_node` did to these settings of the running node, without keys to all that is kept.

        Returns forgotten: what was kept of them, by key; settings: as they are then; next: as they are after the node's
        next start; waiting and node as `configure_node` has them.
        """
        return self._ask_node("node_configure", CHANGE_MS, forget=keys)

    # --- transactions (asks the schedule process)

    def transaction_status(self) -> dict[str, int]:
        """How many transactions are open, and since the process started checked, put_aside, lost; how many producers
        are watching; and up to which offsets both queues were read (half_next, op_next) and are through (half_floor,
        op_floor)."""
        return {name: int(value) for name, value in self.ask("transaction_status").facts.items()}

    def open_transactions(self, group: str = "") -> list[dict[str, Any]]:
        """Up to 256 open transactions, of one producer group or all: transaction (its text), group, key, topic, queue,
        checks, first (offset of its half), stored_ms; in the order in which they were stored or checked last."""
        found = self.ask("transaction_list", group=group).facts["transactions"]
        return [{"transaction": f"{row['first']}-{row['key']}-{row['group']}", **row} for row in found]

    def close(self) -> None:
        self._caller.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _given(
    read_queues: int | None,
    write_queues: int | None,
    perm: int | None,
    order: bool | None,
    retention_ms: int | None,
    retention_bytes: int | None,
) -> dict[str, Any]:
    given = {"read_queues": read_queues, "write_queues": write_queues, "perm": perm, "order": order}
    given |= {"retention_ms": retention_ms, "retention_bytes": retention_bytes}
    return {name: value for name, value in given.items() if value is not None}


def _from_one_queue(consumer: Consumer, max_count: int, timeout_ms: int) -> list[ReceivedMessage]:
    found: list[ReceivedMessage] = []
    while len(found) < max_count:
        messages = consumer.poll(0 if consumer.at_end else timeout_ms)
        found += messages
        if not messages and consumer.at_end:
            break
    return found


def _found(reply: Reply, wanted: Callable[[ReceivedMessage], bool]) -> Found:
    """The index holds hashes; another key may share one."""
    messages = filter(wanted, reply.columns.messages())
    facts = reply.facts
    return Found(
        messages,
        truncated=facts.get("truncated") is True,
        complete=facts.get("complete") is not False,
        damaged=int(facts.get("damaged", 0)),
    )


def _first(reply: Reply) -> ReceivedMessage | None:
    found = reply.columns.messages()
    return found[0] if found else None
