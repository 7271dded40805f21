"""Consumer groups through real processes: members die and come, the reading process dies, and no message is missed."""

import logging
import os
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any, Self

import pytest

from tests.cli.conftest import Towline, towline
from tests.processes.grouping import DEADLINE_S, Marks, Process, by_queue, check_order, explained_doubles, serve_of
from tests.processes.load import Load
from tests.processes.nodes import TestNode, ended
from tests.processes.waiting import await_
from towline.client.admin import AdminClient
from towline.client.errors import AskRefused, FilterRefused
from towline.client.group.consumer import GroupConsumer
from towline.client.group.message import GroupMessage
from towline.client.group.subscription import Sql
from towline.client.message import Message
from towline.client.producer import Producer

__all__ = ["towline"]  # the fixture

log = logging.getLogger(__name__)

LOCK_MS = 3_000
QUEUES = 6
SETTINGS = {
    "ha_listen_port": 0,
    "consumer_expires_ms": 2_000,
    "flush_consumer_offset_interval": 200,
    "enable_property_filter": True,
    "rebalance_lock_max_live_time": LOCK_MS,
    "message_delay_level": "1s 1s 1s 1s 1s",
}


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestNode]:
    made = TestNode("master", tmp_path_factory.mktemp("groups") / "master", **SETTINGS)
    cleaning = ended(made)
    next(cleaning)
    try:
        made.start()
        yield made
        assert made.stop()
    finally:
        next(cleaning, None)


@pytest.fixture
def start(node: TestNode, tmp_path: Path) -> Iterator[Any]:
    """Starts members as processes."""
    made: list[Process] = []

    def begin(group: str, topics: Any, name: str, *, node: TestNode = node, **settings: Any) -> Process:
        made.append(Process(serve_of(node), group, topics, tmp_path, name, **settings))
        return made[-1]

    yield begin
    for process in made:
        process.clean_up()


def create(node: TestNode, topic: str, queues: int = QUEUES) -> None:
    with AdminClient(node.endpoint) as admin:
        admin.create_topic(topic, queues)


def fill(node: TestNode, topic: str, count: int, queues: int) -> None:
    with Producer(node.endpoint) as producer:
        producer.send_batch(Message(topic, b"%d" % number, queue_id=number % queues) for number in range(count))


def members_of(node: TestNode, group: str) -> list[str]:
    with AdminClient(serve_of(node)) as admin:
        try:
            return [row["member"] for row in admin.describe_group(group)["members"]]
        except AskRefused:  # nobody has joined yet
            return []


class Endless:
    """A load that goes on until `stop`, so that what happens meanwhile happens under load."""

    def __init__(self, node: TestNode, topic: str, seed: int, window: int = 100, rate: float = 1000) -> None:
        self._load = Load(node.endpoint, topic, seed, count=120_000, window=window, rate=rate)
        self.await_acked = self._load.await_acked

    def __enter__(self) -> Self:
        self._load.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> set[str]:
        """The keys that were acknowledged."""
        self._load.stop()
        self._load.join(DEADLINE_S)
        assert not self._load.is_alive()
        assert self._load.error is None
        assert set(self._load.outcomes) == {"PUT_OK"}
        assert len(self._load.acked) < self._load.count, "the load ended before it was told to"
        return set(self._load.acked)


def await_members(node: TestNode, group: str, *names: str) -> None:
    await_(lambda: members_of(node, group) == sorted(names), DEADLINE_S, f"the members of {group} are {names}")


def await_read(members: list[Process], keys: set[str]) -> None:
    def all_of_them() -> bool:
        return not keys.difference(*(member.keys() for member in members))

    await_(all_of_them, DEADLINE_S, "every message is read")


def await_committed(node: TestNode, topic: str, group: str) -> None:
    """Who was killed may have read to the end of a queue and committed none of it: another one comes to that end."""
    with AdminClient(serve_of(node)) as admin:
        ends = {queue: end for queue, (_, end) in admin.bounds(topic).items()}
        await_(lambda: admin.group_offsets(group, topic)[topic] == ends, DEADLINE_S, "the group stands at the ends")


