"""Kafka's files: batches and messages of every version and compression, indexes, checkpoints."""

import struct
import zlib
from typing import Final

import numpy as np

from tests.fuzz.target import Grammar, Target, hold
from tests.kafka import golden
from tests.kafka.golden import BATCHES, MESSAGES
from tests.kafka.samples import T0, plain
from towline.kafka.errors import MalformedBytes, RecordsTooLarge
from towline.kafka.format import (
    batch,
    checkpoints,
    compression,
    control,
    message_set,
    meta_properties,
    offset_index,
    partition_metadata,
    producer_snapshot,
    records,
    time_index,
    transaction_index,
    varints,
)
from towline.kafka.format.batch import Compression
from towline.kafka.format.building import Form, build, end_transaction, gaps
from towline.kafka.format.control import ControlType
from towline.kafka.format.producer_snapshot import Producer, crc32c
from towline.kafka.format.transaction_index import Aborted
from towline.kafka.log.reading import decode as decode_batches
from towline.kafka.log.scan import is_control, is_transactional, scan
from towline.kafka.log.torn import is_torn

SIZE_MAX: Final = 1 << 20  # bytes that records restore to
BASE: Final = 1_000
WORDS: Final = (
    b"\x82SNAPPY\x00",
    b"\x04\x22\x4d\x18",
    b"\x28\xb5\x2f\xfd",
    b"\x1f\x8b",
    b"\x01",
    b"\x80\x80\x80\x80\x08",
)


def _segments() -> list[bytes]:
    """Batches of each compression, messages of each magic, and what brokers write beside them."""
    found = [
        bytes.fromhex(text)
        for text in (*BATCHES.values(), *MESSAGES.values(), golden.APPENDED, golden.TRANSACTIONS_LOG)
    ]
    kinds = [build(plain(6), Form(kind, producer_id=7, producer_epoch=1, base_sequence=3)) for kind in Compression]
    ends = [end_transaction(ControlType.ABORT, 9, T0, 7, 3), gaps(5, 17)]
    small = build(plain(40), Form(batch_size=300))
    return [*found, *(each.tobytes() for each in (*kinds, *ends, small)), found[0] + kinds[1].tobytes()[:40]]


def with_crcs(data: bytes) -> bytes:
    """With the CRC that each batch and message has, as far as their sizes lead."""
    made, at = bytearray(data), 0
    while at + 21 <= len(made):
        end = at + batch.OVERHEAD + int.from_bytes(made[at + 8 : at + 12], "big")
        if end > len(made):
            break
        if made[at + batch.MAGIC_AT] == batch.MAGIC and end - at >= batch.SIZE:
            made[at + batch.CRC_AT : at + 21] = crc32c(bytes(made[at + 21 : end])).to_bytes(4, "big")
        elif end - at >= message_set.SIZE_MIN:
            made[at + 12 : at + 16] = zlib.crc32(made[at + 16 : end]).to_bytes(4, "big")
        at = max(end, at + 12)
    return bytes(made)


def _segment(data: bytes) -> object:
    held = np.frombuffer(data, np.uint8)
    found = scan(held, check_crcs=len(data) % 8 > 0)
    is_torn(held, found, 0)
    is_transactional(found.batches)
    if not len(found.batches):
        return None if found.fault is None else found.fault.rule
    columns = decode_batches(held, found.batches, SIZE_MAX)
    made = columns.records
    hold(len(columns.row) == len(made), "each record has its batch")
    for blobs in (made.key, made.value, made.headers):
        blobs.contiguous()  # raises for a place outside of the bytes
    columns.sequences()
    for blob in made.headers.to_list()[:20]:
        records.decode_headers(blob)
    for row in np.flatnonzero(is_control(found.batches)[columns.row])[:5].tolist():
        if control.decode_key(made.key.at(row)) in control.ENDS:
            control.decode_value(made.value.at(row))
    return len(found.batches) > 1, len(made) > 3, None if found.fault is None else found.fault.rule


def _messages(data: bytes) -> object:
    held = np.frombuffer(data, np.uint8)
    positions, ends = message_set.split(held)
    hold((positions[1:] == ends[:-1]).all(), "messages stand one behind the other")
    if not len(positions):
        return None
    found, rows, count = message_set.decode(held, positions, ends, size_max=SIZE_MAX, enough=SIZE_MAX)
    hold(len(found) == len(rows) and count <= len(positions), "each record has its message")
    for blobs in (found.key, found.value):
        blobs.contiguous()
    return count == len(positions), len(found) > count


