"""Files of a store: fixed layouts, and JSON as RocketMQ's brokers write it."""

import json
import struct
import zlib
from typing import Final

import numpy as np

from tests.format.files.test_groups import GROUPS_5, OFFSETS_4, OFFSETS_5
from tests.format.files.test_topics import GOLDEN
from tests.fuzz.target import Grammar, Target, hold
from towline.errors import MalformedFile
from towline.format.files import (
    checkpoint,
    consume_queue,
    consume_queue_ext,
    durable,
    durable_slots,
    epochs,
    groups,
    index_file,
    topics,
)
from towline.format.files.checkpoint import Checkpoint
from towline.format.files.durable import Durable
from towline.format.files.epochs import Epoch
from towline.format.files.fastjson import dumps_fastjson
from towline.format.files.seed import parse_seed
from towline.format.files.topics import loads_fastjson

PATH: Final = "a/file"
STATE: Final = Durable(flushed=1 << 33, segment_base=1 << 30, queues_durable=1 << 33, log_min=1 << 30)
_DELETED: Final = '"towlineDeletedTopics":{"old":{"floors":{"0":17},"logOffset":9}},'


def _with_last_crc(data: bytes) -> bytes:
    """The last four bytes are a CRC of those before them."""
    return data[:-4] + zlib.crc32(data[:-4]).to_bytes(4, "big")


def _durable(data: bytes) -> object:
    found = durable.decode(data, PATH)
    again = durable.encode(found)
    hold(durable.decode(again, PATH) == found, "what was decoded is encoded as it was")
    hold(zlib.crc32(data[:-4]) == int.from_bytes(data[-4:], "big"), "a wrong byte is never handed out")
    return found.sync_failed


def _slots() -> list[bytes]:
    first, second = durable_slots.encode(2, STATE), durable_slots.encode(1, Durable())
    old = first[:512] + second[:512]
    return [first + second, durable_slots.first(STATE), old]


def _with_slot_crcs(data: bytes) -> bytes:
    made = bytearray(data)
    size = len(data) // 2
    for at in (0, size):
        slot = bytearray(made[at : at + 64])
        if len(slot) == 64:
            slot[8:60] = _with_last_crc(bytes(slot[8:60]))
            made[at : at + 64] = _with_last_crc(bytes(slot))
    return bytes(made)


def _durable_slots(data: bytes) -> object:
    sequence, found = durable_slots.decode(data, PATH)
    torn = durable_slots.torn(data)
    hold(len(torn) <= 2, "there are two slots")
    made = struct.pack(">Q", sequence) + durable.encode(found)
    hold(made in data or bool(found.sync_failed), "the newest state stands in the file")
    return len(torn), len(data)


def _epochs(data: bytes) -> object:
    found = epochs.decode(data, PATH)
    if found:
        hold(epochs.decode(epochs.encode(found), PATH) == found, "what was decoded is encoded as it was")
    return len(found)


def _with_epochs_crc(data: bytes) -> bytes:
    head, crc, lines = (*data.split(b"\n", 2), b"", b"")[:3]
    return b"%s\n%d\n%s" % (head, zlib.crc32(lines) & 0x7FFF_FFFF, lines) if crc else data


def _checkpoint(data: bytes) -> object:
    found = checkpoint.decode(data, PATH)
    fields = checkpoint.encode(found)[: checkpoint.LAYOUT.size]
    hold(fields == data[: checkpoint.LAYOUT.size], "the fields are those of the file")
    return any(data[checkpoint.CHECK_AT : checkpoint.CHECKED_SIZE])


def _checkpoints() -> list[bytes]:
    plain = checkpoint.encode(Checkpoint(1, 2, 3, 4, 5, 6))
    return [plain, checkpoint.sealed(plain), plain[:48]]


def _fixed(data: bytes) -> object:
    """Layouts of which any bytes are something, and fewer a `struct.error`."""
    header, entry = index_file.decode_header(data), index_file.decode_entry(data)
    hold(header.index_count >= 1, "the first entry has number 1")
    hold(header.index_count == 1 or index_file.encode_header(header) == data[: index_file.HEADER_SIZE], "header")
    hold(index_file.encode_entry(entry) == data[: index_file.ENTRY_SIZE], "entry")
    queued = consume_queue.decode(data, 20)
    made = consume_queue.encode(queued.physical_offset, queued.record_size, queued.tags_code)
    hold(made == data[20:40], "entry of a queue")
    return header.index_count == 1


def _units() -> list[bytes]:
    bitmaps = [b"", b"\x01" * 8, b"\xff" * 8, b"\x00" * 64]
    units = [consume_queue_ext.encode(consume_queue_ext.Unit(7, 1_700_000_000_000, each)) for each in bitmaps]
    return [
        b"".join(units) + consume_queue_ext.END + bytes(8), units[1] * 40 + bytes(4), units[1] * 20 + units[3] * 3,
        bytes(64),
    ]  # fmt: skip


def _ext(data: bytes) -> object:
    starts, end = consume_queue_ext.walk(np.frombuffer(data, np.uint8))
    at = 0
    for start in starts.tolist():
        unit = consume_queue_ext.decode(data, start)
        hold(start == at and unit is not None, "units stand one behind the other")
        assert unit is not None
        hold(consume_queue_ext.encode(unit) == data[start : start + unit.size], "and are encoded as they were")
        at += unit.size
    hold(at == end, "up to where the walk ended")
    return len(starts)


