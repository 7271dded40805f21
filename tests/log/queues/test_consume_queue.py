"""ConsumeQueue files: writing across borders, pre-blank, ends, cuts, searches; all against plain lists."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.log.stores import open_files
from towline.errors import ForeignFile, IllegalTopic, SegmentSizeMismatch
from towline.format.files.consume_queue import ENTRY, FILLER, SIZE, encode
from towline.log.files.segment_files import segment_name
from towline.log.queues import consume_queue
from towline.log.queues.consume_queue import Boundary, ConsumeQueueFiles, is_filler

PER_FILE = 8
FILE_SIZE = PER_FILE * SIZE
RECORD = 100
EVERYTHING = 1 << 60


@pytest.fixture
def files(tmp_path: Path) -> Iterator[ConsumeQueueFiles]:
    files = ConsumeQueueFiles(tmp_path / "consumequeue", FILE_SIZE, 4)
    yield files
    files.close()


def entries(first: int, count: int) -> np.ndarray:
    """Entry n is of a record at byte 1000 + 100 n."""
    numbers = range(first, first + count)
    return np.frombuffer(b"".join(encode(1000 + RECORD * n, RECORD, n) for n in numbers), dtype=ENTRY)


def fill(files: ConsumeQueueFiles, count: int, first: int = 0, topic: str = "T", queue_id: int = 0) -> None:
    if count:
        files.write(topic, queue_id, first, entries(first, count))


def no_sync(fd: int) -> None:
    raise AssertionError(f"descriptor {fd} is synced on its own")


def numbers(files: ConsumeQueueFiles, start: int, end: int) -> list[int]:
    found: list[int] = []
    at = start
    while at < end:
        read = files.read("T", 0, at, end - at)
        if not len(read):
            break
        found += read["tags_code"].tolist()
        at += len(read)
    return found


class TestWriting:
    def test_entries_cross_file_borders_and_read_back_one_file_at_a_time(self, files: ConsumeQueueFiles) -> None:
        fill(files, 20)
        assert len(files.read("T", 0, 0, 20)) == PER_FILE
        assert len(files.read("T", 0, 16, 20)) == 4
        assert numbers(files, 0, 20) == list(range(20))

    def test_files_are_sparse_full_sized_and_named_by_their_first_byte(self, files: ConsumeQueueFiles) -> None:
        fill(files, 9)
        names = sorted(path.name for path in (files.root / "T" / "0").iterdir())
        assert names == ["00000000000000000000", "00000000000000000160"]
        assert all(path.stat().st_size == FILE_SIZE for path in (files.root / "T" / "0").iterdir())

    def test_the_golden_pre_blank_of_a_queue_that_begins_at_eleven(self, files: ConsumeQueueFiles) -> None:
        fill(files, 1, first=11)
        (path,) = (files.root / "T" / "0").iterdir()
        assert path.name == "00000000000000000160"
        assert path.read_bytes() == FILLER * 3 + entries(11, 1).tobytes() + bytes(4 * SIZE)
        assert files.end_of("T", 0, EVERYTHING) == (11, 12)
        assert is_filler(files.read("T", 0, 8, 4)).tolist() == [True, True, True, False]

    def test_writing_again_changes_nothing(self, files: ConsumeQueueFiles) -> None:
        fill(files, 20)
        files.write("T", 0, 5, entries(5, 10))
        assert numbers(files, 0, 30) == list(range(20))

    def test_bytes_and_memoryviews_are_entries_too(self, files: ConsumeQueueFiles) -> None:
        files.write("T", 0, 0, entries(0, 2).tobytes())
        files.write("T", 0, 2, memoryview(entries(2, 8).tobytes()))
        assert numbers(files, 0, 10) == list(range(10))

    def test_a_file_that_a_crash_left_without_length_is_written_as_new(self, files: ConsumeQueueFiles) -> None:
        (files.root / "T" / "0").mkdir(parents=True)
        (files.root / "T" / "0" / "00000000000000000000").touch()
        assert len(files.read("T", 0, 0, 5)) == 0
        assert files.end_of("T", 0, EVERYTHING) == (0, 0)
        fill(files, 3)
        assert numbers(files, 0, 8) == [0, 1, 2]

    def test_open_files_are_bounded_over_all_queues(self, files: ConsumeQueueFiles) -> None:
        for queue_id in range(50):
            fill(files, 2, queue_id=queue_id)
        assert len(open_files(files.root)) == 4
        assert [len(files.read("T", queue_id, 0, 8)) for queue_id in range(50)] == [2] * 50
        assert files.list_queues() == [("T", queue_id) for queue_id in range(50)]

    def test_a_topic_cannot_lead_out_of_the_directory(self, files: ConsumeQueueFiles) -> None:
        for topic in ("../x", "..", "", "a/b", "a\0b"):
            with pytest.raises(IllegalTopic):
                files.write(topic, 0, 0, entries(0, 1))

    def test_a_wrong_sized_or_misnamed_file_is_refused(self, files: ConsumeQueueFiles) -> None:
        fill(files, 1)
        (files.root / "T" / "1").mkdir()
        (files.root / "T" / "1" / "00000000000000000000").write_bytes(bytes(10))
        with pytest.raises(SegmentSizeMismatch, match="10 bytes"):
            files.end_of("T", 1, EVERYTHING)
        (files.root / "T" / "0" / "00000000000000000007").write_bytes(bytes(FILE_SIZE))
        with pytest.raises(ForeignFile):
            files.end_of("T", 0, EVERYTHING)

    def test_write_back_begins_for_the_files_that_hold_the_entries(
        self, files: ConsumeQueueFiles, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        begun: list[str] = []
        begin = consume_queue.begin_write_back

        def note(fd: int) -> None:
            begun.append(Path(f"/proc/self/fd/{fd}").readlink().name)
            begin(fd)

        monkeypatch.setattr(consume_queue, "begin_write_back", note)
        fill(files, 35)
        files.begin_write_back("T", 0, PER_FILE + 1, 3 * PER_FILE)
        assert begun == [segment_name(base * PER_FILE * SIZE) for base in (1, 2)]
        files.begin_write_back("T", 7, 0, 5)  # a queue without files
        assert len(begun) == 2
        assert numbers(files, 0, 35) == list(range(35))

    def test_sync_covers_files_of_another_writer_and_skips_removed_ones(self, files: ConsumeQueueFiles) -> None:
        fill(files, 20)
        other = ConsumeQueueFiles(files.root, FILE_SIZE, 2)
        (files.root / "T" / "0" / "00000000000000000000").unlink()
        other.sync("T", 0, 0, 20)
        other.close()


class TestEnds:
    @given(count=st.integers(0, 40), below=st.integers(0, 45), first=st.integers(0, 20))
    def test_the_end_is_the_first_entry_at_or_after_the_watermark(
        self, tmp_path_factory: pytest.TempPathFactory, count: int, below: int, first: int
    ) -> None:
        files = ConsumeQueueFiles(tmp_path_factory.mktemp("q"), FILE_SIZE, 4)
        fill(files, count, first=first)
        kept = [n for n in range(first, first + count) if n < below]
        low, end = files.end_of("T", 0, 1000 + RECORD * below)
        files.cut("T", 0, end)
        if kept:
            assert (low, end) == (first, kept[-1] + 1)
        assert low <= end <= first + count
        assert numbers(files, low, first + count) == kept
        assert files.end_of("T", 0, EVERYTHING) == (low, end)
        rest = first + len(kept)
        fill(files, first + count - rest, first=rest)
        assert numbers(files, first, 100) == list(range(first, first + count))
        files.close()

    @pytest.mark.parametrize(
        "garbage",
        [
            b"\xff" * SIZE,
            encode(50, RECORD, 1),
            encode(1700, -1, 7),
            encode(1 << 59, RECORD, 1),
            b"\x12\x34\x56\x78" * 5,
        ],
        ids=["ones", "goes back", "negative size", "far ahead", "any bytes"],
    )
    def test_garbage_behind_the_end_is_cut(self, files: ConsumeQueueFiles, garbage: bytes) -> None:
        fill(files, 7)
        files.write("T", 0, 7, garbage)
        assert files.end_of("T", 0, 1700) == (0, 7)
        assert files.cut("T", 0, 7)
        assert (files.root / "T" / "0" / "00000000000000000000").read_bytes() == entries(0, 7).tobytes() + bytes(SIZE)

    def test_a_cut_zeroes_stale_entries_and_removes_later_files(self, files: ConsumeQueueFiles) -> None:
        fill(files, 30)
        assert files.cut("T", 0, 10)
        assert files.bases("T", 0) == [0, 160]
        assert not files.cut("T", 0, 10)
        fill(files, 1, first=10)
        assert files.end_of("T", 0, EVERYTHING) == (0, 11)

    def test_a_cut_of_many_queues_is_synced_together(
        self, files: ConsumeQueueFiles, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        for queue_id in range(3):
            files.write("T", queue_id, 0, entries(0, 5))
        monkeypatch.setattr("os.fdatasync", no_sync)
        monkeypatch.setattr("os.fsync", no_sync)
        assert all(files.cut("T", queue_id, 2, synced=False) for queue_id in range(3))
        files.sync_all()
        assert [files.end_of("T", queue_id, EVERYTHING) for queue_id in range(3)] == [(0, 2)] * 3

    def test_a_cut_at_zero_leaves_no_file(self, files: ConsumeQueueFiles) -> None:
        fill(files, 30)
        files.cut("T", 0, 0)
        assert files.bases("T", 0) == []

    def test_the_first_file_keeps_the_place_of_a_queue_that_lost_its_last_entries(
        self, files: ConsumeQueueFiles
    ) -> None:
        fill(files, 20)
        (files.root / "T" / "0" / "00000000000000000000").unlink()
        files.close()
        assert files.end_of("T", 0, 1) == (8, 8)
        files.cut("T", 0, 8)
        assert files.end_of("T", 0, 1) == (8, 8)

    def test_a_cut_writes_only_where_something_was_written(self, tmp_path: Path) -> None:
        files = ConsumeQueueFiles(tmp_path, 300_000 * SIZE, 4)
        files.write("T", 0, 0, entries(0, 10))
        files.write("T", 0, 200_000, entries(200_000, 10))
        files.cut("T", 0, 5)
        path = tmp_path / "T" / "0" / "00000000000000000000"
        assert path.read_bytes()[: 10 * SIZE] == entries(0, 5).tobytes() + bytes(5 * SIZE)
        assert not any(path.read_bytes()[5 * SIZE :])
        files.close()

    @pytest.mark.parametrize("count", [4095, 4096, 4097, 9000, 12_288])
    def test_the_end_is_found_in_a_large_file(self, tmp_path: Path, count: int) -> None:
        files = ConsumeQueueFiles(tmp_path, 12_288 * SIZE, 4)
        fill(files, count)
        assert files.end_of("T", 0, EVERYTHING) == (0, count)
        assert files.end_of("T", 0, 1000 + RECORD * (count - 1)) == (0, count - 1)
        files.close()


class TestMinimum:
    @given(first=st.integers(0, 12), count=st.integers(0, 30), gone=st.integers(0, 45))
    def test_it_is_the_first_entry_whose_record_is_in_the_log(
        self, tmp_path_factory: pytest.TempPathFactory, first: int, count: int, gone: int
    ) -> None:
        files = ConsumeQueueFiles(tmp_path_factory.mktemp("q"), FILE_SIZE, 4)
        fill(files, count, first=first)
        low, end = files.end_of("T", 0, EVERYTHING)
        expected = next((n for n in range(first, first + count) if n >= gone), end)
        assert files.min_offset_after("T", 0, 1000 + RECORD * gone, low, end) == expected
        files.close()

    def test_leading_files_of_deleted_records_are_removed_but_never_the_last(self, files: ConsumeQueueFiles) -> None:
        fill(files, 30)
        assert files.delete_expired("T", 0, 1000 + RECORD * 15) == 1
        assert files.bases("T", 0) == [160, 320, 480]
        assert files.delete_expired("T", 0, EVERYTHING) == 2
        assert files.bases("T", 0) == [480]
        assert files.end_of("T", 0, EVERYTHING) == (24, 30)


class TestSearchByTime:
    @given(
        times=st.lists(st.integers(10, 30), max_size=30),
        first=st.integers(0, 10),
        gone=st.integers(0, 45),
        asked=st.integers(0, 40),
    )
    def test_lower_is_the_first_at_or_after_and_upper_the_last_at_or_before(
        self, tmp_path_factory: pytest.TempPathFactory, times: list[int], first: int, gone: int, asked: int
    ) -> None:
        times.sort()
        files = ConsumeQueueFiles(tmp_path_factory.mktemp("q"), FILE_SIZE, 4)
        fill(files, len(times), first=first)
        low, end = files.end_of("T", 0, EVERYTHING)
        log_min = 1000 + RECORD * gone
        low = files.min_offset_after("T", 0, log_min, low, end)
        stored = {n: times[n - first] for n in range(low, end)}

        def search(boundary: Boundary) -> int:
            return files.search_time(
                "T",
                0,
                asked,
                boundary,
                min_offset=low,
                end_offset=end,
                log_min=log_min,
                store_time=lambda physical: times[(physical - 1000) // RECORD - first],
            )

        assert search(Boundary.LOWER) == min((n for n, time in stored.items() if time >= asked), default=end)
        assert search(Boundary.UPPER) == max((n for n, time in stored.items() if time <= asked), default=low)
        files.close()
