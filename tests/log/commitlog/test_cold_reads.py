"""What a reader far behind the log's end brings into memory, and what leaves it again."""

import pytest

from towline.limits import KIB, MIB
from towline.log.commitlog.cold_reads import CHUNK, ColdChunks
from towline.log.commitlog.commit_log import CommitLogReader
from towline.log.files.mapped_file import MappedFile
from towline.log.files.page_cache import Advice, advise_file
from towline.log.files.segment_files import ensure_segment, segment_name

SIZE = 8 * CHUNK
END = 1 << 60


class TestChunks:
    def test_a_first_read_brings_what_it_asks_for(self):
        chunks = ColdChunks()
        assert chunks.wanted(100, 300, 0, END) == [(100, 300)]

    def test_who_reads_on_gets_a_chunk_ahead_and_nothing_twice(self):
        chunks = ColdChunks()
        chunks.wanted(0, MIB, 0, END)
        assert chunks.wanted(MIB, 2 * MIB, 0, END) == [(MIB, CHUNK), (CHUNK, 2 * MIB + CHUNK)]
        assert chunks.wanted(2 * MIB, 3 * MIB, 0, END) == [(2 * MIB + CHUNK, 3 * MIB + CHUNK)]

    def test_nothing_is_brought_beyond_the_segment(self):
        chunks = ColdChunks()
        chunks.wanted(0, MIB, 0, 2 * MIB)
        assert chunks.wanted(MIB, 2 * MIB, 0, 2 * MIB) == [(MIB, 2 * MIB)]

    def test_two_readers_of_one_stretch_bring_it_once(self):
        chunks = ColdChunks()
        chunks.wanted(0, MIB, 0, END)
        chunks.wanted(MIB, 2 * MIB, 0, END)
        assert chunks.wanted(MIB, 2 * MIB, 0, END) == []

    def test_a_jump_back_in_a_chunk_brings_what_is_not_there(self):
        chunks = ColdChunks()
        chunks.wanted(2 * MIB, 3 * MIB, 0, END)
        assert chunks.wanted(MIB, MIB + 10, 0, END) == [(MIB, MIB + 10)]

    def test_too_many_leave_those_first_that_were_not_read_for_longest(self):
        chunks = ColdChunks(3)
        for number in range(5):
            chunks.wanted(2 * number * CHUNK, 2 * number * CHUNK + 10, 0, END)
            if number:
                chunks.read([5], 0)
        assert chunks.leaving() == [2 * CHUNK, 4 * CHUNK]
        assert len(chunks) == 3
        assert chunks.leaving() == []

    def test_what_nobody_reads_any_more_leaves(self):
        chunks = ColdChunks()
        chunks.wanted(0, 10, 0, END)
        assert chunks.unused() == []
        assert chunks.unused() == [0]
        assert len(chunks) == 0

    def test_chunks_begin_with_their_segment(self):
        chunks = ColdChunks()
        base = 3 * MIB
        chunks.read([base + CHUNK + 1], base)
        chunks.unused()
        assert chunks.unused() == [base + CHUNK]


@pytest.fixture
def commitlog(tmp_path):
    """Two segments on the disk, of which nothing is in memory; the second is the log's end."""
    directory, staging = tmp_path / "commitlog", tmp_path / "staging"
    directory.mkdir()
    staging.mkdir()
    for base in (0, SIZE):
        ensure_segment(directory, staging, base, SIZE)
        mapped = MappedFile.open(directory / segment_name(base), SIZE, writable=True)
        mapped.array[:] = 7
        mapped.sync(0, SIZE)
        mapped.release()
        advise_file(directory / segment_name(base), Advice.DROP)
    return directory


def in_memory(commitlog, start: int, end: int) -> int:
    mapped = MappedFile.open(commitlog / segment_name(0), SIZE, writable=False)
    try:
        return mapped.resident(start, end) * 4096
    finally:
        mapped.release()


def test_a_reader_from_end_to_end_keeps_the_last_chunks_in_memory_only(commitlog, monkeypatch):
    monkeypatch.setattr("towline.log.commitlog.commit_log.ColdChunks", lambda: ColdChunks(2))
    reader = CommitLogReader(commitlog, SIZE, in_memory_bytes=SIZE)
    reader.load()
    step = 512 * KIB
    most = 0
    for at in range(0, SIZE, step):
        reader.array(0)
        reader.expect(at, at + step)
        assert bytes(reader.slice(at, at + step)[:3]) == b"\7\7\7"
        assert int(reader.array(0)[at : at + step].sum(dtype=int)) == 7 * step
        most = max(most, in_memory(commitlog, 0, SIZE))
    assert most <= 4 * CHUNK
    assert in_memory(commitlog, 0, SIZE // 2) == 0
    reader.close()


def test_the_end_of_the_log_is_read_as_ever(commitlog):
    reader = CommitLogReader(commitlog, SIZE, in_memory_bytes=SIZE)
    reader.load()
    reader.array(SIZE)
    assert not reader.is_cold(SIZE)
    reader.expect(SIZE, SIZE + MIB)
    assert len(reader._chunks) == 0
    reader.close()


def test_scattered_records_are_brought_one_by_one(commitlog):
    reader = CommitLogReader(commitlog, SIZE, in_memory_bytes=SIZE)
    reader.load()
    reader.array(0)
    starts = [number * MIB for number in range(8)]
    reader.expect_scattered(starts, [start + 100 for start in starts])
    for start in starts:
        assert reader.array(0)[start] == 7
    assert in_memory(commitlog, 0, SIZE) == len(starts) * 4096
    reader.close()
