"""A consumer on the machine of a running node, while messages follow each other closely: it follows the log itself."""

import os
import signal
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tests.processes.nodes import POOLED, Pair, TestNode, ending, free_port
from tests.processes.waiting import await_
from towline.client.admin import AdminClient
from towline.client.consumer import Consumer
from towline.client.errors import ClientForked, ReadRefused
from towline.client.message import Message, ReceivedMessage
from towline.client.producer import Producer
from towline.client.read.follower import Follower, Found
from towline.format.files.topics import PERM_WRITE
from towline.node.process.context import runtime_of
from towline.runtime.store_stats import StoreStats

QUEUES = 3
WAIT_S = 60.0
ASYNC = {"flush_disk_type": "ASYNC_FLUSH"}


class Flow:
    """A thread that sends numbered messages to the queues in turn, closely or with pauses, until it is stopped.

    `sent` is the next number of each queue.
    """

    def __init__(
        self, node: TestNode, *, pauses: bool = True, body: int = 100, sent: Mapping[int, int] | None = None
    ) -> None:
        self.sent: dict[int, int] = defaultdict(int, sent or {})
        self._endpoint, self._pauses, self._padding = node.endpoint, pauses, bytes(body)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self.error: BaseException | None = None

    def __enter__(self) -> "Flow":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join(WAIT_S)
        assert self.error is None, self.error

    def _run(self) -> None:
        try:
            with Producer(self._endpoint) as producer:
                number = 0
                while not self._stop.is_set():
                    queue = number % QUEUES
                    body = b"%d:" % self.sent[queue] + self._padding
                    producer.send(Message("t", body, queue_id=queue, tags=("even", "odd")[number % 2]))
                    self.sent[queue] += 1
                    number += 1
                    pause = 0.05 if self._pauses and number % 400 == 0 else 0.0005
                    self._stop.wait(pause)
        except BaseException as error:
            self.error = error


class Seen:
    """What a consumer got: of each queue the next number, which every message has to have."""

    def __init__(self, consumer: Consumer) -> None:
        self.consumer = consumer
        self.next: dict[int, int] = defaultdict(int)

    def poll(self) -> list[ReceivedMessage]:
        messages = self.consumer.poll(20)
        for message in messages:
            number = int(message.body.split(b":")[0])
            assert number == self.next[message.queue_id], f"queue {message.queue_id}"
            self.next[message.queue_id] += 1
        return messages

    def until(self, reached: Callable[[], bool], what: str) -> None:
        deadline = time.monotonic() + WAIT_S
        while not reached():
            self.poll()
            assert time.monotonic() < deadline, what

    def all_of(self, flow: Flow) -> None:
        self.until(lambda: dict(self.next) == dict(flow.sent), f"all of {dict(flow.sent)}, not {dict(self.next)}")


