"""What a slave's greeting says of the end of its log: two histories must never look the same."""

import pytest

from towline.format.record import blank
from towline.log.commitlog.commit_log import CommitLogReader
from towline.replication.handshake import TAIL_CRC_MAX, tail_start

SEGMENT = 16 * TAIL_CRC_MAX


def written(directory, data):
    """A log of one segment that `data` fills but for a blank and the zeros behind it."""
    directory.mkdir()
    content = data + blank.encode(SEGMENT - len(data)) if len(data) < SEGMENT else data
    (directory / f"{0:020d}").write_bytes(content.ljust(SEGMENT, b"\0"))
    return CommitLogReader(directory, SEGMENT)


@pytest.mark.parametrize("size", [100, 3 * TAIL_CRC_MAX - 4, 3 * TAIL_CRC_MAX, SEGMENT - 8, SEGMENT - 100])
def test_the_tail_of_a_full_segment_reaches_back_over_its_blank_to_records(tmp_path, size):
    log_range, theirs = (written(tmp_path / name, name.encode() * (size // 4)) for name in ("ours", "them"))
    start = tail_start(log_range, 0, SEGMENT)
    assert bytes(log_range.slice(start, SEGMENT)) != bytes(theirs.slice(start, SEGMENT))


def test_the_tail_inside_a_segment_is_no_longer_than_it_must_be(tmp_path):
    log = written(tmp_path / "log", b"x" * SEGMENT)
    end = 9 * TAIL_CRC_MAX
    assert end - 2 * TAIL_CRC_MAX <= tail_start(log, 0, end) <= end - TAIL_CRC_MAX


def test_the_tail_begins_neither_before_the_log_nor_before_the_segment(tmp_path):
    log = written(tmp_path / "log", b"x" * SEGMENT)
    assert tail_start(log, 0, 100) == 0
    assert tail_start(log, 5000, 5100) == 5000
