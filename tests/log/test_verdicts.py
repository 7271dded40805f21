"""Every row of the recovery table, brought about on a store: the verdict, what is kept, and that the remedy works."""

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tests.log.sound import copy_of, look, mend_all, sound_store
from tests.log.stores import NOON, QUEUE_FILE, SEGMENT, SETTINGS, SLOTS, StoreMaker, contents, open_index
from tests.repo.trees import ROOT
from towline.errors import TowlineError
from towline.format import record, skipped
from towline.format.durable import Durable
from towline.kernels.directory import QueueDirectory
from towline.log.commit_log import CommitLogReader
from towline.log.config_file import ConfigFile
from towline.log.consume_queue import ConsumeQueueFiles
from towline.log.dispatch import DispatchScan
from towline.log.durable_file import DurableFile
from towline.log.findings import Weight
from towline.log.identity import IdentityFile
from towline.log.mend import mend
from towline.log.queue_entries import QueueEntries
from towline.log.recovery import Recovered, recover
from towline.log.segment_files import clear_staging
from towline.log.verdicts import Case, Verdict, as_markdown

MIDDLE = 150  # the record at which the durable offset stands where something is torn
PAGE = ROOT / "ARCHITECTURE.md"
BEGIN, END = "TOWLINE_REWRITE=1 -->\n", "<!-- end of the recovery table -->"


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> StoreMaker:
    return sound_store(tmp_path_factory.mktemp("sound"))


@pytest.fixture
def maker(original: StoreMaker, tmp_path: Path) -> StoreMaker:
    return copy_of(original, tmp_path / "store")


def start(maker: StoreMaker) -> Recovered:
    """The steps of a node's start that read its files."""
    IdentityFile(maker.root).check("DefaultCluster")
    if maker.store.staging.is_dir():
        clear_staging(maker.store.staging)
    recovered = recover(maker.store, SETTINGS)
    for name in ("topics.json", "consumerOffset.json"):
        ConfigFile(maker.store.config / name).load()
    return recovered


def derive(maker: StoreMaker, recovered: Recovered) -> None:
    """What reput does after a start."""
    reader = CommitLogReader(maker.store.commitlog, SEGMENT)
    reader.load()
    directory = QueueDirectory()
    for queue in recovered.queues:
        directory.add(queue.topic.encode(), queue.queue_id)
    ends = np.array([queue.end_offset for queue in recovered.queues], dtype=np.int64)

    def refuse(*_: object) -> None:
        pytest.fail("a gap in a queue's numbers")

    entries, files = QueueEntries(directory, ends, refuse), ConsumeQueueFiles(maker.store.consumequeue, QUEUE_FILE, 8)
    at, scan = recovered.dispatched, DispatchScan(reader, directory)
    while at < recovered.end:
        batch = scan.read(at, recovered.end)
        for run in entries.runs(batch):
            topic = directory.topic(run.number).decode()
            files.write(topic, directory.queue_id(run.number), run.offset, run.entries)
        at = batch.end
    files.close()
    reader.close()
    maker.index(recovered.indexed, recovered.end)


