"""Records of the log, and what is in them."""

import zlib
from contextlib import suppress
from dataclasses import replace
from typing import Final

import lz4.frame
import numpy as np

from tests.fuzz.target import Grammar, Target, hold
from towline.client.columns import Columns
from towline.client.read.checks import parsed
from towline.errors import (
    DecompressedTooLarge,
    IllegalMessageId,
    IllegalProperty,
    MalformedRecord,
    UnreadableBody,
)
from towline.format.record import (
    compression,
    message_id,
    properties,
    property_crc,
    record,
    sequence,
    sequence_columns,
    skipped,
    transactions,
)
from towline.format.record.columns import parts_of
from towline.format.record.forms import delayed
from towline.format.record.record import LAYOUT, SIZE_MIN, Host, Record
from towline.format.record.retries import sent_back
from towline.format.record.torn import is_torn
from towline.link.permissions import real_topics_of_each, seen_topics

V6: Final = Host(bytes(range(16)), 10_911)
BODY_MAX: Final = 1 << 20
PROPERTIES: Final = b"TAGS\x01TagA\x02KEYS\x01k1 k2\x02UNIQ_KEY\x017F00000100002A9F18B4AAC2\x02WAIT\x01true\x02"
HALF: Final = b"REAL_TOPIC\x01orders\x02REAL_QID\x013\x02TRAN_MSG\x01true\x02PGROUP\x01pg\x02UNIQ_KEY\x01AB\x02"
CHECKED: Final = HALF + b"TRANSACTION_CHECK_TIMES\x012\x02TRAN_PREPARED_QUEUE_OFFSET\x0117\x02"
_PLACE_SIZES: Final = (sequence.SIZE, sequence.SIZE + property_crc.SIZE)  # of properties that are a place
WORDS: Final = (
    *(
        b"\x01",
        b"\x02",
        b"\x00",
        b"\xda\xa3\x20\xa7",
        b"\xda\xa3\x20\xab",
        b"\xcb\xd4\x31\x94",
        property_crc.PLACEHOLDER,
    ),
    *(b"TAGS\x01", b"KEYS\x01", b"DELAY\x01", b"UNIQ_KEY\x01", b"REAL_TOPIC\x01", b"REAL_QID\x01", b"/", b"%RETRY%"),
    *(b"\xff\xfe", b"\xed\xa0\x80", b"\xf0\x9f\x98\x80", b"CHECK_IMMUNITY_TIME_IN_SECONDS\x01", b"TOWLINE_STORED\x01"),
)


def of(topic: bytes = b"orders", body: bytes = b"body", **fields: object) -> bytes:
    made = Record(topic=topic, body=body, properties=PROPERTIES, physical_offset=0, store_timestamp=1_700_000_000_000)
    return record.encode(replace(made, **fields))  # type: ignore[arg-type]


def records() -> list[bytes]:
    """One of each shape."""
    long = b"%RETRY%" + b"g" * 200
    whole = of(properties=property_crc.appended(PROPERTIES))
    lost = skipped.Lost(b"orders", 1, 7, 3)
    return [
        of(), of(body=b""), of(topic=long), of(born_host=V6), of(store_host=V6), of(born_host=V6, store_host=V6),
        of(properties=b""), property_crc.filled(whole), of(body=bytes(range(256)) * 2, sys_flag=0x301),
        of(topic=transactions.HALF, properties=HALF), of(topic=transactions.HALF, properties=CHECKED),
        of(topic=transactions.OP, body=b"17,18,19", properties=b"TAGS\x01d\x02TOWLINE_OUTCOME\x01COMMITTED\x02"),
        skipped.encode(300, 0, lost, 1_700_000_000_000, with_crc=True),
    ]  # fmt: skip


def with_crc(data: bytes) -> bytes:
    """With the CRC that the body has, where its length is within the record."""
    if len(data) < LAYOUT.size:
        return data
    layout = record.layout_of(int.from_bytes(data[36:40], "big"))
    body_at, size_at = layout.size, layout.offset["body_size"]
    size = int.from_bytes(data[size_at : size_at + 4], "big")
    if body_at + size > len(data):
        return data
    crc = record.body_crc(data[body_at : body_at + size])
    return data[: LAYOUT.offset["body_crc"]] + crc.to_bytes(4, "big") + data[LAYOUT.offset["queue_id"] :]


def _decode(data: bytes) -> object:
    is_torn(memoryview(data), 0)
    force = len(data) % 4 == 0
    found = record.decode(data, force_property_crc=force)
    size = int.from_bytes(data[:4], "big")
    layout = record.layout_of(found.sys_flag)
    hold(data[layout.size : layout.size + len(found.body)] == found.body, "the body is the record's own")
    hold(zlib.crc32(found.body) & 0x7FFF_FFFF == int.from_bytes(data[8:12], "big"), "a wrong byte is never handed out")
    hold(not force or property_crc.filled(data[:size]) == data[:size], "nor one under the property CRC")
    again = record.encode(found)
    hold(record.decode(again) == found, "what was decoded is encoded as it was")
    if again[4:8] == data[4:8]:  # a short topic in V2 becomes V1
        hold(again == data[:size], "and to the same bytes")
    hold(not is_torn(memoryview(data), 0), "a whole record is not torn")
    skipped.is_hole(data)
    return layout.size, force, skipped.count_of(data) is None


