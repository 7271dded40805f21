"""An archive holds what the log's full segments held, once, whatever became of the runs before."""

import os
import signal
import subprocess
import sys
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from tests.pipeline.loop import Loop
from tests.spark.stores import SEGMENT, MadeStore
from towline.arrow.columns import COLUMNS, SCHEMA
from towline.errors import MalformedFile
from towline.format.record.forms import HALF_TOPIC
from towline.format.record.record import COMPRESSED
from towline.log.state.archived import archived_until
from towline.pipeline import archive as job
from towline.pipeline import archive_files
from towline.pipeline.archive import ARCHIVED, REFUSED, THERE, ArchiveOptions, archive
from towline.pipeline.archive_manifest import SUFFIX, Archive, data_name, read_manifest
from towline.pipeline.errors import ArchiveOfAnother, LocationTaken, NotAnArchive, NotVerified
from towline.pipeline.location import location
from towline.pipeline.scratch import STAGING

DAY_MS = 86_400_000
POINTS = (5, 20, 30, 44)  # steps of a run after which its driver is killed


@pytest.fixture
def store(tmp_path):
    """A stopped store of five segments and a bit, over three days; some of its messages are a broker's own."""
    made = MadeStore(tmp_path / "store", step_ms=DAY_MS // 300)
    made.put("SCHEDULE_TOPIC_XXXX", 1, b"later")
    made.put(HALF_TOPIC, 0, b"half")
    made.put("%RETRY%group", 0, b"again", tags="t")
    made.fill(800)
    made.safe()
    assert 5 * SEGMENT < made.end < 6 * SEGMENT
    return made


@dataclass
class Twice:
    """Every task runs twice, one attempt after the other; the second one's result counts."""

    parallel: int = 1

    def run(self, what: str, work: Any, parts: Any) -> list[Any]:
        for part in parts:
            work(part)
        return [work(part) for part in parts]


def archived(store: MadeStore, out: Path, **options: Any) -> job.Done:
    return archive(ArchiveOptions(store=str(store.root), out=str(out), **options), Loop())


def full(store: MadeStore) -> list[dict[str, Any]]:
    """The messages of the store's full segments."""
    return [row for row in store.rows if row["commitLogOffset"] < store.end - store.end % SEGMENT]


def held(out: Path) -> list[dict[str, Any]]:
    """The messages of an archive by its manifests; its directories hold nothing else."""
    opened, rows, names = Archive.open(out), [], set()
    for segment in opened.segments.values():
        for file in segment.files:
            table = pq.read_table(out / file.name, partitioning=None)
            assert table.schema.remove_metadata() == SCHEMA
            here = table.to_pylist(maps_as_pydicts="strict")
            assert [row["topic"] for row in here] == [file.topic] * file.rows
            assert {row["storeTimestamp"].date().isoformat() for row in here} == {file.day}
            offsets = [row["commitLogOffset"] for row in here]
            assert offsets == sorted(offsets)
            assert (offsets[0], offsets[-1]) == (file.first, file.last)
            times = [int(1000 * row["storeTimestamp"].timestamp()) for row in here]
            assert (min(times), max(times)) == (file.first_ms, file.last_ms)
            assert archive_files.crc_of_file(out / file.name) == file.crc
            names.add(file.name)
            rows += here
    there = {str(path.relative_to(out)) for path in (out / "data").rglob("*") if path.is_file()}
    assert there == names
    assert not [path for path in out.iterdir() if path.name.startswith(STAGING)]
    return sorted(rows, key=lambda row: row["commitLogOffset"])


def test_every_message_of_the_full_segments_is_there_once(store, tmp_path):
    done = archived(store, tmp_path / "out")
    assert done.made == [number * SEGMENT for number in range(5)]
    assert held(tmp_path / "out") == full(store)
    groups = defaultdict(int)
    for row in full(store):
        groups[row["topic"], row["storeTimestamp"].date(), row["commitLogOffset"] // SEGMENT] += 1
    files = [file for segment in done.archive.segments.values() for file in segment.files]
    assert sorted(file.rows for file in files) == sorted(groups.values())
    assert len({day for _, day, _ in groups}) > 2
    assert (tmp_path / "out" / "data" / "topic=%25RETRY%25group").is_dir()


def test_the_result_table_and_the_summary(store, tmp_path):
    result = job._result(archived(store, tmp_path / "out", most=2))
    assert [row[:3] for row in result.rows] == [
        (base, ARCHIVED, sum(base <= row["commitLogOffset"] < base + SEGMENT for row in store.rows))
        for base in (0, SEGMENT)
    ]
    assert result.status == 0
    assert result.summary["until"] == 2 * SEGMENT
    assert result.summary["left"] == 3
    assert result.rows[0][6] == store.rows[0]["storeTimestamp"]
    assert all(len(row) == len(job.COLUMNS) for row in result.rows)
    result = job._result(archived(store, tmp_path / "out"))
    assert [row[1] for row in result.rows] == [THERE] * 2 + [ARCHIVED] * 3


def test_a_later_run_adds_what_was_filled_since(store, tmp_path):
    archived(store, tmp_path / "out")
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "out" / "data").rglob(f"*{SUFFIX}")}
    store.fill(300)
    store.safe()
    done = archived(store, tmp_path / "out")
    assert len(done.there) == 5
    assert len(done.made) == store.end // SEGMENT - 5 > 0
    assert held(tmp_path / "out") == full(store)
    assert all(path.stat().st_mtime_ns == written for path, written in before.items())


