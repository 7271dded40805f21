"""When two CommitLogs are the same (H1)."""

import pytest

from towline.cli.demo_check import Span, compare_logs
from towline.places import Store

SEGMENT = 4096


def log(directory, data: bytes, low: int = 0) -> Span:
    """`data` begins at byte `low`, a segment's base, and is followed by zeros."""
    commitlog = directory / "commitlog"
    commitlog.mkdir(parents=True)
    for at in range(0, len(data), SEGMENT):
        (commitlog / f"{low + at:020d}").write_bytes(data[at : at + SEGMENT].ljust(SEGMENT, b"\0"))
    return Span(Store(directory), low, low + len(data))


@pytest.fixture
def data():
    return bytes(number % 251 for number in range(2 * SEGMENT + 100))


def test_equal_bytes_to_equal_ends_are_identical(tmp_path, data):
    compared = compare_logs(log(tmp_path / "one", data), log(tmp_path / "two", data), SEGMENT)
    assert compared.identical
    assert compared.compared == len(data)


@pytest.mark.parametrize("place", [0, SEGMENT - 1, SEGMENT, 2 * SEGMENT + 99])
def test_the_first_byte_that_differs_is_named(tmp_path, data, place):
    other = data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :]
    compared = compare_logs(log(tmp_path / "one", data), log(tmp_path / "two", other), SEGMENT)
    assert not compared.identical
    assert compared.differs_at == place


def test_a_log_that_began_later_is_compared_from_there(tmp_path, data):
    later = log(tmp_path / "two", data[SEGMENT:], low=SEGMENT)
    compared = compare_logs(log(tmp_path / "one", data), later, SEGMENT)
    assert compared.identical
    assert compared.compared == len(data) - SEGMENT


def test_a_log_that_ends_earlier_is_not_the_same(tmp_path, data):
    compared = compare_logs(log(tmp_path / "one", data), log(tmp_path / "two", data[:-1]), SEGMENT)
    assert compared.differs_at is None
    assert not compared.identical
