"""Pops and acks of a client that speaks frame by frame."""

import base64
from dataclasses import dataclass
from typing import Any, Final

from towline.format.record.properties import decode as decode_properties
from towline.format.record.record import Record, decode
from towline.format.remoting.codes import RequestCode
from towline.format.remoting.command import Command

from .raw import RawClient

POLL_MS: Final = 10_000
INVISIBLE_MS: Final = 60_000


@dataclass(frozen=True)
class Message:
    """One that was popped. `handle` is what a client makes of the answer, or gets with a message of a retry topic."""

    body: bytes
    topic: str
    queue: int
    offset: int
    handle: str
    times: int
    properties: dict[str, str]


def pop(client: RawClient, group: str, topic: str, **more: Any) -> Command:
    fields = {"consumerGroup": group, "topic": topic, "queueId": -1, "maxMsgNums": 32, "invisibleTime": INVISIBLE_MS,
              "pollTime": POLL_MS, "bornTime": 0, "initMode": 0, "expType": "TAG", "exp": "*",
              "order": "false"}  # fmt: skip
    return client.ask(RequestCode.POP_MESSAGE, {**fields, **more})


def popped(client: RawClient, group: str, topic: str, **more: Any) -> list[Message]:
    """The messages of a pop; none where its time was over."""
    answer = pop(client, group, topic, **more)
    return messages_of(answer, group, topic) if answer.code == 0 else []


def messages_of(answer: Command, group: str, topic: str) -> list[Message]:
    starts = {tuple(text.split(" ")[:2]): text.split(" ")[2] for text in answer.fields["startOffsetInfo"].split(";")}
    data, at, found = bytes(answer.body), 0, []
    while at < len(data):
        record = decode(data, at)
        found.append(_message(answer, starts, record, group, topic))
        at += int.from_bytes(data[at : at + 4], "big")
    return found


def _message(answer: Command, starts: dict[tuple[str, ...], str], record: Record, group: str, topic: str) -> Message:
    pairs = decode_properties(record.properties)
    words = [starts.get(("0", str(record.queue_id)), "0"), answer.fields["popTime"], answer.fields["invisibleTime"]]
    words += [answer.fields["reviveQid"], "0", "broker", str(record.queue_id), str(record.queue_offset)]
    handle = pairs.get("POP_CK", " ".join(words))
    of = f"%RETRY%{group}_{topic}" if handle.split(" ")[4] == "1" else topic
    return Message(record.body, of, record.queue_id, record.queue_offset, handle, record.reconsume_times, pairs)


def _place(message: Message, group: str) -> dict[str, Any]:
    return {"consumerGroup": group, "topic": message.topic, "queueId": message.queue, "extraInfo": message.handle,
            "offset": message.offset}  # fmt: skip


def ack(client: RawClient, group: str, message: Message) -> Command:
    return client.ask(RequestCode.ACK_MESSAGE, _place(message, group))


def extend(client: RawClient, group: str, message: Message, invisible_ms: int) -> Command:
    fields = {**_place(message, group), "invisibleTime": invisible_ms}
    return client.ask(RequestCode.CHANGE_MESSAGE_INVISIBLETIME, fields)


def acks_of(group: str, topic: str, queue: int, start: int, pop_time: int, offsets: list[int]) -> dict[str, Any]:
    """A row of BATCH_ACK_MESSAGE."""
    bits = bytearray(1 + (max(offsets) - start) // 8)
    for offset in offsets:
        bits[(offset - start) // 8] |= 1 << (offset - start) % 8
    return {"c": group, "t": topic, "r": "0", "so": start, "q": queue, "rq": 0, "pt": pop_time, "it": INVISIBLE_MS,
            "b": base64.b64encode(bits).decode()}  # fmt: skip


def offset(client: RawClient, group: str, topic: str, queue: int = 0) -> int:
    """The group's offset; -1 where it has none."""
    fields = {"consumerGroup": group, "topic": topic, "queueId": queue, "setZeroIfNotFound": "false"}
    answer = client.ask(RequestCode.QUERY_CONSUMER_OFFSET, fields)
    return int(answer.fields["offset"]) if answer.code == 0 else -1