def check_all_was_read(node: TestNode, topic: str, group: str, members: list[Process]) -> None:
    """Every offset of every queue, and the group's offsets stand at the ends."""
    with AdminClient(serve_of(node)) as admin:
        bounds = admin.bounds(topic)
        assert admin.group_offsets(group, topic)[topic] == {queue: end for queue, (_, end) in bounds.items()}
    tenures = by_queue(members)
    for queue, (_, end) in bounds.items():
        seen = {offset for tenure in tenures[topic, queue] for offset in tenure.offsets}
        assert seen == set(range(end)), f"queue {queue}: {sorted(set(range(end)) - seen)[:10]} were skipped"


def test_members_die_and_come_under_load_and_nothing_is_missed(node: TestNode, start: Any):
    create(node, "load")
    members = a, b, c = [start("g", "load", name, max_count=50) for name in ("a", "b", "c")]
    marks = Marks(node, "load", "g", members)
    await_members(node, "g", "a", "b", "c")
    with Endless(node, "load", 4) as load:
        marks.take()
        a.kill()
        await_members(node, "g", "b", "c")
        marks.take()
        d, e = (start("g", "load", name, max_count=50) for name in ("d", "e"))
        members += [d, e]
        await_members(node, "g", "b", "c", "d", "e")
        marks.take(saved=True)
        before = node.pids()
        os.kill(before["serve"], signal.SIGKILL)
        node.await_restarted("serve", before)
        await_members(node, "g", "b", "c", "d", "e")
        marks.take()
        b.kill()
        c.stop()
        await_members(node, "g", "d", "e")
        marks.take()
        with e.frozen():
            await_members(node, "g", "d")
        await_members(node, "g", "d", "e")
        marks.take()
        acked = load.stop()
    await_read(members, acked)
    await_committed(node, "load", "g")
    for member in members:
        member.stop()
    check_all_was_read(node, "load", "g", members)
    check_order(members)
    check_doubles(members, marks, acked)


def check_doubles(members: list[Process], marks: Marks, acked: set[str] | None = None) -> None:
    """Each has its reason, and none was committed before what made it; without them every message came once: those of
    `acked`, where nothing else was put.
    """
    marks.check()
    doubles = explained_doubles(members)
    deliveries = sum(member.keys().total() for member in members)
    once = len(set().union(*(member.keys() for member in members)))
    log.info("%d messages, %d deliveries, doubles: %s", once, deliveries, dict(doubles))
    assert not doubles["unexplained"], doubles
    assert deliveries - doubles.total() == once
    assert acked is None or once == len(acked)


def test_in_order_a_queue_has_one_reader_at_a_time_and_a_planned_change_makes_no_doubles(node: TestNode, start: Any):
    create(node, "steps")
    settings = {"ordered": True, "max_count": 20}
    members = a, b = [start("o", "steps", name, **settings) for name in ("a", "b")]
    marks = Marks(node, "steps", "o", members)
    await_members(node, "o", "a", "b")
    with Endless(node, "steps", 5) as load:
        await_(b.has_read, DEADLINE_S, "b reads")
        c = start("o", "steps", "c", **settings)
        members.append(c)
        await_(c.has_read, DEADLINE_S, "c reads")
        b.stop()
        await_members(node, "o", "a", "c")
        acked = load.stop()
    await_read(members, acked)
    planned = explained_doubles(members)
    assert not planned, planned
    with Endless(node, "steps", 6) as load:
        marks.take()
        a.kill()
        acked |= load.stop()
    await_read(members, acked)
    await_committed(node, "steps", "o")
    c.stop()
    check_all_was_read(node, "steps", "o", members)
    check_doubles(members, marks, acked)
    check_one_reader_at_a_time(members)


