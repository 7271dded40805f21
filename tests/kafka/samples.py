"""Records and partitions that tests are made of."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from hypothesis import strategies as st

from towline.kafka.format.batch import Compression
from towline.kafka.format.building import Form, end_transaction
from towline.kafka.format.control import ControlType
from towline.kafka.format.records import Header, Records, decode_headers
from towline.kafka.log.partition import Partition
from towline.kafka.log.reading import Columns
from towline.kafka.log.rolling import LogConfig
from towline.kafka.log.writer import PartitionWriter

T0 = 1_700_000_000_000
Row = tuple[int, int, bytes | None, bytes | None, list[Header]]
SMALL = LogConfig(segment_bytes=4_000, index_interval_bytes=200)

_BYTES = st.none() | st.binary(max_size=40)
_HEADERS = st.lists(st.tuples(st.text(max_size=5), _BYTES), max_size=3)
ROWS = st.lists(
    st.tuples(st.integers(1, 300), st.integers(-1, 2**62), _BYTES, _BYTES, _HEADERS), min_size=1, max_size=40
)


def rows_of(records: Records) -> list[Row]:
    """Offset, time, key, value and headers of each."""
    headers = [decode_headers(blob) for blob in records.headers.to_list()]
    numbers = records.offset.tolist(), records.timestamp.tolist()
    return list(zip(*numbers, records.key.to_list(), records.value.to_list(), headers, strict=True))


def read(pieces: Sequence[Columns]) -> list[Row]:
    return [row for piece in pieces for row in rows_of(piece.records)]


def of_rows(rows: Sequence[Row]) -> Records:
    offset, timestamp, key, value, headers = map(list, zip(*rows, strict=True))
    return Records.of(offset, timestamp, key, value, headers)


def risen(drawn: Sequence[Row], first: int = 0) -> list[Row]:
    """Of ROWS, whose offsets are steps."""
    offsets = (np.cumsum([row[0] for row in drawn]) + first - 1).tolist()
    return [(offset, *row[1:]) for offset, row in zip(offsets, drawn, strict=True)]


def plain(count: int, first: int = 0) -> Records:
    """Some with nulls and headers, one ms after the other."""
    numbers = range(first, first + count)
    return Records.of(
        list(numbers),
        [T0 + number for number in numbers],
        [None if number % 7 == 0 else b"key %d" % number for number in numbers],
        [None if number % 11 == 0 else b"value %d" % number * 3 for number in numbers],
        [[("source", b"test"), ("null", None)] if number % 5 == 0 else [] for number in numbers],
    )


def write_plain(root: Path, count: int = 300, config: LogConfig = SMALL) -> Path:
    """A partition `topic-0` with batches of every compression, and leader epochs 0, 2 and 5."""
    part = count // 3
    with PartitionWriter(root, "topic", 0, config) as writer:
        for number, epoch in enumerate((0, 2, 5)):
            compression = Compression(number * 2 % 5)
            writer.append(plain(part, number * part), Form(compression, leader_epoch=epoch, batch_size=600))
    return root / "topic-0"


def write_transactions(root: Path, config: LogConfig = SMALL) -> Path:
    """Producers 7 and 8: 7 commits, aborts while 8 is open, and 8 stays open. Offset 0 is of neither."""
    with PartitionWriter(root, "tx", 0, config) as writer:
        writer.append(plain(1))
        for producer, offset, ends in (
            (7, 1, ControlType.COMMIT),
            (8, 4, None),
            (7, 6, ControlType.ABORT),
            (9, 9, ControlType.COMMIT),
        ):
            form = Form(producer_id=producer, producer_epoch=3, base_sequence=offset, transactional=True)
            writer.append(plain(2, offset), form)
            if ends is not None:
                writer.append_batches(end_transaction(ends, offset + 2, T0 + offset + 2, producer, 3, 11))
    return root / "tx-0"


def rows_in(directory: Path) -> list[Row]:
    return read(list(Partition(directory).read()))
