from pathlib import Path

import numpy as np
import pytest

from towline.errors import AppendMismatch, DiskFull, MalformedRecord, NotInLog, StoreNotWritable
from towline.format.record import blank, record
from towline.format.record.record import Record
from towline.limits import PAGE
from towline.log.commitlog.commit_log import CommitLogReader, LogTail
from towline.log.files.mapped_file import MappedFile
from towline.log.files.segment_files import ensure_segment, segment_name

SIZE = 64 * 1024


class Store:
    """A commitlog directory, and the callable that makes its next segment."""

    def __init__(self, root: Path) -> None:
        self.commitlog, self.staging = root / "commitlog", root / "staging"
        self.commitlog.mkdir()
        self.staging.mkdir()
        self.disk_is_full = False

    def next_segment(self, base: int) -> MappedFile:
        if self.disk_is_full:
            raise DiskFull(str(self.commitlog), SIZE)
        ensure_segment(self.commitlog, self.staging, base, SIZE)
        return MappedFile.open(self.commitlog / segment_name(base), SIZE, writable=True)

    def tail(self, position: int = 0) -> LogTail:
        tail = LogTail.open(self.commitlog, SIZE, position, self.next_segment)
        if not tail.room:
            tail.roll()
        return tail

    def bytes_of(self, base: int) -> bytes:
        return (self.commitlog / segment_name(base)).read_bytes()


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path)


def encoded(at: int, body: bytes = b"hello") -> bytes:
    return record.encode(Record(topic=b"TopicA", body=body, physical_offset=at, store_timestamp=1))


def append(tail: LogTail, frame: bytes) -> int:
    if not tail.fits(len(frame)):
        tail.blank()
        tail.roll()
    at, _ = tail.window(len(frame))
    tail.array[at : at + len(frame)] = np.frombuffer(frame, dtype=np.uint8)
    tail.moved(at + len(frame))
    return tail.position


