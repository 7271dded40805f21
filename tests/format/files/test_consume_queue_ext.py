"""Units of a ConsumeQueueExt."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from towline.format.files import consume_queue_ext as ext
from towline.format.files.consume_queue import tags_code
from towline.format.files.consume_queue_ext import Unit

INT64 = st.integers(-(2**63), 2**63 - 1)
UNITS = st.builds(Unit, INT64, INT64, st.binary(max_size=40))
GOLDEN = Unit(2598919, 1700000000123, bytes.fromhex("1234"))
GOLDEN_BYTES = bytes.fromhex("0016 000000000027a807 0000018bcfe5687b 0002 1234")


def rows(count: int, bitmap_size: int = 2) -> ext.Bytes:
    numbers = np.arange(count)
    bitmaps = np.tile(numbers.astype(np.uint8)[:, None], (1, bitmap_size))
    return ext.encode_units(numbers, numbers + 1000, bitmaps)


def files(run: ext.Run, file_size: int, count: int) -> list[np.ndarray]:
    stream = np.zeros(file_size * count, np.uint8)
    for offset, written in run.slices:
        assert offset // file_size == (offset + len(written) - 1) // file_size
        stream[offset : offset + len(written)] = np.frombuffer(written, np.uint8)
    return list(stream.reshape(count, file_size))


def test_the_golden_unit():
    assert ext.encode(GOLDEN) == GOLDEN_BYTES
    assert ext.decode(b"before" + GOLDEN_BYTES, 6) == GOLDEN
    many = ext.encode_units(
        np.array([GOLDEN.tags_code] * 2), np.array([GOLDEN.store_timestamp] * 2), np.array([[0x12, 0x34]] * 2, np.uint8)
    )
    assert many.tobytes() == GOLDEN_BYTES * 2


def test_golden_addresses_over_the_end_of_a_file():
    run = ext.lay_out(0, rows(3), 64)
    assert run.addresses.tolist() == [-9223372036854775808, -9223372036854775786, -9223372036854775744]
    assert run.end == 64 + 22
    first, second = files(run, 64, 2)
    assert first[44:].tobytes() == b"\xff\xff" + bytes(18)
    assert [walked.tolist() for walked, _ in (ext.walk(first), ext.walk(second))] == [[0, 22], [0]]


def test_a_file_is_filled_up_to_its_last_four_bytes():
    assert ext.lay_out(0, rows(2), 2 * 22 + 4).addresses.tolist() == [ext.address(0), ext.address(22)]
    assert ext.lay_out(0, rows(2), 2 * 22 + 3).addresses.tolist() == [ext.address(0), ext.address(2 * 22 + 3)]


@pytest.mark.parametrize("tag", ["TagA", "order-create", "polygenelubricants", None])
def test_no_hash_of_a_tag_is_an_address(tag):
    codes = np.array([tags_code(tag), ext.address(0), ext.ADDRESS_MAX, ext.ADDRESS_MAX + 1])
    assert ext.are_addresses(codes).tolist() == [False, True, True, False]


@given(st.lists(st.integers(0, 2**62), max_size=5))
def test_addresses_and_offsets_are_each_others_inverse(offsets):
    addresses = np.array([ext.address(offset) for offset in offsets], np.int64)
    assert ext.are_addresses(addresses).all()
    assert ext.offsets_of(addresses).tolist() == offsets == [ext.offset_of(int(each)) for each in addresses]


@given(UNITS)
def test_a_unit_reads_back_as_it_was_written(unit):
    encoded = ext.encode(unit)
    assert len(encoded) == unit.size
    assert ext.decode(encoded) == unit
    assert ext.decode(encoded[:-1]) is None


@pytest.mark.parametrize(
    "damaged",
    [bytes(30), ext.END + bytes(30), b"\x00\x15" + GOLDEN_BYTES[2:], b"\x7f\xff" + GOLDEN_BYTES[2:], GOLDEN_BYTES[:10]],
    ids=["never written", "the end of a file", "sizes that differ", "past the end", "cut"],
)
def test_what_is_no_unit_is_not_read_as_one(damaged):
    assert ext.decode(damaged) is None
    starts, end = ext.walk(np.frombuffer(damaged + bytes(ext.FREE_SIZE), np.uint8))
    assert (starts.tolist(), end) == ([], 0)


@given(st.lists(st.tuples(st.integers(0, 7), st.sampled_from([0, 2, 14])), max_size=8), st.integers(40, 300))
def test_runs_of_any_sizes_are_found_again_by_address_and_by_walking(shapes, file_size):
    end, written, slices, addresses = 0, [], [], []
    for count, bitmap_size in shapes:
        run = ext.lay_out(end, rows(count, bitmap_size), file_size)
        end, slices = run.end, slices + run.slices
        addresses += run.addresses.tolist()
        written += [Unit(number, number + 1000, bytes([number] * bitmap_size)) for number in range(count)]
    stored = files(ext.Run(np.array(addresses, np.int64), slices, end), file_size, end // file_size + 1)
    stream = np.concatenate(stored)
    offsets = ext.offsets_of(np.array(addresses, np.int64))
    assert [ext.decode(stream.data, offset) for offset in offsets.tolist()] == written

    walked = np.concatenate([number * file_size + ext.walk(each)[0] for number, each in enumerate(stored)])
    assert walked.tolist() == offsets.tolist()


def test_long_runs_are_walked_in_steps():
    file_size = 50_000
    run = ext.lay_out(0, rows(1000, 14), file_size)
    more = ext.lay_out(run.end, rows(3, 0), file_size)
    last = ext.lay_out(more.end, rows(200, 14), file_size)
    (data,) = files(ext.Run(run.addresses, run.slices + more.slices + last.slices, last.end), file_size, 1)
    starts, end = ext.walk(data)
    assert end == last.end
    assert starts.tolist() == [ext.offset_of(each) for part in (run, more, last) for each in part.addresses.tolist()]


@given(st.binary(max_size=120))
def test_a_walk_over_any_bytes_finds_whole_units_or_none(data):
    starts, end = ext.walk(np.frombuffer(data, np.uint8))
    units = [ext.decode(data, at) for at in starts.tolist()]
    assert end == sum(unit.size for unit in units)
