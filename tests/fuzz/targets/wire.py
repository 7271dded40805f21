"""Messages of Towline's own protocol, and what stands in their parts."""

import json
import struct
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any, Final

from tests.fuzz.target import Broken, Grammar, Target, hold
from tests.fuzz.targets.records import of, records
from towline.client.errors import AskRefused, FilterRefused
from towline.client.link.rpc import read_answer
from towline.errors import LinkRefused, MalformedFrame, MalformedRecord, UnknownTopic
from towline.format.remoting.command import LENGTH
from towline.format.remoting.wire_message import HEAD_SIZE, decode_message, encode_message, message_size
from towline.format.wire import put_ring
from towline.format.wire.frames import (
    ANSWER,
    HA_ACK,
    HA_DATA,
    HA_SET,
    STRETCH,
    Buffer,
    Group,
    Kind,
    Pull,
    decode_pull,
    decode_put,
    decode_put_answer,
    encode_pull,
    encode_put,
    encode_put_answer,
    encode_put_refusal,
    expect,
    expect_set,
    json_part,
    put_answer_to,
    read_json,
)
from towline.format.wire.refusals import Cause, read_sentence, sentence_of
from towline.limits import PARTS_MAX, REQUEST_GROUPS_MAX
from towline.link.endpoints import InvalidEndpoint, parse
from towline.link.handshake import (
    encode_greeting,
    encode_refusal,
    encode_welcome,
    parse_greeting,
    read_greeting,
    read_refusal,
    read_welcome,
)
from towline.link.permissions import BadPattern, Permit
from towline.link.put_ring import NodeRing, Offer, RingBroken, RingRefused, requests_reader
from towline.node.roles.agreement import report_of
from towline.replication.handshake import SlaveGreeting

AREA: Final = put_ring.REQUESTS_SIZE_MIN
OWN: Final = {"cluster": "c", "store": "ab"}
SLAVE: Final[dict[str, Any]] = {
    "cluster": "c", "store": "ab", "node": 1, "instance": 7, "epochs": [[0, 0], [257, 1_000]], "end": 5_000,
    "empty": False, "segment_size": 1 << 20, "promised": 257, "before": None, "from_last": True,
    "seed": "offset:17", "seed_rate": 1_000,
}  # fmt: skip
RING: Final = {"pid": 1 << 30, "ring": 5, "bell": 6, "token": 7}
REPORT: Final = {
    "node": 1, "role": "slave", "epoch": 257, "epochs": [[0, 0], [257, 900]], "end": 5_000, "confirmed": 4_000,
    "promised": 257, "promised_node": 1, "in_sync": [0, 1], "in_sync_epoch": 257, "in_sync_version": 3,
    "in_sync_master": 1, "in_sync_floor": 2, "doubted": False, "floor": 1,
}  # fmt: skip
PERMIT: Final = {"name": "k", "roles": ["producer", "consumer"], "limits": {"topics": {"producer": ["orders-*"]}}}
EXPRESSION: Final = Pull(1, b"orders", 0, 17, 32, 1 << 20, 0, (), "a > 5 AND b = 'x'", "g", True)


def message(parts: Sequence[Buffer]) -> bytes:
    """Parts as a frame has them in its body."""
    return b"".join(map(bytes, encode_message(list(parts), from_node=True)))[HEAD_SIZE:]


def _wire_message(data: bytes) -> object:
    parts = decode_message(data)
    hold(message(parts) == data, "what was decoded is encoded to the same bytes")
    return len(parts)


def _message_size(data: bytes) -> object:
    size = message_size(data)
    hold(size == 0 or size >= LENGTH.size, "a frame has its length, so that a reader goes on")
    return size == 0, size > len(data)


def _put(data: bytes) -> object:
    request_id, epoch, deadline, groups = decode_put(data, REQUEST_GROUPS_MAX)
    made = encode_put(request_id, epoch, deadline, groups)
    hold(made[2:] == data[2:] and made[:1] == bytes([Kind.PUT]), "what was decoded is encoded to the same bytes")
    return len(groups) > 1


