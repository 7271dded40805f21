"""What may be committed, whatever the threads do with what they are given: never anything that is not finished."""

import random
import threading
import time
from collections import defaultdict

import pytest

from towline.client.group import fetch_buffer as module
from towline.client.group.fetch_buffer import FetchBuffer
from towline.client.group.queue import Answer, Delivery, GroupQueue
from towline.client.group.subscription import EVERYTHING

QUEUES = 2
THREADS = 3


class Model:
    """Threads that take, read on, leave loops, commit and die, one after the other, against what they have finished.

    Every third offset holds no message for us: the node passes over it, or the client's filter does.
    """

    def __init__(self, seed: int, *, manual: bool, ordered: bool, monkeypatch: pytest.MonkeyPatch) -> None:
        self.random = random.Random(seed)
        self.manual = manual
        self.buffer = FetchBuffer(ordered=ordered, manual=manual)
        self.thread = 0
        threads = [threading.Thread() for _ in range(THREADS)]
        monkeypatch.setattr(module.threading, "get_ident", lambda: self.thread)
        monkeypatch.setattr(module.threading, "current_thread", lambda: threads[self.thread])
        self.queues = [GroupQueue("t", number, EVERYTHING) for number in range(QUEUES)]
        for queue in self.queues:
            queue.begin(0)
            self.buffer.queues[queue.key] = queue
        self.delivery: dict[int, tuple[Delivery, list[int]] | None] = defaultdict(lambda: None)  # and its rest
        self.seen: dict[int, list[tuple[int, int]]] = defaultdict(list)  # given and not finished yet
        self.finished: dict[int, set[int]] = defaultdict(set)
        self.given: dict[int, list[int]] = defaultdict(list)
        self.deliveries: list[tuple[int, Delivery, list[int]]] = []  # whom they were given to, and what of them

    def step(self) -> None:
        self.thread = self.random.randrange(THREADS)
        action = self.random.choice(
            [self.feed, self.feed, self.poll, self.begin_loop, self.read_on, self.commit, self.commit_one]
        )
        if self.random.random() < 0.02:
            action = self.die
        action()
        for number, queue in enumerate(self.queues):
            missing = {offset for offset in range(queue.committable) if is_ours(offset)} - self.finished[number]
            assert not missing, f"queue {number} commits up to {queue.committable}, but {missing} are not finished"

    def feed(self) -> None:
        queue = self.random.choice(self.queues)
        with self.buffer.lock:
            following = queue.fetch + self.random.randint(1, 6)
            if self.random.random() < 0.2 and not is_ours(queue.fetch):
                queue.skip_to(queue.fetch + 1)
            else:
                queue.add(Answer(b"", b"", queue.fetch, queue.fetch, following))
                self.buffer.enqueue(queue)

    def poll(self) -> bool:
        self._comes_back()
        delivery = self.buffer.receive(time.monotonic(), whole=True)
        if delivery is not None:
            self._give(delivery, [offset for offset in range(delivery.at, delivery.end) if is_ours(offset)])
        return delivery is not None

    def begin_loop(self) -> None:
        self._comes_back()
        delivery = self.buffer.receive(time.monotonic(), whole=False)
        if delivery is not None:
            self.delivery[self.thread] = (
                delivery,
                [offset for offset in range(delivery.at, delivery.end) if is_ours(offset)],
            )

    def read_on(self) -> None:
        """The loop's next message, or its end."""
        current = self.delivery[self.thread]
        if current is None:
            return
        delivery, left = current
        if not self.manual:
            self._finish()
        if not left:
            self.buffer.done()
            self.delivery[self.thread] = None
        elif self.buffer.deliver(delivery, left[0]):
            self._give(delivery, [left.pop(0)])
        else:
            self.delivery[self.thread] = None

    def commit(self) -> None:
        self._finish()
        self.buffer.finish()

    def commit_one(self) -> None:
        """One that this thread or another was given, and all before it that the same thread was given of its queue."""
        if not self.deliveries:
            return
        thread, delivery, given = self.random.choice(self.deliveries)
        number, offset = delivery.queue.queue_id, self.random.choice(given)
        if self.buffer.finish_up_to(delivery, offset + 1):
            done = {seen for seen in self.seen[thread] if seen[0] == number and seen[1] <= offset}
            self.finished[number] |= {place for _, place in done}
            self.seen[thread] = [seen for seen in self.seen[thread] if seen not in done]
            assert offset in self.finished[number], "it was put back, or comes again"
        else:
            assert offset not in self.finished[number]

    def die(self) -> None:
        """What it had in hand is never finished; another takes its place."""
        self.buffer.abandon()
        self.seen[self.thread].clear()
        self.delivery[self.thread] = None

    def _comes_back(self) -> None:
        self.delivery[self.thread] = None
        if not self.manual:
            self._finish()

    def _give(self, delivery: Delivery, offsets: list[int]) -> None:
        number = delivery.queue.queue_id
        self.seen[self.thread] += [(number, offset) for offset in offsets]
        self.given[number] += offsets
        if offsets:
            self.deliveries.append((self.thread, delivery, offsets))

    def _finish(self) -> None:
        for number, offset in self.seen[self.thread]:
            self.finished[number].add(offset)
        self.seen[self.thread].clear()


def is_ours(offset: int) -> bool:
    return offset % 3 != 2


