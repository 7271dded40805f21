"""Frames on the wire: the header of a ZeroMQ part, field by field. All integers are big-endian.

A message is a head (one of the layouts below) and at most three further parts. `kind` is the first byte of every head.
Link: greeting -> welcome | refusal, then requests and answers of any number. Records travel as they stand in the
CommitLog, concatenated.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, Final, TypeAlias

from towline.errors import MalformedFrame
from towline.format.layout import Field, Layout

# Anything with the buffer interface; `collections.abc.Buffer` needs Python 3.12.
Buffer: TypeAlias = bytes | bytearray | memoryview

MAGIC: Final = 0x544F574C  # "TOWL"
VERSION_MIN: Final = 1
VERSION_MAX: Final = 1


class Kind(IntEnum):
    GREETING = 1
    WELCOME = 2
    REFUSAL = 3
    PUT = 10
    PUT_ANSWER = 11
    ASK = 12
    ANSWER = 13
    PULL = 20
    PULL_ANSWER = 21
    HA_DATA = 30
    HA_ACK = 31
    HA_SET = 32
    HA_SET_ACK = 33


GREETING = Layout(
    Field("kind", "B", "GREETING from the side that connects, WELCOME or REFUSAL from the other"),
    Field("magic", "I", "54 4F 57 4C"),
    Field("version_min", "H", "lowest protocol version spoken"),
    Field("version_max", "H", "highest; in a WELCOME both are the version agreed on"),
)  # next part: JSON object of the facts below

PUT = Layout(
    Field("kind", "B", "PUT"),
    Field("flags", "B", "0"),
    Field("groups", "H", "groups that follow, each one topic and queue"),
    Field("request_id", "q", "echoed in the answer"),
    Field("epoch", "q", "epoch of the master the client greeted"),
    Field("deadline", "q", "ms since 1970 by the server's clock; later the request is refused as EXPIRED"),
)
GROUP = Layout(
    Field("queue_id", "i", "QUEUEID of every record of the group"),
    Field("count", "i", "records"),
    Field("size", "i", "bytes of these records"),
    Field("topic_size", "H", "bytes of the topic that follows"),
)
PUT_ANSWER = Layout(
    Field("kind", "B", "PUT_ANSWER"),
    Field("status", "B", "PutStatus"),
    Field("rule", "B", "Rule that was broken, 0 for none"),
    Field("groups", "H", "pairs that follow; a refusal has none and a sentence in UTF-8 instead"),
    Field("request_id", "q", "of the PUT"),
    Field("record", "i", "index of the refused record in the request, -1 for none"),
    Field("retry_after", "i", "ms to wait before trying again, 0 for no hint"),
)
PLACE = Layout(
    Field("queue_offset", "q", "of the group's first record"),
    Field("physical_offset", "q", "of the group's first record"),
)

ASK = Layout(
    Field("kind", "B", "ASK"),
    Field("request_id", "q", "echoed in the answer"),
)  # next part: JSON object with `op`
ANSWER = Layout(
    Field("kind", "B", "ANSWER"),
    Field("status", "B", "0 for success, else 1 and the JSON holds `error`"),
    Field("request_id", "q", "of the ASK"),
    Field("count", "i", "records in the parts `sizes` and `records`, which are there when it is not 0"),
)  # next parts: JSON, sizes (count x u4), records

PULL = Layout(
    Field("kind", "B", "PULL"),
    Field("flags", "B", "bit 0: the next part is JSON, type, expression and group of a filter; bit 1: STRETCH will do"),
    Field("topic_size", "H", "bytes of the topic that follows"),
    Field("request_id", "q", "echoed in the answer"),
    Field("queue_id", "i", "queue"),
    Field("max_count", "i", "records at most"),
    Field("max_bytes", "i", "bytes at most; the first record comes whatever its size"),
    Field("suspend", "i", "ms the request may be held while nothing arrives, 0 for none"),
    Field("offset", "q", "queue offset to begin at"),
    Field("codes", "H", "tag hashes (i4 each) that follow the topic; none means every tag"),
)
PULL_ANSWER = Layout(
    Field("kind", "B", "PULL_ANSWER"),
    Field("status", "B", "GetStatus"),
    Field("queue_id", "i", "of the PULL"),
    Field("request_id", "q", "of the PULL"),
    Field("count", "i", "records in the parts `sizes` (count x u4) and `records`"),
    Field("next_offset", "q", "queue offset to ask for next"),
    Field("min_offset", "q", "lowest queue offset that can be read"),
    Field("max_offset", "q", "queue offset after the newest readable record"),
    Field("flags", "B", "bit 0: so far behind the log's end, a slave had better be read; bit 1: a STRETCH, no records"),
)
STRETCH = Layout(
    Field("device", "Q", "of the file that holds the records, back to back: who opens another must not read it"),
    Field("inode", "Q", "of that file"),
    Field("base", "q", "log offset of its first byte"),
    Field("start", "q", "log offset of the first record"),
    Field("size", "i", "bytes of these records"),
)

HA_DATA = Layout(
    Field("kind", "B", "HA_DATA"),
    Field("size", "i", "bytes of the slice in the next part; 0 is a heartbeat and there is none"),
    Field("epoch", "q", "of the master"),
    Field("offset", "q", "physical offset of the slice, or where the next one will begin"),
    Field("confirmed", "q", "nothing before this can be taken back"),
)
HA_ACK = Layout(
    Field("kind", "B", "HA_ACK"),
    Field("epoch", "q", "of the master that is followed"),
    Field("appended", "q", "end of the slave's CommitLog in memory"),
    Field("flushed", "q", "end of the slave's CommitLog on disk"),
    Field("limit", "q", "the master may send up to here: the credit, which a slave that stops takes back"),
)
HA_SET = Layout(
    Field("kind", "B", "HA_SET from the master; HA_SET_ACK, the same fields, once the slave has it on disk"),
    Field("epoch", "q", "of the master that recorded the set"),
    Field("version", "q", "counts the sets of an epoch"),
    Field("master", "q", "its broker_id"),
    Field("members", "q", "the in-sync set: bit n is the node with broker_id n"),
    Field("floor", "q", "min_in_sync_replicas as the master recorded it; 0 where it is left out, as older nodes do"),
)

_FLOOR_SIZE: Final = 8
PULL_HAS_EXPRESSION: Final = 1
PULL_READS_FILES: Final = 2  # who asks is on the node's machine: a STRETCH will do in place of the part `records`
SQL92: Final = "SQL92"
READ_FROM_SLAVE: Final = 1
RECORDS_IN_FILE: Final = 2

LAYOUTS: Final = {
    "GREETING": GREETING,
    "PUT": PUT,
    "GROUP": GROUP,
    "PUT_ANSWER": PUT_ANSWER,
    "PLACE": PLACE,
    "ASK": ASK,
    "ANSWER": ANSWER,
    "PULL": PULL,
    "PULL_ANSWER": PULL_ANSWER,
    "STRETCH": STRETCH,
    "HA_DATA": HA_DATA,
    "HA_ACK": HA_ACK,
    "HA_SET": HA_SET,
}


def kind_of(head: Buffer) -> int:
    """The kind of a message, 0 for an empty head."""
    view = memoryview(head)
    return view[0] if len(view) else 0


def expect(layout: Layout, head: Buffer) -> tuple[Any, ...]:
    """The fields of a head, or MalformedFrame when it is too short."""
    view = memoryview(head)
    if len(view) < layout.size:
        raise MalformedFrame(f"a head of {len(view)} bytes where {layout.size} are needed")
    return layout.unpack_from(view)


def expect_set(head: Buffer) -> tuple[Any, ...]:
    """The fields of an HA_SET or HA_SET_ACK, of a node too that does not know of `floor`."""
    view = memoryview(head)
    missing = HA_SET.size - len(view)
    return expect(HA_SET, bytes(view) + bytes(missing) if missing == _FLOOR_SIZE else view)


def json_part(facts: dict[str, Any]) -> bytes:
    """Half of a surrogate pair, which a name in a question may hold, goes back as it came."""
    return json.dumps(facts, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "surrogatepass")


def read_json(part: Buffer) -> dict[str, Any]:
    try:
        facts = json.loads(bytes(part))
    except (ValueError, RecursionError) as error:
        raise MalformedFrame(f"a part that should be JSON is not: {error}") from None
    if not isinstance(facts, dict):
        raise MalformedFrame("a part that should be a JSON object is another value")
    return facts


# --- put


@dataclass(slots=True)
class Group:
    """`count` records of one topic and queue, `size` bytes together."""

    topic: bytes
    queue_id: int
    count: int
    size: int


def encode_put(request_id: int, epoch: int, deadline: int, groups: Sequence[Group]) -> bytes:
    parts = [PUT.pack(Kind.PUT, 0, len(groups), request_id, epoch, deadline)]
    for group in groups:
        parts.append(GROUP.pack(group.queue_id, group.count, group.size, len(group.topic)))
        parts.append(group.topic)
    return b"".join(parts)


def decode_put(head: Buffer, groups_max: int) -> tuple[int, int, int, list[Group]]:
    """(request id, epoch, deadline in ms, groups). Raises MalformedFrame; the records are not checked here."""
    _, _, count, request_id, epoch, deadline = expect(PUT, head)
    if not 1 <= count <= groups_max:
        raise MalformedFrame(f"a put of {count} groups; 1 to {groups_max} are allowed")
    data = bytes(head)
    at = PUT.size
    groups = []
    for _ in range(count):
        if at + GROUP.size > len(data):
            raise MalformedFrame("the head of a put ends inside its groups")
        queue_id, records, size, topic_size = GROUP.unpack_from(data, at)
        at += GROUP.size
        topic = data[at : at + topic_size]
        at += topic_size
        if len(topic) != topic_size or records < 1 or size < 1:
            raise MalformedFrame("a group of a put has no records, no bytes, or a topic cut short")
        groups.append(Group(topic, queue_id, records, size))
    if at != len(data):
        raise MalformedFrame("a put's head goes on after its last group")
    return request_id, epoch, deadline, groups


def encode_put_answer(request_id: int, status: int, places: Sequence[tuple[int, int]]) -> bytes:
    head = PUT_ANSWER.pack(Kind.PUT_ANSWER, status, 0, len(places), request_id, -1, 0)
    return head + b"".join(PLACE.pack(*place) for place in places)


def with_status(answer: bytes, status: int) -> bytes:
    """The same answer to a put with another status."""
    at = PUT_ANSWER.offset["status"]
    return answer[:at] + bytes([status]) + answer[at + 1 :]


def encode_put_refusal(request_id: int, status: int, rule: int, record: int, retry_after: int, sentence: str) -> bytes:
    return PUT_ANSWER.pack(Kind.PUT_ANSWER, status, rule, 0, request_id, record, retry_after) + sentence.encode()


@dataclass(slots=True)
class PutAnswer:
    """`places` holds (queue offset, physical offset) of each group's first record; empty for a refusal."""

    request_id: int
    status: int
    rule: int
    record: int
    retry_after: int
    places: list[tuple[int, int]]
    sentence: str


