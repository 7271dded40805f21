"""Questions that change topics, while the write of the file is held back, fails or goes on."""

import threading
import time
from collections import deque

import pytest

from towline.errors import DiskFull, StoreNotWritable, TopicExists, UnknownTopic
from towline.log.state.topics_file import TopicsConfig
from towline.master.put.request_queue import Question
from towline.master.put.topic_changes import TopicChanges, TopicQuestions
from towline.master.put.topics import Topics

DEADLINE_S = 60.0


class StillClock:
    def now_ms(self):
        return 1

    monotonic_ms = now_ms


class HeldFile(TopicsConfig):
    """Saves one generation for each `let_go`; with an error in `fails` it raises that."""

    def __init__(self, path):
        super().__init__(path)
        self.begun, self.may = threading.Semaphore(0), threading.Semaphore(0)
        self.fails = deque()

    def save(self, content):
        self.begun.release()
        assert self.may.acquire(timeout=DEADLINE_S)
        if self.fails:
            raise self.fails.popleft()
        super().save(content)


class Desk:
    """Topics, the questions about them, and who asked for what."""

    def __init__(self, directory):
        self.file = HeldFile(directory / "topics.json")
        self.topics = made(self.file)
        self.answers, self.told = [], 0
        self.end, self.numbers, self.appending = 1000, {}, False
        self.rung = threading.Event()
        questions = TopicQuestions(self.topics, self, lambda: self.end, self._tell)
        self.changes = TopicChanges(
            self.topics,
            questions,
            lambda question, found: self.answers.append((question.request_id, found)),
            lambda: self.appending,
            self.rung.set,
        )
        self.asked = 0

    def _tell(self):
        self.told += 1

    def next_offsets_of(self, topic):
        return self.numbers

    def ask(self, op, topic="", **facts):
        """The number of the question."""
        self.asked += 1
        self.changes.add(Question(b"peer", self.asked, b""), {"op": op, "topic": topic, **facts})
        return self.asked

    def cycle(self):
        """What was answered in one turn."""
        self.answers.clear()
        self.changes.cycle()
        return dict(self.answers)

    def let_go(self):
        """One write ends; what was answered then."""
        self.rung.clear()
        self.file.may.release()
        assert self.rung.wait(DEADLINE_S)
        return self.cycle()

    def close(self):
        for _ in range(10):
            self.file.may.release()
        self.changes.close()


def made(file):
    topics = Topics(file, StillClock(), auto_create=True, queue_nums_default=8, queues_max=100)
    topics.load()
    return topics


@pytest.fixture
def desk(tmp_path):
    found = Desk(tmp_path)
    yield found
    found.close()


def on_disk(desk):
    return made(TopicsConfig(desk.file.path))


def test_a_change_is_answered_when_it_is_written_and_no_turn_waits_for_that(desk):
    number = desk.ask("create_topic", "orders", queues=2)
    began = time.monotonic()
    assert [desk.cycle() for _ in range(100)] == [{}] * 100
    assert time.monotonic() - began < DEADLINE_S / 2  # the write has not ended in this time, and never would
    assert desk.topics.write_queues(b"orders") == -1
    assert len(desk.changes) == 1
    assert desk.let_go()[number]["write_queues"] == 2
    assert desk.topics.write_queues(b"orders") == on_disk(desk).write_queues(b"orders") == 2
    assert len(desk.changes) == 0


def test_what_comes_while_one_is_written_is_written_together(desk):
    first = desk.ask("create_topic", "first", queues=1)
    desk.cycle()
    later = [desk.ask("route", f"topic-{number}", queues=1) for number in range(50)]
    assert list(desk.let_go()) == [first]
    assert desk.file.begun.acquire(timeout=DEADLINE_S)
    assert desk.file.begun.acquire(timeout=DEADLINE_S)
    answered = {}
    while len(answered) < len(later):  # a turn makes as many as it has time for
        answered |= desk.let_go()
    assert sorted(answered) == later
    assert len(on_disk(desk).names()) == 51


