"""Queues and index whose synced mark lies segments behind the log's durable offset: what is missing is noticed."""

import random
import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.log.sound import look, rules
from tests.log.stores import INDEXES, QUEUE_FILE, SEGMENT, SLOTS, StoreMaker, open_index
from towline.errors import CorruptLog
from towline.format.files.index_file import (
    ENTRY_LAYOUT,
    ENTRY_SIZE,
    HEADER_SIZE,
    decode_header,
    encode_header,
    entry_at,
)
from towline.log.commitlog import log_walk
from towline.log.commitlog.dispatch import Batch, DispatchScan
from towline.log.recovery import recovery
from towline.log.recovery.recover_derived import TAIL
from towline.log.recovery.recovery import Recovered
from towline.log.recovery.verdicts import Case

from .test_verdicts import derive

COUNT = 300  # records of 507 bytes: two full segments and a third
ENTRIES = INDEXES - 1  # of an index file
MARKS = {"in the first segment": 60, "behind a border": 132}  # records up to which queues and index are synced


class AfterACut(StoreMaker):
    """The log is durable to its end, queues and index up to the record `mark`."""

    mark: int

    @classmethod
    def up_to(cls, root: Path, mark: int) -> "AfterACut":
        made = cls(root)
        made.mark = mark
        made.fill(COUNT)
        at = made.records[mark].at
        made.dispatch(at)
        made.durable(made.end, queues=at)
        return made

    @property
    def index_files(self) -> list[Path]:
        return sorted(self.store.index.iterdir())


@pytest.fixture(params=MARKS.values(), ids=MARKS)
def maker(tmp_path: Path, request: pytest.FixtureRequest) -> AfterACut:
    return AfterACut.up_to(tmp_path, request.param)


def queue_gone(maker: AfterACut) -> None:
    shutil.rmtree(maker.store.consumequeue / "TopicA" / "0")


def last_queue_file_gone(maker: AfterACut) -> None:
    sorted((maker.store.consumequeue / "TopicB" / "1").iterdir())[-1].unlink()


def index_gone(maker: AfterACut) -> None:
    for path in maker.index_files:
        path.unlink()


def last_index_file_gone(maker: AfterACut) -> None:
    maker.index_files[-1].unlink()


def header_page_old(maker: AfterACut) -> None:
    """The header is that of a time when the last file had fewer entries."""
    path = maker.index_files[-1]
    header = decode_header(path.read_bytes()[:HEADER_SIZE])
    poke(path, 0, encode_header(replace(header, index_count=5, end_physical_offset=entry(path, 4)[1])))


def entry(path: Path, number: int) -> tuple[int, ...]:
    at = entry_at(SLOTS, number)
    return ENTRY_LAYOUT.unpack_from(path.read_bytes()[at : at + ENTRY_SIZE])


