"""Every row of the recovery table, brought about on a store: the verdict, what is kept, and that the remedy works."""

import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tests.log.situations import (
    PASSED_OVER,
    PROVOKED,
    REFUSED_BY_OWNERS,
    index_files,
    poke,
    queue_dir,
    stale,
)
from tests.log.sound import look, mend_all
from tests.log.stores import QUEUE_FILE, SEGMENT, SETTINGS, SLOTS, StoreMaker, contents, open_index
from tests.repo.trees import ROOT
from towline.errors import MalformedFile, TowlineError
from towline.kernels.base.directory import QueueDirectory
from towline.log.commitlog.commit_log import CommitLogReader
from towline.log.commitlog.dispatch import DispatchScan
from towline.log.files.config_file import ConfigFile
from towline.log.queues.consume_queue import ConsumeQueueFiles
from towline.log.queues.queue_entries import QueueEntries
from towline.log.recovery.recovery import Recovered, recover
from towline.log.recovery.state_files import clear_leftovers, find_backups, heal_copies
from towline.log.recovery.truncation import truncate
from towline.log.recovery.verdicts import Case, Decided, Observed, Verdict
from towline.log.repair.clear_sync_failure import clear_sync_failure
from towline.log.repair.verify_report import Weight
from towline.log.state.identity import IdentityFile
from towline.log.state.role_file import load_role

PAGE = ROOT / "ARCHITECTURE.md"
BEGIN, END = "TOWLINE_REWRITE=1 -->\n", "<!-- end of the recovery table -->"


def start(maker: StoreMaker) -> Recovered:
    """The steps of a node's start that read its files. Its `cases` are those of all the steps."""
    IdentityFile(maker.root).check("DefaultCluster")
    load_role(maker.store)
    decided = Decided()
    find_backups(maker.store, decided)
    clear_leftovers(maker.store, decided)
    truncate(maker.store, SEGMENT, QUEUE_FILE, decided=decided)
    heal_copies(maker.store, decided)
    recovered = recover(maker.store, SETTINGS)
    for name in ("topics.json", "consumerOffset.json"):
        ConfigFile(maker.store.config / name).load()
    return replace(recovered, cases=[*decided.cases, *recovered.cases])


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


