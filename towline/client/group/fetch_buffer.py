"""Fetched messages of a group member, between its I/O thread and the application's threads, under one lock.

Queues with messages take turns, one answer each, so a full queue never keeps the others waiting. Messages that a thread
was given count as finished when the thread asks for more, unless commits are manual.
"""

import threading
from collections import deque

from towline.client.errors import ClientForked
from towline.clock import boottime_s
from towline.errors import TowlineError
from towline.format.wire.frames import Buffer
from towline.link.unclosed import call_in_child, renew

from .queue import UNKNOWN, Answer, Delivery, GroupQueue, Holder, Stage


class FetchBuffer:
    """The fetched messages of one member.

    Any thread may call any method; methods take the lock unless they say otherwise.
    """

    def __init__(self, *, ordered: bool, manual: bool, lock: threading.Condition | None = None) -> None:
        """`lock` may be shared by several buffers, so that a thread can wait for all of them."""
        self.lock = lock or threading.Condition()
        self.queues: dict[tuple[str, int], GroupQueue] = {}
        self._ordered, self._manual = ordered, manual
        self._line: deque[GroupQueue] = deque()
        self._holders: dict[int, Holder] = {}
        self._busy: dict[tuple[str, int], Delivery] = {}  # ordered: what some thread holds
        self._error: TowlineError | None = None
        self._fatal: TowlineError | None = None
        call_in_child(self)

    # --- the application's side

    def receive(self, deadline: float, *, whole: bool) -> Delivery | None:
        """The next delivery of a queue in turn; waits until `deadline`. Raises errors of the I/O thread.

        Not `whole`: it is given message by message, with `deliver`.
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

    def finish_previous(self) -> None:
        """Finishes the last delivery of this thread, which asks for more, here or of another group of nodes."""
        with self.lock:
            self._finish_newest()

    def deliver(self, delivery: Delivery, offset: int) -> bool:
        """Whether the message at `offset` may go to the application; messages before it are finished.

        False when the rest of the delivery may not: it returns to its queue.
        """
        with self.lock:
            if not self._manual:
                delivery.at = offset
            if delivery.queue.may_deliver(delivery.serial, boottime_s()):
                delivery.given = offset + 1
                return True
            delivery.given = max(delivery.given, delivery.at)
            self._finish_newest()
            return False

    def requeue(self, delivery: Delivery) -> None:
        """Returns a delivery that cannot be read: it is delivered again, until a caller seeks behind it.

        Nobody has it in hand meanwhile, so a member that leaves can give its queue away.
        """
        with self.lock:
            delivery.given = delivery.at
            self._finish_newest()

    def requeue_from(self, delivery: Delivery, offset: int) -> None:
        """Returns what this thread has in hand from `offset` on; what stands before it is finished."""
        with self.lock:
            holder = self._mine()
            if holder is not None and holder.newest is delivery:
                delivery.given = max(delivery.at, min(offset, delivery.end))
                self._finish_newest()

    def split(self, delivery: Delivery, sizes: Buffer, records: Buffer, offset: int) -> None:
        """Keeps these records, which precede `offset`, in the delivery, and returns the unreadable rest."""
        with self.lock:
            old, queue = delivery.answer, delivery.queue
            offset = min(offset, old.following - 1)
            delivery.answer, delivery.end = Answer(sizes, records, old.begins, old.first, offset), offset
            delivery.given = min(delivery.given, offset)
            if delivery.serial == queue.serial:
                queue.requeue(Answer(old.sizes, old.records, old.begins, offset, old.following))
                self.enqueue(queue)

    def done(self) -> None:
        """Marks the delivery of this thread as read to its end."""
        with self.lock:
            holder = self._mine()
            if holder is not None and holder.newest is not None:
                holder.newest.given = holder.newest.end
                self._finish_newest()

    def finish(self) -> None:
        """Finishes all deliveries of this thread, with manual commits too."""
        with self.lock:
            holder = self._mine()
            if holder is None:
                return
            for delivery in holder.kept.values():
                _drop(delivery)
            holder.kept.clear()
            if holder.newest is not None:
                holder.newest.at = holder.newest.given
                self._finish_seen(holder)

    def finish_up_to(self, delivery: Delivery, offset: int) -> bool:
        """Finishes everything before `offset` of the queue of `delivery`, in the thread that holds the delivery.

        False when the message before `offset` is nobody's, and may come again. Any thread may say so for another.
        """
        queue = delivery.queue
        with self.lock:
            if delivery.serial != queue.serial or self.queues.get(queue.key) is not queue:
                return False
            if any(holder is delivery.holder for holder in self._holders.values()):
                self._finish_part(delivery.holder, queue, offset)
            return not any(each.holder is delivery.holder and each.at < offset <= each.end for each in queue.unfinished)

    def abandon(self) -> None:
        """Gives up the delivery of this thread unfinished: the offset of its queue stays before it."""
        with self.lock:
            if self._mine() is not None:
                self._abandon(threading.get_ident())

    def committable(self) -> dict[tuple[str, int], int]:
        """Queue -> offset that may be committed, where it differs from the committed one."""
        with self.lock:
            return {
                queue.key: queue.committable
                for queue in self.queues.values()
                if queue.stage in (Stage.READING, Stage.LEAVING) and queue.committable != queue.committed
            }

    def committed(self, offsets: dict[tuple[str, int], int]) -> None:
        with self.lock:
            for key, offset in offsets.items():
                if key in self.queues:
                    self.queues[key].committed = offset

    def uncommitted(self) -> None:
        """Makes every queue commit again: the node may have died before the last commits were written."""
        with self.lock:
            for queue in self.queues.values():
                queue.committed = UNKNOWN

    # --- the I/O thread's side

    def enqueue(self, queue: GroupQueue) -> None:
        """Lists a queue that has something to deliver. Under the lock."""
        if queue.ready and not queue.listed:
            queue.listed = True
            self._line.append(queue)
            self.lock.notify()

    def fail(self, error: TowlineError, *, fatal: bool = False) -> None:
        """The next `receive` raises this error; every `receive` raises a fatal one."""
        with self.lock:
            self._error = error
            if fatal:
                self._fatal = error
            self.lock.notify_all()

    def forked(self) -> None:
        """The child of a fork has neither the threads nor their deliveries."""
        renew(self.lock)
        self._holders.clear()
        self._error = self._fatal = ClientForked.here("consumer")

    def clear_error(self) -> None:
        """Drops an error that is over before any thread has seen it."""
        with self.lock:
            self._error = self._fatal

    def reclaim(self) -> None:
        """Returns the deliveries of threads that have died: their messages are delivered again."""
        with self.lock:
            for number in [number for number, holder in self._holders.items() if not holder.thread.is_alive()]:
                self._reclaim(number)

    # --- under the lock

    def is_busy(self, queue: GroupQueue) -> bool:
        """Whether a thread has messages of it in hand, in order."""
        return queue.key in self._busy

    def _raise(self) -> None:
        error, self._error = self._error, self._fatal
        if error is not None:
            raise error

    def _pop(self, now: float) -> Delivery | None:
        holder = self._mine()  # first: what a dead thread had goes back to its queue
        for _ in range(len(self._line)):
            queue = self._line.popleft()
            queue.listed = False  # whoever changes what keeps it from being handed out lists it again
            if not queue.ready or self.is_busy(queue) or not queue.may_deliver(queue.serial, now):
                continue
            answer = queue.ready.popleft()
            holder = holder or Holder(threading.current_thread())
            self._holders[threading.get_ident()] = holder
            holder.newest = delivery = Delivery(holder, queue, queue.serial, answer, answer.first, answer.first)
            queue.handed_out = max(queue.handed_out, answer.following)
            if self._ordered:
                self._busy[queue.key] = delivery
            queue.unfinished.append(delivery)
            self.enqueue(queue)
            return delivery
        return None

    def _mine(self) -> Holder | None:
        """Of this thread. Another may have had its number before, and died over a message that is not finished."""
        holder = self._holders.get(threading.get_ident())
        if holder is None or holder.thread is threading.current_thread():
            return holder
        self._reclaim(threading.get_ident())
        return None

    def _abandon(self, number: int) -> None:
        newest = self._holders.pop(number).newest
        if newest is not None:
            self._release(newest)

    def _reclaim(self, number: int) -> None:
        for delivery in _all_of(self._holders.pop(number)):
            queue = delivery.queue
            self._release(delivery)
            if delivery.serial == queue.serial:
                queue.seek(queue.committable)

    def _finish_newest(self) -> None:
        holder = self._mine()
        if holder is None or holder.newest is None:
            return
        delivery, holder.newest = holder.newest, None
        if delivery.serial == delivery.queue.serial:
            self._finish_delivery(holder, delivery)
        self._release(delivery)

    def _finish_delivery(self, holder: Holder, delivery: Delivery) -> None:
        queue = delivery.queue
        if delivery.given < delivery.end:
            old = delivery.answer
            queue.requeue(Answer(old.sizes, old.records, old.begins, delivery.given, old.following))
            delivery.end = delivery.given
        if not self._manual or delivery.at >= delivery.end:
            _drop(delivery)
        else:
            kept = holder.kept.get(queue)
            if kept is not None and kept.serial == delivery.serial:
                _drop(delivery)  # one delivery holds the offset back for all of this thread and queue
                kept.at, kept.end = min(kept.at, delivery.at), max(kept.end, delivery.end)
            else:
                holder.kept[queue] = delivery

    def _finish_part(self, holder: Holder, queue: GroupQueue, offset: int) -> None:
        kept, newest = holder.kept.get(queue), holder.newest
        if kept is not None:
            kept.at = max(kept.at, min(offset, kept.end))
            if kept.at >= kept.end:
                _drop(holder.kept.pop(queue))  # or it would hold back what follows
        if newest is not None and newest.queue is queue:
            newest.at = max(newest.at, min(offset, newest.given))
            self._finish_seen(holder)

    def _finish_seen(self, holder: Holder) -> None:
        """Releases the newest delivery of a thread once it is finished to its end."""
        newest = holder.newest
        if newest is not None and newest.at >= newest.end:
            holder.newest = None
            self._release(newest)
            _drop(newest)

    def _release(self, delivery: Delivery) -> None:
        """Its queue may be handed out again, or the one that has come in its place."""
        key = delivery.queue.key
        if self._busy.get(key) is delivery:
            del self._busy[key]
        if key in self.queues:
            self.enqueue(self.queues[key])


def _all_of(holder: Holder) -> list[Delivery]:
    return [*holder.kept.values(), *([holder.newest] if holder.newest is not None else [])]


def _drop(delivery: Delivery) -> None:
    if delivery in delivery.queue.unfinished:
        delivery.queue.unfinished.remove(delivery)
