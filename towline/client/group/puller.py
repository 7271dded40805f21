"""Pull requests of a group member: at most one per queue, within the memory that the settings allow.

`buffer_bytes` is shared out evenly: every queue may have DEPTH answers buffered and one on the way, each of at most its
share. So the bound holds without counting bytes, and a full queue never takes another's room. A single record larger
than the share is still delivered, alone.
"""

import logging
from collections import deque
from typing import Final

from towline.client.read.reader import EMPTY_PAUSE_S, LATE_MS, MOVES_MAX, Moved, refusal_of
from towline.clock import boottime_s
from towline.errors import MalformedFrame, UnknownQueue, UnknownTopic
from towline.format.wire.frames import PULL_ANSWER, READ_FROM_SLAVE, Buffer, Kind, Pull, encode_pull, expect, kind_of
from towline.format.wire.status import GetStatus
from towline.limits import KIB
from towline.link.wire import Link

from .coordinator_rpc import CoordinatorRpc
from .fetch_buffer import FetchBuffer
from .queue import DEPTH, Answer, GroupQueue, Stage
from .replica_reader import AGAIN_S
from .subscription import SQL92, MemberRules

log = logging.getLogger(__name__)

PULL_BYTES_MIN: Final = 16 * KIB
REFUSED_PAUSE_S: Final = 0.5
_DELETED: Final = (GetStatus.OFFSET_TOO_SMALL, GetStatus.MESSAGE_WAS_REMOVING)


