"""Every state that a power cut may leave of an unsynced tail: any subset of its pages or sectors reached the disk.

S0 is what the last sync made durable, S1 what was written since. A state takes some pages of S1 and the rest of S0, in
which the tail is zeros. Whatever the subset: recovery succeeds, keeps everything durable, ends the log at the first
record that is not whole, gives back no byte that was not written, and finds nothing more to do when it is repeated.
"""

import random
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.faults.noting import note
from tests.log.stores import SEGMENT, Stored, StoreMaker, contents
from towline.format.record.record import record_size
from towline.limits import PAGE
from towline.log.state.durable_file import DurableFile

SECTOR = 512
PAGES = 9  # of the tail; all 512 subsets are tried
MEMORY = Path("/dev/shm")


@dataclass(frozen=True)
class Layout:
    """`before` records are durable, `queues` of them dispatched and synced; the tail is what follows."""

    name: str
    before: int
    queues: int
    sizes: tuple[int, ...]  # of the bodies, in turn


LAYOUTS = (
    Layout("records of one size", before=20, queues=10, sizes=(400,)),  # a stale one would fit where it stands (H1)
    Layout("records longer than a page", before=8, queues=8, sizes=(5000, 900, 9000)),
    Layout("a tail over the end of a segment", before=120, queues=100, sizes=(400, 401, 399)),
    Layout("records of a page each", before=8, queues=3, sizes=(PAGE - record_size(0, len("T0"), len("KEYS.k0.")),)),
)


class Torn:
    """A store at S1 as a template, and copies of it in which blocks of the tail are those of S0."""

    def __init__(self, root: Path, layout: Layout) -> None:
        self.layout = layout
        self.template = StoreMaker(root / "template")
        self.copies = root / "copies"
        number = 0
        while number < layout.before or self.template.end - self.start < PAGES * PAGE - PAGE // 2:
            size = layout.sizes[number % len(layout.sizes)]
            self.template.append(bytes([number % 251 + 1]) * size, f"T{number % 2}", 0)
            number += 1
        self.template.dispatch(self.template.end)
        self.template.durable(self.start, queues=self.template.records[layout.queues].at)
        self.written = self.template.log_bytes()
        self.synced = self.written[: self.start] + bytes(len(self.written) - self.start)

    @property
    def start(self) -> int:
        """Where the tail begins; before its record is there, it is the end."""
        records = self.template.records
        return records[self.layout.before].at if len(records) > self.layout.before else self.template.end

    def blocks(self, size: int) -> list[tuple[int, int]]:
        """The tail in blocks as they lie on the disk."""
        first = self.start - self.start % size
        return [(at, at + size) for at in range(first, self.template.end, size)]

    def state(self, missing: list[tuple[int, int]]) -> tuple[StoreMaker, bytes]:
        """A store in which these blocks did not reach the disk, and its log."""
        shutil.rmtree(self.copies, ignore_errors=True)
        shutil.copytree(self.template.root, self.copies, copy_function=shutil.copyfile)
        maker = StoreMaker(self.copies)
        log = bytearray(self.written)
        for first, stop in missing:
            log[first:stop] = self.synced[first:stop]
        for base in range(0, len(log), SEGMENT):
            maker.path(base).write_bytes(log[base : base + SEGMENT])
        return maker, bytes(log)

    def end_of(self, log: bytes) -> int:
        """Where the log must end: at the first record, or blank, of which a byte is missing."""
        end = 0
        for record in self.template.records:
            border = record.at - record.at % SEGMENT
            if end < border and log[end : end + 8] != self.written[end : end + 8]:
                return end
            if log[record.at : record.end] != record.data:
                return max(end, border)
            end = record.end
        return end


@pytest.fixture(params=LAYOUTS, ids=lambda layout: layout.name)
def torn(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Torn]:
    """In memory where there is such a place: thousands of stores are synced many times each."""
    with tempfile.TemporaryDirectory(dir=MEMORY if MEMORY.is_dir() else tmp_path) as directory:
        yield Torn(Path(directory), request.param)