def _properties(data: bytes) -> object:
    found = properties.decode(data)
    hold(all(found) and all(found.values()), "neither a name nor a value is empty")
    encoded = properties.encode(found.items())
    kept = {name: value for name, value in found.items() if not name.startswith(properties.TRANSIENT_PREFIX)}
    hold(properties.decode(encoded) == kept, "what was encoded is decoded as it was")
    return len(found) > 1


def _again(data: bytes) -> object:
    """What schedule and a group make of a record."""
    found = record.decode(data, check_crc=False)
    transactions.read_half(found)
    op = transactions.read_op(found)
    made = [
        transactions.checked_again(found, V6),
        transactions.moved(found, V6),
        transactions.put_aside(found, V6),
        sent_back(found, delayed("orders", 0, 3), {}, 1, append_property_crc=bool(op.offsets)),
    ]
    for each in made:
        record.decode(each)
    for make in (lambda: transactions.committed(found, V6), lambda: transactions.as_sent(found)):
        with suppress(MalformedRecord):  # the real topic is none
            record.decode(make())
    return bool(op.offsets), op.outcome


def _compressed() -> list[bytes]:
    body = b"towline " * 64
    kinds = {"zlib": b"\x03", "lz4": b"\x01", "zstd": b"\x02"}
    made = [kinds[name] + compression.Compressor(name, 0).compress(body)[0] for name in compression.KINDS]
    bombs = [b"\x03" + zlib.compress(bytes(4 << 20)), b"\x01" + lz4.frame.compress(bytes(2 << 20), store_size=True)]
    return [*made, b"\x00" + zlib.compress(body), *bombs]


def _decompress(data: bytes) -> object:
    kind = data[0] % 8 if data else 0
    found = compression.decompress(data[1:], record.COMPRESSED | kind << 8, BODY_MAX)
    hold(len(found) <= BODY_MAX, "no body is larger than its cap")
    return kind, len(found) > 0


def _answer(data: bytes) -> tuple[bytes, bytes]:
    """Sizes and records of a pull's answer: the sizes stand in front, behind their number of bytes."""
    size = int.from_bytes(data[:2], "big")
    return data[2 : 2 + size], data[2 + size :]


def _answers() -> list[bytes]:
    found = []
    for rows in ([of()], records(), [of(body=b"x" * 300)] * 5, []):
        sizes = b"".join(len(row).to_bytes(4, "big") for row in rows)
        found.append(len(sizes).to_bytes(2, "big") + sizes + b"".join(rows))
    return found


def _columns(data: bytes) -> object:
    sizes, rows = _answer(data)
    checked = parsed(sizes, rows, "orders", 0, "broker-a", 0)
    found = checked.sound
    if found is None:
        return checked.damage is not None
    damaged = set(found.damaged())
    bodies, topics, encoded = found.stored_bodies(), found.topics(), found.properties()
    for row, start in enumerate(found.start.tolist()):
        with suppress(MalformedRecord):  # it looks at more
            one = record.decode(rows, start, check_crc=False)
            hold((one.body, one.topic, one.properties) == (bodies[row], topics[row], encoded[row]), "parts are equal")
            crc = zlib.crc32(one.body) & 0x7FFF_FFFF
            hold((row in damaged) == (crc != found.body_crc[row]), "a damaged body is named")
            hold(one.queue_offset == found.queue_offset[row], "numbers are equal")
    hold(len(found.unique_keys()) == len(found.store_timestamp) == len(found.born_timestamp), "columns are as long")
    return len(found) > 1, bool(damaged), checked.damage is None


def _bodies(data: bytes) -> object:
    sizes, rows = _answer(data)
    return len(Columns(sizes, rows).bodies(BODY_MAX))


def _parts(data: bytes) -> object:
    held = np.frombuffer(data, np.uint8)
    found = parts_of(held, np.zeros(1, np.int64), np.full(1, len(data)))
    end = int(found.properties_start[0])
    hold(end + 1 >= SIZE_MIN - 1 and end <= len(data), "no part lies beyond the record")
    return int(found.topic_size[0]) > 127


def _message_ids(data: bytes) -> object:
    text = data.decode("latin-1")
    for read in (message_id.decode_offset_id, message_id.decode_unique_key):
        with suppress(IllegalMessageId):
            found = read(text)
            if isinstance(found, message_id.OffsetId):
                made = message_id.encode_offset_id(found.store_host, found.physical_offset)
                hold(made == text.upper(), "an id is written as it was read")
    return message_id.decode_offset_id(text).store_host.is_ipv6


def _ids() -> list[bytes]:
    hosts = (Host(bytes([10, 0, 0, 1]), 10_911), V6)
    return [message_id.encode_offset_id(host, 1 << 40).encode() for host in hosts]