def test_in_order_a_queue_has_one_reader_though_serve_dies_while_one_is_frozen(start: Any, tmp_path: Path):
    """The frozen one is back before its locks are over, and goes on with what it had in store."""
    patient = {"rebalance_lock_max_live_time": 4 * LOCK_MS, "consumer_expires_ms": 20_000}
    node = TestNode("master", tmp_path / "patient", **SETTINGS | patient)
    cleaning = ended(node)
    next(cleaning)
    node.start()
    check_freezing(node, partial(start, node=node), lambda a, b, c: None)
    assert node.stop()
    next(cleaning, None)


def test_in_order_what_a_frozen_member_had_is_read_by_others_when_its_locks_are_over(node: TestNode, start: Any):
    def await_over(a: Process, b: Process, c: Process) -> None:
        taken = {tenure.queue for tenure in b.tenures()[-QUEUES // 3 :]}
        since = time.monotonic_ns()
        await_(lambda: is_read_by(a, c, taken, since), DEADLINE_S, "others read what was b's")

    check_freezing(node, start, await_over)


def check_freezing(node: TestNode, start: Any, wait: Callable[[Process, Process, Process], None]) -> None:
    """serve is killed while b is frozen; `wait` is called before b goes on."""
    create(node, "frozen")
    fill(node, "frozen", 3_000, QUEUES)
    settings = {"ordered": True, "max_count": 20, "rest_ms": 5}
    members = a, b, c = [start("f", "frozen", name, **settings) for name in ("a", "b", "c")]
    marks = Marks(node, "frozen", "f", members)
    await_members(node, "f", "a", "b", "c")
    with Endless(node, "frozen", 7, window=1) as load:
        for each in members:
            await_(lambda each=each: has_its_share(each), DEADLINE_S, f"{each.name} reads its share alone")
        marks.take(saved=True)
        before = node.pids()
        with b.frozen():
            seen = {each.name: each.keys().total() for each in members}
            os.kill(before["serve"], signal.SIGKILL)
            node.await_restarted("serve", before)
            await_members(node, "f", "a", "c")
            await_(lambda: a.keys().total() > seen["a"] + 500, DEADLINE_S, "a goes on with what it had locked")
            wait(a, b, c)
        await_members(node, "f", "a", "b", "c")
        await_(lambda: b.keys().total() > seen["b"] + 100, DEADLINE_S, "b goes on")
        acked = load.stop()
    await_read(members, acked)
    for each in members:
        each.stop()
    check_all_was_read(node, "frozen", "f", members)
    check_doubles(members, marks)
    check_one_reader_at_a_time(members, frozen=["b"])


def has_its_share(member: Process) -> bool:
    """Of three members' queues, for a while."""
    newest = member.lines()[-60:]
    settled = len(newest) == 60 and all(line[0] not in "+-" for line in newest)
    return settled and len({line.split(" ")[1] for line in newest}) == QUEUES // 3


def is_read_by(one: Process, other: Process, queues: set[Any], since: int) -> bool:
    """Whether they read each of these queues after that."""
    newest = {tenure.queue: tenure.times[-1] for tenure in (*one.tenures(), *other.tenures()) if tenure.offsets}
    return all(newest.get(queue, 0) > since for queue in queues)


def check_one_reader_at_a_time(members: list[Process], frozen: Sequence[str] = ()) -> None:
    """And each queue's messages come to the group in their order.

    What a `frozen` one had in its hand it may finish whenever it can: one message of one queue, each time.
    """
    check_order(members)
    late: Counter[str] = Counter()
    for queue, tenures in by_queue(members).items():
        for one, other in pairwise(tenures):
            after = sum(at >= other.times[0] for at in one.times)
            assert not after or one.member in frozen, f"{queue} had two readers: {one.member} and {other.member}"
            late[one.member] += after
    assert late <= Counter(frozen), f"{late} went on though others read their queues"


def test_broadcasting_gives_everybody_everything_and_goes_on_after_a_restart(
    node: TestNode, start: Any, tmp_path: Path
):
    create(node, "news", 3)
    fill(node, "news", 60, 3)
    files = {name: str(tmp_path / f"{name}.json") for name in ("a", "b")}
    settings = {"model": "broadcasting"}
    both = [start("n", "news", name, offsets_file=files[name], **settings) for name in ("a", "b")]
    for member in both:
        await_(lambda member=member: len(member.keys()) == 60, DEADLINE_S, "everything came")
        member.stop()
    fill(node, "news", 30, 3)
    again = start("n", "news", "a", offsets_file=files["a"], **settings)
    await_(lambda: len(again.keys()) >= 90, DEADLINE_S, "the rest came")
    again.stop()
    assert set(again.keys().values()) == {1}
    with pytest.raises(AskRefused, match="UNKNOWN_GROUP"), AdminClient(serve_of(node)) as admin:
        admin.describe_group("nobody")


def test_a_message_that_always_fails_ends_among_the_dead_letters(node: TestNode):
    create(node, "work", 1)
    with AdminClient(serve_of(node)) as admin:
        assert admin.configure_group("w", retryMaxTimes=2)["retryMaxTimes"] == 2
    with Producer(node.endpoint) as producer:
        sent = producer.send(Message("work", b"bad", tags="t", keys=("k",)))
    attempts: list[tuple[int, str, bytes]] = []

    def handle(message: GroupMessage) -> None:
        attempts.append((message.reconsume_times, message.topic, message.body))
        if message.reconsume_times == 2:
            consumer.close()
        raise RuntimeError("it never works")

    consumer = GroupConsumer(serve_of(node), "w", "work", start="first", commit_interval_ms=200)
    consumer.listen(handle)
    assert attempts == [(times, "work", b"bad") for times in range(3)]
    dead: list[GroupMessage] = []
    with GroupConsumer(serve_of(node), "undertaker", "%DLQ%w", start="first") as reader:
        await_(lambda: dead.extend(reader.poll(100)) or dead, DEADLINE_S, "the dead letter comes")
    (message,) = dead
    assert (message.body, message.tags, message.keys, message.unique_key) == (b"bad", "t", ("k",), sent.unique_key)
    assert (message.reconsume_times, message.properties["RETRY_TOPIC"]) == (3, "work")
    with AdminClient(serve_of(node)) as admin:
        origin = admin.by_id(message.origin_message_id)
    assert origin is not None
    assert (origin.topic, origin.physical_offset) == ("work", sent.physical_offset)


def test_a_group_gets_what_its_expressions_say(node: TestNode):
    create(node, "priced", 2)
    create(node, "coloured", 2)
    with Producer(node.endpoint) as producer:
        for number in range(40):
            tag = ("Aa", "BB", "c")[number % 3]  # the first two have one hash
            properties = {"price": str(number)}
            producer.send_batch([Message("priced", b"%d" % number, properties=properties, queue_id=number % 2)])
            producer.send_batch([Message("coloured", b"%d" % number, tags=tag, queue_id=number % 2)])
    topics = {"priced": Sql("price >= 30 AND price <> 33"), "coloured": "BB || x"}
    wanted = {("priced", b"%d" % number) for number in range(30, 40) if number != 33}
    wanted |= {("coloured", b"%d" % number) for number in range(40) if number % 3 == 1}
    found: list[GroupMessage] = []
    with GroupConsumer(serve_of(node), "s", topics, start="first") as consumer:
        await_(lambda: found.extend(consumer.poll(100)) or len(found) >= len(wanted), DEADLINE_S, "all came")
        ends = {(topic, queue): 20 for topic in topics for queue in range(2)}

        def at_the_ends() -> bool:
            assert consumer.poll(10) == []
            return consumer.assignment() == ends

        await_(at_the_ends, DEADLINE_S, "what was left out is passed over")
    assert sorted((message.topic, message.body) for message in found) == sorted(wanted)
    with AdminClient(serve_of(node)) as admin:
        offsets = admin.group_offsets("s", *topics)
    assert {(topic, queue): at for topic, queues in offsets.items() for queue, at in queues.items()} == ends
    with (
        GroupConsumer(serve_of(node), "s2", {"priced": Sql("price >")}) as consumer,
        pytest.raises(FilterRefused, match="at character 7") as refused,
    ):
        consumer.poll(20_000)
    assert refused.value.position == 7


def test_members_that_want_different_topics_leave_no_queue_unread(node: TestNode):
    create(node, "common", 4)
    create(node, "special", 2)
    both = GroupConsumer(serve_of(node), "d", ["common", "special"], start="first", member="both")
    with both, GroupConsumer(serve_of(node), "d", "common", start="first", member="one") as one:

        def shared() -> bool:
            assert both.poll(10) == one.poll(10) == []
            mine, theirs = set(both.assignment()), set(one.assignment())
            wanted = {("common", 0), ("common", 1), ("special", 0), ("special", 1)}
            return mine - {("%RETRY%d", 0)} == wanted and theirs - {("%RETRY%d", 0)} == {("common", 2), ("common", 3)}

        await_(shared, DEADLINE_S, "every queue has one reader")
        assert any("SUBSCRIPTION_DIFFERS" in warning for warning in both.warnings), both.warnings


def test_a_consumer_goes_on_when_its_node_was_killed_and_started_again(node: TestNode):
    create(node, "steady", 2)
    fill(node, "steady", 100, 2)
    seen: set[tuple[int, int]] = set()
    with GroupConsumer(serve_of(node), "k", "steady", start="first", max_count=10, timeout_ms=60_000) as consumer:

        def read(count: int) -> None:
            def enough() -> bool:
                seen.update((message.queue_id, message.queue_offset) for message in consumer.poll(100))
                return len(seen) >= count

            await_(enough, DEADLINE_S, f"{count} messages come")

        read(60)
        consumer.commit()
        node.kill_all(3)
        node.start()
        fill(node, "steady", 100, 2)
        read(200)
    assert seen == {(queue, offset) for queue in range(2) for offset in range(100)}
    with AdminClient(serve_of(node)) as admin:
        assert admin.group_offsets("k", "steady") == {"steady": {0: 100, 1: 100}}


def test_the_command_line_lists_describes_resets_and_deletes(node: TestNode, towline: Towline):
    create(node, "books", 2)
    fill(node, "books", 20, 2)
    at = ("--store", str(node.store.root))
    with GroupConsumer(serve_of(node), "r", "books", start="first", member="reader") as consumer:
        seen = 0
        while seen < 20:
            seen += len(consumer.poll(1_000))
        consumer.commit()
        assert "r" in [row["group"] for row in towline("group", "list", "--json", *at).document["groups"]]
        told = towline("group", "describe", "r", "--json", *at).document
        assert told["lag"] == 0
        assert {row["owner"] for row in told["queues"]} == {"reader"}
        assert "reader" in towline("group", "describe", "r", *at).out
        refused = towline("group", "delete", "r", *at)
        assert refused.status == 1
        assert "GROUP_IN_USE" in refused.err
        assert "close its consumers first" in refused.err
        reset = towline("group", "reset-offset", "r", "books", "--to", "first", "--json", *at).document
        assert [row["offset"] for row in reset["queues"]] == [0, 0]
        again = 0
        while again < 20:  # the consumer that is there follows
            again += len(consumer.poll(1_000))
    one = towline("group", "reset-offset", "r", "books", "--to", "3", "--queue", "1", "--json", *at).document
    assert one["queues"] == [{"queue_id": 1, "offset": 3}]
    assert towline("group", "reset-offset", "r", "books", "--to", "3", *at).status == 2
    assert towline("group", "delete", "r", *at).status == 0
    assert "r" not in [row["group"] for row in towline("group", "list", "--json", *at).document["groups"]]
    gone = towline("group", "describe", "nobody", "--json", *at)
    assert gone.status == 1
    assert "towline group list" in gone.err