def poke(path: Path, at: int, data: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(at)
        file.write(data)


DAMAGES = (queue_gone, last_queue_file_gone, index_gone, last_index_file_gone, header_page_old)
Damage = Callable[[AfterACut], None]


def found_by_key(maker: StoreMaker) -> list[int]:
    index = open_index(maker.store, writable=False)
    found = [
        number
        for number, stored in enumerate(maker.records)
        if stored.at in index.query(stored.topic, f"k{number}", 0, 1 << 60)
    ]
    index.close()
    return found


def check_whole(maker: StoreMaker, recovered: Recovered) -> None:
    """When reput has derived the rest, everything can be read through its queue and found by its key."""
    derive(maker, recovered)
    (maker.root / "abort").unlink()
    found = look(maker)
    assert not rules(found), found.findings.rows
    assert found_by_key(maker) == list(range(COUNT))


def test_a_store_of_which_nothing_is_missing_goes_on_at_its_mark(maker: AfterACut) -> None:
    recovered = maker.recover()
    assert recovered.dispatched == recovered.indexed == maker.records[maker.mark].at
    check_whole(maker, recovered)


@pytest.mark.parametrize("tail", [2100, SEGMENT, 3 * SEGMENT, TAIL])
@pytest.mark.parametrize("damage", DAMAGES, ids=lambda damage: damage.__name__)
def test_what_is_missing_below_the_mark_is_derived_again(
    maker: AfterACut, damage: Damage, tail: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recovery, "TAIL", tail)
    damage(maker)
    recovered = maker.recover()
    assert {Case.QUEUE_END_MISSING, Case.INDEX_END_MISSING, Case.INDEX_ABSENT} & set(recovered.cases), recovered.notes
    check_whole(maker, recovered)


def test_the_tail_is_found_far_from_a_segments_beginning(maker: AfterACut, monkeypatch: pytest.MonkeyPatch) -> None:
    """The way to it leads over the heads of the records before it, in steps."""
    monkeypatch.setattr(log_walk, "KERNEL_BYTES_MAX", 3000)
    monkeypatch.setattr(recovery, "TAIL", 2100)
    looked_at: list[int] = []
    real = DispatchScan.whole

    def whole(scan: DispatchScan, start: int, end: int) -> Iterator[Batch]:
        looked_at.append(end - start)
        return real(scan, start, end)

    monkeypatch.setattr(DispatchScan, "whole", whole)
    last_index_file_gone(maker)
    check_whole(maker, maker.recover())
    assert 2100 <= looked_at[0] <= 2100 + 3000 + 507


def test_a_record_below_the_mark_that_cannot_be_read_refuses_the_start(maker: AfterACut) -> None:
    """Its queue cannot be compared with it."""
    stored = maker.records[maker.mark - 20]
    maker.write(stored.at + 4, b"\0\0\0\0")
    with pytest.raises(CorruptLog, match="MAGIC") as refusal:
        maker.recover()
    assert (refusal.value.path, refusal.value.at) == (str(maker.path(stored.at)), stored.at % SEGMENT)


class TestATornIndexFile:
    """The header page of the newest file reached the disk, and says that it is full; of its entries not all did."""

    @pytest.fixture
    def torn(self, tmp_path: Path) -> AfterACut:
        """The first file ends with the mark, so nothing of the second one need be there."""
        made = AfterACut.up_to(tmp_path, ENTRIES)
        made.index(made.records[ENTRIES].at, made.records[2 * ENTRIES].at)
        first, second = made.index_files
        assert [decode_header(path.read_bytes()[:HEADER_SIZE]).index_count for path in (first, second)] == [INDEXES] * 2
        return made

    def lose(self, path: Path, first: int, end: int, data: bytes | None = None) -> None:
        size = (end - first) * ENTRY_SIZE
        poke(path, entry_at(SLOTS, first), data or bytes(size))

    @pytest.mark.parametrize(("first", "end"), [(1, INDEXES), (1, 20), (20, INDEXES), (10, 20), (1, 2)])
    def test_zeros_are_no_entries(self, torn: AfterACut, first: int, end: int) -> None:
        self.lose(torn.index_files[1], first, end)
        recovered = torn.recover()
        assert recovered.indexed == torn.records[ENTRIES].at
        assert len(torn.index_files) == 1
        check_whole(torn, recovered)

    @pytest.mark.parametrize("only", [False, True], ids=["behind another file", "the only file"])
    def test_zeros_and_noise_are_no_entries(self, torn: AfterACut, only: bool) -> None:
        draw = random.Random(15)
        path = torn.index_files[1]
        for first in range(1, INDEXES, 3):
            self.lose(path, first, first + 3, draw.choice((bytes(60), draw.randbytes(60))))
        self.lose(path, 1, 4)
        if only:
            torn.index_files[0].unlink()
        recovered = torn.recover()
        assert len(torn.index_files) == 1 - only
        check_whole(torn, recovered)

    def test_zeros_at_the_beginning_of_the_first_file_are_no_entries(self, torn: AfterACut) -> None:
        """Its entries may be of the record at 0, as zeros seem to be."""
        torn.index_files[1].unlink()
        self.lose(torn.index_files[0], 1, INDEXES)
        recovered = torn.recover()
        assert recovered.indexed == 0
        assert torn.index_files == []
        check_whole(torn, recovered)


@pytest.mark.parametrize("before", [0, 5], ids=["a queue that began behind the mark", "one with entries before it"])
def test_a_queue_of_which_a_later_file_alone_kept_its_name_begins_anew(tmp_path: Path, before: int) -> None:
    """A power cut took the names that no sync had kept, in any order. The file that is left holds nothing before the
    mark, and its name promises numbers that the log does not go on with."""
    maker = AfterACut(tmp_path)
    maker.fill(COUNT - 60)
    for _ in range(before):
        maker.append(b"early", "Late", 1)
    mark = maker.end
    for number in range(60 - before):
        maker.append(b"%d" % number, "Late", 1)
    maker.dispatch(maker.end)
    maker.durable(maker.end, queues=mark)
    first, *others = sorted((maker.store.consumequeue / "Late" / "1").iterdir())
    assert others
    first.unlink()
    recovered = maker.recover()
    assert Case.QUEUE_FILE_MISSING in recovered.cases
    assert "log holds" in "".join(recovered.notes)
    assert recovered.dispatched == (0 if before else mark)
    check_whole(maker, recovered)


def test_a_queue_whose_messages_have_all_gone_keeps_its_numbers(tmp_path: Path) -> None:
    """Its first files were removed with the log's, and nothing of it is behind the mark."""
    maker = AfterACut(tmp_path)
    maker.fill(COUNT)
    maker.dispatch(maker.end)
    mark = maker.records[-3].at
    maker.durable(maker.end, queues=mark)
    directory = maker.store.consumequeue / "Gone" / "0"
    directory.mkdir(parents=True)
    (directory / f"{QUEUE_FILE:020d}").write_bytes(bytes(QUEUE_FILE))
    recovered = maker.recover()
    assert Case.QUEUE_FILE_MISSING not in recovered.cases
    [kept] = [queue for queue in recovered.queues if queue.topic == "Gone"]
    assert (kept.min_offset, kept.end_offset) == (QUEUE_FILE // 20, QUEUE_FILE // 20)
