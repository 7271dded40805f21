"""Between the member's I/O thread, which fills it, and the application's threads, which take: one lock, one order.

Queues with something to hand out stand in a line and take turns, one answer each, so a full queue never keeps the
others waiting. What a thread was given counts as finished when it comes back for more, unless commits are manual.
"""

import threading
from collections import deque

from towline.client.errors import ClientForked
from towline.clock import boottime_s
from towline.errors import TowlineError
from towline.format.wire.frames import Buffer
from towline.link.unclosed import renew, tell_child

from .queue import UNKNOWN, Answer, GroupQueue, Hand, Handed, Stage


class Shelf:
    """Every method is for any thread and takes the lock itself, unless it says otherwise."""

    def __init__(self, *, ordered: bool, manual: bool, lock: threading.Condition | None = None) -> None:
        """`lock` may be other shelves' too: whoever waits for all of them waits for it."""
        self.lock = lock or threading.Condition()
        self.queues: dict[tuple[str, int], GroupQueue] = {}
        self._ordered, self._manual = ordered, manual
        self._line: deque[GroupQueue] = deque()
        self._hands: dict[int, Hand] = {}
        self._busy: dict[tuple[str, int], Handed] = {}  # ordered: what is in somebody's hand, wherever its queue is now
        self._error: TowlineError | None = None
        self._fatal: TowlineError | None = None
        tell_child(self)

    # --- the application's side

    def take(self, deadline: float, *, whole: bool) -> Handed | None:
        """The next piece of a queue whose turn it is; waits until `deadline`. Raises what the I/O thread met.

        Not `whole`: it is given message by message, with `gives`.
        """
        with self.lock:
            self._finish_newest()
            while True:
                self._raise()
                found = self._pop(boottime_s())
                if found is not None:
                    found.given = found.end if whole else found.at
                    return found
                remaining = deadline - boottime_s()
                if remaining <= 0:
                    return None
                self.lock.wait(remaining)

    def settle(self) -> None:
        """This thread asks for more, here or elsewhere: what it was given last is finished."""
        with self.lock:
            self._finish_newest()

    def gives(self, handed: Handed, offset: int) -> bool:
        """The message at `offset` may be given; those before it are finished.

        False when nothing more of this piece may be: what is left of it goes back.
        """
        with self.lock:
            if not self._manual:
                handed.at = offset
            if handed.queue.may_deliver(handed.serial, boottime_s()):
                handed.given = offset + 1
                return True
            handed.given = max(handed.given, handed.at)
            self._finish_newest()
            return False

    def refuse(self, handed: Handed) -> None:
        """A piece that cannot be read is not passed over: it comes again, until somebody seeks behind it.

        Nobody has it in hand meanwhile, so a member that leaves can give its queue away.
        """
        with self.lock:
            handed.given = handed.at
            self._finish_newest()

    def cut(self, handed: Handed, sizes: Buffer, records: Buffer, offset: int) -> None:
        """A piece that cannot be read from `offset` on is these records; what is behind them goes back, as a piece."""
        with self.lock:
            old, queue = handed.answer, handed.queue
            offset = min(offset, old.following - 1)
            handed.answer, handed.end = Answer(sizes, records, old.begins, old.first, offset), offset
            handed.given = min(handed.given, offset)
            if handed.serial == queue.serial:
                queue.came_back(Answer(old.sizes, old.records, old.begins, offset, old.following))
                self.list(queue)

    def done(self) -> None:
        """This thread has seen its piece to the end."""
        with self.lock:
            hand = self._mine()
            if hand is not None and hand.newest is not None:
                hand.newest.given = hand.newest.end
                self._finish_newest()

    def finish(self) -> None:
        """All that this thread was given is finished, with manual commits too."""
        with self.lock:
            hand = self._mine()
            if hand is None:
                return
            for handed in hand.kept.values():
                _drop(handed)
            hand.kept.clear()
            if hand.newest is not None:
                hand.newest.at = hand.newest.given
                self._finish_seen(hand)

    def finish_up_to(self, handed: Handed, offset: int) -> bool:
        """Of what the thread that was given `handed` holds of its queue, everything before `offset` is finished.

        False when the message before `offset` is nobody's, and may come again. Any thread may say so for another.
        """
        queue = handed.queue
        with self.lock:
            if handed.serial != queue.serial or self.queues.get(queue.key) is not queue:
                return False
            if any(hand is handed.hand for hand in self._hands.values()):
                self._finish_part(handed.hand, queue, offset)
            return not any(each.hand is handed.hand and each.at < offset <= each.end for each in queue.in_hand)

    def put_back(self) -> None:
        """What this thread holds is not finished, and will not be: the queue's offset stays before it."""
        with self.lock:
            if self._mine() is not None:
                self._put_back(threading.get_ident())

    def handled(self) -> dict[tuple[str, int], int]:
        """Queue -> offset that may be committed, where it is not what was committed last."""
        with self.lock:
            return {
                queue.key: queue.handled
                for queue in self.queues.values()
                if queue.stage in (Stage.READING, Stage.LEAVING) and queue.handled != queue.committed
            }

    def committed(self, offsets: dict[tuple[str, int], int]) -> None:
        with self.lock:
            for key, offset in offsets.items():
                if key in self.queues:
                    self.queues[key].committed = offset

    def uncommitted(self) -> None:
        """The node may have died before it wrote the last commits down, so they are made again."""
        with self.lock:
            for queue in self.queues.values():
                queue.committed = UNKNOWN

    # --- the I/O thread's side

    def list(self, queue: GroupQueue) -> None:
        """The queue has something to hand out, or may be handed out again. Under the lock."""
        if queue.ready and not queue.listed:
            queue.listed = True
            self._line.append(queue)
            self.lock.notify()

    def fail(self, error: TowlineError, *, fatal: bool = False) -> None:
        """The next `take` raises it; a fatal one every `take` from now on."""
        with self.lock:
            self._error = error
            if fatal:
                self._fatal = error
            self.lock.notify_all()

    def forked(self) -> None:
        """Threads are gone, with what they had in hand."""
        renew(self.lock)
        self._hands.clear()
        self._error = self._fatal = ClientForked.here("consumer")

    def well(self) -> None:
        """What was wrong is over, before anybody heard of it."""
        with self.lock:
            self._error = self._fatal

    def bury(self) -> None:
        """What a thread had in hand that died comes again: nobody else will finish it, nor what waits behind it."""
        with self.lock:
            for number in [number for number, hand in self._hands.items() if not hand.thread.is_alive()]:
                self._bury(number)

    # --- under the lock

    def is_busy(self, queue: GroupQueue) -> bool:
        """Whether a thread has messages of it in hand, in order."""
        return queue.key in self._busy

    def _raise(self) -> None:
        error, self._error = self._error, self._fatal
        if error is not None:
            raise error

    def _pop(self, now: float) -> Handed | None:
        hand = self._mine()  # first: what a dead thread had goes back to its queue
        for _ in range(len(self._line)):
            queue = self._line.popleft()
            queue.listed = False  # whoever changes what keeps it from being handed out lists it again
            if not queue.ready or self.is_busy(queue) or not queue.may_deliver(queue.serial, now):
                continue
            answer = queue.ready.popleft()
            hand = hand or Hand(threading.current_thread())
            self._hands[threading.get_ident()] = hand
            hand.newest = handed = Handed(hand, queue, queue.serial, answer, answer.first, answer.first)
            queue.taken = max(queue.taken, answer.following)
            if self._ordered:
                self._busy[queue.key] = handed
            queue.in_hand.append(handed)
            self.list(queue)
            return handed
        return None

    def _mine(self) -> Hand | None:
        """Of this thread. Another may have had its number before, and died over a message that is not finished."""
        hand = self._hands.get(threading.get_ident())
        if hand is None or hand.thread is threading.current_thread():
            return hand
        self._bury(threading.get_ident())
        return None

    def _put_back(self, number: int) -> None:
        newest = self._hands.pop(number).newest
        if newest is not None:
            self._let_go(newest)

    def _bury(self, number: int) -> None:
        for handed in _all_of(self._hands.pop(number)):
            queue = handed.queue
            self._let_go(handed)
            if handed.serial == queue.serial:
                queue.go(queue.handled)

    def _finish_newest(self) -> None:
        hand = self._mine()
        if hand is None or hand.newest is None:
            return
        handed, hand.newest = hand.newest, None
        if handed.serial == handed.queue.serial:
            self._finish_piece(hand, handed)
        self._let_go(handed)

    def _finish_piece(self, hand: Hand, handed: Handed) -> None:
        queue = handed.queue
        if handed.given < handed.end:
            old = handed.answer
            queue.came_back(Answer(old.sizes, old.records, old.begins, handed.given, old.following))
            handed.end = handed.given
        if not self._manual or handed.at >= handed.end:
            _drop(handed)
        else:
            kept = hand.kept.get(queue)
            if kept is not None and kept.serial == handed.serial:
                _drop(handed)  # one holds the offset back for all that this thread has of a queue
                kept.at, kept.end = min(kept.at, handed.at), max(kept.end, handed.end)
            else:
                hand.kept[queue] = handed

    def _finish_part(self, hand: Hand, queue: GroupQueue, offset: int) -> None:
        kept, newest = hand.kept.get(queue), hand.newest
        if kept is not None:
            kept.at = max(kept.at, min(offset, kept.end))
            if kept.at >= kept.end:
                _drop(hand.kept.pop(queue))  # or it would hold back what follows
        if newest is not None and newest.queue is queue:
            newest.at = max(newest.at, min(offset, newest.given))
            self._finish_seen(hand)

    def _finish_seen(self, hand: Hand) -> None:
        """Whose newest piece is finished to its end has it in hand no more."""
        newest = hand.newest
        if newest is not None and newest.at >= newest.end:
            hand.newest = None
            self._let_go(newest)
            _drop(newest)

    def _let_go(self, handed: Handed) -> None:
        """Its queue may be handed out again, or the one that has come in its place."""
        key = handed.queue.key
        if self._busy.get(key) is handed:
            del self._busy[key]
        if key in self.queues:
            self.list(self.queues[key])


def _all_of(hand: Hand) -> list[Handed]:
    return [*hand.kept.values(), *([hand.newest] if hand.newest is not None else [])]


def _drop(handed: Handed) -> None:
    if handed in handed.queue.in_hand:
        handed.queue.in_hand.remove(handed)
