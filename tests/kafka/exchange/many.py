"""A store with very many messages, made by columns: bodies that all differ, with a key, a tag and a UNIQ_KEY."""

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from tests.spark.stores import NOON, QUEUE_FILE, MadeStore
from towline.format.files.consume_queue import ENTRY
from towline.format.record import blank, record
from towline.format.record.property_crc import CRC_MASK
from towline.format.record.record import LAYOUT, Record
from towline.kernels.base.crc import crc32_each
from towline.limits import BLANK_SIZE_MIN
from towline.log.queues.consume_queue import ConsumeQueueFiles

Bytes = NDArray[np.uint8]
Numbers = NDArray[np.int64]
PROPERTIES = b"KEYS\x01key-%010d\x02TAGS\x01red\x02UNIQ_KEY\x017F00000100002A9F4B6C00%010d\x02WAIT\x01true\x02"
DIGITS = 10


def many(root: Path, count: int, queues: int, body_size: int = 1024, segment_size: int = 1 << 27) -> MadeStore:
    """Of topic `many`: message n of the store is number n // queues of queue n % queues, born at NOON + n // 10 ms."""
    made = MadeStore(root, segment_size)
    template = _template(body_size)
    per = (segment_size - BLANK_SIZE_MIN) // len(template)
    queue_file = QUEUE_FILE * 1000
    files = ConsumeQueueFiles(made.store.consumequeue, queue_file, 64)
    for first in range(0, count, per):
        numbers = np.arange(first, min(first + per, count))
        base = first // per * segment_size
        rows = _rows(template, numbers, queues, base, body_size)
        data = np.zeros(segment_size, np.uint8)
        data[: rows.size] = rows.reshape(-1)
        if len(numbers) == per:
            rest = blank.encode(segment_size - rows.size)
            data[rows.size : rows.size + len(rest)] = np.frombuffer(rest, np.uint8)
        data.tofile(made.path(base))
        places = base + (numbers - first) * len(template)
        for queue in range(queues):
            here = numbers % queues == queue
            entries = np.zeros(int(here.sum()), ENTRY)
            entries["physical_offset"], entries["record_size"] = places[here], len(template)
            files.write("many", queue, int(numbers[here][0]) // queues, entries)
        made.end = base + rows.size
    files.close()
    return made.safe()


def body_of(number: int, size: int = 1024) -> bytes:
    """Of message `number` of the store."""
    return bytes(_bodies(np.array([number]), size)[0])


def _template(body_size: int) -> Bytes:
    made = Record(topic=b"many", body=bytes(body_size), properties=PROPERTIES % (0, 0), born_timestamp=NOON)
    return np.frombuffer(record.encode(made), np.uint8)


def _rows(template: Bytes, numbers: Numbers, queues: int, base: int, body_size: int) -> Bytes:
    rows = np.tile(template, (len(numbers), 1))
    body = slice(LAYOUT.size, LAYOUT.size + body_size)
    rows[:, body] = _bodies(numbers, body_size)
    crcs = np.empty(len(numbers), np.int64)
    starts = np.arange(len(numbers)) * len(template) + LAYOUT.size
    crc32_each(rows.reshape(-1), starts, np.full(len(numbers), body_size), crcs)
    fields = {
        "body_crc": crcs & CRC_MASK,
        "queue_id": numbers % queues,
        "queue_offset": numbers // queues,
        "physical_offset": base + (numbers - numbers[0]) * len(template),
        "born_timestamp": NOON + numbers // 10,
    }
    for name, values in fields.items():
        at, kind = LAYOUT.offset[name], ">i4" if name in ("body_crc", "queue_id") else ">i8"
        encoded = values.astype(kind).view(np.uint8).reshape(len(numbers), -1)
        rows[:, at : at + encoded.shape[1]] = encoded
    digits = (numbers[:, None] // 10 ** np.arange(DIGITS - 1, -1, -1) % 10 + ord("0")).astype(np.uint8)
    plain = PROPERTIES % (0, 0)
    for before in (b"key-", b"6C00"):
        place = len(template) - len(plain) + plain.index(before) + len(before)
        rows[:, place : place + DIGITS] = digits
    return rows


def _bodies(numbers: Numbers, size: int) -> Bytes:
    """Text of 64 letters, as unlike itself as a generator of a few operations makes it."""
    state = (numbers[:, None].astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)) ^ (
        np.arange(size, dtype=np.uint64) * np.uint64(0xBF58476D1CE4E5B9)
    )
    state ^= state >> np.uint64(31)
    state *= np.uint64(0x94D049BB133111EB)
    return ((state >> np.uint64(58)) + np.uint64(48)).astype(np.uint8)