def _heads(data: bytes) -> object:
    found = batch.decode(data)
    hold(batch.encode(found) == data[: batch.SIZE], "a head is encoded as it was")
    one = batch.decode_many(np.frombuffer(data, np.uint8), np.zeros(1, np.int64))[0]
    hold(tuple(one.item()) == tuple(found), "one and many are read alike")
    return found.last_sequence < 0, found.size < 0


def _compressed() -> list[bytes]:
    body = b"towline " * 100
    made = [bytes([kind]) + compression.compress(body, kind) for kind in Compression]
    two = bytes([Compression.GZIP]) + compression.compress(body, Compression.GZIP) * 2
    zstd = bytes([Compression.ZSTD]) + compression.compress(body, Compression.ZSTD) * 2
    bombs = [bytes([kind]) + compression.compress(bytes(3 * SIZE_MAX), kind)[:4_000] for kind in Compression]
    raw = bytes([Compression.SNAPPY]) + b"\x05\x10hello"
    return [*made, two, zstd, raw, *bombs[1:], bytes([Compression.LZ4 + 8]) + made[Compression.LZ4][1:]]


def _decompress(data: bytes) -> object:
    kind = data[0] if data else 0
    found = compression.decompress(data[1:], kind % 8, SIZE_MAX, broken_lz4=kind >= 8)
    hold(len(found) <= SIZE_MAX or kind % 8 == 0, "no more is restored than is allowed")
    return kind % 8, len(found) > 0


def _record_headers(data: bytes) -> object:
    found = records.decode_headers(data)
    made = records.encode_headers(found)
    hold(records.decode_headers(made) == found, "headers are encoded as they were")
    return len(found)


def _varint(data: bytes) -> object:
    size_max = varints.INT_BYTES if len(data) % 2 else varints.LONG_BYTES
    value, end = varints.decode(data, 0, size_max)
    hold(0 < end <= size_max, "a number has its bytes")
    if -(1 << 63) <= value < 1 << 63:
        hold(varints.decode(varints.encode(value))[0] == value, "a number is encoded as it was")
    return end


def _indexes(data: bytes) -> object:
    offsets, positions = offset_index.decode(data, BASE)
    if len(offsets) and offsets.max() < BASE + (1 << 31):
        made = offset_index.encode(BASE, offsets, positions)
        hold(data.startswith(made), "entries are encoded as they were")
    times, ends = time_index.decode(data, BASE)
    made = time_index.encode(BASE, times, ends)
    hold(data.startswith(made), "and those of times")
    return len(offsets) > 1, len(times) > 1


def _snapshot(data: bytes) -> object:
    found = producer_snapshot.decode(data)
    hold(producer_snapshot.encode(found) == data, "a snapshot is encoded to the same bytes")
    return len(found)


def _with_snapshot_crc(data: bytes) -> bytes:
    return data[:2] + crc32c(data[6:]).to_bytes(4, "big") + data[6:] if len(data) > 6 else data


def _transactions(data: bytes) -> object:
    found = transaction_index.decode(data)
    hold(transaction_index.encode(found) == data, "entries are encoded to the same bytes")
    return len(found)


def _epochs(data: bytes) -> object:
    found = checkpoints.decode_epochs(data)
    hold(checkpoints.decode_epochs(checkpoints.encode_epochs(found)) == found, "lines are written as they were read")
    return len(found)


def _offsets(data: bytes) -> object:
    found = checkpoints.decode_offsets(data)
    if all(topic.isascii() for topic, _ in found):
        made = checkpoints.encode_offsets(found)
        hold(checkpoints.decode_offsets(made) == found, "lines are written as they were read")
    return len(found)


def _meta(data: bytes) -> object:
    found = meta_properties.decode(data)
    texts = (found.cluster_id, found.directory_id)
    if all(text is None or (text.isascii() and text.isprintable() and "\\" not in text) for text in texts):
        hold(meta_properties.decode(meta_properties.encode(found)) == found, "it is written as it was read")
    return found.version, found.node_id is None


def _partition(data: bytes) -> object:
    found = partition_metadata.decode(data)
    hold(partition_metadata.decode(partition_metadata.encode(found)) == found, "it is written as it was read")
    return True


