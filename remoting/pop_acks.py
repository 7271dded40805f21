"""What becomes of popped messages: acknowledged, invisible for longer, or again in the group's retry topic.

A message that is neither acknowledged nor extended in time is put into the retry topic, as a record of its own that
counts one time more, and is done where it was. Only when that record is stored the offset of the group may pass it.
"""

import logging
from collections.abc import Callable
from typing import Final

from towline.errors import IllegalProperty, MalformedRecord
from towline.format.record.forms import StoredForm
from towline.format.record.properties import decode as decode_properties
from towline.format.record.record import decode
from towline.format.record.retries import TIMES_MAX, sent_back
from towline.format.remoting.codes import RequestRefused, ResponseCode
from towline.format.remoting.command import Command
from towline.format.remoting.headers import read_header
from towline.format.remoting.pops import AckMessage, ChangeInvisibleTime, read_acks, read_handle
from towline.format.wire.frames import Buffer, Group, PutAnswer
from towline.format.wire.status import PutStatus

from .connections import Answer
from .pop_ledger import Popped
from .pop_subjects import PopQueue, Subject, Subjects
from .pops import OUT_OF_QUEUE_MAX, Pops, check_invisible_time
from .put_client import PutClient
from .questions import Facts
from .readers import Readers
from .topics import TopicDesk

FIRST_POP_TIME: Final = "1ST_POP_TIME"
RETURNS_MAX: Final = 256  # messages on their way to retry topics
RETURN_EVERY_MS: Final = 50
AGAIN_MS: Final = 1_000  # before a message is put again that could not be
_NOT_IN_LOG: Final = "NotInLog"


