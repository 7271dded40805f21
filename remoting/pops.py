"""Pops: messages for a while, out of all queues of a topic, until they are acknowledged (RocketMQ 5's POP).

Of each group and topic one queue is read at a time, for the pops that wait, in the order in which they came. A pop that
finds nothing waits; for each queue that was empty a pull is held at serve, whose answer says that there is something.
"""

import heapq
import struct
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from itertools import count
from typing import Final

from towline.errors import IllegalProperty, MalformedRecord
from towline.format.record.properties import POP_CHECK_POINT
from towline.format.record.properties import decode as decode_properties
from towline.format.record.properties import encode as encode_properties
from towline.format.record.record import LAYOUT, decode, encode
from towline.format.remoting.codes import RequestRefused, ResponseCode
from towline.format.remoting.command import Command
from towline.format.remoting.consumers import TAG, SubscriptionData
from towline.format.remoting.headers import read_header
from towline.format.remoting.pops import (
    NORMAL,
    ORDER_QUEUE,
    Handle,
    Notification,
    PollingInfo,
    PopMessage,
    PoppedRange,
    offset_fields,
)
from towline.format.wire.frames import PULL_ANSWER, Buffer, Pull, expect
from towline.format.wire.status import GetStatus
from towline.link.permissions import Act

from .connections import Answer
from .pop_subjects import PopQueue, Subject, Subjects
from .questions import Questions
from .readers import BYTES_MAX, Readers
from .topics import TopicDesk

COUNT_MAX: Final = 32  # messages of a pop, as with a broker
OUT_OF_QUEUE_MAX: Final = 10_000  # then nothing more is popped from it
OUT_MAX: Final = 262_144  # of all queues together: about 100 bytes of memory each
WAITING_MAX: Final = 16_384
POLL_MAX_MS: Final = 60_000
INVISIBLE_MAX_MS: Final = 3 * 24 * 3_600_000  # as long as a broker's timers reach
WATCH_MS: Final = 15_000
AGAIN_MS: Final = 200  # before a queue is looked at again of which serve could not tell
BLOCKED_LOOK_MS: Final = 100  # at queues of which too much is out, or what an ordered pop waits for
FIRST_TURN_MS: Final = 1_000  # a pop that does not want to wait is looked at all the same, within this time
RETRY_FIRST: Final = 5  # of so many pops one begins with the retry topic, as with a broker
_SIZE: Final = struct.Struct(">I")
_PLACES: Final = struct.Struct(">qq")  # queue offset, physical offset
assert LAYOUT.offset["physical_offset"] == LAYOUT.offset["queue_offset"] + 8


@dataclass(slots=True, eq=False)
class WaitingPop:
    """A pop, or a question whether there is anything to pop (`wants` 0), that has no answer yet."""

    header: PopMessage
    answer: Answer
    wants: int
    codes: tuple[int, ...]
    expression: str
    due_ms: int
    pop_time: int = 0
    ranges: list[PoppedRange] = field(default_factory=list)
    records: list[Buffer] = field(default_factory=list)
    tried: set[PopQueue] = field(default_factory=set)  # in this turn
    had_turn: bool = False
    is_answered: bool = False

    @property
    def found(self) -> int:
        return sum(len(each.offsets) for each in self.ranges)

    @property
    def size(self) -> int:
        return sum(map(len, self.records))

    def may_read(self, queue: PopQueue) -> bool:
        """Whether it asks for messages of this queue: those of a retry topic are for every pop but one in order."""
        if queue.retry != NORMAL:
            return not self.header.order
        return self.header.queue_id < 0 or self.header.queue_id == queue.number