TARGETS: Final = (
    Target(
        name="kafka.segment",
        covers=(
            "towline.kafka.log.scan:scan", "towline.kafka.log.torn:is_torn",
            "towline.kafka.log.reading:decode", "towline.kafka.format.records:decode",
            "towline.kafka.format.records:decode_headers", "towline.kafka.format.batch:decode_many",
            "towline.kafka.format.message_set:decode", "towline.kafka.format.message_set:frames",
            "towline.kafka.format.message_set:parts", "towline.kafka.format.compression:decompress",
            "towline.kafka.format.control:decode_key", "towline.kafka.format.control:decode_value",
        ),
        seeds=_segments, run=_segment, refusals=(MalformedBytes, RecordsTooLarge), words=WORDS, mend=with_crcs,
        is_compiled=True, weight=2,
    ),
    Target(
        name="kafka.messages",
        covers=("towline.kafka.format.message_set:split", "towline.kafka.format.message_set:decode"),
        seeds=lambda: [bytes.fromhex(text) for text in (*MESSAGES.values(), golden.APPENDED)],
        run=_messages, refusals=(MalformedBytes, RecordsTooLarge), words=WORDS, is_compiled=True,
    ),
    Target(
        name="kafka.head", covers=("towline.kafka.format.batch:decode", "towline.kafka.format.batch:decode_many"),
        seeds=lambda: [bytes.fromhex(text) for text in BATCHES.values()], run=_heads, refusals=(struct.error,),
        size_max=128, weight=0.5,
    ),
    Target(
        name="kafka.compression", covers=("towline.kafka.format.compression:decompress",),
        seeds=_compressed, run=_decompress, refusals=(MalformedBytes, RecordsTooLarge), words=WORDS, size_max=16_384,
    ),
    Target(
        name="kafka.headers", covers=("towline.kafka.format.records:decode_headers",),
        seeds=lambda: [records.encode_headers([("a", b"1"), ("\u4e2d", None), ("", b"")]), b"\0"],
        run=_record_headers, refusals=(MalformedBytes,), words=WORDS,
    ),
    Target(
        name="kafka.varint", covers=("towline.kafka.format.varints:decode",),
        seeds=lambda: [varints.encode(value) for value in (0, -1, 300, 1 << 40, -(1 << 63), (1 << 63) - 1)],
        run=_varint, refusals=(MalformedBytes,), size_max=16, weight=0.5,
    ),
    Target(
        name="kafka.indexes",
        covers=("towline.kafka.format.offset_index:decode", "towline.kafka.format.time_index:decode"),
        seeds=lambda: [
            bytes.fromhex(golden.OFFSET_INDEX), bytes.fromhex(golden.TIME_INDEX),
            bytes.fromhex(golden.OFFSET_INDEX) + bytes(64),
        ],
        run=_indexes, size_max=512,
    ),
    Target(
        name="kafka.snapshot", covers=("towline.kafka.format.producer_snapshot:decode",),
        seeds=lambda: [
            bytes.fromhex(golden.SNAPSHOT),
            producer_snapshot.encode([Producer(n, 0, 1, 2, 3, T0, -1, -1) for n in range(4)]),
        ],
        run=_snapshot, refusals=(MalformedBytes,), mend=_with_snapshot_crc, size_max=1_024,
    ),
    Target(
        name="kafka.transactions", covers=("towline.kafka.format.transaction_index:decode",),
        seeds=lambda: [
            bytes.fromhex(golden.TRANSACTION_INDEX),
            transaction_index.encode([Aborted(1, n, 10 + n, 20) for n in range(5)]),
        ],
        run=_transactions, refusals=(MalformedBytes,), size_max=512,
    ),
    Target(
        name="kafka.epochs", covers=("towline.kafka.format.checkpoints:decode_epochs",),
        seeds=lambda: [golden.LEADER_EPOCHS.encode(), b"0\n2\n0 0\n3 17\n", b""],
        run=_epochs, refusals=(MalformedBytes,), grammar=Grammar.TEXT, words=(b"\n", b" ", b"\xa0", b"\x85"),
    ),
    Target(
        name="kafka.offsets", covers=("towline.kafka.format.checkpoints:decode_offsets",),
        seeds=lambda: [b"0\n2\nT 0 17\nU 1 9\n", b"0\n0\n"],
        run=_offsets, refusals=(MalformedBytes,), grammar=Grammar.TEXT, words=(b"\n", b" ", b"\xa0", b"\x85"),
    ),
    Target(
        name="kafka.meta", covers=("towline.kafka.format.meta_properties:decode",),
        seeds=lambda: [golden.META_PROPERTIES.encode(), b"version=0\nbroker.id=3\n"],
        run=_meta, refusals=(MalformedBytes,), grammar=Grammar.TEXT, words=(b"\n", b"=", b"\\", b"\x85", b"#"),
    ),
    Target(
        name="kafka.partition", covers=("towline.kafka.format.partition_metadata:decode",),
        seeds=lambda: [golden.PARTITION_METADATA.encode()], run=_partition, refusals=(MalformedBytes,),
        grammar=Grammar.TEXT, size_max=256, weight=0.5,
    ),
)  # fmt: skip
