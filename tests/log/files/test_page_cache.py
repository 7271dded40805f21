"""What the kernel is told about a segment: the table, and what comes of it in memory."""

import itertools
import os
from pathlib import Path

import pytest

from towline.limits import KIB, MIB, PAGE
from towline.log.commitlog.commit_log import CommitLogReader
from towline.log.files.mapped_file import MappedFile
from towline.log.files.page_cache import (
    SEGMENTS,
    Advice,
    Marks,
    Place,
    SegmentState,
    advise_file,
    for_reader,
    for_segment,
    state_of,
)
from towline.log.files.segment_files import create_segment, segment_name

SIZE = 4 * MIB
STATES = [SegmentState(place, *facts) for place in Place for facts in itertools.product((True, False), repeat=4)]


@pytest.fixture
def commitlog(tmp_path: Path) -> Path:
    """Four full segments, synced and not in memory."""
    for number in range(4):
        path = create_segment(tmp_path, SIZE, segment_name(number * SIZE))
        with path.open("r+b") as file:
            file.write(bytes([number + 1]) * SIZE)
            file.flush()
            os.fsync(file.fileno())
        drop(path)
    return tmp_path


def drop(path: Path) -> None:
    advise_file(path, Advice.DROP)


def resident(commitlog: Path, base: int) -> float:
    mapped = MappedFile.open(commitlog / segment_name(base), SIZE, writable=False)
    return mapped.resident(0, SIZE) * PAGE / SIZE


class TestTheTable:
    def test_it_has_a_row_for_every_state_and_every_row_is_for_some(self):
        used = set()
        for state in STATES:
            facts = (state.place, state.flushed, state.dispatched, state.replicated, state.old)
            rows = [row for row in SEGMENTS if all(w in (None, f) for w, f in zip(row, facts, strict=False))]
            assert for_segment(state) is rows[0][-1]
            used.add(rows[0])
        assert used == set(SEGMENTS)

    def test_only_what_everybody_has_is_dropped(self):
        dropped = [state for state in STATES if for_segment(state) is Advice.DROP]
        assert dropped == [SegmentState(Place.FULL, flushed=True, dispatched=True, replicated=True, old=True)]

    def test_what_is_still_to_be_written_is_brought_into_memory(self):
        assert {for_segment(state) for state in STATES if state.place is Place.AHEAD} == {Advice.WILL_NEED}
        assert {for_segment(state) for state in STATES if state.place is Place.ACTIVE} == {Advice.KEEP}

    @pytest.mark.parametrize(
        ("base", "place"),
        [(0, Place.FULL), (SIZE, Place.FULL), (2 * SIZE, Place.ACTIVE), (3 * SIZE, Place.AHEAD)],
    )
    @pytest.mark.parametrize("appended", [2 * SIZE, 2 * SIZE + 1, 3 * SIZE - 1])
    def test_the_place_of_a_segment_follows_from_the_end_of_the_log(self, base, place, appended):
        assert state_of(base, SIZE, Marks(appended, 0, 0, 0), old=False).place is place

    @pytest.mark.parametrize("behind", ["flushed", "dispatched", "replicated"])
    def test_a_mark_counts_when_it_has_passed_the_whole_segment(self, behind):
        marks = {"appended": SIZE, "flushed": SIZE, "dispatched": SIZE, "replicated": SIZE}
        assert for_segment(state_of(0, SIZE, Marks(**marks), old=True)) is Advice.DROP
        assert for_segment(state_of(0, SIZE, Marks(**marks | {behind: SIZE - 1}), old=True)) is Advice.KEEP

    def test_a_reader_gets_read_ahead_within_the_share_of_memory_only(self):
        assert for_reader(10 * SIZE, 10 * SIZE, SIZE) is Advice.READ_AHEAD
        assert for_reader(9 * SIZE, 10 * SIZE, SIZE) is Advice.NO_READ_AHEAD
        assert for_reader(10 * SIZE, 10 * SIZE, 0) is Advice.NO_READ_AHEAD