def test_a_delete_and_a_create_of_one_topic_keep_their_order_and_its_numbers(desk):
    desk.ask("create_topic", "orders", queues=4)
    desk.cycle()
    desk.let_go()
    desk.numbers = {0: 7, 3: 2}
    deleted, again, twice = (
        desk.ask("delete_topic", "orders"),
        desk.ask("create_topic", "orders", queues=2),
        desk.ask("create_topic", "orders", queues=2),
    )
    assert desk.cycle() == {}
    assert (desk.topics.get("orders"), desk.topics.write_queues(b"orders")) == (None, -1)
    found = desk.let_go()
    assert (found[deleted], found[again]["write_queues"]) == ({"topic": "orders", "log_offset": 1000}, 2)
    assert isinstance(found[twice], TopicExists)
    for topics in (desk.topics, on_disk(desk)):
        assert topics.write_queues(b"orders") == 2
        assert topics.floors() == {(b"orders", 0): 7, (b"orders", 3): 2}
    assert desk.told == 2


@pytest.mark.parametrize("error", [DiskFull("topics.json", 10), StoreNotWritable("topics.json", "read-only")])
def test_a_write_that_fails_is_told_to_all_of_it_and_changes_nothing(desk, error):
    desk.ask("create_topic", "orders", queues=4)
    desk.cycle()
    desk.let_go()
    desk.file.fails.append(error)
    asked = [
        desk.ask("create_topic", "refunds", queues=4),
        desk.ask("alter_topic", "orders", perm=4),
        desk.ask("delete_topic", "orders"),
        desk.ask("alter_topic", "orders", perm=6),
    ]
    assert desk.cycle() == {}
    assert desk.let_go() == dict.fromkeys(asked, error)
    for topics in (desk.topics, on_disk(desk)):
        assert (topics.names(), topics.write_queues(b"orders"), topics.floors()) == (["orders"], 4, {})
    number = desk.ask("create_topic", "refunds", queues=3)  # the disk has room again
    desk.cycle()
    assert desk.let_go()[number]["write_queues"] == 3


def test_an_error_that_nobody_foresaw_reaches_who_asked(desk):
    desk.file.fails.append(PermissionError(13, "Permission denied"))
    number = desk.ask("create_topic", "orders", queues=4)
    desk.cycle()
    found = desk.let_go()[number]
    assert isinstance(found, StoreNotWritable)
    assert "Permission denied" in str(found)


def test_what_needs_no_write_is_answered_at_once(desk):
    unknown = desk.ask("alter_topic", "unknown", perm=4)
    found = desk.cycle()
    assert isinstance(found[unknown], UnknownTopic)
    assert not desk.file.begun.acquire(blocking=False)


def test_a_topic_is_not_deleted_in_the_middle_of_an_append_to_it(desk):
    desk.ask("create_topic", "orders", queues=4)
    desk.cycle()
    desk.let_go()
    desk.appending = True
    number = desk.ask("delete_topic", "orders")
    assert desk.cycle() == {}
    assert desk.topics.write_queues(b"orders") == 4
    desk.appending, desk.numbers = False, {0: 8}
    desk.cycle()
    assert number in desk.let_go()
    assert desk.topics.floors() == {(b"orders", 0): 8}


def test_after_a_stop_nothing_begins_and_what_is_written_is_answered(desk):
    number = desk.ask("create_topic", "orders", queues=4)
    desk.cycle()
    desk.ask("create_topic", "refunds", queues=4)
    desk.changes.stop()
    assert desk.changes.is_writing
    assert list(desk.let_go()) == [number]
    assert not desk.changes.is_writing
    assert on_disk(desk).names() == ["orders"]


def test_the_end_waits_for_what_is_being_written_and_answers_it(desk):
    number = desk.ask("create_topic", "orders", queues=4)
    desk.cycle()
    desk.file.may.release()
    desk.answers.clear()
    desk.changes.close()
    assert [answered for answered, _ in desk.answers] == [number]
    assert on_disk(desk).write_queues(b"orders") == 4