class Pops:
    """Handles POP_MESSAGE, NOTIFICATION and POLLING_INFO."""

    def __init__(
        self,
        serve: Questions,
        readers: Readers,
        topics: TopicDesk,
        subjects: Subjects,
        broker: str,
        now_ms: Callable[[], int],
        wall_ms: Callable[[], int],
    ) -> None:
        self._serve, self._readers, self._topics, self._subjects = serve, readers, topics, subjects
        self._broker, self._now_ms, self._wall_ms = broker, now_ms, wall_ms
        self._due: list[tuple[int, int, Subject, WaitingPop]] = []
        self._again: list[tuple[int, int, Subject]] = []
        self._serials = count()
        self._waiting = 0

    # --- requests

    def pop(self, request: Command, answer: Answer) -> None:
        """POP_MESSAGE. Raises MalformedFrame, RequestRefused."""
        header = read_header(PopMessage, request.fields)
        if not 0 < header.max_msg_nums <= COUNT_MAX:
            why = f"the broker[{self._broker}] pop message's num is not 1 to {COUNT_MAX}"
            raise RequestRefused(ResponseCode.INVALID_PARAMETER, why)
        check_invisible_time(header.invisible_time)
        self._wait(header, answer, header.max_msg_nums)

    def notify(self, request: Command, answer: Answer) -> None:
        """NOTIFICATION. Raises MalformedFrame, RequestRefused."""
        said = read_header(Notification, request.fields)
        header = PopMessage(
            consumer_group=said.consumer_group,
            topic=said.topic,
            queue_id=said.queue_id,
            max_msg_nums=1,
            invisible_time=1,
            poll_time=said.poll_time,
            order=said.order,
            attempt_id=said.attempt_id,
        )
        self._wait(header, answer, 0)

    def polling(self, request: Command, answer: Answer) -> None:
        """POLLING_INFO. Raises MalformedFrame, RequestRefused."""
        said = read_header(PollingInfo, request.fields)
        self._check_place(said.topic, said.queue_id)
        subject = self._subjects.find(said.consumer_group, said.topic)
        waiting = () if subject is None else subject.waiting
        found = sum(each.header.queue_id == said.queue_id for each in waiting)
        answer(ResponseCode.SUCCESS, {"pollingNum": str(found)})

    def _wait(self, header: PopMessage, answer: Answer, wants: int) -> None:
        self._check_place(header.topic, header.queue_id)
        subscription = SubscriptionData(header.exp or "*", header.exp_type or TAG, 0)
        codes, expression = self._readers.filter_of(subscription)
        now_ms = self._now_ms()
        subject = self._subjects.get(header.consumer_group, header.topic, now_ms)
        due_ms = now_ms + max(0, min(header.poll_time, POLL_MAX_MS))
        pop = WaitingPop(header, answer, wants, codes, expression, due_ms)
        if self._waiting >= WAITING_MAX:
            self._say(pop, subject, ResponseCode.POLLING_FULL)
            return
        self._waiting += 1
        subject.waiting.append(pop)
        heapq.heappush(self._due, (due_ms, next(self._serials), subject, pop))
        self.find_queues(subject, header.init_mode)

    def find_queues(self, subject: Subject, init_mode: int = 0) -> None:
        """Advances a subject, of whose queues some may be new: a retry topic is made with its first message."""
        if self._subjects.lacks_queues(subject):
            self._subjects.open(subject, init_mode, lambda refused: self._opened(subject, refused))
        else:
            self.advance(subject)

    def _opened(self, subject: Subject, refused: RequestRefused | None) -> None:
        if refused is None:
            self.advance(subject)
            return
        for pop in list(subject.waiting):
            self._leave(subject, pop)
            pop.answer.refuse(refused)

    def _check_place(self, name: str, queue_id: int) -> None:
        topic = self._topics.find(name)
        if topic is None:
            raise RequestRefused(ResponseCode.TOPIC_NOT_EXIST, f"topic[{name}] not exist, apply first please!")
        if not topic.readable:
            raise RequestRefused(ResponseCode.NO_PERMISSION, f"the topic[{name}] peeking message is forbidden")
        if queue_id >= topic.read_queue_nums:
            why = f"queueId[{queue_id}] is illegal, topic:[{name}] topicConfig.readQueueNums:[{topic.read_queue_nums}]"
            raise RequestRefused(ResponseCode.INVALID_PARAMETER, why)

    # --- by the clock

    @property
    def are_due(self) -> bool:
        """Whether `cycle` has something to do before long."""
        return bool(self._due or self._again)

    def cycle(self, now_ms: int) -> None:
        """Ends pops whose time is over, and looks again at queues that were not to be read."""
        late = []
        while self._due and self._due[0][0] <= now_ms:
            _, serial, subject, pop = heapq.heappop(self._due)
            if pop.is_answered:
                continue
            if pop.had_turn or now_ms - pop.due_ms > FIRST_TURN_MS:
                self._end(subject, pop)
            else:
                late.append((pop.due_ms, serial, subject, pop))
        for each in late:
            heapq.heappush(self._due, each)
        while self._again and self._again[0][0] <= now_ms:
            _, _, subject = heapq.heappop(self._again)
            subject.again_ms = 0
            self.advance(subject)

    def forget(self, group: str, topic: str = "") -> None:
        """A group was changed, or its offsets of a topic or of all: who pops begins anew, where serve says."""
        for subject in self._subjects.of_group(group):
            if topic in ("", subject.topic):
                for pop in list(subject.waiting):
                    self._end(subject, pop)
                self._subjects.drop(subject)

    # --- one queue after the other, for one pop after the other

    def advance(self, subject: Subject) -> None:
        """Reads for the first pop for which a queue may have something, unless somebody is read for."""
        now_ms = self._now_ms()
        for pop in list(subject.waiting):
            if subject.reads or subject.opens or subject.is_dropped:
                return
            if not pop.answer.is_wanted:
                self._leave(subject, pop)
                continue
            try:
                pop.answer.check(Act.JOIN, subject.group)  # it may have waited for long
                pop.answer.check(Act.CONSUME, subject.topic)
            except RequestRefused as refused:
                self._leave(subject, pop)
                pop.answer.refuse(refused)
                continue
            queue = self._choose(subject, pop, now_ms)
            if queue is not None:
                self._read(subject, pop, queue)
                continue
            pop.tried.clear()
            pop.had_turn = True
            if pop.ranges or pop.due_ms <= now_ms:
                self._end(subject, pop)

    def look_again(self, subject: Subject, at_ms: int) -> None:
        """Advances a subject at that time, or before."""
        if not subject.again_ms or at_ms < subject.again_ms:
            subject.again_ms = at_ms
            heapq.heappush(self._again, (at_ms, next(self._serials), subject))

    def _choose(self, subject: Subject, pop: WaitingPop, now_ms: int) -> PopQueue | None:
        """The next queue for a pop in this turn; none where each was tried, is empty or must not be read."""
        if not pop.tried:
            subject.turn += 1
        queues = list(subject.queues.values())
        place = subject.turn % len(queues) if queues else 0
        retries_first = subject.turn % RETRY_FIRST == 0
        rotated = queues[place:] + queues[:place]
        for queue in sorted(rotated, key=lambda each: (each.retry == NORMAL) is retries_first):
            if queue in pop.tried or queue.is_empty or not pop.may_read(queue):
                continue
            if now_ms < queue.not_before_ms:
                self.look_again(subject, queue.not_before_ms)
            elif not pop.header.order:
                if len(queue.ledger) < OUT_OF_QUEUE_MAX and self._subjects.out < OUT_MAX:
                    return queue
                self.look_again(subject, now_ms + BLOCKED_LOOK_MS)
            elif not queue.ledger.is_blocked(pop.header.attempt_id, now_ms):
                return queue
            else:
                self.look_again(subject, now_ms + BLOCKED_LOOK_MS)
        return None

    def _read(self, subject: Subject, pop: WaitingPop, queue: PopQueue) -> None:
        pop.tried.add(queue)
        if pop.header.order and pop.wants:
            self._subjects.out -= len(queue.ledger)
            queue.ledger.rewind(pop.header.attempt_id)
        is_first = queue.retry == NORMAL  # what stands in the retry topic has passed the filter
        pull = Pull(
            0,
            queue.topic.encode(),
            queue.number,
            queue.ledger.done if pop.header.order else queue.ledger.next,
            max(1, pop.wants - pop.found),
            BYTES_MAX - pop.size,
            0,
            pop.codes if is_first else (),
            pop.expression if is_first else "",
            subject.group if is_first and pop.expression else "",
        )

        def received(parts: list[Buffer]) -> None:
            subject.reads = False
            if not parts:
                self._delay(subject, queue)
            elif not pop.is_answered and subject.queues.get((queue.topic, queue.number)) is queue:
                self._found(subject, pop, queue, pull, parts)
            self.advance(subject)

        subject.reads = self._serve.pull(pull, received)
        if not subject.reads:
            self._delay(subject, queue)

    def _delay(self, subject: Subject, queue: PopQueue) -> None:
        """Serve cannot tell what a queue holds, for now."""
        queue.not_before_ms = self._now_ms() + AGAIN_MS
        self.look_again(subject, queue.not_before_ms)

    def _found(self, subject: Subject, pop: WaitingPop, queue: PopQueue, pull: Pull, parts: list[Buffer]) -> None:
        _, number, _, _, found, following, _, end, _ = expect(PULL_ANSWER, parts[0])
        queue.end = end
        if GetStatus(number) is GetStatus.REFUSED:
            self._delay(subject, queue)
        elif found and not pop.wants:
            self._end(subject, pop, found=True)
        elif found:
            self._take(subject, pop, queue, following, parts)
        elif following != pull.offset:
            queue.ledger.skip(following)
            self._subjects.touch(subject)
            pop.tried.discard(queue)
        else:
            self._watch(subject, queue)

    def _take(self, subject: Subject, pop: WaitingPop, queue: PopQueue, following: int, parts: list[Buffer]) -> None:
        """The records of an answer are out from now on."""
        records = _split(parts[1], parts[2])
        places = [_PLACES.unpack_from(record, LAYOUT.offset["queue_offset"]) for record in records]
        offsets = [offset for offset, _ in places]
        pop.pop_time = pop.pop_time or self._wall_ms()
        until_ms = self._now_ms() + pop.header.invisible_time
        ordered = pop.header.order
        queue.ledger.add(offsets, [at for _, at in places], following, pop.pop_time, until_ms, ordered=ordered)
        self._subjects.out += len(offsets)
        self._subjects.touch(subject)
        times = queue.ledger.times(offsets) if ordered else None
        pop.ranges.append(PoppedRange(queue.retry, queue.number, offsets[0], offsets, times))
        if queue.retry != NORMAL:
            handle = self._handle(pop, queue, offsets[0])
            records = [_recoded(record, subject.topic, handle) for record in records]
        pop.records += records
        if pop.found >= pop.wants or pop.size >= BYTES_MAX:
            self._end(subject, pop)

    def _handle(self, pop: WaitingPop, queue: PopQueue, start: int) -> Handle:
        times = pop.pop_time, pop.header.invisible_time
        return Handle(start, *times, _revive_queue(pop), queue.retry, self._broker, queue.number)

    def _watch(self, subject: Subject, queue: PopQueue) -> None:
        """Holds a pull that tells when the queue has something."""

        def received(parts: list[Buffer]) -> None:
            queue.is_empty = False
            if not parts or not expect(PULL_ANSWER, parts[0])[4]:
                self._delay(subject, queue)
            self.advance(subject)

        pull = Pull(0, queue.topic.encode(), queue.number, queue.ledger.next, 1, 1, WATCH_MS)
        queue.is_empty = self._serve.pull(pull, received)
        if not queue.is_empty:
            self._delay(subject, queue)

    # --- answers

    def _end(self, subject: Subject, pop: WaitingPop, *, found: bool = False) -> None:
        """Answers with what was found. `found`: there is something that was not asked for."""
        self._leave(subject, pop)
        if not pop.wants:
            fields = {"hasMsg": str(found).lower(), "pollingFull": "false"}
            pop.answer(ResponseCode.SUCCESS, fields)
        else:
            self._say(pop, subject, ResponseCode.SUCCESS if pop.ranges else ResponseCode.POLLING_TIMEOUT)

    def _say(self, pop: WaitingPop, subject: Subject, code: ResponseCode) -> None:
        if not pop.wants:
            pop.answer(ResponseCode.SUCCESS, {"hasMsg": "false", "pollingFull": "true"})
            return
        fields = {
            "popTime": str(pop.pop_time or self._wall_ms()),
            "invisibleTime": str(pop.header.invisible_time),
            "reviveQid": str(_revive_queue(pop)),
            "restNum": str(sum(queue.rest for queue in subject.queues.values() if pop.may_read(queue))),
        }
        status = GetStatus.FOUND if pop.ranges else GetStatus.NO_MESSAGE_IN_QUEUE
        pop.answer(code, fields | offset_fields(pop.ranges), b"".join(pop.records), status.name)

    def _leave(self, subject: Subject, pop: WaitingPop) -> None:
        pop.is_answered = True
        subject.waiting.remove(pop)
        self._waiting -= 1