def _put_answer(data: bytes) -> object:
    found = decode_put_answer(data)
    again = decode_put_answer(put_answer_to(found.request_id, found))
    hold(again.places == found.places and again.status == found.status, "an answer handed on says the same")
    return len(found.places), read_sentence(found.sentence)[0]


def _sentence(data: bytes) -> object:
    cause, numbers, words = read_sentence(data.decode("utf-8", "replace"))
    again = read_sentence(sentence_of(cause, numbers, words=words))
    hold(again[0] is cause, "a sentence names the same cause again")
    return cause, len(numbers)


def _pull(data: bytes) -> object:
    parts = decode_message(data)
    found = decode_pull(parts)
    again = encode_pull(found)
    hold(decode_pull(again) == found, "what was decoded is encoded as it was")
    return len(found.codes), bool(found.expression)


def _json(data: bytes) -> object:
    facts = read_json(data)
    hold(isinstance(facts, dict), "a part is an object")
    return len(facts)


def _heads(data: bytes) -> object:
    """Heads of replication, and of what stands in a segment's file."""
    _, _, _, _, members, _ = expect_set(data)
    for layout in (HA_DATA, HA_ACK, HA_SET, STRETCH):
        expect(layout, data)
    return members > 0


def _greeting(data: bytes) -> object:
    parts = decode_message(data)
    facts = read_greeting(parts, OWN).facts
    hold(parse_greeting(parts).facts == facts, "one reader says what the other does")
    return SlaveGreeting.of(facts).newest > 0


def _welcome(data: bytes) -> object:
    parts = decode_message(data)
    refusal = read_refusal(parts)
    hold(isinstance(refusal.code, str), "a refusal has a code")
    return read_welcome(parts, OWN).version


def _greetings(more: Sequence[dict[str, Any]]) -> list[bytes]:
    return [message(encode_greeting(facts)) for facts in more]


def _answers() -> list[bytes]:
    rows = records()[:3]
    sizes = b"".join(len(row).to_bytes(4, "big") for row in rows)
    plain = [ANSWER.pack(Kind.ANSWER, 0, 7, 0), json_part({"topics": []})]
    found = [ANSWER.pack(Kind.ANSWER, 0, 7, 3), json_part({}), sizes, b"".join(rows)]
    names = ("UnknownTopic", "TOPIC_NOT_EXIST", "BadExpression", "NOT_MASTER", "Other")
    refusals = [
        [ANSWER.pack(Kind.ANSWER, 1, 7, 0), json_part({"error": name, "sentence": "s", "remedy": "r", "position": 3})]
        for name in names
    ]
    return [message(parts) for parts in (plain, found, *refusals)]


def _answer(data: bytes) -> object:
    reply = read_answer("op", {"topic": "T"}, decode_message(data))
    return len(reply.columns)


def _permit(data: bytes) -> object:
    made = Permit.read(read_json(data))
    hold(Permit.read(json.loads(json.dumps(made.facts))).facts == made.facts, "what was read is written as it was")
    return len(made.facts["roles"])


def _endpoint(data: bytes) -> object:
    found = parse(data.decode("utf-8", "replace"))
    if found.scheme in ("tcp", "ipc"):
        hold(parse(str(found)) == found, "an endpoint is written as it was read")
    return found.scheme, found.is_local


def _offer(data: bytes) -> object:
    """The ring that a node offers, and the one that a client describes, which is not there."""
    facts = read_json(data)
    found = Offer.of(facts)
    try:
        NodeRing(facts, AREA, 1)
    except RingRefused:
        return None if found is None else put_ring.fits_area(found.size)
    raise Broken("there is no such ring")


def _report(data: bytes) -> object:
    """What a node says of itself to those that agree on a master."""
    found = report_of(read_json(data))
    return found.in_sync is None, len(found.epochs)