class Followed:
    """How many messages came without a pull, and how often a consumer went back to pulls."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.messages: Counter[int] = Counter()
        self.left = 0
        take, leave = Follower.take, Follower.leave

        def taken(follower: Follower, now: float) -> Found | None:
            found = take(follower, now)
            if found is not None:
                self.messages[found.queue_id] += found.following - found.first
            return found

        def left(follower: Follower) -> None:
            self.left += follower.follows
            leave(follower)

        monkeypatch.setattr(Follower, "take", taken)
        monkeypatch.setattr(Follower, "leave", left)


@pytest.fixture
def followed(monkeypatch: pytest.MonkeyPatch) -> Followed:
    return Followed(monkeypatch)


def started(root: Path, **settings: Any) -> Iterator[TestNode]:
    node = TestNode("master", root / "node", **(ASYNC | {"listen_port": free_port()} | settings))
    with ending(node):
        node.start()
        with AdminClient(node.endpoint, timeout_ms=30_000) as admin:
            admin.create_topic("t", QUEUES)
        yield node
        node.stop()


@pytest.fixture
def node(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[TestNode]:
    yield from started(tmp_path, **getattr(request, "param", {}))


def serve_of(node: TestNode, scheme: str = "ipc") -> str:
    return str(node.facts["endpoints"]["serve" if scheme == "ipc" else "remoting"][0])


@pytest.mark.parametrize("node", [{}, {"flush_disk_type": "SYNC_FLUSH"}], ids=["async", "sync"], indirect=True)
@pytest.mark.parametrize("scheme", ["ipc", "tcp"])
def test_each_message_comes_once_in_its_order_followed_or_pulled(node: TestNode, scheme: str, followed: Followed):
    with Consumer(serve_of(node, scheme), "t") as consumer, Flow(node) as flow:
        seen = Seen(consumer)
        seen.until(lambda: min(followed.messages[queue] for queue in range(QUEUES)) > 300 and followed.left > 3, "both")
        flow.__exit__()
        seen.all_of(flow)
        assert consumer.position() == dict(flow.sent)
        assert not consumer.moved
        assert consumer.at_end


@pytest.mark.parametrize("node", [POOLED | {"commit_interval_commit_log": 5}], ids=["pool"], indirect=True)
def test_of_a_transient_pool_what_was_committed_is_followed(node: TestNode, followed: Followed):
    with Consumer(serve_of(node), "t") as consumer, Flow(node, pauses=False, body=4_000) as flow:
        seen = Seen(consumer)
        seen.until(lambda: sum(followed.messages.values()) > 300, "following")
        flow.__exit__()
        seen.all_of(flow)


def test_the_log_rolls_under_a_follower(tmp_path: Path, followed: Followed):
    for node in started(tmp_path, mapped_file_size_commit_log=1 << 20):
        with Consumer(serve_of(node), "t") as consumer, Flow(node, pauses=False, body=8_000) as flow:
            seen = Seen(consumer)
            seen.until(lambda: sum(followed.messages.values()) > 500, "several segments")
            flow.__exit__()
            seen.all_of(flow)


def test_a_follower_of_a_killed_node_goes_on_with_its_next_start(node: TestNode, followed: Followed):
    with Consumer(serve_of(node), "t", timeout_ms=60_000) as consumer:
        seen = Seen(consumer)
        for round_ in range(3):
            before = sum(followed.messages.values())
            with Flow(node, pauses=False, sent=seen.next) as flow:
                seen.until(lambda: sum(followed.messages.values()) > before + 100, "following")  # noqa: B023
            node.kill_all(round_)  # while it follows, or just after
            node.start()
            seen.all_of(flow)
        assert not consumer.moved


def test_a_killed_serve_process_is_no_loss_to_a_follower(node: TestNode, followed: Followed):
    with Consumer(serve_of(node), "t", timeout_ms=60_000) as consumer, Flow(node) as flow:
        seen = Seen(consumer)
        for _ in range(2):
            before, pids = sum(followed.messages.values()), node.pids()
            seen.until(lambda: sum(followed.messages.values()) > before + 100, "following")  # noqa: B023
            os.kill(pids["serve"], signal.SIGKILL)
            seen.until(lambda: node.pids().get("serve") not in (None, pids["serve"]), "serve is back")  # noqa: B023
        flow.__exit__()
        seen.all_of(flow)
        assert not consumer.moved


def test_a_slave_is_followed_up_to_what_its_master_calls_confirmed(tmp_path: Path, followed: Followed):
    pair = Pair(tmp_path, **ASYNC)
    with ending(*pair.nodes):
        pair.start()
        with AdminClient(pair.master.endpoint, timeout_ms=30_000) as admin:
            admin.create_topic("t", QUEUES)
        with AdminClient(serve_of(pair.slave)) as admin:
            await_(lambda: any(row["topic"] == "t" for row in admin.topics()), WAIT_S, "the slave knows the topic")
        with Consumer(serve_of(pair.slave), "t") as consumer, Flow(pair.master, pauses=False) as flow:
            seen = Seen(consumer)
            seen.until(lambda: sum(followed.messages.values()) > 300, "following")
            flow.__exit__()
            seen.all_of(flow)


def test_seeking_and_pausing_end_it_and_it_begins_again(node: TestNode, followed: Followed):
    with Consumer(serve_of(node), "t") as consumer, Flow(node, pauses=False) as flow:
        seen = Seen(consumer)

        def follow() -> None:
            before = sum(followed.messages.values())
            seen.until(lambda: sum(followed.messages.values()) > before + 100, "following")

        follow()
        consumer.seek(1, 5)
        seen.next[1] = 5
        follow()
        consumer.pause(0)
        paused_at = seen.next[0]
        follow()
        assert seen.next[0] == paused_at
        consumer.resume(0)
        follow()
        seen.until(lambda: seen.next[0] > paused_at + 20, "the paused queue")
        flow.__exit__()
        seen.all_of(flow)


def test_the_child_of_a_fork_does_not_follow(node: TestNode, followed: Followed):
    with Consumer(serve_of(node), "t") as consumer, Flow(node, pauses=False):
        seen = Seen(consumer)
        seen.until(lambda: sum(followed.messages.values()) > 100, "following")
        pid = os.fork()
        if not pid:
            refused = False
            try:
                consumer.poll(100)
            except ClientForked:
                refused = True
            finally:
                os._exit(0 if refused else 1)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
        before = sum(followed.messages.values())
        seen.until(lambda: sum(followed.messages.values()) > before + 50, "the parent goes on")


def test_tags_are_compared_by_a_follower_too(node: TestNode, followed: Followed):
    with Consumer(serve_of(node), "t", tags="odd") as consumer, Flow(node, pauses=False):
        deadline = time.monotonic() + WAIT_S
        while sum(followed.messages.values()) < 200:
            assert {message.tags for message in consumer.poll(20)} <= {"odd"}
            assert time.monotonic() < deadline


def test_a_reader_that_reads_no_files_pulls(node: TestNode, followed: Followed):
    with Flow(node, pauses=False) as flow, Consumer(serve_of(node), "t", reads_files=False) as consumer:
        seen = Seen(consumer)
        seen.until(lambda: sum(seen.next.values()) > 500, "messages")
        flow.__exit__()
        seen.all_of(flow)
    assert not followed.messages


def test_a_topic_that_may_not_be_read_any_more_stops_its_followers(node: TestNode, followed: Followed):
    with (
        Consumer(serve_of(node), "t") as consumer,
        Flow(node, pauses=False),
        closing(AdminClient(node.endpoint, timeout_ms=20_000)) as admin,
    ):
        seen = Seen(consumer)
        seen.until(lambda: sum(followed.messages.values()) > 100, "following")
        admin.alter_topic("t", perm=PERM_WRITE)
        with pytest.raises(ReadRefused):
            seen.until(lambda: False, "the refusal")


def test_what_was_read_without_pulls_is_in_the_nodes_statistics(node: TestNode, followed: Followed):
    with Consumer(serve_of(node), "t") as consumer, Flow(node, pauses=False) as flow:
        seen = Seen(consumer)
        seen.until(lambda: sum(followed.messages.values()) > 100, "following")
        at = sum(followed.messages.values())
        path = runtime_of(node.store.root).get_stats

        def counted() -> bool:
            stats = StoreStats.open(path)
            try:
                return sum(row.messages for row in stats if row.topic == b"t") >= at
            finally:
                stats.close()

        seen.until(counted, "the statistics")
        flow.__exit__()
