"""What may be committed, whatever the threads do with what they are given: never anything that is not finished."""

import random
import threading
import time
from collections import defaultdict

import pytest

from towline.client.group import fetch_buffer as module
from towline.client.group.fetch_buffer import Shelf
from towline.client.group.queue import Answer, GroupQueue, Handed
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
        self.shelf = Shelf(ordered=ordered, manual=manual)
        self.thread = 0
        monkeypatch.setattr(module.threading, "get_ident", lambda: self.thread)
        self.queues = [GroupQueue("t", number, EVERYTHING) for number in range(QUEUES)]
        for queue in self.queues:
            queue.begin(0)
            self.shelf.queues[queue.key] = queue
        self.handed: dict[int, tuple[Handed, list[int]] | None] = defaultdict(lambda: None)  # and what is left of it
        self.seen: dict[int, list[tuple[int, int]]] = defaultdict(list)  # given and not finished yet
        self.finished: dict[int, set[int]] = defaultdict(set)
        self.given: dict[int, list[int]] = defaultdict(list)
        self.pieces: list[tuple[int, Handed, list[int]]] = []  # whom they were given to, and what of them

    def step(self) -> None:
        self.thread = self.random.randrange(THREADS)
        action = self.random.choice(
            [self.feed, self.feed, self.poll, self.begin_loop, self.read_on, self.commit, self.commit_one]
        )
        if self.random.random() < 0.02:
            action = self.die
        action()
        for number, queue in enumerate(self.queues):
            missing = {offset for offset in range(queue.handled) if is_ours(offset)} - self.finished[number]
            assert not missing, f"queue {number} may be committed up to {queue.handled}, but {missing} are not finished"

    def feed(self) -> None:
        queue = self.random.choice(self.queues)
        with self.shelf.lock:
            following = queue.fetch + self.random.randint(1, 6)
            if self.random.random() < 0.2 and not is_ours(queue.fetch):
                queue.passed(queue.fetch + 1)
            else:
                queue.came(Answer(b"", b"", queue.fetch, queue.fetch, following))
                self.shelf.list(queue)

    def poll(self) -> bool:
        self._comes_back()
        handed = self.shelf.take(time.monotonic(), whole=True)
        if handed is not None:
            self._give(handed, [offset for offset in range(handed.at, handed.end) if is_ours(offset)])
        return handed is not None

    def begin_loop(self) -> None:
        self._comes_back()
        handed = self.shelf.take(time.monotonic(), whole=False)
        if handed is not None:
            self.handed[self.thread] = handed, [offset for offset in range(handed.at, handed.end) if is_ours(offset)]

    def read_on(self) -> None:
        """The loop's next message, or its end."""
        current = self.handed[self.thread]
        if current is None:
            return
        handed, left = current
        if not self.manual:
            self._finish()
        if not left:
            self.shelf.done()
            self.handed[self.thread] = None
        elif self.shelf.gives(handed, left[0]):
            self._give(handed, [left.pop(0)])
        else:
            self.handed[self.thread] = None

    def commit(self) -> None:
        self._finish()
        self.shelf.finish()

    def commit_one(self) -> None:
        """One that this thread or another was given, and all before it that the same thread was given of its queue."""
        if not self.pieces:
            return
        thread, handed, given = self.random.choice(self.pieces)
        number, offset = handed.queue.queue_id, self.random.choice(given)
        if self.shelf.finish_up_to(handed, offset + 1):
            done = {seen for seen in self.seen[thread] if seen[0] == number and seen[1] <= offset}
            self.finished[number] |= {place for _, place in done}
            self.seen[thread] = [seen for seen in self.seen[thread] if seen not in done]
            assert offset in self.finished[number], "it was put back, or comes again"
        else:
            assert offset not in self.finished[number]

    def die(self) -> None:
        """What it had in hand is never finished; another takes its place."""
        self.shelf.put_back()
        self.seen[self.thread].clear()
        self.handed[self.thread] = None

    def _comes_back(self) -> None:
        self.handed[self.thread] = None
        if not self.manual:
            self._finish()

    def _give(self, handed: Handed, offsets: list[int]) -> None:
        number = handed.queue.queue_id
        self.seen[self.thread] += [(number, offset) for offset in offsets]
        self.given[number] += offsets
        if offsets:
            self.pieces.append((self.thread, handed, offsets))

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
            assert queue.handled == queue.fetch
            assert model.finished[number] == {offset for offset in range(queue.fetch) if is_ours(offset)}