class TestMemory:
    def test_what_will_be_needed_is_brought_in_and_dropped_again(self, commitlog):
        path = commitlog / segment_name(0)
        assert resident(commitlog, 0) == 0
        advise_file(path, Advice.WILL_NEED)
        await_reads(path)
        assert resident(commitlog, 0) >= 0.99
        drop(path)
        assert resident(commitlog, 0) <= 0.01

    def test_pages_that_somebody_maps_stay_until_they_are_let_go(self, commitlog):
        reader = CommitLogReader(commitlog, SIZE)
        assert int(reader.array(0).sum(dtype=int)) == SIZE
        drop(commitlog / segment_name(0))
        assert resident(commitlog, 0) >= 0.99
        let_go(reader)
        drop(commitlog / segment_name(0))
        assert resident(commitlog, 0) <= 0.01

    def test_a_reader_keeps_what_it_reads_and_lets_go_of_what_it_has_left(self, commitlog):
        reader = CommitLogReader(commitlog, SIZE)
        now = 0
        for base in range(0, 4 * SIZE, SIZE):
            for _ in range(3):
                reader.array(base)
                now += 10_000
                while reader.release_idle(now):
                    pass
            assert list(reader.queue._open) == [base]

    def test_bytes_that_are_still_held_stay_and_are_let_go_later(self, commitlog):
        reader = CommitLogReader(commitlog, SIZE)
        frame = reader.slice(SIZE, SIZE + 100)
        let_go(reader)
        assert bytes(frame) == b"\x02" * 100
        assert reader.queue.sweep() == 1
        del frame
        let_go(reader)
        assert reader.queue.sweep() == 0

    def test_one_that_is_read_again_while_it_leaves_stays(self, commitlog, monkeypatch):
        monkeypatch.setattr("towline.log.files.mapped_file_queue.LEAVE_STEP", MIB)
        reader = CommitLogReader(commitlog, SIZE)
        reader.array(0)
        assert not reader.release_idle(0)
        assert reader.release_idle(10_000)
        assert reader.release_idle(10_001)
        assert reader.array(0)[5] == 1
        while reader.release_idle(10_002):
            pass
        assert list(reader.queue._open) == [0]

    def test_a_cold_reader_brings_in_what_it_asks_for_and_a_warm_one_what_follows_as_well(self, commitlog):
        brought = {}
        for name, bytes_in_memory in (("cold", 0), ("warm", 10 * SIZE)):
            drop(commitlog / segment_name(0))
            reader = CommitLogReader(commitlog, SIZE, in_memory_bytes=bytes_in_memory)
            assert reader.array(0)[MIB] == 1
            brought[name] = round(resident(commitlog, 0) * SIZE)
            reader.close()
        assert brought["cold"] == PAGE
        assert brought["warm"] > 4 * PAGE

    def test_what_a_cold_reader_expects_comes_as_one_range_and_nothing_else_does(self, commitlog):
        reader = CommitLogReader(commitlog, SIZE, in_memory_bytes=2 * SIZE)
        reader.load()
        reader.expect(MIB, MIB + 300 * KIB)
        await_reads(commitlog / segment_name(0), MIB, 300 * KIB)
        assert resident(commitlog, 0) * SIZE == 300 * KIB
        reader.expect(3 * SIZE, 3 * SIZE + 300 * KIB)  # read with read-ahead: nothing has to be said
        assert resident(commitlog, 3 * SIZE) == 0


def let_go(reader: CommitLogReader) -> None:
    """As after some time in which nothing was read."""
    for now in (10**6, 2 * 10**6, 3 * 10**6):
        while reader.release_idle(now):
            pass


def await_reads(path: Path, start: int = 0, size: int = SIZE) -> None:
    """Until what was asked for has come: a read waits for it."""
    with path.open("rb") as file:
        os.pread(file.fileno(), size, start)