# Refusals: the error's name, and the rule that it names where it is about a record.
REFUSALS: dict[Case, tuple[str, str]] = {
    Case.EPOCHS_BROKEN: ("EpochsLost", ""),
    Case.IN_SYNC_LOST: ("InSyncLost", ""),
    Case.PROMISE_LOST: ("WordLost", ""),
    Case.TRUNCATION_BROKEN: ("TruncationLost", ""),
    Case.TRUNCATION_REFUSED: ("TruncationRefused", ""),
    Case.DURABLE_LOST: ("DurableLost", ""),
    Case.SYNC_FAILED: ("StoreSyncFailed", ""),
    Case.FOREIGN: ("ForeignFile", ""),
    Case.SEGMENT_SIZE: ("SegmentSizeMismatch", ""),
    Case.SEGMENT_MISSING: ("CorruptLog", "MISSING"),
    Case.START_MISSING: ("CorruptLog", "START_MISSING"),
    Case.CORRUPT_RECORD: ("CorruptLog", "BODY_CRC"),
    Case.CORRUPT_SIZE: ("CorruptLog", "SIZE_PAST_END"),
    Case.CORRUPT_BLANK: ("CorruptLog", "MAGIC"),
    Case.CORRUPT_CLOSED: ("CorruptLog", "BODY_CRC"),
    Case.QUEUE_SIZE: ("DerivedFileSize", ""),
    Case.QUEUE_MISNAMED: ("ForeignFile", ""),
    Case.INDEX_SIZE: ("DerivedFileSize", ""),
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
    assert case in recovered.cases, (recovered.cases, recovered.notes)
    kept = maker.kept()
    if case.verdict is Verdict.CUT:
        assert kept
        assert case.row.kept == "copied to `diverged/`"
        low = recovered.log_min
        held = bytearray(len(before))
        for offset, data in kept.items():
            held[offset - low : offset - low + len(data)] = data
        assert sum(map(len, kept.values())) == recovered.cut_bytes or case is Case.TRUNCATED
        if case is not Case.SEGMENT_LOST:  # whose bytes are not contiguous
            assert held[recovered.end - low :] == before[recovered.end - low :]
    else:
        assert kept == {}
        assert case.row.kept == "-"
        assert recovered.end == maker.end
    if case.verdict is Verdict.REBUILD:
        assert min(recovered.dispatched, recovered.indexed) < recovered.end
    elif case in (Case.STOPPED, Case.CRASHED, Case.NO_CHECKPOINT):
        assert recovered.dispatched == recovered.indexed == recovered.end
    becomes_sound(maker, recovered, named="verify" in case.row.remedy)


def becomes_sound(maker: StoreMaker, recovered: Recovered, *, named: bool) -> None:
    """Once queues and index are derived again, and what `store verify` then names (`named`) is repaired."""
    derive(maker, recovered)
    found = look(maker)
    if named:
        assert found.weight > Weight.NOTE
        mend_all(maker, *[damage.start for damage in found.log.damages])
        found = look(maker)
    assert found.weight is Weight.NOTE, found.findings.rows
    again = start(maker)
    assert (again.end, again.cut_bytes) == (recovered.end, 0)


@pytest.mark.parametrize("situation", list(PASSED_OVER))
def test_a_start_passes_over_what_is_in_no_row(maker: StoreMaker, situation: str) -> None:
    provoke, named = PASSED_OVER[situation]
    provoke(maker)
    recovered = start(maker)
    assert maker.kept() == {}
    assert recovered.end == maker.end
    assert {case.verdict for case in recovered.cases} <= {Verdict.ACCEPT, Verdict.HEAL, Verdict.REBUILD}
    becomes_sound(maker, recovered, named=named)


@pytest.mark.parametrize("situation", list(REFUSED_BY_OWNERS))
def test_owners_refuse_their_files(maker: StoreMaker, situation: str) -> None:
    REFUSED_BY_OWNERS[situation](maker)
    before = contents(maker.store)
    with pytest.raises(MalformedFile) as refusal:
        start(maker)
    assert str(maker.root) in str(refusal.value)
    assert {path: data for path, data in contents(maker.store).items() if path in before} == before
    assert look(maker).weight > Weight.NOTE, "verify calls it sound"
    assert "towline store repair" in refusal.value.advice
    mend_all(maker)
    assert look(maker).weight is Weight.NOTE
    start(maker)


def test_recovery_carries_out_what_the_table_says(maker: StoreMaker, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another verdict in a row is another outcome: no decision stands beside the table."""
    PROVOKED[Case.SPARE_SEGMENTS](maker)
    monkeypatch.setattr(Case.SPARE_SEGMENTS, "row", replace(Case.SPARE_SEGMENTS.row, verdict=Verdict.ACCEPT))
    segments = sorted(maker.store.commitlog.iterdir())
    assert Case.SPARE_SEGMENTS in start(maker).cases
    assert sorted(maker.store.commitlog.iterdir()) == segments
    monkeypatch.undo()
    start(maker)
    assert sorted(maker.store.commitlog.iterdir()) == segments[:3]


@pytest.mark.parametrize("case", [Case.QUEUE_FILE_MISSING, Case.INDEX_END_MISSING], ids=lambda case: case.name)
def test_only_a_row_that_rebuilds_lowers_the_mark(
    maker: StoreMaker, monkeypatch: pytest.MonkeyPatch, case: Case
) -> None:
    PROVOKED[case](maker)
    monkeypatch.setattr(case, "row", replace(case.row, verdict=Verdict.ACCEPT))
    recovered = start(maker)
    assert case in recovered.cases
    assert recovered.indexed == recovered.end


@pytest.mark.parametrize("case", list(REFUSALS), ids=lambda case: case.name)
def test_a_refusal_is_looked_up_in_the_table(maker: StoreMaker, monkeypatch: pytest.MonkeyPatch, case: Case) -> None:
    """Every refusing row is observed by recovery itself, and by no error beside the table."""
    found: list[Case] = []
    apply = Decided.apply

    def noting(self: Decided, observed: Observed | None) -> Verdict:
        found.extend([observed.case] if observed is not None else [])
        return apply(self, observed)

    monkeypatch.setattr(Decided, "apply", noting)
    PROVOKED[case](maker)
    with pytest.raises(TowlineError):
        start(maker)
    assert found[-1] is case


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
    assert look(maker).weight > Weight.NOTE or case is Case.TRUNCATION_REFUSED, "verify calls it sound"
    for command in (word for word in case.row.remedy.split("`") if word.startswith("towline store")):
        assert command.split(" --")[0] in refusal.value.advice
    if "mend" in case.row.remedy:
        assert clear_sync_failure(maker.store, SEGMENT) > 0
    elif case is Case.TRUNCATION_REFUSED:
        assert "accept-loss" in refusal.value.advice
        maker.store.accept_loss.touch()
    elif "repair" in case.row.remedy:
        mend_all(maker, *_skips(maker))
        assert look(maker).weight is Weight.NOTE
    else:
        assert "restore" in refusal.value.advice
        return
    start(maker)
    assert not maker.store.accept_loss.exists(), "the word is for one truncation"


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


def as_markdown() -> str:
    """The table, as ARCHITECTURE.md shows it."""
    lines = [
        "The durable offset is how far the log was surely on the disk.",
        "Where the newest record confirms what the previous node left behind, nothing before it is read.",
        "",
        *(f"- **{verdict.name}**: {verdict.value}." for verdict in Verdict),
        "",
        "| file | situation | verdict | kept | remedy | name |",
        "|---|---|---|---|---|---|",
    ]
    for case in Case:
        row = case.row
        cells = (f"`{row.file}`", row.situation, row.verdict.name, row.kept, row.remedy, case.name)
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def test_the_table_is_the_one_in_the_documentation() -> None:
    before, begin, rest = PAGE.read_text(encoding="utf-8").partition(BEGIN)
    _, end, after = rest.partition(END)
    assert (begin, end) == (BEGIN, END), "the page has no place for the table"
    wanted = before + BEGIN + as_markdown() + END + after
    if os.environ.get("TOWLINE_REWRITE"):
        PAGE.write_text(wanted, encoding="utf-8")
    assert PAGE.read_text(encoding="utf-8") == wanted