class Puller:
    """Sends pulls and takes their answers, on the I/O thread.

    `missed` counts offsets that were deleted before they were read; `moved` says where.

    `from_slaves` counts messages that a slave has read for us.
    """

    def __init__(self, rules: MemberRules, buffer: FetchBuffer, rpc: CoordinatorRpc) -> None:
        self._rules, self._buffer, self._rpc = rules, buffer, rpc
        self._out: dict[int, GroupQueue] = {}
        self.moved: deque[Moved] = deque(maxlen=MOVES_MAX)
        self.missed = self.from_slaves = 0

    def send(self, link: Link, now: float, until: float) -> float:
        """Sends a pull for every queue that wants one. Returns when to call again, at most `until`."""
        with self._buffer.lock:
            queues = self._buffer.queues
            slave = None
            if any(queue.far for queue in queues.values()):
                slave = self._rpc.replica.link(now)
                until = until if slave is not None else min(until, self._rpc.replica.due(now))
            share = self._rules.buffer_bytes // max(1, len(queues) * (DEPTH + 1))
            size = max(PULL_BYTES_MIN, min(self._rules.max_bytes, share))
            for queue in queues.values():
                if queue.wants_pull(now):
                    self._send(slave if queue.far and slave is not None else link, queue, size, now)
                    queue.at_slave = bool(queue.request_id) and queue.far and slave is not None
                elif queue.stage is Stage.READING and queue.not_before > now:
                    until = min(until, queue.not_before)
        return until

    def check_replica(self, now: float) -> None:
        """Takes the answers of a slave. After any trouble with it the master is asked instead."""
        if not self._rpc.replica.is_open:
            return
        why = ""
        try:
            for parts in self._rpc.replica.receive():
                self.on_answer(parts)
        except MalformedFrame as error:
            why = error.describe()
        with self._buffer.lock:
            out = [queue for queue in self._buffer.queues.values() if queue.at_slave]
            if not why and not any(queue.request_id and queue.late <= now for queue in out):
                return
            for queue in out:
                self._out.pop(queue.request_id, None)
                queue.request_id, queue.far, queue.at_slave = 0, False, False
        log.info("a slave is not read any more: %s", why or "it is silent")
        self._rpc.replica.drop(now + AGAIN_S)

    def are_late(self, now: float) -> bool:
        with self._buffer.lock:
            return any(queue.request_id and queue.late <= now for queue in self._buffer.queues.values())

    def disconnect(self) -> None:
        """Drops all pulls: none of them will be answered."""
        self._out.clear()
        with self._buffer.lock:
            for queue in self._buffer.queues.values():
                queue.request_id, queue.far, queue.at_slave = 0, False, False

    def rolled_back(self, queue: GroupQueue, end: int) -> None:
        """Notes that the queue ends at `end` under another master, before what was read."""
        log.warning("%s/%d goes on at %d instead of %d under another master", *queue.key, end, queue.fetch)
        self.moved.append(Moved(queue.queue_id, queue.fetch, end, GetStatus.OFFSET_RESET))

    def on_answer(self, parts: list[Buffer]) -> None:
        """Handles the answer to a pull. Raises MalformedFrame."""
        if kind_of(parts[0]) != Kind.PULL_ANSWER:
            raise MalformedFrame(f"the node sent a message of kind {kind_of(parts[0])}")
        _, number, _, request_id, count, following, low, end, flags = expect(PULL_ANSWER, parts[0])
        queue = self._out.pop(request_id, None)
        if queue is None:
            return
        with self._buffer.lock:
            if queue.request_id != request_id:
                return  # its position was moved, or it is not ours any more
            slave, queue.request_id, queue.at_slave = queue.at_slave, 0, False
            queue.far = bool(count) if slave else bool(flags & READ_FROM_SLAVE)
            if slave and not count:
                return  # the master says what that means
            if number == GetStatus.REFUSED and len(parts) == 2:
                queue.not_before = boottime_s() + REFUSED_PAUSE_S
                error = refusal_of(parts[1], queue.topic, queue.queue_id)
                if not isinstance(error, UnknownTopic | UnknownQueue):  # the group takes such a queue from us
                    self._buffer.fail(error)
                return
            if len(parts) != (3 if count else 1) or (count and following <= queue.fetch):
                raise MalformedFrame(f"an answer of {count} records in {len(parts)} parts leads to offset {following}")
            queue.end = max(queue.end, end) if slave else end
            self.from_slaves += count if slave else 0
            if count:
                queue.add(Answer(parts[1], parts[2], queue.fetch, queue.fetch, following))
                self._buffer.enqueue(queue)
            else:
                self._nothing_came(queue, number, following, low)

    def _send(self, link: Link, queue: GroupQueue, size: int, now: float) -> None:
        request_id, wanted, rules = self._rpc.new_id(), queue.subscription, self._rules
        sql = wanted.expression if wanted.kind == SQL92 else ""
        pull = Pull(
            request_id,
            queue.topic.encode(),
            queue.queue_id,
            queue.fetch,
            rules.max_count,
            size,
            0 if queue.far else rules.suspend_ms,  # who is far behind waits for nothing
            wanted.codes,
            sql,
            rules.group if sql else "",
        )
        if link.send(encode_pull(pull)):
            queue.request_id, queue.asked = request_id, now
            queue.late = now + (rules.suspend_ms + LATE_MS) / 1000
            self._out[request_id] = queue

    def _nothing_came(self, queue: GroupQueue, number: int, following: int, low: int) -> None:
        try:
            status = GetStatus(number)
        except ValueError:
            raise MalformedFrame(f"an answer to a pull has the unknown status {number}") from None
        if status is GetStatus.OFFSET_TOO_SMALL:
            following = max(following, low)  # a slave corrects no offset
        if status is GetStatus.NO_MATCHED_LOGIC_QUEUE:
            following = queue.fetch  # it may come back, with all its messages
        if status in _DELETED:
            self.missed += max(0, following - queue.fetch)
        if following == queue.fetch:
            now = boottime_s()
            if now - queue.asked < max(EMPTY_PAUSE_S, self._rules.suspend_ms / 2000):
                queue.not_before = now + EMPTY_PAUSE_S
            return
        if status is not GetStatus.NO_MATCHED_MESSAGE:
            log.warning("%s/%d goes on at %d instead of %d: %s", *queue.key, following, queue.fetch, status.name)
            self.moved.append(Moved(queue.queue_id, queue.fetch, following, status))
        queue.skip_to(following)
