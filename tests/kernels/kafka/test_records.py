"""The walk over batches; records are tested with their batches in tests/kafka/format."""

import numpy as np
import pytest

from towline.kafka.format.building import Form, build
from towline.kafka.format.records import Records
from towline.kernels.kafka.records import COLUMNS, RecordRule, decode_records, walk_batches

ONE = np.ones(1, np.int64)


def batches(count: int) -> np.ndarray:
    return build(Records.of(range(count), [0] * count, [None] * count, [b"v"] * count), Form(batch_size=1))


@pytest.mark.parametrize(("room", "found"), [(2, 1), (4, 3), (5, 4), (9, 4)])
def test_a_walk_ends_where_the_batches_or_the_room_do(room, found):
    data = batches(4)
    size = len(data) // 4
    positions = np.full(room, -1)
    assert walk_batches(data, 0, len(data), 26, positions) == found
    assert positions[: found + 1].tolist() == [number * size for number in range(found + 1)]


def test_a_walk_ends_at_a_batch_that_is_not_whole_and_at_a_size_that_none_has():
    data = batches(3).copy()
    size = len(data) // 3
    positions = np.zeros(9, np.int64)
    assert walk_batches(data, 0, len(data) - 1, 26, positions) == 2
    assert positions[2] == 2 * size
    data[size + 8 : size + 12] = 0xFF
    assert walk_batches(data, 0, len(data), 26, positions) == 1
    assert walk_batches(data, size, size + 11, 26, positions) == 0


def test_records_before_a_bad_one_are_found_and_its_place_is_told():
    data = build(Records.of(range(3), [7, 8, 9], [None] * 3, [b"v"] * 3)).copy()
    data[61 + 16] = 0x7E
    longs, fault = np.zeros(3 * len(COLUMNS), np.int64), np.zeros(3, np.int64)
    done = decode_records(data, 61 * ONE, len(data) * ONE, 3 * ONE, 100 * ONE, 2 * ONE, 7 * ONE, 3, longs, fault)
    assert done == 2
    assert longs[:2].tolist() == [100, 101]
    assert longs[3:5].tolist() == [7, 8]
    assert fault.tolist() == [0, 61 + 16, RecordRule.LENGTH]