@pytest.mark.parametrize("ordered", [False, True], ids=["in any order", "ordered"])
@pytest.mark.parametrize("manual", [False, True], ids=["automatic", "manual"])
def test_only_what_is_finished_may_be_committed(manual: bool, ordered: bool, monkeypatch: pytest.MonkeyPatch):
    for seed in range(40):
        model = Model(seed, manual=manual, ordered=ordered, monkeypatch=monkeypatch)
        for _ in range(150):
            model.step()
        for number, given in model.given.items():
            assert len(given) == len(set(given)), f"queue {number}: something was given twice"


def test_in_the_end_everything_is_given_and_finished(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(Model, "die", Model.feed)
    for seed in range(20):
        model = Model(seed, manual=False, ordered=False, monkeypatch=monkeypatch)
        for _ in range(150):
            model.step()
        for thread in [*range(THREADS), *range(THREADS)]:
            model.thread = thread
            model.commit()
            while model.poll():
                continue
        for number, queue in enumerate(model.queues):
            assert queue.committable == queue.fetch
            assert model.finished[number] == {offset for offset in range(queue.fetch) if is_ours(offset)}


@pytest.mark.parametrize("number_again", [False, True], ids=["nobody has its number", "another has its number"])
@pytest.mark.parametrize("manual", [False, True], ids=["automatic", "manual"])
@pytest.mark.parametrize("ordered", [False, True], ids=["in any order", "ordered"])
def test_what_a_thread_had_in_hand_that_died_comes_again(
    ordered: bool, manual: bool, number_again: bool, monkeypatch: pytest.MonkeyPatch
):
    buffer = FetchBuffer(ordered=ordered, manual=manual)
    queue = buffer.queues["t", 0] = GroupQueue("t", 0, EVERYTHING)
    queue.begin(0)
    with buffer.lock:
        for first in (0, 5):
            queue.add(Answer(b"", b"", first, first, first + 5))
        buffer.enqueue(queue)
    if number_again:
        monkeypatch.setattr(module.threading, "get_ident", lambda: 7)  # as the system does it
    thread = threading.Thread(target=buffer.receive, args=(time.monotonic(),), kwargs={"whole": True})
    thread.start()
    thread.join()
    assert (queue.next, queue.committable, buffer.is_busy(queue)) == (5, 0, ordered)
    if number_again:
        assert buffer.receive(time.monotonic(), whole=True) is None
    else:
        buffer.reclaim()
    assert (queue.fetch, queue.next, queue.committable, buffer.is_busy(queue)) == (0, 0, 0, False)
    with buffer.lock:
        queue.add(Answer(b"", b"", 0, 0, 10))
        buffer.enqueue(queue)
    delivery = buffer.receive(time.monotonic(), whole=True)
    assert delivery is not None
    assert (delivery.at, delivery.end) == (0, 10)


def test_in_order_a_queue_that_begins_anew_waits_for_whoever_has_its_messages_in_hand():
    buffer = FetchBuffer(ordered=True, manual=False)
    before = buffer.queues["t", 0] = GroupQueue("t", 0, EVERYTHING)
    before.begin(0)
    received = threading.Event()
    done = threading.Event()

    def work() -> None:
        buffer.receive(time.monotonic(), whole=True)
        received.set()
        done.wait()
        buffer.done()

    with buffer.lock:
        before.add(Answer(b"", b"", 0, 0, 5))
        buffer.enqueue(before)
    thread = threading.Thread(target=work)
    thread.start()
    assert received.wait(20.0)
    with buffer.lock:
        before.drop()
        after = buffer.queues["t", 0] = GroupQueue("t", 0, EVERYTHING)
        after.begin(0)
        after.add(Answer(b"", b"", 0, 0, 5))
        buffer.enqueue(after)
    assert buffer.receive(time.monotonic(), whole=True) is None
    done.set()
    delivery = buffer.receive(time.monotonic() + 20.0, whole=True)
    thread.join()
    assert delivery is not None
    assert delivery.queue is after


def test_what_follows_a_delivery_that_was_finished_by_a_message_is_not_held_back():
    buffer = FetchBuffer(ordered=False, manual=True)
    queue = buffer.queues["t", 0] = GroupQueue("t", 0, EVERYTHING)
    queue.begin(0)
    deliveries = []
    for first in (0, 5, 10):
        with buffer.lock:
            queue.add(Answer(b"", b"", first, first, first + 5))
            buffer.enqueue(queue)
        deliveries.append(buffer.receive(time.monotonic(), whole=True))
    assert deliveries[1] is not None
    assert buffer.finish_up_to(deliveries[1], 8)
    assert queue.committable == 8
    assert deliveries[2] is not None
    assert buffer.finish_up_to(deliveries[2], 15)
    assert queue.committable == 15


def test_a_message_of_a_queue_that_began_anew_cannot_be_finished():
    buffer = FetchBuffer(ordered=False, manual=True)
    queue = buffer.queues["t", 0] = GroupQueue("t", 0, EVERYTHING)
    queue.begin(0)
    with buffer.lock:
        queue.add(Answer(b"", b"", 0, 0, 5))
        buffer.enqueue(queue)
    delivery = buffer.receive(time.monotonic(), whole=True)
    assert delivery is not None
    with buffer.lock:
        queue.seek(2)
    assert not buffer.finish_up_to(delivery, 5)
    assert queue.committable == 2