def decode_put_answer(head: Buffer) -> PutAnswer:
    _, status, rule, count, request_id, record, retry_after = expect(PUT_ANSWER, head)
    data = bytes(head)
    end = PUT_ANSWER.size + count * PLACE.size
    if len(data) < end:
        raise MalformedFrame("the answer to a put ends inside its places")
    places = [
        (int(pair[0]), int(pair[1]))
        for pair in (PLACE.unpack_from(data, at) for at in range(PUT_ANSWER.size, end, PLACE.size))
    ]
    return PutAnswer(request_id, status, rule, record, retry_after, places, data[end:].decode("utf-8", "replace"))


def put_answer_to(request_id: int, found: PutAnswer) -> bytes:
    """The same answer to a put of another number."""
    if found.places:
        return encode_put_answer(request_id, found.status, found.places)
    return encode_put_refusal(request_id, found.status, found.rule, found.record, found.retry_after, found.sentence)


# --- pull


@dataclass(slots=True)
class Pull:
    """`expression` is SQL92 on properties, "" for none; `group` is whose it is. `reads_files`: a STRETCH will do."""

    request_id: int
    topic: bytes
    queue_id: int
    offset: int
    max_count: int
    max_bytes: int
    suspend: int
    codes: tuple[int, ...] = ()
    expression: str = ""
    group: str = ""
    reads_files: bool = False


