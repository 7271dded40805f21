"""What producers ask for: sends of one message or a batch, and to recall a timed one (spec 11.2)."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Final

from towline.errors import MalformedFrame, MalformedRecord
from towline.format.files.topics import TopicConfig
from towline.format.record import property_crc
from towline.format.record.properties import UNIQ_KEY, decode
from towline.format.record.record import (
    BORN_HOST_IPV6,
    INNER_BATCH,
    NEED_UNWRAP,
    STORE_HOST_IPV6,
    TRANSACTION_MASK,
    Host,
    MessageEncoder,
    Record,
    encode,
)
from towline.format.remoting.batch import members_of
from towline.format.remoting.codes import RequestCode, RequestRefused, ResponseCode
from towline.format.remoting.command import Command
from towline.format.remoting.headers import RecallMessage, SendMessage, read_header
from towline.format.remoting.stored import BrokerFacts, RecallHandle, StoredMessage, recalling, stored_message
from towline.format.wire.frames import Group, PutAnswer
from towline.limits import REQUEST_SIZE_MAX

from .connections import Answer, Connection
from .outcomes import outcome, places_told
from .put_client import PutClient
from .topics import PUT_AWAY, TopicDesk

LETTERED: Final = (RequestCode.SEND_MESSAGE_V2, RequestCode.SEND_BATCH_MESSAGE, RequestCode.SEND_REPLY_MESSAGE_V2)
_NOT_TAKEN: Final = TRANSACTION_MASK | BORN_HOST_IPV6 | STORE_HOST_IPV6 | NEED_UNWRAP | INNER_BATCH  # of SYSFLAG
_STORED_SIZE: Final = 16  # bytes of an address where the node stores IPv6


@dataclass(frozen=True, slots=True)
class Batch:
    """Records of one request, all for one queue of one topic, and what its answer says of them."""

    topic: str
    queue_id: int
    records: Sequence[bytes]
    asked_queue: int
    unique_key: str
    recall: str = ""


class Producers:
    """Handles SEND_MESSAGE and its kin, and RECALL_MESSAGE. `store_host` is the address in the ids of messages."""

    def __init__(
        self,
        put: PutClient,
        topics: TopicDesk,
        facts: BrokerFacts,
        broker: str,
        store_host: Host,
        now_ms: Callable[[], int],
    ) -> None:
        self._put, self._topics, self._facts, self._broker = put, topics, facts, broker
        self._store_host, self._now_ms = store_host, now_ms
        self._turns = count()

    def send(self, connection: Connection, request: Command, answer: Answer) -> None:
        """Stores what was sent, and answers when that is promised. Raises MalformedFrame, RequestRefused."""
        header = read_header(SendMessage, request.fields, letters=request.code in LETTERED)
        topic = self._topics.find(header.topic)
        if topic is not None and not self._topics.is_being_made(header.topic):
            self._store(connection, header, topic, request, answer)
            return

        def made(problem: str) -> None:
            topic = self._topics.find(header.topic)
            try:
                if problem or topic is None:
                    raise RequestRefused(ResponseCode.TOPIC_NOT_EXIST, problem)
                self._store(connection, header, topic, request, answer)
            except RequestRefused as refused:
                answer.refuse(refused)

        self._topics.check_name(header.topic)
        self._topics.make_for(header.topic, header.default_topic, header.default_topic_queue_nums, made)

    def recall(self, connection: Connection, request: Command, answer: Answer) -> None:
        """Recalls a timed message that has not been delivered. Raises MalformedFrame, RequestRefused."""
        header = read_header(RecallMessage, request.fields)
        handle = RecallHandle.read(header.recall_handle)
        if handle.topic != header.topic or handle.broker != self._broker:
            raise RequestRefused(
                ResponseCode.MESSAGE_ILLEGAL, "recall failure, the handle is of another topic or broker"
            )
        stored = recalling(handle, self._facts)
        try:
            record = self._record(connection, stored, b"", 0, 0, self._now_ms(), 0)
        except MalformedRecord as error:
            raise RequestRefused(ResponseCode.MESSAGE_ILLEGAL, error.describe()) from None
        batch = Batch(stored.topic, stored.queue_id, [record], 0, handle.unique_key)

        def done(found: PutAnswer | None) -> None:
            code, why = outcome(found)
            answer(code, {"msgId": handle.unique_key}, remark=why)

        self._put_batch(batch, done)

    # --- records

    def _store(
        self, connection: Connection, header: SendMessage, topic: TopicConfig, request: Command, answer: Answer
    ) -> None:
        queue_id = header.queue_id if header.queue_id >= 0 else next(self._turns) % max(1, topic.write_queue_nums)
        if queue_id >= max(topic.read_queue_nums, topic.write_queue_nums):
            raise RequestRefused(
                ResponseCode.INVALID_PARAMETER,
                f"request queueId[{queue_id}] is illegal, {header.topic!r} has no such queue",
            )
        try:
            if header.batch or request.code == RequestCode.SEND_BATCH_MESSAGE:
                batch = self._batch(connection, header, queue_id, bytes(request.body))
            else:
                batch = self._single(connection, header, queue_id, bytes(request.body))
        except (MalformedFrame, MalformedRecord) as error:
            raise RequestRefused(ResponseCode.MESSAGE_ILLEGAL, error.describe()) from None
        if batch.topic != header.topic and self._needs_topic(batch.topic):
            self._topics.make_for(batch.topic, "", 1, lambda problem: self._send_made(batch, answer, problem))
            return
        self._put_batch(batch, lambda found: self._answer(batch, answer, found))
        if self._put.plain is not None and not header.topic.startswith("%"):
            self._put.plain.know(header.topic.encode(), queue_id)

    def _needs_topic(self, name: str) -> bool:
        """Whether a message was given up for a dead-letter topic that is not there yet."""
        return name.startswith("%") and self._topics.find(name) is None

    def _send_made(self, batch: Batch, answer: Answer, problem: str) -> None:
        try:
            if problem:
                raise RequestRefused(ResponseCode.SYSTEM_ERROR, problem)
            self._put_batch(batch, lambda found: self._answer(batch, answer, found))
        except RequestRefused as refused:
            answer.refuse(refused)

    def _single(self, connection: Connection, header: SendMessage, queue_id: int, body: bytes) -> Batch:
        now_ms = self._now_ms()
        stored = stored_message(header, queue_id, now_ms, self._facts)
        record = self._record(
            connection, stored, body, header.flag, header.sys_flag, header.born_timestamp, header.reconsume_times
        )
        recall = ""
        if stored.deliver_at:
            recall = str(RecallHandle(header.topic, self._broker, stored.deliver_at, stored.unique_key))
        return Batch(stored.topic, stored.queue_id, [record], queue_id, stored.unique_key, recall)

    def _batch(self, connection: Connection, header: SendMessage, queue_id: int, body: bytes) -> Batch:
        """A batch's records: its members get nothing from the broker."""
        key, welcome = decode(header.properties.encode()).get(UNIQ_KEY, ""), self._put.welcome
        encoder = MessageEncoder(
            header.topic.encode(),
            connection.host,
            store_host_ipv6=bool(welcome.get("store_host_ipv6")),
            append_property_crc=bool(welcome.get("append_property_crc")),
        )
        sys_flag, born = header.sys_flag & ~_NOT_TAKEN, header.born_timestamp
        records = [
            encoder.encode(queue_id, member.body, member.properties, member.flag, sys_flag, born)
            for member in members_of(body)
        ]
        if not records:
            raise RequestRefused(ResponseCode.MESSAGE_ILLEGAL, "the batch is empty")
        return Batch(header.topic, queue_id, records, queue_id, key)

    def _record(
        self,
        connection: Connection,
        stored: StoredMessage,
        body: bytes,
        flag: int,
        sys_flag: int,
        born_timestamp: int,
        reconsume_times: int,
    ) -> bytes:
        """The record as it will stand in the log, but for what put stamps. Raises MalformedRecord."""
        welcome = self._put.welcome
        properties = stored.properties
        if welcome.get("append_property_crc"):
            properties = property_crc.appended(properties)
        return encode(
            Record(
                topic=stored.topic.encode(),
                body=body,
                properties=properties,
                queue_id=stored.queue_id,
                flag=flag,
                sys_flag=sys_flag & ~_NOT_TAKEN,
                born_timestamp=born_timestamp,
                born_host=connection.host,
                store_host=Host(bytes(_STORED_SIZE), 0) if welcome.get("store_host_ipv6") else Host(bytes(4), 0),
                reconsume_times=reconsume_times,
            )
        )

    # --- answers

    def _put_batch(self, batch: Batch, done: Callable[[PutAnswer | None], None]) -> None:
        """Raises RequestRefused where put is away."""
        size = sum(map(len, batch.records))
        if size > REQUEST_SIZE_MAX:
            why = f"the records take {size} bytes; {REQUEST_SIZE_MAX} are allowed in one request"
            raise RequestRefused(ResponseCode.MESSAGE_ILLEGAL, why)
        groups = [Group(batch.topic.encode(), batch.queue_id, len(batch.records), size)]
        if not self._put.put(groups, b"".join(batch.records), done):
            raise RequestRefused(ResponseCode.SYSTEM_BUSY, f"[OVERLOAD]{PUT_AWAY}")

    def _answer(self, batch: Batch, answer: Answer, found: PutAnswer | None) -> None:
        code, why = outcome(found)
        if found is None or not found.places:
            answer(code, remark=why)
            return
        sizes = [len(record) for record in batch.records]
        fields = places_told(self._store_host, found, sizes, batch.asked_queue, batch.unique_key, batch.recall)
        answer(code, fields, remark=why)