def poke(path: Path, at: int, data: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(at)
        file.write(data)


def durable(maker: StoreMaker, number: int = MIDDLE, **other: int) -> None:
    """A store that was killed: durable to this record, dispatched as far."""
    at = maker.records[number].at
    state = Durable(flushed=at, segment_base=at - at % SEGMENT, queues_durable=at)
    file = DurableFile(maker.root)
    file.save(replace(state, **other))
    file.close()
    (maker.root / "abort").write_text("1")


def queue_dir(maker: StoreMaker, topic: str = "TopicA", queue_id: int = 0) -> Path:
    return maker.store.consumequeue / topic / str(queue_id)


def entry(maker: StoreMaker, number: int) -> tuple[Path, int]:
    at = number * 20
    return queue_dir(maker) / f"{at - at % QUEUE_FILE:020d}", at % QUEUE_FILE


def count_of(maker: StoreMaker) -> int:
    return sum((one.topic, one.queue_id) == ("TopicA", 0) for one in maker.records)


def index_files(maker: StoreMaker) -> list[Path]:
    return sorted(maker.store.index.iterdir())


def empty(directory: Path) -> None:
    for path in sorted(directory.rglob("*"), reverse=True):
        path.rmdir() if path.is_dir() else path.unlink()


# --- how each situation comes about


def staged(maker: StoreMaker) -> None:
    maker.store.staging.mkdir()
    (maker.store.staging / "next").write_bytes(bytes(100))


def no_identity(maker: StoreMaker) -> None:
    (maker.root / "identity.json").unlink()


def broken_identity(maker: StoreMaker) -> None:
    path = maker.root / "identity.json"
    path.write_text(path.read_text().replace('"cluster": "D', '"cluster": "E'))


def torn_config(maker: StoreMaker) -> None:
    path = maker.store.config / "topics.json"
    path.write_bytes(path.read_bytes()[:40])


def lost_config(maker: StoreMaker) -> None:
    torn_config(maker)
    (maker.store.config / "topics.json.bak").write_text("{")


def nothing(maker: StoreMaker) -> None:
    pass


def abort(maker: StoreMaker) -> None:
    (maker.root / "abort").write_text("1")


def no_durable(maker: StoreMaker) -> None:
    (maker.root / "durable").unlink()


def torn_slot(maker: StoreMaker) -> None:
    maker.durable(maker.end, queues=maker.end)
    maker.durable(maker.end - 1, queues=maker.end - 1)  # taken back: both slots hold it
    maker.durable(maker.end, queues=maker.end)
    data = (maker.root / "durable").read_bytes()
    newest = max((0, 512), key=lambda at: data[at : at + 8])
    poke(maker.root / "durable", 512 - newest + 20, b"\x99")


def no_slot(maker: StoreMaker) -> None:
    (maker.root / "durable").write_bytes(b"garbage" * 10)


def failed_sync(maker: StoreMaker) -> None:
    durable(maker, MIDDLE, sync_failed=True)


def no_checkpoint(maker: StoreMaker) -> None:
    (maker.root / "checkpoint").unlink()


def broken_checkpoint(maker: StoreMaker) -> None:
    poke(maker.root / "checkpoint", 3, b"\x01")


def foreign(maker: StoreMaker) -> None:
    (maker.store.commitlog / "notes").write_text("hello")


def other_size(maker: StoreMaker) -> None:
    maker.path(SEGMENT).write_bytes(bytes(100))


def empty_last(maker: StoreMaker) -> None:
    maker.path(3 * SEGMENT).touch()


def spares(maker: StoreMaker) -> None:
    for number in (3, 4, 5):
        maker.write(number * SEGMENT, b"\0")


def missing_below(maker: StoreMaker) -> None:
    maker.path(SEGMENT).unlink()


def missing_behind(maker: StoreMaker) -> None:
    durable(maker, 100)
    maker.path(SEGMENT).unlink()


def min_published(maker: StoreMaker) -> None:
    durable(maker, 299, log_min=SEGMENT)


def min_unrecorded(maker: StoreMaker) -> None:
    start_missing(maker)
    poke(maker.root / "checkpoint", 0, (NOON + 298).to_bytes(8, "big"))


def start_missing(maker: StoreMaker) -> None:
    durable(maker, 299)
    maker.path(0).unlink()


def corrupt(maker: StoreMaker) -> None:
    maker.write(maker.records[100].at + 300, b"\xff")
    durable(maker)
    maker.write(maker.records[140].at + 300, b"\xff")


def corrupt_size(maker: StoreMaker) -> None:
    durable(maker)
    maker.write(maker.records[140].at + 1, b"\x01")


def corrupt_blank(maker: StoreMaker) -> None:
    durable(maker, 140, flushed=SEGMENT, segment_base=SEGMENT)
    maker.write(maker.blanks[0] + 4, b"\0")


def corrupt_closed(maker: StoreMaker) -> None:
    no_durable(maker)
    maker.write(maker.records[290].at + 300, b"\xff")


def torn(maker: StoreMaker) -> None:
    durable(maker)
    maker.write(maker.records[MIDDLE].at + 300, b"\xff")


def torn_size(maker: StoreMaker) -> None:
    durable(maker)
    maker.write(maker.records[200].at + 1, b"\x01")


def torn_blank(maker: StoreMaker) -> None:
    durable(maker)
    maker.write(maker.blanks[1] + 4, b"\0")


def torn_on_slave(maker: StoreMaker) -> None:
    stored = maker.records[160]
    durable(maker, flushed=stored.at + 100)
    maker.zero_from(stored.at + 100)


def stale(maker: StoreMaker) -> None:
    """A record of an earlier end that stands where the next of its size would end, right in its place."""
    lost, cut = maker.records[201], maker.records[200]
    durable(maker, 200)
    for path in maker.store.commitlog.iterdir():
        if int(path.name) > lost.at:
            path.unlink()
    maker.write(cut.at, bytes(cut.end - cut.at))
    maker.write(lost.at, lost.data)
    assert record.decode(lost.data).physical_offset == lost.at


def properties(maker: StoreMaker) -> None:
    durable(maker)
    maker.write(maker.records[140].end - 3, b"\0")


def version_2(maker: StoreMaker) -> None:
    maker.append(b"long", "%RETRY%" + "g" * 130)
    durable(maker)


def stepped_over(maker: StoreMaker) -> None:
    stored = maker.records[200]
    durable(maker)
    lost = skipped.Lost(stored.topic.encode(), stored.queue_id, stored.queue_offset, 1)
    maker.write(stored.at, skipped.encode(507, stored.at, lost, NOON + 199, with_crc=False))


def no_queues(maker: StoreMaker) -> None:
    empty(maker.store.consumequeue)


def behind_the_mark(maker: StoreMaker) -> None:
    durable(maker)


def file_between(maker: StoreMaker) -> None:
    sorted(queue_dir(maker).iterdir())[1].unlink()


def queue_gone(maker: StoreMaker) -> None:
    empty(queue_dir(maker))
    queue_dir(maker).rmdir()


def garbage_at_the_end(maker: StoreMaker) -> None:
    path, at = entry(maker, count_of(maker) - 3)
    poke(path, at, (1 << 40).to_bytes(8, "big"))


def hole(maker: StoreMaker) -> None:
    path, at = entry(maker, count_of(maker) - 3)
    poke(path, at, bytes(20))


def damaged_inside(maker: StoreMaker) -> None:
    path, at = entry(maker, 5)
    poke(path, at + 12, b"\x77")


def queue_size(maker: StoreMaker) -> None:
    path, _ = entry(maker, 5)
    path.write_bytes(path.read_bytes()[:-20])


def file_without_length(maker: StoreMaker) -> None:
    count = count_of(maker)
    (queue_dir(maker) / f"{(count * 20 // QUEUE_FILE + 1) * QUEUE_FILE:020d}").touch()


def file_too_many(maker: StoreMaker) -> None:
    path, _ = entry(maker, 1000)
    path.write_bytes(bytes(QUEUE_FILE))


def misnamed_queue_file(maker: StoreMaker) -> None:
    (queue_dir(maker) / f"{17:020d}").write_bytes(bytes(QUEUE_FILE))


def foreign_in_queues(maker: StoreMaker) -> None:
    (maker.store.consumequeue / "TopicA" / "notes").mkdir()
    (queue_dir(maker) / "notes").write_text("hello")


def no_index(maker: StoreMaker) -> None:
    empty(maker.store.index)


def index_end(maker: StoreMaker) -> None:
    index_files(maker)[-1].unlink()


def index_inside(maker: StoreMaker) -> None:
    index_files(maker)[1].unlink()


def index_header(maker: StoreMaker) -> None:
    poke(index_files(maker)[2], 36, (5).to_bytes(4, "big"))


def index_chain(maker: StoreMaker) -> None:
    poke(index_files(maker)[-1], 40, (9).to_bytes(4, "big") * SLOTS)


def index_size(maker: StoreMaker) -> None:
    path = index_files(maker)[0]
    path.write_bytes(path.read_bytes()[:-1])


def index_unfinished(maker: StoreMaker) -> None:
    (maker.store.index / "20260101000000000.new").write_bytes(bytes(100))


def index_foreign(maker: StoreMaker) -> None:
    (maker.store.index / "garbage").write_bytes(bytes(100))


PROVOKED: dict[Case, Callable[[StoreMaker], None]] = {
    Case.STAGED: staged,
    Case.IDENTITY_ABSENT: no_identity,
    Case.IDENTITY_BROKEN: broken_identity,
    Case.CONFIG_TORN: torn_config,
    Case.CONFIG_LOST: lost_config,
    Case.STOPPED: nothing,
    Case.CRASHED: abort,
    Case.NO_DURABLE: no_durable,
    Case.DURABLE_SLOT: torn_slot,
    Case.DURABLE_LOST: no_slot,
    Case.SYNC_FAILED: failed_sync,
    Case.NO_CHECKPOINT: no_checkpoint,
    Case.CHECKPOINT_BROKEN: broken_checkpoint,
    Case.FOREIGN: foreign,
    Case.SEGMENT_SIZE: other_size,
    Case.EMPTY_LAST: empty_last,
    Case.SPARE_SEGMENTS: spares,
    Case.SEGMENT_MISSING: missing_below,
    Case.SEGMENT_LOST: missing_behind,
    Case.MIN_PUBLISHED: min_published,
    Case.MIN_UNRECORDED: min_unrecorded,
    Case.START_MISSING: start_missing,
    Case.CORRUPT_RECORD: corrupt,
    Case.CORRUPT_SIZE: corrupt_size,
    Case.CORRUPT_BLANK: corrupt_blank,
    Case.CORRUPT_CLOSED: corrupt_closed,
    Case.TORN_RECORD: torn,
    Case.TORN_SIZE: torn_size,
    Case.TORN_BLANK: torn_blank,
    Case.TORN_ON_SLAVE: torn_on_slave,
    Case.STALE_BYTES: stale,
    Case.PROPERTIES: properties,
    Case.VERSION_2: version_2,
    Case.STEPPED_OVER: stepped_over,
    Case.QUEUES_ABSENT: no_queues,
    Case.QUEUE_AHEAD: behind_the_mark,
    Case.QUEUE_FILE_MISSING: file_between,
    Case.QUEUE_END_MISSING: queue_gone,
    Case.QUEUE_GARBAGE: garbage_at_the_end,
    Case.QUEUE_HOLE: hole,
    Case.QUEUE_INSIDE: damaged_inside,
    Case.QUEUE_SIZE: queue_size,
    Case.QUEUE_EMPTY_FILE: file_without_length,
    Case.QUEUE_EXTRA_FILE: file_too_many,
    Case.QUEUE_MISNAMED: misnamed_queue_file,
    Case.QUEUE_FOREIGN: foreign_in_queues,
    Case.INDEX_ABSENT: no_index,
    Case.INDEX_AHEAD: behind_the_mark,
    Case.INDEX_END_MISSING: index_end,
    Case.INDEX_INSIDE: index_inside,
    Case.INDEX_HEADER: index_header,
    Case.INDEX_CHAIN: index_chain,
    Case.INDEX_SIZE: index_size,
    Case.INDEX_UNFINISHED: index_unfinished,
    Case.INDEX_FOREIGN: index_foreign,
}

# Refusals: the error's name, and the rule that it names where it is about a record.
REFUSALS: dict[Case, tuple[str, str]] = {
    Case.IDENTITY_BROKEN: ("MalformedFile", ""),
    Case.CONFIG_LOST: ("MalformedFile", ""),
    Case.DURABLE_LOST: ("DurableLost", ""),
    Case.SYNC_FAILED: ("StoreSyncFailed", ""),
    Case.FOREIGN: ("ForeignFile", ""),
    Case.SEGMENT_SIZE: ("SegmentSizeMismatch", ""),
    Case.SEGMENT_MISSING: ("CorruptLog", "MISSING"),
    Case.START_MISSING: ("CorruptLog", "MISSING"),
    Case.CORRUPT_RECORD: ("CorruptLog", "BODY_CRC"),
    Case.CORRUPT_SIZE: ("CorruptLog", "SIZE_PAST_END"),
    Case.CORRUPT_BLANK: ("CorruptLog", "MAGIC"),
    Case.CORRUPT_CLOSED: ("CorruptLog", "BODY_CRC"),
    Case.QUEUE_SIZE: ("DerivedFileSize", ""),
    Case.QUEUE_MISNAMED: ("ForeignFile", ""),
    Case.INDEX_SIZE: ("DerivedFileSize", ""),
}
# Rows that are decided outside of recovery, or that it need not say anything about.
UNSAID = {
    Case.STAGED,
    Case.IDENTITY_ABSENT,
    Case.CONFIG_TORN,
    Case.PROPERTIES,
    Case.VERSION_2,
    Case.STEPPED_OVER,
    Case.QUEUE_INSIDE,
    Case.QUEUE_EXTRA_FILE,
    Case.QUEUE_FOREIGN,
    Case.INDEX_INSIDE,
    Case.INDEX_CHAIN,
    Case.INDEX_FOREIGN,
}


def test_every_row_is_brought_about() -> None:
    assert set(PROVOKED) == set(Case)
    assert set(REFUSALS) == {case for case in Case if case.verdict is Verdict.REFUSE}


@pytest.mark.parametrize(
    "case", [case for case in Case if case.verdict is not Verdict.REFUSE], ids=lambda case: case.name
)
def test_a_start_goes_on(maker: StoreMaker, case: Case) -> None:
    PROVOKED[case](maker)
    before = maker.log_bytes()
    recovered = start(maker)
    assert (case in recovered.cases) is (case not in UNSAID), (recovered.cases, recovered.notes)
    kept = maker.kept()
    if case.verdict is Verdict.CUT:
        assert kept
        assert case.row.kept == "copied to `diverged/`"
        low = recovered.log_min
        held = bytearray(len(before))
        for offset, data in kept.items():
            held[offset - low : offset - low + len(data)] = data
        assert sum(map(len, kept.values())) == recovered.cut_bytes > 0
        if case is not Case.SEGMENT_LOST:  # whose bytes are not all in one piece
            assert held[recovered.end - low :] == before[recovered.end - low :]
    else:
        assert kept == {}
        assert case.row.kept == "-"
        assert recovered.end == maker.end
    if case.verdict is Verdict.REBUILD:
        assert min(recovered.dispatched, recovered.indexed) < recovered.end
    elif case in (Case.STOPPED, Case.CRASHED, Case.NO_CHECKPOINT):
        assert recovered.dispatched == recovered.indexed == recovered.end
    derive(maker, recovered)
    found = look(maker)
    if "verify" in case.row.remedy:
        assert found.weight > Weight.NOTE
        mend_all(maker, *[damage.start for damage in found.log.damages])
        found = look(maker)
    assert found.weight is Weight.NOTE, found.findings.rows
    again = start(maker)
    assert (again.end, again.cut_bytes) == (recovered.end, 0)


@pytest.mark.parametrize("case", list(REFUSALS), ids=lambda case: case.name)
def test_a_start_is_refused_and_the_remedy_works(maker: StoreMaker, case: Case) -> None:
    PROVOKED[case](maker)
    before = contents(maker.store)
    with pytest.raises(TowlineError) as refusal:
        start(maker)
    kind, rule = REFUSALS[case]
    assert type(refusal.value).__name__ == kind
    assert getattr(refusal.value, "rule", "") == rule
    assert str(maker.root) in str(refusal.value)
    assert contents(maker.store) == before
    for command in (word for word in case.row.remedy.split("`") if word.startswith("towline store")):
        assert command.split(" --")[0] in refusal.value.advice
    if "mend" in case.row.remedy:
        assert mend(maker.store, SEGMENT) > 0
    elif "repair" in case.row.remedy:
        mend_all(maker, *_skips(maker))
        assert look(maker).weight is Weight.NOTE
    else:
        assert "restore" in refusal.value.advice
        return
    start(maker)


def _skips(maker: StoreMaker) -> list[int]:
    found = look(maker)
    gone = [int(Path(row.path).name) for row in found.findings.of("START_MISSING")]
    return gone + [damage.start for damage in found.log.damages]


def test_deleted_rows_leave_nothing_behind(maker: StoreMaker) -> None:
    for case in (case for case in Case if case.verdict is Verdict.DELETE and case is not Case.EMPTY_LAST):
        PROVOKED[case](maker)
    maker.path(6 * SEGMENT).touch()
    start(maker)
    assert not list(maker.store.staging.iterdir())
    assert len(list(maker.store.commitlog.iterdir())) == 3
    assert not list(maker.store.index.glob("*.new"))
    assert not (queue_dir(maker) / f"{1000 * 20:020d}").exists()


def test_stale_records_of_equal_size_stay_gone_when_the_log_grows_over_the_cut(maker: StoreMaker) -> None:
    stale(maker)
    recovered = start(maker)
    cut, lost = maker.records[200], maker.records[201]
    assert recovered.end == cut.at
    maker.write(cut.at, cut.data)
    assert start(maker).end == cut.end
    assert maker.log_bytes()[lost.at : lost.end] == bytes(507)


def test_an_index_with_a_cycle_still_answers(maker: StoreMaker) -> None:
    path = index_files(maker)[0]
    for number in range(1, 30):
        poke(path, 40 + 4 * SLOTS + 20 * number + 16, number.to_bytes(4, "big"))
    start(maker)
    index = open_index(maker.store, writable=False)
    for number, stored in enumerate(maker.records):
        index.query(stored.topic, f"k{number}", 0, 1 << 60)
    index.close()


def test_the_table_is_the_one_in_the_documentation() -> None:
    before, begin, rest = PAGE.read_text(encoding="utf-8").partition(BEGIN)
    _, end, after = rest.partition(END)
    assert (begin, end) == (BEGIN, END), "the page has no place for the table"
    wanted = before + BEGIN + as_markdown() + END + after
    if os.environ.get("TOWLINE_REWRITE"):
        PAGE.write_text(wanted, encoding="utf-8")
    assert PAGE.read_text(encoding="utf-8") == wanted