class PopAcks:
    """Handles ACK_MESSAGE, BATCH_ACK_MESSAGE and CHANGE_MESSAGE_INVISIBLETIME; returns what is overdue."""

    def __init__(
        self,
        put: PutClient,
        readers: Readers,
        topics: TopicDesk,
        subjects: Subjects,
        pops: Pops,
        now_ms: Callable[[], int],
        wall_ms: Callable[[], int],
        log: logging.Logger,
    ) -> None:
        self._put, self._readers, self._topics = put, readers, topics
        self._subjects, self._pops = subjects, pops
        self._now_ms, self._wall_ms, self._log = now_ms, wall_ms, log
        self._return_at = 0
        self._returning = 0

    # --- requests

    def ack(self, request: Command, answer: Answer) -> None:
        """ACK_MESSAGE. One that comes too late is answered like others: the message comes again. Raises
        MalformedFrame, RequestRefused."""
        header = read_header(AckMessage, request.fields)
        handle = read_handle(header.extra_info)
        self._check_place(header)
        self._done(header.consumer_group, header.topic, header.queue_id, (header.offset,), handle.pop_time)
        answer(ResponseCode.SUCCESS)

    def ack_all(self, request: Command, answer: Answer) -> None:
        """BATCH_ACK_MESSAGE. Raises MalformedFrame."""
        for acks in read_acks(request.json()):
            self._done(acks.group, acks.topic, acks.queue_id, acks.offsets, acks.pop_time)
        answer(ResponseCode.SUCCESS)

    def extend(self, request: Command, answer: Answer) -> None:
        """CHANGE_MESSAGE_INVISIBLETIME. The answer has what the new handle is made of; that of an ordered pop keeps its
        pop time, which is that of all its messages. Raises MalformedFrame, RequestRefused."""
        header = read_header(ChangeInvisibleTime, request.fields)
        handle = read_handle(header.extra_info)
        self._check_place(header)
        check_invisible_time(header.invisible_time)
        found = self._subjects.queue(header.consumer_group, header.topic, header.queue_id)
        wall_ms = self._wall_ms()
        # Within the millisecond of its pop the new handle would be the former one.
        pop_time = handle.pop_time if handle.is_ordered else max(wall_ms, handle.pop_time + 1)
        until_ms = self._now_ms() + header.invisible_time
        if found is None or not found[1].ledger.extend(header.offset, handle.pop_time, pop_time, until_ms):
            why = f"message {header.offset} of queue {header.queue_id} is not out by this handle"
            raise RequestRefused(ResponseCode.NO_MESSAGE, why)
        fields = {
            "popTime": str(pop_time),
            "invisibleTime": str(max(0, wall_ms + header.invisible_time - pop_time)),
            "reviveQid": str(handle.revive_queue),
        }
        answer(ResponseCode.SUCCESS, fields)

    def _check_place(self, header: AckMessage | ChangeInvisibleTime) -> None:
        topic = self._topics.find(header.topic)
        if topic is None:
            why = f"topic[{header.topic}] not exist, apply first please!"
            raise RequestRefused(ResponseCode.TOPIC_NOT_EXIST, why)
        if not 0 <= header.queue_id < topic.read_queue_nums:
            why = f"queueId[{header.queue_id}] is illegal, topic:[{header.topic}]"
            raise RequestRefused(
                ResponseCode.MESSAGE_ILLEGAL, f"{why} topicConfig.readQueueNums:[{topic.read_queue_nums}]"
            )

    def _done(self, group: str, topic: str, number: int, offsets: tuple[int, ...], pop_time: int) -> None:
        found = self._subjects.queue(group, topic, number)
        if found is None:
            return
        subject, queue = found
        was_full = len(queue.ledger) >= OUT_OF_QUEUE_MAX
        ordered = queue.ledger.is_ordered
        self._subjects.out -= sum(queue.ledger.ack(offset, pop_time) for offset in offsets)
        self._subjects.touch(subject)
        if (was_full or ordered) and subject.waiting:
            self._pops.advance(subject)

    # --- what is overdue

    def cycle(self, now_ms: int) -> None:
        """Puts messages that are overdue into their retry topics."""
        if now_ms < self._return_at:
            return
        self._return_at = now_ms + RETURN_EVERY_MS
        for subject in self._subjects.busy:
            for queue in list(subject.queues.values()):
                for offset, popped in queue.ledger.take_overdue(now_ms, RETURNS_MAX - self._returning):
                    self._returning += 1
                    self._return(subject, queue, offset, popped)

    def _return(self, subject: Subject, queue: PopQueue, offset: int, popped: Popped) -> None:
        def ended(problem: str) -> None:
            self._returning -= 1
            if problem:
                self._log.warning("message %d of %s stays out: %s", offset, queue.topic, problem)
                queue.ledger.not_returned(offset, popped, self._now_ms() + AGAIN_MS)
            elif queue.ledger.returned(offset, popped) and not subject.is_dropped:
                self._subjects.out -= 1
                self._pops.find_queues(subject)
            self._subjects.touch(subject)

        def read(found: Facts | None, rest: list[Buffer]) -> None:
            if found is not None and found.get("error") == _NOT_IN_LOG:
                self._if_gone(queue, offset, ended)
            elif found is None or "error" in found or len(rest) < 2:
                ended("it cannot be read" if found is None else str(found.get("sentence", "it cannot be read")))
            else:
                self._store(subject, bytes(rest[1]), popped, ended)

        def made(problem: str) -> None:
            try:
                if problem:
                    ended(problem)
                else:
                    self._readers.read(popped.place, read)
            except RequestRefused as refused:
                ended(refused.sentence)

        try:
            if self._topics.find(subject.retry_topic) is None:
                self._topics.make_for(subject.retry_topic, "", 1, made)
            else:
                made("")
        except RequestRefused as refused:
            ended(refused.sentence)

    def _if_gone(self, queue: PopQueue, offset: int, ended: Callable[[str], None]) -> None:
        """Gives a message up that has left the log with its segment."""

        def told(low: int, _: int) -> None:
            ended("" if offset < low else "its place in the log is not known yet")

        try:
            self._readers.bounds(queue.topic, queue.number, told, lambda refused: ended(refused.sentence))
        except RequestRefused as refused:
            ended(refused.sentence)

    def _store(self, subject: Subject, data: bytes, popped: Popped, ended: Callable[[str], None]) -> None:
        record = decode(data, check_crc=False)
        more = {} if FIRST_POP_TIME in decode_properties(record.properties) else {FIRST_POP_TIME: str(popped.pop_time)}
        times = min(record.reconsume_times + 1, TIMES_MAX)
        append = bool(self._put.welcome.get("append_property_crc"))
        form = StoredForm(subject.retry_topic, 0, ())
        try:
            data = sent_back(record, form, more, times, append_property_crc=append)
        except (IllegalProperty, MalformedRecord) as error:
            ended(error.describe())
            return

        def stored(found: PutAnswer | None) -> None:
            if found is None:
                ended("put has ended")
            elif PutStatus(found.status).stored:
                ended("")
            else:
                ended(PutStatus(found.status).name)

        if not self._put.put([Group(form.topic.encode(), form.queue_id, 1, len(data))], data, stored):
            ended("put is away")
