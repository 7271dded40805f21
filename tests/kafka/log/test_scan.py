"""The walk over a segment: all heads at once, by every rule, up to the first that is broken."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tests.kafka.samples import plain, rows_of
from towline.kafka.errors import MalformedBytes
from towline.kafka.format.building import Form, build
from towline.kafka.log.reading import decode, pieces
from towline.kafka.log.scan import BATCH, scan


def test_more_heads_than_are_walked_over_at_once():
    count = (1 << 16) + 3
    data = build(plain(count), Form(batch_size=1))
    found = scan(data, check_crcs=True)
    assert (len(found.batches), found.end, found.fault) == (count, len(data), None)
    assert found.batches["base_offset"].tolist() == list(range(count))


def test_nothing_is_no_batch():
    found = scan(np.empty(0, np.uint8))
    assert (len(found.batches), found.end, found.fault) == (0, 0, None)
    assert found.batches.dtype == BATCH


def test_pieces_are_runs_of_about_a_size_and_a_larger_batch_is_alone():
    data = build(plain(100), Form(batch_size=400))
    batches = scan(data).batches
    for size in (1, 500, 2_000, 10**6):
        runs = list(pieces(batches, size))
        assert np.concatenate(runs).tolist() == batches.tolist()
        assert all(len(run) == 1 or run["size"].sum() <= size for run in runs)


@given(st.data())
def test_whatever_bytes_become_the_walk_ends_at_the_first_that_is_wrong(drawn):
    data = build(plain(12), Form(batch_size=150)).copy()
    whole = scan(data).batches
    for _ in range(drawn.draw(st.integers(1, 3))):
        data[drawn.draw(st.integers(0, len(data) - 1))] = drawn.draw(st.integers(0, 255))
    found = scan(data, check_crcs=True)
    assert found.batches["position"].tolist() == whole["position"][: len(found.batches)].tolist()
    if found.fault is not None:
        assert found.fault.at == found.end == whole["position"][len(found.batches)]
    try:
        columns = decode(data, found.batches)
    except MalformedBytes:
        return
    rows = rows_of(columns.records)
    if found.fault is None:
        assert [row[1:] for row in rows] == [row[1:] for row in rows_of(plain(12))]