class TestPagesAheadOfTheWriter:
    def test_pages_are_populated_in_steps_ahead_of_the_request_and_once_only(
        self, store: Store, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        asked: list[tuple[int, int]] = []
        monkeypatch.setattr(MappedFile, "populate", lambda _, start, end: asked.append((start, end)))
        monkeypatch.setattr("towline.log.commitlog.commit_log.POPULATE_STEP", 4 * PAGE)
        tail = store.tail()
        append(tail, encoded(0, b"x" * 5 * PAGE))
        append(tail, encoded(0))
        assert asked == [(0, 4 * PAGE), (4 * PAGE, 8 * PAGE)]

    def test_steps_end_where_large_pages_end_and_so_does_what_is_let_go(
        self, store: Store, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        asked: list[tuple[int, int]] = []
        forgotten: list[tuple[int, int]] = []
        monkeypatch.setattr(MappedFile, "populate", lambda _, start, end: asked.append((start, end)))
        monkeypatch.setattr(MappedFile, "drop_pages", lambda _, start, end: forgotten.append((start, end)))
        tail = store.tail()
        append(tail, encoded(0, b"x" * PAGE))
        tail = LogTail.open(store.commitlog, SIZE, tail.position, store.next_segment, step=4 * PAGE)
        for _ in range(9):
            append(tail, encoded(0, b"x" * PAGE))
        first = [each for each in asked if each[0] % (4 * PAGE) == PAGE]
        assert first == [(PAGE, 4 * PAGE)], "the first step goes as far as the page in which it begins"
        assert {end % (4 * PAGE) for _, end in asked} == {0}
        assert [end % (4 * PAGE) for _, end in forgotten] == [0]

    def test_a_writer_with_nothing_to_do_populates_so_far_ahead_and_no_further(
        self, store: Store, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        asked: list[tuple[int, int]] = []
        monkeypatch.setattr(MappedFile, "populate", lambda _, start, end: asked.append((start, end)))
        monkeypatch.setattr("towline.log.commitlog.commit_log.POPULATE_STEP", 2 * PAGE)
        tail = LogTail.open(store.commitlog, SIZE, 0, store.next_segment, populate_ahead=5 * PAGE)
        assert not tail.prepare(), "no segment is open yet"
        tail.roll()
        assert [tail.prepare() for _ in range(4)] == [True, True, True, False]
        assert asked == [(0, 2 * PAGE), (2 * PAGE, 4 * PAGE), (4 * PAGE, 6 * PAGE)]
        append(tail, encoded(0, b"x" * 2 * PAGE))
        assert [tail.prepare() for _ in range(2)] == [True, False]
        assert asked[3:] == [(6 * PAGE, 8 * PAGE)]

    def test_near_its_end_the_beginning_of_the_next_segment_is_populated_once_it_can_be_had(
        self, store: Store, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        asked: list[tuple[int, int]] = []
        monkeypatch.setattr(
            MappedFile, "populate", lambda mapped, start, _: asked.append((int(mapped.path.name), start))
        )
        monkeypatch.setattr("towline.log.commitlog.commit_log.POPULATE_STEP", 2 * PAGE)
        made: list[MappedFile] = []

        def next_segment(base: int) -> MappedFile:
            return made[0] if base and made else store.next_segment(base)

        def foresee(base: int) -> MappedFile | None:
            assert base == SIZE
            return made[0] if made else None

        tail = LogTail.open(store.commitlog, SIZE, 0, next_segment, populate_ahead=6 * PAGE, foresee=foresee)
        tail.roll()
        append(tail, encoded(0, b"x" * (SIZE - 4 * PAGE)))
        while tail.prepare():
            pass
        asked.clear()
        assert not tail.prepare(), "all of this one is populated, and there is no next one yet"
        made.append(store.next_segment(SIZE))
        while tail.prepare():
            pass
        assert asked == [(SIZE, 0), (SIZE, 2 * PAGE)]
        tail.blank()
        tail.roll()
        end = append(tail, encoded(SIZE, b"y" * PAGE))
        assert store.bytes_of(SIZE)[: end - SIZE] == encoded(SIZE, b"y" * PAGE)
        assert asked == [(SIZE, 0), (SIZE, 2 * PAGE)], "nothing is left to populate in the first request"
        assert tail.close()

    def test_a_log_without_a_segment_foresees_its_first(self, store: Store) -> None:
        tail = LogTail.open(store.commitlog, SIZE, 0, store.next_segment, populate_ahead=SIZE, foresee=lambda _: None)
        assert not tail.prepare()
        foreseen = store.next_segment(3 * SIZE)
        asked: list[int] = []

        def foresee(base: int) -> MappedFile:
            asked.append(base)
            return foreseen

        tail = LogTail(None, SIZE, 3 * SIZE, lambda _: foreseen, populate_ahead=SIZE, foresee=foresee)
        assert tail.prepare()
        while tail.prepare():
            pass
        assert tail.roll() == 3 * SIZE
        assert tail.segment is foreseen
        assert asked == [3 * SIZE]

    def test_another_mapping_than_the_one_foreseen_is_populated_from_its_beginning(
        self, store: Store, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        asked: list[int] = []
        monkeypatch.setattr(MappedFile, "populate", lambda mapped, *_: asked.append(id(mapped)))
        tail = LogTail.open(
            store.commitlog, SIZE, 0, store.next_segment, populate_ahead=SIZE, foresee=store.next_segment
        )
        tail.roll()
        while tail.prepare():
            pass
        tail.blank()
        tail.roll()
        append(tail, encoded(SIZE))
        assert asked[-1] == id(tail.segment)

    def test_at_the_end_of_a_segment_nothing_is_left_to_populate(self, store: Store) -> None:
        tail = LogTail.open(store.commitlog, SIZE, 0, store.next_segment, populate_ahead=4 * SIZE)
        tail.roll()
        while tail.prepare():
            pass
        tail.blank()
        assert not tail.prepare()

    def test_a_page_that_cannot_be_had_stops_the_request_that_needs_it_and_not_the_idle_writer(
        self, store: Store, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def broken(mapped: MappedFile, start: int, end: int) -> None:
            raise StoreNotWritable(str(mapped.path), f"populate of {end - start} bytes at {start}")

        monkeypatch.setattr(MappedFile, "populate", broken)
        tail = LogTail.open(store.commitlog, SIZE, 0, store.next_segment)
        tail.roll()
        assert not tail.prepare()
        with pytest.raises(StoreNotWritable):
            tail.window(100)

    def test_without_populating_no_page_is_asked_for(self, store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(MappedFile, "populate", lambda *_: pytest.fail("pages were populated"))
        tail = LogTail.open(store.commitlog, SIZE, 0, store.next_segment, populate_ahead=0)
        tail.roll()
        assert not tail.prepare()
        assert append(tail, encoded(0)) == len(encoded(0))

    def test_what_lies_behind_is_let_go_and_every_byte_stays(
        self, store: Store, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        forgotten: list[tuple[int, int]] = []
        drop_pages = MappedFile.drop_pages

        def spy(mapped: MappedFile, start: int, end: int) -> None:
            forgotten.append((start, end))
            drop_pages(mapped, start, end)

        monkeypatch.setattr(MappedFile, "drop_pages", spy)
        monkeypatch.setattr("towline.log.commitlog.commit_log.POPULATE_STEP", PAGE)
        tail = store.tail()
        written = b""
        while tail.fits(2 * PAGE):
            frame = encoded(len(written), b"%02d" % (len(written) % 97) * 1500)
            append(tail, frame)
            written += frame
        assert store.bytes_of(0)[: len(written)] == bytes(tail.array[: len(written)]) == written
        starts, ends = zip(*forgotten, strict=True)
        assert starts == (0, *ends[:-1])
        assert all(end <= len(written) for end in ends)
        assert len(written) - ends[-1] < 5 * PAGE


class TestTheEndOfASegment:
    def test_the_golden_blank_stands_where_237_bytes_do_not_fit_into_232(self, tmp_path: Path) -> None:
        path = tmp_path / "segment"
        path.write_bytes(bytes(4096))
        segment = MappedFile.open(path, 4096, writable=True)
        tail = LogTail(segment, 4096, 3864, lambda base: pytest.fail(f"segment {base} was asked for"))
        assert not tail.fits(237)
        assert not tail.fits(225)
        assert tail.fits(224)
        assert tail.blank() == 4096
        assert path.read_bytes() == bytes(3864) + bytes.fromhex("000000e8cbd43194") + bytes(224)

    def test_a_kernel_may_fill_the_segment_but_for_the_blank(self, store: Store) -> None:
        tail = store.tail()
        assert tail.window(SIZE) == (0, SIZE - 8)
        tail.moved(SIZE - 100)
        assert [tail.window(size)[1] - SIZE for size in (1000, 100, 92, 91)] == [-8, -8, -8, -9]

    def test_the_first_record_of_the_next_segment_stands_at_its_base(self, store: Store) -> None:
        tail = store.tail()
        big = encoded(0, b"x" * 40_000)
        first_end = append(tail, big)
        assert append(tail, big) == SIZE + len(big)
        assert store.bytes_of(0)[first_end : first_end + 8] == blank.encode(SIZE - first_end)
        assert store.bytes_of(SIZE)[: len(big)] == big

    def test_a_blank_at_the_end_does_nothing(self, store: Store) -> None:
        tail = store.tail()
        assert tail.blank() == tail.blank() == SIZE
        assert tail.room == 0

    def test_a_full_disk_leaves_the_tail_at_the_end_and_the_next_try_goes_on(self, store: Store) -> None:
        tail = store.tail()
        tail.blank()
        store.disk_is_full = True
        with pytest.raises(DiskFull):
            tail.roll()
        assert (tail.position, tail.room) == (SIZE, 0)
        store.disk_is_full = False
        assert tail.roll() == SIZE
        assert append(tail, encoded(SIZE)) == SIZE + len(encoded(SIZE))

    def test_bytes_of_the_segment_before_stay_while_they_are_held(self, store: Store) -> None:
        tail = store.tail()
        append(tail, encoded(0))
        held = tail.array
        tail.blank()
        tail.roll()
        assert bytes(held[:165]) == store.bytes_of(0)[:165]
        assert not tail.close()
        del held
        assert tail.close()

    def test_the_full_segment_is_unmapped_when_there_is_time_or_in_the_next_roll_at_the_latest(
        self, store: Store
    ) -> None:
        tail = store.tail()
        first = tail.segment
        tail.blank()
        tail.roll()
        assert first.is_open
        assert tail.prepare()
        assert not first.is_open
        second = tail.segment
        for _ in range(2):
            tail.blank()
            tail.roll()
        assert not second.is_open
        assert tail.close()


class TestOpening:
    def test_a_log_without_files_begins_by_rolling(self, store: Store) -> None:
        tail = LogTail.open(store.commitlog, SIZE, 3 * SIZE, store.next_segment)
        assert (tail.position, tail.room, tail.fits(1)) == (3 * SIZE, 0, False)
        assert tail.blank() == 3 * SIZE
        assert tail.roll() == 3 * SIZE
        assert (tail.position, tail.room) == (3 * SIZE, SIZE)

    def test_a_log_goes_on_inside_its_segment(self, store: Store) -> None:
        end = append(store.tail(), encoded(0))
        assert append(store.tail(end), encoded(end)) == 2 * end
        assert store.bytes_of(0)[: 2 * end] == encoded(0) + encoded(end)

    def test_a_position_inside_a_missing_segment_is_refused(self, store: Store) -> None:
        with pytest.raises(NotInLog):
            LogTail.open(store.commitlog, SIZE, SIZE + 1, store.next_segment)


class TestRawBytesOfTheMaster:
    def test_slices_are_joined_even_inside_a_record(self, store: Store) -> None:
        tail = store.tail()
        frame = encoded(0)
        assert tail.append_raw(0, frame[:50]) == 50
        assert tail.append_raw(50, memoryview(frame)[50:]) == len(frame)
        assert store.bytes_of(0)[: len(frame)] == frame

    @pytest.mark.parametrize("offset", [0, 4, 6, SIZE])
    def test_any_offset_but_the_end_is_refused_and_nothing_changes(self, store: Store, offset: int) -> None:
        tail = store.tail()
        tail.append_raw(0, b"12345")
        with pytest.raises(AppendMismatch, match=f"for offset {offset} do not continue the log, which ends at 5"):
            tail.append_raw(offset, b"x")
        assert store.bytes_of(0) == b"12345" + bytes(SIZE - 5)

    def test_a_slice_that_crosses_the_end_of_the_segment_is_refused(self, store: Store) -> None:
        tail = store.tail()
        tail.append_raw(0, bytes(SIZE - 3))
        with pytest.raises(AppendMismatch):
            tail.append_raw(SIZE - 3, b"1234")
        assert tail.append_raw(SIZE - 3, b"123") == SIZE

    def test_a_full_segment_is_rolled_by_the_next_slice(self, store: Store) -> None:
        tail = LogTail.open(store.commitlog, SIZE, SIZE, store.next_segment)
        assert tail.append_raw(SIZE, b"a" * SIZE) == 2 * SIZE
        assert tail.append_raw(2 * SIZE, b"b") == 2 * SIZE + 1
        assert store.bytes_of(SIZE) + store.bytes_of(2 * SIZE) == b"a" * SIZE + b"b" + bytes(SIZE - 1)


class TestARestartOfTheWriterAlone:
    def test_what_was_copied_behind_the_end_is_zeroed(self, store: Store) -> None:
        killed = store.tail()
        end = append(killed, encoded(0))
        append(killed, encoded(end))  # stored, but never published as APPENDED
        tail = store.tail(end)
        tail.zero_after(end, 8 * 1024)
        assert store.bytes_of(0) == encoded(0) + bytes(SIZE - end)

    def test_an_unpublished_blank_and_what_was_copied_behind_it_are_zeroed(self, store: Store) -> None:
        killed = store.tail()
        end = append(killed, encoded(0))
        killed.blank()
        killed.roll()
        append(killed, encoded(SIZE, b"ghost") * 3)
        tail = store.tail(end)
        tail.zero_after(end, 8 * 1024)
        assert store.bytes_of(0) == encoded(0) + bytes(SIZE - end)
        tail.blank()
        tail.roll()
        assert store.bytes_of(SIZE) == bytes(SIZE)

    def test_a_restart_at_the_end_of_a_segment_zeroes_the_next_one(self, store: Store) -> None:
        killed = store.tail()
        killed.blank()
        killed.roll()
        append(killed, encoded(SIZE, b"ghost"))
        tail = store.tail(SIZE)
        tail.zero_after(SIZE, 8 * 1024)
        assert store.bytes_of(SIZE) == bytes(SIZE)

    def test_the_next_segment_is_zeroed_when_it_is_foreseen_and_not_again_in_the_roll(
        self, store: Store, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        killed = store.tail()
        end = append(killed, encoded(0))
        killed.blank()
        killed.roll()
        append(killed, encoded(SIZE, b"ghost"))
        foreseen = store.next_segment(SIZE)
        tail = LogTail.open(
            store.commitlog, SIZE, end, lambda _: foreseen, populate_ahead=2 * SIZE, foresee=lambda _: foreseen
        )
        tail.zero_after(end, 8 * 1024)
        assert store.bytes_of(SIZE) != bytes(SIZE)
        while tail.prepare():
            pass
        assert store.bytes_of(SIZE) == bytes(SIZE)
        monkeypatch.setattr(MappedFile, "sync", lambda *_: pytest.fail("the disk is waited for in the roll"))
        tail.blank()
        tail.roll()

    def test_where_nothing_was_left_nothing_is_written_and_the_disk_is_not_waited_for(
        self, store: Store, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        end = append(store.tail(), encoded(0))
        monkeypatch.setattr(MappedFile, "sync", lambda *_: pytest.fail("zeros were synced"))
        tail = store.tail(end)
        tail.zero_after(end, 8 * 1024)
        tail.blank()
        tail.roll()

    def test_only_the_stated_length_is_touched(self, store: Store) -> None:
        tail = store.tail()
        tail.array[:] = 1
        tail.zero_after(0, PAGE + 1)
        assert store.bytes_of(0) == bytes(PAGE + 1) + b"\x01" * (SIZE - PAGE - 1)


class TestReading:
    @pytest.fixture
    def reader(self, store: Store) -> CommitLogReader:
        tail = store.tail(SIZE)
        append(tail, encoded(SIZE))
        append(tail, encoded(tail.position, b"x" * 60_000))
        append(tail, encoded(2 * SIZE, b"y" * 30_000))
        reader = CommitLogReader(store.commitlog, SIZE)
        reader.load()
        return reader

    def test_a_record_is_a_slice_of_the_log(self, reader: CommitLogReader) -> None:
        assert bytes(reader.record(SIZE, 3 * SIZE)) == encoded(SIZE)
        assert record.decode(reader.record(2 * SIZE, 3 * SIZE)).body == b"y" * 30_000

    def test_a_slice_never_crosses_the_end_of_a_segment(self, reader: CommitLogReader) -> None:
        assert len(reader.slice(SIZE + 10, 3 * SIZE)) == SIZE - 10
        assert len(reader.slice(SIZE + 10, SIZE + 30)) == 20
        assert reader.slice(SIZE, SIZE + 10).readonly

    def test_the_array_of_a_segment_is_found_by_its_base(self, reader: CommitLogReader) -> None:
        assert reader.segment_of(SIZE + 10) == SIZE
        assert bytes(reader.array(SIZE)[:8]) == encoded(SIZE)[:8]

    @pytest.mark.parametrize("offset", [0, SIZE - 1, 4 * SIZE])
    def test_an_offset_outside_the_files_is_refused_with_the_bounds(self, reader: CommitLogReader, offset: int) -> None:
        with pytest.raises(NotInLog, match=f"offset {offset} is not in the log, which holds {SIZE} to {3 * SIZE}"):
            reader.slice(offset, offset + 1)

    def test_a_segment_that_appears_later_is_found(self, reader: CommitLogReader, store: Store) -> None:
        append(store.tail(3 * SIZE), encoded(3 * SIZE, b"late"))
        assert record.decode(reader.record(3 * SIZE, 4 * SIZE)).body == b"late"

    @pytest.mark.parametrize(
        ("rule", "offset", "end_limit"),
        [
            ("ENDS_INSIDE", SIZE, SIZE + 50),
            ("SIZE_PAST_END", SIZE, SIZE + len(encoded(0)) - 1),
            ("MAGIC", SIZE + 1, 2 * SIZE),
            ("MAGIC", 2 * SIZE + len(encoded(0, b"y" * 30_000)), 3 * SIZE),
        ],
        ids=["no room for a record", "past the limit", "inside a record", "behind the last"],
    )
    def test_what_is_no_whole_record_is_refused_with_its_offset(
        self, reader: CommitLogReader, rule: str, offset: int, end_limit: int
    ) -> None:
        with pytest.raises(MalformedRecord) as refused:
            reader.record(offset, end_limit)
        assert (refused.value.rule, refused.value.at) == (rule, offset)

    def test_a_blank_is_no_record(self, reader: CommitLogReader) -> None:
        end = SIZE + len(encoded(0)) + len(encoded(0, b"x" * 60_000))
        with pytest.raises(MalformedRecord, match="MAGIC"):
            reader.record(end, 2 * SIZE)

    def test_absurd_sizes_are_refused(self, reader: CommitLogReader, store: Store) -> None:
        for size in (-1, 0, 91, 2**31 - 1):
            mapped = store.next_segment(3 * SIZE)
            mapped.view[:8] = size.to_bytes(4, "big", signed=True) + record.MAGIC_V1.to_bytes(4, "big")
            with pytest.raises(MalformedRecord, match="SIZE"):
                reader.record(3 * SIZE, 4 * SIZE)

    def test_closing_waits_for_held_slices(self, reader: CommitLogReader) -> None:
        held = reader.slice(SIZE, SIZE + 10)
        assert not reader.close()
        held.release()
        assert reader.close()
