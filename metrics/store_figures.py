"""The store: positions, what came in and went out, put times and refusals, groups that are behind, sizes."""

from collections.abc import Iterable, Sequence
from typing import Final

from towline.format.files.consume_queue import SIZE as ENTRY_SIZE
from towline.format.files.groups import GroupTable, read_groups
from towline.format.files.topics import TopicTable, is_system_topic, read_topics
from towline.format.wire.refusals import Cause
from towline.node.process.context import Node
from towline.node.store.confirmed import confirmed_of, written_of
from towline.node.store.pull_rules import pull_rules
from towline.node.store.transient_pool import pool_of
from towline.runtime.positions import Counter, Duty, Position, State
from towline.runtime.settings_model import BrokerRole
from towline.runtime.stage_times import BOUNDS_US, Stage, StageTimes
from towline.runtime.store_stats import BUCKETS_MS, Total

from .families import Families
from .lag import NONE, GroupLags, PairLag, StoreTimes
from .saved import SavedFile
from .traffic import Traffic

OTHERS: Final = "(others)"  # the topic, or the group, of all that have no series of their own
_BLOCK: Final = 512  # bytes of st_blocks
_MS: Final = 1_000
_US: Final = 1_000_000
_NS: Final = 1_000_000_000
_OFFSETS: Final = (
    Position.APPENDED,
    Position.ALLOCATED,
    Position.COMMITTED,
    Position.FLUSHED,
    Position.DISPATCHED,
    Position.INDEXED,
    Position.LOG_MIN,
    Position.WANTED,
    Position.MAKING,
    Position.WARM,
    Position.SYNC_WANTED,
)
_RETRIES: Final = ("%RETRY%", "%DLQ%")


