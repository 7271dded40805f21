"""What producers ask for: sends, and topics (spec 11.2; the rules of RocketMQ's broker)."""

import struct
from ipaddress import ip_address
from collections.abc import Callable, Iterator, Mapping
from itertools import count
from typing import Any, Final

from towline.errors import MalformedFrame
from towline.format.files.topics import TopicConfig
from towline.format.record.record import Host, MessageEncoder
from towline.format.remoting.codes import RequestCode, ResponseCode, response_of
from towline.format.remoting.command import Command
from towline.format.remoting.headers import MakeTopic, SendMessage, read_header
from towline.format.wire.frames import Group, PutAnswer
from towline.format.wire.status import PutStatus

from .connections import Connection
from .put_client import PutClient

REGION: Final = "DefaultRegion"
LETTERED: Final = (RequestCode.SEND_MESSAGE_V2, RequestCode.SEND_BATCH_MESSAGE)
_PART: Final = struct.Struct(">iiiii")  # of a batch: size, magic, CRC, flag, bytes of the body
_PROPERTIES: Final = struct.Struct(">h")

Say = Callable[[Connection, Command], None]
TopicOf = Callable[[str], TopicConfig | None]


class Producers:
    """Handles SEND_MESSAGE and its kin, and UPDATE_AND_CREATE_TOPIC."""

    def __init__(self, put: PutClient, topic_of: TopicOf, say: Say, store_host: Callable[[], Host]) -> None:
        self._put, self._topic_of, self._say, self._store_host = put, topic_of, say, store_host
        self._turns = count()
        self._encoders: dict[tuple[str, tuple[str, int]], MessageEncoder] = {}

    def send(self, connection: Connection, request: Command) -> None:
        """Stores what was sent, and answers when that is promised. Raises MalformedFrame."""
        header = read_header(SendMessage, request.fields, letters=request.code in LETTERED)
        topic = self._topic_of(header.topic)
        if topic is None:
            self._make_first(connection, request, header)
            return
        queue = header.queue_id if header.queue_id >= 0 else next(self._turns) % topic.write_queue_nums
        if queue >= max(topic.read_queue_nums, topic.write_queue_nums):
            problem = f"the topic {header.topic!r} has no queue {queue}"
            self._refuse(connection, request, ResponseCode.INVALID_PARAMETER, problem)
            return
        encoder = self._encoder(header.topic, connection.peer)
        records = list(self._records(encoder, header, queue, request))
        groups = [Group(header.topic.encode(), queue, len(records), sum(map(len, records)))]

        def done(answer: PutAnswer | None) -> None:
            if not request.is_one_way:
                self._answer(connection, request, queue, [len(record) for record in records], answer)

        if not self._put.put(groups, b"".join(records), done) and not request.is_one_way:
            self._refuse(connection, request, ResponseCode.SYSTEM_BUSY, "[OVERLOAD]put takes nothing now")

    def make_topic(self, connection: Connection, request: Command) -> None:
        """Makes a topic, or changes it. Raises MalformedFrame."""
        header = read_header(MakeTopic, request.fields)
        facts = {"topic": header.topic, "queues": header.write_queue_nums, "perm": header.perm}

        def done(answer: Mapping[str, Any] | None) -> None:
            if answer is None or "error" in answer:
                why = "put does not answer" if answer is None else str(answer.get("sentence", answer["error"]))
                self._refuse(connection, request, ResponseCode.SYSTEM_ERROR, why)
            else:
                self._say(connection, request.answer(ResponseCode.SUCCESS))

        if not self._put.ask("create_topic", facts, done):
            self._refuse(connection, request, ResponseCode.SERVICE_NOT_AVAILABLE, "put is away")

    # --- records

    def _encoder(self, topic: str, peer: tuple[str, int]) -> MessageEncoder:
        found = self._encoders.get((topic, peer))
        if found is None:
            welcome = self._put.welcome
            found = self._encoders[topic, peer] = MessageEncoder(
                topic.encode(),
                Host(ip_address(peer[0]).packed, peer[1]),
                store_host_ipv6=bool(welcome.get("store_host_ipv6")),
                append_property_crc=bool(welcome.get("append_property_crc")),
            )
        return found

    def _records(self, encoder: MessageEncoder, header: SendMessage, queue: int, request: Command) -> Iterator[bytes]:
        messages = [(header.flag, bytes(request.body), _closed(header.properties.encode()))]
        if header.batch or request.code == RequestCode.SEND_BATCH_MESSAGE:
            messages = list(parts_of(bytes(request.body)))
        for flag, body, properties in messages:
            yield encoder.encode(queue, body, properties, flag, header.sys_flag, header.born_timestamp)

    # --- answers

    def _answer(
        self, connection: Connection, request: Command, queue: int, sizes: list[int], answer: PutAnswer | None
    ) -> None:
        if answer is None:
            self._refuse(connection, request, ResponseCode.SYSTEM_ERROR, "put has ended; the message may be stored")
            return
        status = PutStatus(answer.status)
        if not status.stored:
            sentence = f"{status.name}: {answer.sentence}"
            self._refuse(connection, request, response_of(status), sentence)
            return
        offset, place = answer.places[0]
        ids = []
        for size in sizes:
            ids.append(message_id(self._store_host(), place))
            place += size
        fields = {
            "queueId": str(queue),
            "queueOffset": str(offset),
            "msgId": ",".join(ids),
            "MSG_REGION": REGION,
            "TRACE_ON": "true",
        }
        self._say(connection, request.answer(response_of(status), fields))

    def _refuse(self, connection: Connection, request: Command, code: ResponseCode, why: str) -> None:
        if not request.is_one_way:
            self._say(connection, request.answer(code, {}, b"", why))

    def _make_first(self, connection: Connection, request: Command, header: SendMessage) -> None:
        """Makes a topic that is not there, where the node does that by itself, and sends again."""

        def done(answer: Mapping[str, Any] | None) -> None:
            if answer is None or "error" in answer:
                why = "put does not answer" if answer is None else str(answer.get("sentence", answer["error"]))
                self._refuse(connection, request, ResponseCode.TOPIC_NOT_EXIST, why)
            elif self._topic_of(header.topic) is None:
                self._refuse(connection, request, ResponseCode.TOPIC_NOT_EXIST, f"no topic {header.topic!r}")
            else:
                self.send(connection, request)

        facts = {"topic": header.topic, "queues": header.default_topic_queue_nums or 4}
        if not self._put.ask("route", facts, done):
            self._refuse(connection, request, ResponseCode.SERVICE_NOT_AVAILABLE, "put is away")