def _place(data: bytes) -> object:
    found = sequence.decode(data)
    hold(found is None or sequence.encode(found) == data, "a place is written as it was read")
    return found is None


def _many_places(data: bytes) -> object:
    """The first byte says what follows the properties' last pair but this; every end is looked at."""
    behind = property_crc.SIZE if data[:1] > b"\x7f" else 0
    log = data[1:]
    found = sequence_columns.find(np.frombuffer(log, np.uint8), np.arange(len(log) + 1), behind)
    wanted = []
    for end in range(sequence.SIZE + 2, len(log) + 1):
        at = end - sequence.SIZE
        place = sequence.decode(log[at:end])
        begins = log[at - 1 : at] == sequence.TAIL or int.from_bytes(log[at - 2 : at]) == sequence.SIZE + behind
        if place is not None and begins:
            wanted.append((end, *place))
    hold(list(zip(*(column.tolist() for column in found), strict=True)) == wanted, "many are found as one is")
    return behind, len(wanted)


def _logs() -> list[bytes]:
    place, crc = sequence.encode(sequence.Place(7, 8 << 20, 9)), property_crc.PLACEHOLDER
    with_others = [PROPERTIES + place, b"a" + place, PROPERTIES[:-1] + place]
    logs = [len(each).to_bytes(2) + each for each in (place, *with_others)]
    logs += [len(each + crc).to_bytes(2) + each + crc for each in (place, *with_others)]
    return [first + each for first in (b"\x00", b"\xff") for each in (*logs, b"".join(logs[:3]))]


def _topics(data: bytes) -> object:
    seen, real = seen_topics(data), set(real_topics_of_each(data))
    hold(seen is None or real <= seen, "one search over all bytes misses no topic")
    return seen is None, len(real)


TARGETS: Final = (
    Target(
        name="record",
        covers=(
            "towline.format.record.record:decode", "towline.format.record.torn:is_torn",
            "towline.format.record.skipped:count_of", "towline.format.record.skipped:is_hole",
            "towline.format.record.property_crc:broken",
        ),
        seeds=records, run=_decode, refusals=(MalformedRecord,), words=WORDS, mend=with_crc, weight=3,
    ),
    Target(
        name="record.properties", covers=("towline.format.record.properties:decode",),
        seeds=lambda: [PROPERTIES, PROPERTIES[:-1], HALF, b"", "KEYS\x01中文\x02".encode()],
        run=_properties, refusals=(IllegalProperty,), words=WORDS, weight=2,
    ),
    Target(
        name="record.transactions",
        covers=(
            "towline.format.record.transactions:read_half", "towline.format.record.transactions:read_op",
            "towline.format.record.retries:sent_back",
        ),
        seeds=records, run=_again, refusals=(MalformedRecord, IllegalProperty), words=WORDS, grammar=Grammar.TEXT,
    ),
    Target(
        name="record.compression", covers=("towline.format.record.compression:decompress",),
        seeds=_compressed, run=_decompress, refusals=(UnreadableBody, DecompressedTooLarge), size_max=32_768,
    ),
    Target(
        name="record.columns",
        covers=("towline.client.read.checks:parsed", "towline.format.record.columns:parts_of"),
        seeds=_answers, run=_columns, refusals=(MalformedRecord,), words=WORDS,
    ),
    Target(
        name="record.bodies", covers=("towline.client.columns:Columns.bodies",),
        seeds=_answers, run=_bodies, refusals=(MalformedRecord, UnreadableBody, DecompressedTooLarge), words=WORDS,
        weight=0.5,
    ),
    Target(
        name="record.parts", covers=("towline.format.record.columns:parts_of",),
        seeds=records, run=_parts, refusals=(MalformedRecord,), words=WORDS,
    ),
    Target(
        name="record.ids",
        covers=(
            "towline.format.record.message_id:decode_offset_id", "towline.format.record.message_id:decode_unique_key",
        ),
        seeds=_ids, run=_message_ids, refusals=(IllegalMessageId,), grammar=Grammar.TEXT, size_max=200,
    ),
    Target(
        name="record.sequence", covers=("towline.format.record.sequence:decode",),
        seeds=lambda: [sequence.ROOM, sequence.encode(sequence.Place(7, 8 << 20, 9))], run=_place, size_max=200,
        grammar=Grammar.TEXT,
    ),
    Target(
        name="record.sequences",
        covers=("towline.format.record.sequence_columns:find", "towline.format.record.sequence:decode"),
        seeds=_logs, run=_many_places, size_max=800,
        words=(sequence.HEAD, sequence.ROOM, b"\x02", b"-", *(size.to_bytes(2) for size in _PLACE_SIZES)),
    ),
    Target(
        name="record.topics",
        covers=("towline.link.permissions:seen_topics", "towline.link.permissions:real_topics_of_each"),
        seeds=lambda: [b"".join(records()), of() * 3], run=_topics, refusals=(MalformedRecord,), words=WORDS,
    ),
)  # fmt: skip