def test_word_is_left_for_cleaning(store, tmp_path):
    assert archived(store, tmp_path / "out", most=2, tell=False).until == 2 * SEGMENT
    assert archived_until(store.store, SEGMENT) == 0
    archived(store, tmp_path / "out", most=1)
    assert archived_until(store.store, SEGMENT) == 3 * SEGMENT
    archived(store, tmp_path / "out")
    assert archived_until(store.store, SEGMENT) == 5 * SEGMENT


def test_word_is_left_by_a_run_that_finds_everything_there(store, tmp_path):
    """As for a slave's store, whose segments were archived from the master's."""
    archived(store, tmp_path / "out")
    for path in store.store.config.iterdir():
        path.unlink()
    assert archived_until(store.store, SEGMENT) == 0
    archived(store, tmp_path / "out")
    assert archived_until(store.store, SEGMENT) == 5 * SEGMENT


def test_a_task_that_is_doubled_leaves_nothing_twice(store, tmp_path):
    archive(ArchiveOptions(store=str(store.root), out=str(tmp_path / "out")), Twice())
    assert held(tmp_path / "out") == full(store)


def test_a_driver_that_ends_between_files_and_manifest_leaves_no_double(store, tmp_path, monkeypatch):
    def fails(*_: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(job, "publish_manifests", fails)
        with pytest.raises(KeyboardInterrupt):
            archived(store, tmp_path / "out")
    left = list((tmp_path / "out" / "data").rglob(f"*/{SEGMENT:020d}{SUFFIX}"))
    assert left, "files without a manifest"
    stray = tmp_path / "out" / data_name("of-another-end", "2023-11-14", SEGMENT)
    stray.parent.mkdir(parents=True)
    left[0].rename(stray)
    archived(store, tmp_path / "out")
    assert held(tmp_path / "out") == full(store)


@pytest.mark.parametrize("point", range(len(POINTS)))
def test_a_killed_driver_leaves_no_double_and_no_orphan(store, tmp_path, point):
    """It kills itself at a step of its work: while files are synced, moved, published."""
    program = f"""
import os, signal, sys
from pathlib import Path
from towline.pipeline import archive as job, archive_files
from tests.pipeline.loop import Loop
steps = 0
def counted(function):
    def call(*arguments):
        global steps
        steps += 1
        if steps == {POINTS[point]}:
            os.kill(os.getpid(), signal.SIGKILL)
        return function(*arguments)
    return call
archive_files.sync_file = counted(archive_files.sync_file)
Path.replace = counted(Path.replace)
job.publish_manifests = counted(job.publish_manifests)
job.archive(job.ArchiveOptions(store=sys.argv[1], out=sys.argv[2]), Loop())
"""
    killed = subprocess.run(
        [sys.executable, "-c", program, store.root, tmp_path / "out"], cwd=Path(__file__).parents[2]
    )
    assert killed.returncode == -signal.SIGKILL
    archived(store, tmp_path / "out")
    assert held(tmp_path / "out") == full(store)


def test_a_damaged_segment_is_refused_with_its_place_and_the_others_are_archived(store, tmp_path):
    row = next(row for row in store.rows if row["commitLogOffset"] > SEGMENT + 1000 and row["body"])
    path = store.store.commitlog / f"{SEGMENT:020d}"
    data = bytearray(path.read_bytes())
    data[row["commitLogOffset"] - SEGMENT + 100] ^= 1
    path.write_bytes(data)
    done = archived(store, tmp_path / "out")
    assert [each.base for each in done.refused] == [SEGMENT]
    assert str(row["commitLogOffset"]) in done.refused[0].sentence
    assert held(tmp_path / "out") == [row for row in full(store) if row["commitLogOffset"] // SEGMENT != 1]
    assert archived_until(store.store, SEGMENT) == SEGMENT, "cleaning never passes a gap"
    result = job._result(done)
    assert result.status == 2
    assert [row[1] for row in result.rows] == [ARCHIVED, REFUSED, ARCHIVED, ARCHIVED, ARCHIVED]


def test_a_broken_chain_is_refused(store, tmp_path):
    row = next(row for row in store.rows if row["commitLogOffset"] > SEGMENT + 1000)
    path = store.store.commitlog / f"{SEGMENT:020d}"
    data = bytearray(path.read_bytes())
    data[row["commitLogOffset"] - SEGMENT + 4] ^= 1
    path.write_bytes(data)
    (refused,) = archived(store, tmp_path / "out").refused
    assert "MAGIC" in refused.sentence
    assert str(row["commitLogOffset"]) in refused.sentence


def test_a_body_that_cannot_be_decompressed_is_kept_as_it_is(tmp_path):
    made = MadeStore(tmp_path / "store")
    made.put("TopicA", 0, b"no zlib at all", sys_flag=COMPRESSED)
    made.fill(300)
    made.safe()
    done = archived(made, tmp_path / "out")
    assert not done.archive.segments[0].plain
    assert held(tmp_path / "out") == full(made)


def test_what_is_not_read_back_as_it_was_written_is_not_published(store, tmp_path, monkeypatch):
    def loses_a_row(path: Path) -> None:
        table = pq.read_table(path, partitioning=None)
        pq.write_table(table.slice(1), path)

    monkeypatch.setattr(archive_files, "sync_file", loses_a_row)
    with pytest.raises(NotVerified):
        archived(store, tmp_path / "out")
    assert held(tmp_path / "out") == []


def test_only_what_is_cold_enough(store, tmp_path):
    first_of_third = next(row for row in store.rows if row["commitLogOffset"] >= 2 * SEGMENT)
    now_ms = int(first_of_third["storeTimestamp"].timestamp() * 1000) + 3 * 3_600_000
    options = ArchiveOptions(store=str(store.root), out=str(tmp_path / "out"), older_than=3)
    assert archive(options, Loop(), now_ms - 1).made == [0]
    done = archive(options, Loop(), now_ms)
    assert done.made == [SEGMENT]
    assert done.left == 3


def test_an_archive_holds_one_log(store, tmp_path):
    archived(store, tmp_path / "out")
    other = MadeStore(tmp_path / "other")
    other.fill(300, size=310)
    other.safe()
    with pytest.raises(ArchiveOfAnother, match="segment 0"):
        archived(other, tmp_path / "out")
    larger = MadeStore(tmp_path / "larger", segment_size=2 * SEGMENT)
    larger.fill(800)
    larger.safe()
    with pytest.raises(ArchiveOfAnother, match="segment_size"):
        archived(larger, tmp_path / "out")


def test_a_directory_of_other_things_is_left_alone(store, tmp_path):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "thesis.txt").write_text("mine")
    with pytest.raises(NotAnArchive, match=r"thesis\.txt"):
        archived(store, tmp_path / "out")


def test_one_job_at_a_time(store, tmp_path):
    archived(store, tmp_path / "out", most=1)
    program = "import sys, pathlib; from towline.runtime.locks import StoreLock; StoreLock(pathlib.Path(sys.argv[1]));"
    program += "print('held', flush=True); sys.stdin.read()"
    command = [sys.executable, "-c", program, tmp_path / "out" / "lock"]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=Path(__file__).parents[2]
    ) as other:
        assert other.stdout is not None
        assert other.stdout.readline()
        with pytest.raises(LocationTaken):
            archived(store, tmp_path / "out")
        assert other.stdin is not None
        other.stdin.close()