def _ring(data: bytes) -> object:
    """The first 8 bytes are where the other side says that its entries end; then the area, which they fill round it."""
    view = memoryview(bytearray(put_ring.file_size(AREA)))
    memory = SimpleNamespace(view=view, words=view.cast("q"))
    view[put_ring.HEAD_SIZE : put_ring.HEAD_SIZE + len(data[8:])] = data[8:]
    (memory.words[put_ring.Word.REQUESTS_TAIL],) = struct.unpack("<q", data[:8].ljust(8, b"\0"))
    reader, count = requests_reader(memory, AREA), 0
    while (taken := reader.take(put_ring.entry_max(AREA))) is not None:
        hold(len(taken[1]) <= put_ring.entry_max(AREA), "an entry is not larger than one may be")
        count += 1
        hold(count <= AREA // put_ring.WORD, "there are no more than fit")
    return count


def _rings() -> list[bytes]:
    entries = b""
    for size in (3, 40, 0):
        entry = put_ring.request_word(2, size).to_bytes(8, "little") + bytes(range(size))
        entries += entry.ljust(put_ring.padded(size), b"\0")
    pad = put_ring.PAD.to_bytes(8, "little", signed=True)
    return [len(entries).to_bytes(8, "little") + entries, AREA.to_bytes(8, "little") + pad]


def _ring_words(data: bytes) -> object:
    word = int.from_bytes(data[:8].ljust(8, b"\0"), "big") >> 1
    head, size, stamp = put_ring.read_request_word(word)
    hold(put_ring.request_word(head, size, stamp) == word, "a word of a ring is written as it was read")
    return head > size


TARGETS: Final = (
    Target(
        name="wire.message", covers=("towline.format.remoting.wire_message:decode_message",),
        seeds=lambda: [message([b"head"]), message([b"head", b"", b"x" * 40]), message([b"a"] * PARTS_MAX)],
        run=_wire_message, refusals=(MalformedFrame,), weight=2,
    ),
    Target(
        name="wire.frame", covers=("towline.format.remoting.wire_message:message_size",),
        seeds=lambda: [b"".join(map(bytes, encode_message([b"head", b"more"], from_node=True)))],
        run=_message_size, refusals=(MalformedFrame,), size_max=256,
    ),
    Target(
        name="wire.put", covers=("towline.format.wire.frames:decode_put",),
        seeds=lambda: [
            encode_put(1, 257, 1 << 60, [Group(b"orders", 0, 1, len(of()))]),
            encode_put(1, 0, -1, [Group(b"o", number, 2, 99) for number in range(5)]),
        ],
        run=_put, refusals=(MalformedFrame,), weight=2,
    ),
    Target(
        name="wire.put-answer", covers=("towline.format.wire.frames:decode_put_answer",),
        seeds=lambda: [
            encode_put_answer(1, 0, [(5, 1 << 30), (6, 1 << 31)]),
            encode_put_refusal(2, 8, 9, 3, 40, sentence_of(Cause.PAGE_CACHE, {"wait_ms": 7}, 40, "slow")),
        ],
        run=_put_answer, refusals=(MalformedFrame,), weight=2,
    ),
    Target(
        name="wire.refusal", covers=("towline.format.wire.refusals:read_sentence",),
        seeds=lambda: [
            sentence_of(Cause.FLUSH_BACKLOG, {"backlog_bytes": 9, "limit_bytes": 8}, 40, "slow").encode(),
            sentence_of(Cause.LEASE, {}).encode(), b"another sentence",
        ],
        run=_sentence, grammar=Grammar.TEXT, words=(b" a=1", b"ms", b"B", b": "),
    ),
    Target(
        name="wire.pull", covers=("towline.format.wire.frames:decode_pull",),
        seeds=lambda: [
            message(encode_pull(EXPRESSION)), message(encode_pull(Pull(1, b"T", 0, 0, 1, 1, 9, (5, -5)))),
        ],
        run=_pull, refusals=(MalformedFrame,), grammar=Grammar.JSON, weight=2,
    ),
    Target(
        name="wire.json", covers=("towline.format.wire.frames:read_json",),
        seeds=lambda: [json_part(SLAVE), json_part(PERMIT), b"{}"], run=_json, refusals=(MalformedFrame,),
        grammar=Grammar.JSON,
    ),
    Target(
        name="wire.replication", covers=("towline.format.wire.frames:expect_set",),
        seeds=lambda: [HA_SET.pack(Kind.HA_SET, 257, 1, 1, 3, 2), HA_SET.pack(Kind.HA_SET, 1, 1, 1, 1, 1)[:-8]],
        run=_heads, refusals=(MalformedFrame,), size_max=128, weight=0.5,
    ),
    Target(
        name="wire.greeting",
        covers=(
            "towline.link.handshake:read_greeting", "towline.link.handshake:parse_greeting",
            "towline.replication.handshake:SlaveGreeting.of",
        ),
        seeds=lambda: _greetings([SLAVE, SLAVE | {"seed": "last", "before": 3}, OWN]),
        run=_greeting, refusals=(MalformedFrame, LinkRefused), grammar=Grammar.JSON,
    ),
    Target(
        name="wire.welcome", covers=("towline.link.handshake:read_welcome", "towline.link.handshake:read_refusal"),
        seeds=lambda: [
            message(encode_welcome(1, OWN)), message(encode_refusal(LinkRefused("CLUSTER", "of another"))),
        ],
        run=_welcome, refusals=(MalformedFrame, LinkRefused), grammar=Grammar.JSON,
    ),
    Target(
        name="wire.answer", covers=("towline.client.link.rpc:read_answer",),
        seeds=_answers, run=_answer,
        refusals=(UnknownTopic, FilterRefused, AskRefused, MalformedFrame, MalformedRecord),
        grammar=Grammar.JSON,
    ),
    Target(
        name="wire.permit",
        covers=("towline.link.permissions:Permit.read", "towline.link.permissions:read_limits"),
        seeds=lambda: [json_part(PERMIT), json_part(PERMIT | {"limits": None})],
        run=_permit, refusals=(MalformedFrame, BadPattern, KeyError, TypeError), grammar=Grammar.JSON, weight=0.5,
    ),
    Target(
        name="wire.endpoint", covers=("towline.link.endpoints:parse",),
        seeds=lambda: [b"tcp://127.0.0.1:10911", b"tcp://[::1]:1", b"ipc:///run/x.sock", b"tls://h:1?ca=/a&cert=/b"],
        run=_endpoint, refusals=(InvalidEndpoint,), grammar=Grammar.TEXT, weight=0.5,
    ),
    Target(
        name="wire.offer", covers=("towline.link.put_ring:Offer.of",),
        seeds=lambda: [json_part({"put_ring": {"size": AREA, "generation": 3, "bell": "/run/put.bell"}} | RING)],
        run=_offer, refusals=(MalformedFrame,), grammar=Grammar.JSON, weight=0.5,
    ),
    Target(
        name="wire.report",
        covers=("towline.node.roles.agreement:report_of",),
        seeds=lambda: [json_part(REPORT)],
        run=_report,
        refusals=(MalformedFrame,),
        grammar=Grammar.JSON,
    ),
    Target(
        name="wire.ring", covers=("towline.link.put_ring:EntryReader.take",),
        seeds=_rings, run=_ring, refusals=(RingBroken,), words=(b"\xff" * 8, AREA.to_bytes(8, "little")), weight=0.1,
    ),
    Target(
        name="wire.ring-word", covers=("towline.format.wire.put_ring:read_request_word",),
        seeds=lambda: [put_ring.request_word(60, 300, 5).to_bytes(8, "big")], run=_ring_words, size_max=16, weight=0.2,
    ),
)  # fmt: skip