def check(torn: Torn, missing: list[tuple[int, int]], *, again: bool) -> int:
    """Recovers the state and compares everything; returns how many records of the tail were kept."""
    maker, log = torn.state(missing)
    recovered = maker.recover()
    end = torn.end_of(log)
    assert recovered.end == end, f"{missing}: ends at {recovered.end}, not at {end}"
    assert end >= torn.start
    kept = [record for record in torn.template.records if record.end <= end]
    after = maker.log_bytes()
    assert all(after[record.at : record.end] == record.data for record in kept), missing
    assert not any(after[end:]), missing
    assert {at: data for at, data in maker.kept().items() if at < end} == {}
    watermark = torn.template.records[torn.layout.queues].at
    assert recovered.dispatched == watermark
    ends = {queue.topic: queue.end_offset for queue in recovered.queues}
    assert ends == queue_ends([record for record in kept if record.at < watermark]), missing
    if again:
        before = contents(maker.store)
        assert maker.recover().end == end
        assert contents(maker.store) == before
    return len(kept) - torn.layout.before


def queue_ends(records: list[Stored]) -> dict[str, int]:
    return {record.topic: record.queue_offset + 1 for record in records}


def test_every_subset_of_the_pages_of_a_tail(torn: Torn) -> None:
    pages = torn.blocks(PAGE)[:PAGES]
    rest = torn.blocks(PAGE)[PAGES:]
    kept = set()
    for chosen in range(1 << len(pages)):
        missing = [page for number, page in enumerate(pages) if not chosen >> number & 1] + rest
        kept.add(check(torn, missing, again=chosen % 16 == 0))
    assert {0} < kept, "the subsets leave different numbers of records"
    note(1 << len(pages))


def test_one_sector_is_missing(torn: Torn) -> None:
    for number, sector in enumerate(torn.blocks(SECTOR)):
        check(torn, [sector], again=number % 16 == 0)
    note(len(torn.blocks(SECTOR)))


def test_tears_at_sectors(torn: Torn) -> None:
    sectors = torn.blocks(SECTOR)
    draw = random.Random(torn.layout.name)
    for number in range(100):
        share = draw.choice((0.02, 0.1, 0.5))
        check(torn, [sector for sector in sectors if draw.random() < share], again=number % 16 == 0)
    note(100)


def test_queues_and_index_behind_the_watermark_may_be_torn_too(torn: Torn) -> None:
    """The log's tail is torn and so is what was derived from it: no sector behind the watermark is sure."""
    draw = random.Random(torn.layout.name)
    watermark = torn.template.records[torn.layout.queues].at
    for _ in range(40):
        missing = [page for page in torn.blocks(PAGE) if draw.random() < 0.3]
        maker, log = torn.state(missing)
        synced = queue_ends([record for record in torn.template.records if record.at < watermark])
        for path in maker.store.consumequeue.rglob("0*/0*"):
            entries = (int(path.name) + path.stat().st_size) // 20
            sure = max(0, min(synced.get(path.parent.parent.name, 0), entries) * 20 - int(path.name))
            tear(path, sure, draw)
        recovered = maker.recover()
        assert recovered.end == torn.end_of(log)
        assert {queue.topic: queue.end_offset for queue in recovered.queues} == synced
        assert maker.recover().end == recovered.end
    note(40)


def test_a_durable_offset_file_torn_while_it_was_written(torn: Torn) -> None:
    """One slot is whole always, so the state before is the worst that is found."""
    old = torn.template.store.durable.read_bytes()
    file = DurableFile(torn.template.root)
    before = file.load()
    assert before is not None
    after = file.save(torn.template.recover().durable)
    file.close()
    new = torn.template.store.durable.read_bytes()
    changed = [
        at for at in range(0, len(new), SECTOR) if new[at : at + SECTOR] != old.ljust(len(new), b"\0")[at : at + SECTOR]
    ]
    assert changed
    for at in changed:
        for cut in range(0, SECTOR, 7):
            data = bytearray(old.ljust(len(new), b"\0"))
            data[at : at + cut] = new[at : at + cut]
            torn.template.store.durable.write_bytes(data)
            assert DurableFile(torn.template.root).load() in (before, after)
    note(len(changed) * len(range(0, SECTOR, 7)))


def tear(path: Path, sure: int, draw: random.Random) -> None:
    data = bytearray(path.read_bytes())
    for at in range(0, len(data), SECTOR):
        if draw.random() < 0.5:
            first = max(at, sure)
            data[first : at + SECTOR] = bytes(max(0, len(data[first : at + SECTOR])))
    path.write_bytes(data)