def encode_pull(pull: Pull) -> list[bytes]:
    """The parts: a head, and the expression if there is one."""
    head = PULL.pack(
        Kind.PULL,
        (PULL_HAS_EXPRESSION if pull.expression else 0) | (PULL_READS_FILES if pull.reads_files else 0),
        len(pull.topic),
        pull.request_id,
        pull.queue_id,
        pull.max_count,
        pull.max_bytes,
        pull.suspend,
        pull.offset,
        len(pull.codes),
    )
    parts = [head + pull.topic + b"".join(code.to_bytes(4, "big", signed=True) for code in pull.codes)]
    if pull.expression:
        parts.append(json_part({"type": SQL92, "expression": pull.expression, "group": pull.group}))
    return parts


def decode_pull(parts: Sequence[Buffer]) -> Pull:
    head = parts[0]
    _, flags, topic_size, request_id, queue_id, max_count, max_bytes, suspend, offset, codes = expect(PULL, head)
    data = bytes(head)
    at = PULL.size + topic_size
    if len(data) != at + 4 * codes:
        raise MalformedFrame("a pull's head is not as long as its topic and tag hashes say")
    if len(parts) != (2 if flags & PULL_HAS_EXPRESSION else 1):
        raise MalformedFrame(f"a pull with flags {flags} in {len(parts)} parts")
    hashes = tuple(int.from_bytes(data[i : i + 4], "big", signed=True) for i in range(at, len(data), 4))
    pull = Pull(request_id, data[PULL.size : at], queue_id, offset, max_count, max_bytes, suspend, hashes)
    pull.reads_files = bool(flags & PULL_READS_FILES)
    if len(parts) == 2:
        pull.expression, pull.group = _read_expression(parts[1])
    return pull


def _read_expression(part: Buffer) -> tuple[str, str]:
    facts = read_json(part)
    expression, group = facts.get("expression"), facts.get("group", "")
    if facts.get("type") != SQL92 or not isinstance(expression, str) or not isinstance(group, str) or not expression:
        raise MalformedFrame(f"a pull's filter has type {SQL92}, an expression and a group, all of them text")
    return expression, group