def test_a_manifest_with_a_flipped_bit_is_refused(store, tmp_path):
    archived(store, tmp_path / "out", most=1)
    path = tmp_path / "out" / "segments" / f"{0:020d}.json"
    text = path.read_text()
    path.write_text(text.replace('"records":', '"records":1'))
    with pytest.raises(MalformedFile, match="check"):
        Archive.open(tmp_path / "out")
    path.write_text(text)
    assert read_manifest(location(str(tmp_path / "out")), f"segments/{0:020d}.json") is not None


def test_a_file_says_the_plain_schema_whatever_its_columns_are_written_from(store, tmp_path):
    done = archived(store, tmp_path / "out")
    for segment in done.archive.segments.values():
        for file in segment.files:
            path = tmp_path / "out" / file.name
            assert pq.read_schema(path).equals(SCHEMA)
            found = pq.ParquetFile(path).read()
            assert found["topic"].unique().to_pylist() == [file.topic]
            assert len(found["brokerName"].unique()) == 1


def test_all_columns_are_archived():
    assert tuple(SCHEMA.names) == COLUMNS
    assert os.path.commonpath([data_name("../../etc/x", "2023-11-14", 0), "data"]) == "data"
    assert "/.." not in data_name("../../etc/x", "2023-11-14", 0).replace("topic=..", "")