@pytest.mark.parametrize("number_again", [False, True], ids=["nobody has its number", "another has its number"])
@pytest.mark.parametrize("manual", [False, True], ids=["automatic", "manual"])
@pytest.mark.parametrize("ordered", [False, True], ids=["in any order", "ordered"])
def test_what_a_thread_had_in_hand_that_died_comes_again(
    ordered: bool, manual: bool, number_again: bool, monkeypatch: pytest.MonkeyPatch
):
    shelf = Shelf(ordered=ordered, manual=manual)
    queue = shelf.queues["t", 0] = GroupQueue("t", 0, EVERYTHING)
    queue.begin(0)
    with shelf.lock:
        for first in (0, 5):
            queue.came(Answer(b"", b"", first, first, first + 5))
        shelf.list(queue)
    if number_again:
        monkeypatch.setattr(module.threading, "get_ident", lambda: 7)  # as the system does it
    thread = threading.Thread(target=shelf.take, args=(time.monotonic(),), kwargs={"whole": True})
    thread.start()
    thread.join()
    assert (queue.next, queue.handled, shelf.is_busy(queue)) == (5, 0, ordered)
    if number_again:
        assert shelf.take(time.monotonic(), whole=True) is None
    else:
        shelf.bury()
    assert (queue.fetch, queue.next, queue.handled, shelf.is_busy(queue)) == (0, 0, 0, False)
    with shelf.lock:
        queue.came(Answer(b"", b"", 0, 0, 10))
        shelf.list(queue)
    handed = shelf.take(time.monotonic(), whole=True)
    assert handed is not None
    assert (handed.at, handed.end) == (0, 10)


def test_in_order_a_queue_that_begins_anew_waits_for_whoever_has_its_messages_in_hand():
    shelf = Shelf(ordered=True, manual=False)
    before = shelf.queues["t", 0] = GroupQueue("t", 0, EVERYTHING)
    before.begin(0)
    taken = threading.Event()
    done = threading.Event()

    def work() -> None:
        shelf.take(time.monotonic(), whole=True)
        taken.set()
        done.wait()
        shelf.done()

    with shelf.lock:
        before.came(Answer(b"", b"", 0, 0, 5))
        shelf.list(before)
    thread = threading.Thread(target=work)
    thread.start()
    assert taken.wait(20.0)
    with shelf.lock:
        before.leave()
        after = shelf.queues["t", 0] = GroupQueue("t", 0, EVERYTHING)
        after.begin(0)
        after.came(Answer(b"", b"", 0, 0, 5))
        shelf.list(after)
    assert shelf.take(time.monotonic(), whole=True) is None
    done.set()
    handed = shelf.take(time.monotonic() + 20.0, whole=True)
    thread.join()
    assert handed is not None
    assert handed.queue is after


def test_what_follows_a_piece_that_was_finished_by_a_message_is_not_held_back():
    shelf = Shelf(ordered=False, manual=True)
    queue = shelf.queues["t", 0] = GroupQueue("t", 0, EVERYTHING)
    queue.begin(0)
    pieces = []
    for first in (0, 5, 10):
        with shelf.lock:
            queue.came(Answer(b"", b"", first, first, first + 5))
            shelf.list(queue)
        pieces.append(shelf.take(time.monotonic(), whole=True))
    assert pieces[1] is not None
    assert shelf.finish_up_to(pieces[1], 8)
    assert queue.handled == 8
    assert pieces[2] is not None
    assert shelf.finish_up_to(pieces[2], 15)
    assert queue.handled == 15


def test_a_message_of_a_queue_that_began_anew_cannot_be_finished():
    shelf = Shelf(ordered=False, manual=True)
    queue = shelf.queues["t", 0] = GroupQueue("t", 0, EVERYTHING)
    queue.begin(0)
    with shelf.lock:
        queue.came(Answer(b"", b"", 0, 0, 5))
        shelf.list(queue)
    handed = shelf.take(time.monotonic(), whole=True)
    assert handed is not None
    with shelf.lock:
        queue.go(2)
    assert not shelf.finish_up_to(handed, 5)
    assert queue.handled == 2
