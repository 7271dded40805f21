from pathlib import Path

import pytest

from towline.errors import ForeignFile, SegmentSizeMismatch
from towline.log.files.mapped_file_queue import MappedFileQueue, list_segments
from towline.log.files.segment_files import segment_name

SIZE = 64 * 1024


def add(directory: Path, *bases: int) -> None:
    for base in bases:
        (directory / segment_name(base)).write_bytes(bytes([base // SIZE % 256]) * SIZE)


def loaded(directory: Path, *, writable: bool = False, open_max: int = 64) -> MappedFileQueue:
    queue = MappedFileQueue(directory, SIZE, writable=writable, open_max=open_max)
    queue.load()
    return queue


class TestLoading:
    def test_a_directory_that_does_not_exist_is_an_empty_stream(self, tmp_path: Path) -> None:
        queue = loaded(tmp_path / "missing")
        assert (queue.bases, queue.min_offset, queue.end) == ((), 0, 0)
        assert queue.find(0) is None

    def test_files_are_sorted_by_offset_and_directories_skipped(self, tmp_path: Path) -> None:
        add(tmp_path, 2 * SIZE, SIZE, 3 * SIZE)
        (tmp_path / "sub").mkdir()
        queue = loaded(tmp_path)
        assert (queue.bases, queue.min_offset, queue.end) == ((SIZE, 2 * SIZE, 3 * SIZE), SIZE, 4 * SIZE)

    def test_a_zero_length_last_file_is_deleted(self, tmp_path: Path) -> None:
        add(tmp_path, 0)
        (tmp_path / segment_name(SIZE)).touch()
        assert loaded(tmp_path, writable=True).bases == (0,)
        assert [path.name for path in tmp_path.iterdir()] == [segment_name(0)]

    def test_a_reader_leaves_it_where_it_is(self, tmp_path: Path) -> None:
        add(tmp_path, 0)
        (tmp_path / segment_name(SIZE)).touch()
        assert loaded(tmp_path).bases == (0,)
        assert (tmp_path / segment_name(SIZE)).exists()

    def test_a_zero_length_file_before_the_last_is_refused(self, tmp_path: Path) -> None:
        add(tmp_path, SIZE)
        (tmp_path / segment_name(0)).touch()
        with pytest.raises(SegmentSizeMismatch, match="is 0 bytes long"):
            loaded(tmp_path, writable=True)
        assert (tmp_path / segment_name(0)).exists()

    def test_another_length_is_refused_naming_file_lengths_and_remedy(self, tmp_path: Path) -> None:
        add(tmp_path, 0)
        path = tmp_path / segment_name(SIZE)
        path.write_bytes(b"0123456789")
        expected = f"{path} is 10 bytes long, the configured size is {SIZE}; start with the segment size"
        with pytest.raises(SegmentSizeMismatch, match=expected):
            loaded(tmp_path)

    @pytest.mark.parametrize("name", ["stray", "0", segment_name(0) + ".tmp", "abort"])
    def test_a_foreign_name_is_refused_and_not_touched(self, tmp_path: Path, name: str) -> None:
        add(tmp_path, 0)
        (tmp_path / name).touch()
        with pytest.raises(ForeignFile, match=name):
            loaded(tmp_path, writable=True)
        assert (tmp_path / name).exists()

    def test_an_offset_between_two_segments_is_refused(self, tmp_path: Path) -> None:
        (tmp_path / segment_name(SIZE + 1)).write_bytes(bytes(SIZE))
        with pytest.raises(ForeignFile, match="no multiple of the segment size"):
            list_segments(tmp_path, SIZE)


class TestFinding:
    @pytest.mark.parametrize(
        ("offset", "base"),
        [
            (0, None),
            (5 * SIZE - 1, None),
            (5 * SIZE, 5 * SIZE),
            (6 * SIZE - 1, 5 * SIZE),
            (6 * SIZE, None),
            (7 * SIZE + 5, 7 * SIZE),
            (8 * SIZE, None),
        ],
    )
    def test_a_file_is_found_by_its_base_wherever_the_stream_begins(
        self, tmp_path: Path, offset: int, base: int | None
    ) -> None:
        add(tmp_path, 5 * SIZE, 7 * SIZE)
        found = loaded(tmp_path).find(offset)
        assert (found and found.path.name) == (None if base is None else segment_name(base))

    def test_new_and_deleted_files_are_seen_after_a_refresh(self, tmp_path: Path) -> None:
        add(tmp_path, 0, SIZE)
        queue = loaded(tmp_path)
        assert not queue.refresh()
        queue.find(0)
        (tmp_path / segment_name(0)).unlink()
        add(tmp_path, 2 * SIZE)
        assert queue.refresh()
        assert queue.bases == (SIZE, 2 * SIZE)
        assert queue.find(0) is None
        assert queue.find(2 * SIZE) is not None

    def test_only_so_many_files_stay_open_and_the_least_used_goes_first(self, tmp_path: Path) -> None:
        add(tmp_path, 0, SIZE, 2 * SIZE)
        queue = loaded(tmp_path, open_max=2)
        first, second = queue.find(0), queue.find(SIZE)
        assert queue.find(1) is first
        queue.find(2 * SIZE)
        assert first is not None
        assert second is not None
        assert (first.is_open, second.is_open) == (True, False)

    def test_bytes_in_use_outlive_the_file_that_was_closed_for_another(self, tmp_path: Path) -> None:
        add(tmp_path, 0, SIZE)
        queue = loaded(tmp_path, open_max=1)
        found = queue.find(SIZE)
        assert found is not None
        frame = found.view[:4]
        queue.find(0)
        assert queue.sweep() == 1
        assert bytes(frame) == b"\x01\x01\x01\x01"
        del frame
        assert queue.sweep() == 0


class TestRemoving:
    def test_a_removed_file_is_gone_but_bytes_in_use_stay(self, tmp_path: Path) -> None:
        add(tmp_path, SIZE, 2 * SIZE)
        queue = loaded(tmp_path, writable=True)
        found = queue.find(SIZE)
        assert found is not None
        frame = found.view[:1]
        queue.remove(SIZE)
        assert queue.bases == (2 * SIZE,)
        assert [path.name for path in tmp_path.iterdir()] == [segment_name(2 * SIZE)]
        assert bytes(frame) == b"\x01"
        assert not queue.close()
        del frame
        assert queue.close()