def check_invisible_time(wanted: int) -> None:
    """Raises RequestRefused."""
    if not 0 < wanted <= INVISIBLE_MAX_MS:
        why = f"a message is invisible for 1 to {INVISIBLE_MAX_MS} ms, not for {wanted}"
        raise RequestRefused(ResponseCode.INVALID_PARAMETER, why)


def _revive_queue(pop: WaitingPop) -> int:
    return ORDER_QUEUE if pop.header.order else 0


def _split(sizes: Buffer, records: Buffer) -> list[Buffer]:
    """The records of a pull's answer, one by one."""
    view, at = memoryview(records), 0
    found: list[Buffer] = []
    for (size,) in _SIZE.iter_unpack(sizes):
        found.append(view[at : at + size])
        at += size
    return found


def _recoded(data: Buffer, topic: str, handle: Handle) -> bytes:
    """A record of a retry topic under the name of its own, with the handle, which a client cannot make out of that.
    Where there is no room for it the record stays as it is."""
    record = decode(bytes(data), check_crc=False)
    pairs = decode_properties(record.properties) | {POP_CHECK_POINT: handle.text(record.queue_offset)}
    try:
        return encode(replace(record, topic=topic.encode(), properties=encode_properties(pairs.items())))
    except (IllegalProperty, MalformedRecord):
        return bytes(data)