def message_id(host: Host, place: int) -> str:
    """RocketMQ's offset id: address, port and log offset in hexadecimal."""
    return (host.packed + place.to_bytes(8, "big")).hex().upper()


def parts_of(body: bytes) -> Iterator[tuple[int, bytes, bytes]]:
    """(flag, body, properties) of each message of a batch (spec 2.10). Raises MalformedFrame."""
    at = 0
    while at < len(body):
        if len(body) - at < _PART.size:
            raise MalformedFrame("a batch ends inside a message")
        size, _, _, flag, body_size = _PART.unpack_from(body, at)
        begin, end = at + _PART.size, at + size
        properties_at = begin + body_size + _PROPERTIES.size
        if body_size < 0 or size < _PART.size or end > len(body) or properties_at > end:
            raise MalformedFrame("the sizes of a message of a batch do not add up")
        (properties_size,) = _PROPERTIES.unpack_from(body, begin + body_size)
        if properties_at + properties_size != end:
            raise MalformedFrame("the sizes of a message of a batch do not add up")
        yield flag, body[begin : begin + body_size], _closed(body[properties_at:end])
        at = end


def _closed(properties: bytes) -> bytes:
    """With the last separator, which clients before 5.2 leave out."""
    return properties + b"\x02" if properties and not properties.endswith(b"\x02") else properties