class StoreFigures:
    """What is read of the store; names and offsets are kept from one scrape to the next."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._in = Traffic(node.runtime.put_stats, node.generation)
        self._out = Traffic(node.runtime.get_stats, node.generation)
        self._lags = GroupLags(node)
        self._topics = SavedFile(node.store.config / "topics.json", read_topics, TopicTable())
        self._groups = SavedFile(node.store.config / "subscriptionGroup.json", read_groups, GroupTable())
        self._confirmed = confirmed_of(node)
        self._oldest: tuple[int, int] | None = None  # the log's beginning, and when its record was stored
        self._is_master = node.settings.broker_role is not BrokerRole.SLAVE

    def prepare(self) -> None:
        """Reads what may take long, beside the scrapes: files of config/, and the names of new queues."""
        self._lags.prepare()
        self._topics.refresh()
        self._groups.refresh()

    def add_to(self, to: Families) -> None:
        self._add_positions(to)
        self._add_times(to)
        self._add_counts(to)
        most = self._node.settings.metrics_labels_max
        left_out = self._add_traffic(to, most)
        pairs, groups = self._add_lags(to, most) if self._is_master else (0, 0)
        to.add_each("towline_left_out", {"topics": left_out, "topics_of_groups": pairs, "groups": groups})
        self._add_sizes(to)

    def close(self) -> None:
        for each in (self._in, self._out, self._lags):
            each.close()

    def _add_positions(self, to: Families) -> None:
        get = self._node.positions.get
        more = (Position.REPLICATED,) if self._is_master else (Position.CONFIRMED,)
        to.add_each("towline_position_bytes", {each.name.lower(): get(each) for each in (*_OFFSETS, *more)})
        visible, appended, dispatched = self._confirmed(), get(Position.APPENDED), get(Position.DISPATCHED)
        to.add("towline_position_bytes", visible, "visible")
        stages = {"flush": get(Position.FLUSHED), "dispatch": dispatched, "index": get(Position.INDEXED)}
        stages |= {"replicate": get(Position.REPLICATED)} if self._is_master else {}
        stages |= {"commit": get(Position.COMMITTED)} if pool_of(self._node) is not None else {}
        behind = {stage: max(0, appended - at) for stage, at in stages.items()}
        to.add_each("towline_stage_behind_bytes", behind)
        to.add("rocketmq_storage_flush_behind_bytes", behind["flush"])
        to.add("rocketmq_storage_dispatch_behind_bytes", max(0, visible - dispatched))
        to.add("towline_sync_failed", get(Position.SYNC_FAILED) > 0, "log")
        to.add("towline_sync_failed", get(Position.DERIVED_SYNC_FAILED) > 0, "queues")
        to.add("towline_dispatch_stopped", get(Position.DISPATCH_STOPPED) > 0)
        to.add("towline_damaged_records_total", get(Position.DAMAGED))

    def _add_times(self, to: Families) -> None:
        get, now_ms = self._node.positions.get, self._node.clock.now_ms()
        if self._is_master:
            behind = get(Position.STORE_TIMESTAMP) - get(Position.DISPATCHED_TIMESTAMP)
            behind = behind if get(Position.DISPATCHED) < get(Position.APPENDED) else 0
            to.add("towline_stage_behind_seconds", max(0, behind) / _MS, "dispatch")
            delays = self._node.positions.delays
            late = max(0, now_ms - delays.next_due_ms) if delays.waiting and delays.next_due_ms else 0
            to.add("towline_delayed_messages", delays.waiting)
            to.add("towline_delayed_late_seconds", late / _MS)
        begins = get(Position.LOG_MIN)
        if begins < get(Position.DISPATCHED) and (self._oldest is None or self._oldest[0] != begins):
            with StoreTimes(self._node) as stored:
                self._oldest = begins, stored.of_record(begins)
        since = max(0, now_ms - self._oldest[1]) if self._oldest is not None and self._oldest[1] else 0
        to.add("rocketmq_storage_message_reserve_time", since)

    def _add_counts(self, to: Families) -> None:
        positions = self._node.positions
        to.add_each("towline_refused_total", {cause.label: positions.refused.count(cause) for cause in Cause})
        by_writer = sum(positions.duty(duty).counter(Counter.FALLBACKS) for duty in (Duty.PUT, Duty.RECEIVE))
        allocate = positions.duty(Duty.ALLOCATE)
        to.add("towline_segments_made_total", allocate.counter(Counter.BATCHES), Duty.ALLOCATE.label)
        to.add("towline_segments_made_total", by_writer, "writer")
        to.add("towline_segments_slow_total", allocate.counter(Counter.LATE))
        put, get = self._in.stats, self._out.stats
        if put is not None and self._is_master:
            bounds = [bound / _MS for bound in BUCKETS_MS]
            to.add_histogram("towline_put_latency_seconds", bounds, put.buckets(), put.total(Total.TIME_MS) / _MS)
            to.add("towline_put_latency_max_seconds", put.total(Total.TIME_MAX_MS) / _MS)
            to.add("towline_slow_puts_total", put.total(Total.SLOW))
        if get is not None:
            to.add("towline_empty_pulls_total", get.total(Total.EMPTY))
        bounds = [bound / _US for bound in BOUNDS_US]
        for stage in Stage:
            if positions.duty(stage.duty).state is State.ABSENT:
                continue
            times = StageTimes(positions, stage)
            to.add_histogram("towline_stage_seconds", bounds, times.counts(), times.sum_ns / _NS, stage.label)

    def _add_traffic(self, to: Families, most: int) -> int:
        """How many topics have no series of their own."""
        left_out = 0
        for traffic, messages_name, bytes_name in (
            (self._in, "rocketmq_messages_in_total", "rocketmq_throughput_in_total"),
            (self._out, "rocketmq_messages_out_total", "rocketmq_throughput_out_total"),
        ):
            others, other_messages, other_bytes = 0, 0, 0
            for number, (topic, (messages, size)) in enumerate(traffic.by_topic()):
                if number < most:
                    is_system = _said(is_system_topic(topic))
                    to.add(messages_name, messages, topic, is_system)
                    to.add(bytes_name, size, topic, is_system)
                else:
                    others, other_messages, other_bytes = others + 1, other_messages + messages, other_bytes + size
            if others:
                to.add(messages_name, other_messages, OTHERS, _said(False))
                to.add(bytes_name, other_bytes, OTHERS, _said(False))
            left_out = max(left_out, others)
        return left_out

    def _add_lags(self, to: Families, most: int) -> tuple[int, int]:
        """How many topics of groups, and how many groups, have no series of their own; those most behind do."""
        found, now_ms = self._lags.read(), self._node.clock.now_ms()
        written = self._node.positions.get(written_of(self._node))
        in_memory = pull_rules(self._node.settings).in_memory_bytes
        of_groups: dict[str, PairLag] = {}
        for pair in found:
            of_groups[pair.group] = _both(of_groups.get(pair.group), pair)
        for lag in _first(found, most):
            labels = lag.group, lag.topic, _said(lag.topic.startswith(_RETRIES)), _said(is_system_topic(lag.topic))
            to.add("rocketmq_consumer_lag_messages", lag.messages, *labels)
            to.add("rocketmq_consumer_lag_latency", _age(lag, now_ms), *labels)
        for lag in _first(of_groups.values(), most):
            to.add("towline_group_lag_messages", lag.messages, lag.group)
            to.add("towline_group_lag_seconds", _age(lag, now_ms) / _MS, lag.group)
            behind = max(0, written - lag.oldest_at) if lag.oldest_at >= 0 else 0
            to.add("towline_group_behind_bytes", behind, lag.group)
            to.add("towline_group_reads_cold", behind > in_memory, lag.group)
        return max(0, len(found) - most), max(0, len(of_groups) - most)

    def _add_sizes(self, to: Families) -> None:
        """Of queues what their entries take: files are not walked."""
        positions = self._node.positions
        entries = queues = 0
        if (ends := self._lags.ends) is not None:
            low, high, _ = ends.columns()
            entries, queues = int((high - low).sum()), len(low)
        sizes = {
            "commitlog": positions.get(Position.APPENDED) - positions.get(Position.LOG_MIN),
            "consumequeue": ENTRY_SIZE * entries,
            "index": sum(_BLOCK * path.stat().st_blocks for path in self._node.store.index.glob("*")),
        }
        to.add("towline_queues", queues)
        to.add_each("towline_store_bytes", sizes)
        to.add("rocketmq_storage_size", sum(sizes.values()), "local", "disk")
        to.add("rocketmq_topic_number", len(self._topics.content.topics))
        to.add("rocketmq_consumer_group_number", len(self._groups.content.groups))


def _first(lags: Iterable[PairLag], most: int) -> Sequence[PairLag]:
    """All, or those with the most unread messages."""
    found = list(lags)
    return found if len(found) <= most else sorted(found, key=lambda lag: -lag.messages)[:most]


def _both(one: PairLag | None, other: PairLag) -> PairLag:
    """Of two topics of a group."""
    if one is None:
        return other
    oldest = min(filter(None, (one.oldest_ms, other.oldest_ms)), default=0)
    first = min((at for at in (one.oldest_at, other.oldest_at) if at >= 0), default=NONE)
    return PairLag("", one.group, one.messages + other.messages, oldest, first)


def _age(lag: PairLag, now_ms: int) -> int:
    return max(0, now_ms - lag.oldest_ms) if lag.oldest_ms else 0


def _said(truth: bool) -> str:
    return "true" if truth else "false"