def _text(data: bytes) -> str:
    """As files of `config/` are read: what is no UTF-8 is refused by who opens them."""
    return data.decode("utf-8", "replace")


def _topics(data: bytes) -> object:
    content = loads_fastjson(_text(data), PATH)
    found = topics.read_topics(content, PATH)
    for topic in found.topics.values():
        topics.topic_facts(topic)
    made = topics.read_topics(topics.topics_content(found), PATH)
    hold(made == found, "what was read is written as it was")
    return len(found.topics), len(found.deleted)


def _groups(data: bytes) -> object:
    found = groups.read_groups(loads_fastjson(_text(data), PATH), PATH)
    made = groups.read_groups(groups.groups_content(found), PATH)
    hold(made.groups.keys() == found.groups.keys() and not made.left_out, "what was read is written as it was")
    return len(found.groups), len(found.left_out)


def _offsets(data: bytes) -> object:
    found = groups.read_offsets(loads_fastjson(_text(data), PATH), PATH)
    made = groups.read_offsets(groups.offsets_content(found), PATH)
    hold(made.offsets == found.offsets and not made.left_out, "what was read is written as it was")
    return len(found.offsets), len(found.left_out)


def _fastjson(data: bytes) -> object:
    content = loads_fastjson(_text(data), PATH)
    try:
        json.dumps(content, allow_nan=False)
    except (ValueError, RecursionError):  # NaN, or deeper than can be written
        return None
    again = dumps_fastjson(content)
    return loads_fastjson(again, PATH) == content


def _seed(data: bytes) -> object:
    found = parse_seed(_text(data))
    hold(parse_seed(str(found)) == found, "what was read is written as it was")
    return found.begin


TARGETS: Final = (
    Target(
        name="files.durable", covers=("towline.format.files.durable:decode",),
        seeds=lambda: [durable.encode(STATE), durable.encode(Durable(sync_failed=True))],
        run=_durable, refusals=(MalformedFile,), mend=_with_last_crc, size_max=128,
    ),
    Target(
        name="files.durable-slots",
        covers=("towline.format.files.durable_slots:decode", "towline.format.files.durable_slots:torn"),
        seeds=_slots, run=_durable_slots, refusals=(MalformedFile,), mend=_with_slot_crcs, size_max=8_300,
    ),
    Target(
        name="files.epochs", covers=("towline.format.files.epochs:decode", "towline.format.files.epochs:checked"),
        seeds=lambda: [epochs.encode((Epoch(0, 0), Epoch(257, 1_000), Epoch(513, 5_000))), b"1\n0\n0-0\n", b"0\n0\n"],
        run=_epochs, refusals=(MalformedFile,), grammar=Grammar.TEXT, words=(b"-", b"\n", b"\r\n", b"0-0\n"),
        mend=_with_epochs_crc, size_max=6_000,
    ),
    Target(
        name="files.checkpoint", covers=("towline.format.files.checkpoint:decode",),
        seeds=_checkpoints, run=_checkpoint, refusals=(MalformedFile,), mend=checkpoint.sealed,
    ),
    Target(
        name="files.layouts",
        covers=(
            "towline.format.files.index_file:decode_header", "towline.format.files.index_file:decode_entry",
            "towline.format.files.consume_queue:decode",
        ),
        seeds=lambda: [bytes(range(40)), index_file.encode_header(index_file.Header(1, 2, 3, 4, 5, 6)), bytes(40)],
        run=_fixed, refusals=(struct.error,), size_max=128,
    ),
    Target(
        name="files.queue-ext",
        covers=("towline.format.files.consume_queue_ext:decode", "towline.format.files.consume_queue_ext:walk"),
        seeds=_units, run=_ext, words=(consume_queue_ext.END,),
    ),
    Target(
        name="files.topics",
        covers=("towline.format.files.topics:loads_fastjson", "towline.format.files.topics:read_topics"),
        seeds=lambda: [GOLDEN.encode(), GOLDEN.replace("{", "{" + _DELETED, 1).encode(), b"{}"],
        run=_topics, refusals=(MalformedFile,), grammar=Grammar.JSON,
        words=(b'"retention.ms":"1000"', b'"towlineDeletedTopics":', b"{0:1}"),
    ),
    Target(
        name="files.groups",
        covers=("towline.format.files.groups:read_groups", "towline.format.files.groups:read_group"),
        seeds=lambda: [GROUPS_5.encode(), b"{}"], run=_groups, refusals=(MalformedFile,), grammar=Grammar.JSON,
    ),
    Target(
        name="files.offsets", covers=("towline.format.files.groups:read_offsets",),
        seeds=lambda: [OFFSETS_5.encode(), OFFSETS_4.encode(), b"{}"],
        run=_offsets, refusals=(MalformedFile,), grammar=Grammar.JSON, words=(b"{0:1}", b"@", b'"a@b":'),
    ),
    Target(
        name="files.fastjson", covers=("towline.format.files.topics:loads_fastjson",),
        seeds=lambda: [OFFSETS_5.encode(), GROUPS_5.encode(), GOLDEN.encode()],
        run=_fastjson, refusals=(MalformedFile,), grammar=Grammar.JSON, words=(b'"offsetTable":', b"{0:1}", b"{-1:2}"),
    ),
    Target(
        name="files.seed", covers=("towline.format.files.seed:parse_seed",),
        seeds=lambda: [b"oldest", b"last", b"offset:17", b"time:1700000000000"],
        run=_seed, refusals=(ValueError,), grammar=Grammar.TEXT, size_max=6_000, weight=0.5,
    ),
)  # fmt: skip
