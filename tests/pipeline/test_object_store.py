"""What jobs write to a real S3 server is what they write to a directory, whoever is killed or comes between."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, Final

import orjson
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.pipeline.loop import Loop
from tests.pipeline.test_archive import full
from tests.pipeline.test_archive import store as store
from tests.spark.stores import MadeStore
from towline.arrow.columns import COLUMNS as ALL
from towline.errors import MalformedFile
from towline.pipeline import archive as job
from towline.pipeline.archive import ArchiveOptions, archive
from towline.pipeline.archive_manifest import Archive, read_manifest
from towline.pipeline.compacting import write_kept
from towline.pipeline.errors import (
    ArchiveDamaged,
    IllegalLocation,
    LocationFailed,
    LocationLost,
    LocationTaken,
    NotAnArchive,
    OtherBytes,
    OutputTaken,
    ScratchNotSeen,
)
from towline.pipeline.export import ExportOptions, export
from towline.pipeline.lease import STALE_S, Lease, Owner
from towline.pipeline.location import Location, location
from towline.pipeline.objects import Prefix, file_system
from towline.pipeline.sources import FromEither, messages_of

KILLED_AT: Final = (3, 17, 40, 70, 90)  # requests after which a driver kills itself
COLUMNS: Final = ("topic", "queueId", "queueOffset", "commitLogOffset", "body", "keys", "sysFlag")


def archived(store: MadeStore, out: str, **options: Any) -> job.Done:
    return archive(ArchiveOptions(store=str(store.root), out=out, **options), Loop())


def names(bucket: Path) -> set[str]:
    """Of the objects of a bucket; the server keeps parts of uploads in a directory of its own."""
    found = (path.relative_to(bucket) for path in bucket.rglob("*") if path.is_file())
    return {str(path) for path in found if not path.parts[0].startswith(".sgwtmp")}


def held(out: str, bucket: Path) -> list[dict[str, Any]]:
    """The messages of an archive by its manifests; nothing else is left of any run."""
    opened, rows = Archive.open(out), []
    files = [file for segment in opened.segments.values() for file in segment.files]
    for file in files:
        with opened.where.open(file.name) as opened_file:
            rows += pq.read_table(opened_file).to_pylist(maps_as_pydicts="strict")
        assert Prefix(out).crc(file.name) == file.crc
    manifests = {Archive.manifest_of(base) for base in opened.segments}
    assert names(bucket) == {f"deep/archive/{name}" for name in {"archive.json", *manifests, *(f.name for f in files)}}
    return sorted(rows, key=lambda row: row["commitLogOffset"])


def read(archive: str, columns: tuple[str, ...], **chosen: Any) -> list[pa.RecordBatch]:
    """What jobs read of it."""
    messages = messages_of(FromEither(archive=archive, **chosen), columns)
    return [batch for part in messages.partitions for batch in messages.of(part)]


class TestAnArchive:
    def test_has_every_message_of_the_full_segments_once(self, store, out, bucket):
        done = archived(store, out, most=2)
        assert (len(done.made), done.left) == (2, 3)
        assert done.archive.where.text == out
        assert len(archived(store, f"{out}/").made) == 3
        assert held(out, bucket) == full(store)
        assert archived(store, out).made == []

    def test_is_read_by_jobs_as_one_of_a_directory_is(self, store, out, tmp_path):
        archived(store, out)
        archived(store, str(tmp_path / "archive"))
        tables = []
        for where in (out, str(tmp_path / "archive")):
            tables.append(pa.Table.from_batches(read(where, COLUMNS, topic=("TopicA",))))
        assert tables[0].equals(tables[1])
        assert tables[0].num_rows > 100

    @pytest.mark.parametrize("after", KILLED_AT)
    def test_of_a_killed_driver_is_simply_made_again(self, store, out, bucket, after):
        program = f"""
import os, signal, sys
from towline.pipeline import archive as job
from towline.pipeline.objects import Prefix
from tests.pipeline.loop import Loop
steps = 0
def counted(function):
    def call(*arguments, **more):
        global steps
        steps += 1
        if steps == {after}:
            os.kill(os.getpid(), signal.SIGKILL)
        return function(*arguments, **more)
    return call
for name in ("write", "send", "crc", "move", "remove"):
    setattr(Prefix, name, counted(getattr(Prefix, name)))
job.archive(job.ArchiveOptions(store=sys.argv[1], out=sys.argv[2]), Loop())
"""
        words = [sys.executable, "-c", program, str(store.root), out]
        assert subprocess.run(words, cwd=Path(__file__).parents[2], check=False).returncode == -signal.SIGKILL
        archived(store, out)  # its lease is that of a process of this machine that has gone
        assert held(out, bucket) == full(store)

    def test_has_nothing_of_a_segment_whose_bytes_changed_on_their_way(self, store, out, bucket, monkeypatch):
        send = Prefix.send

        def flipped(prefix: Prefix, path: Path, name: str) -> None:
            data = bytearray(path.read_bytes())
            data[len(data) // 2] ^= 1
            path.write_bytes(data)
            send(prefix, path, name)

        with monkeypatch.context() as patched:
            patched.setattr(Prefix, "send", flipped)
            with pytest.raises(OtherBytes, match="was sent"):
                archived(store, out)
        assert names(bucket) == {"deep/archive/archive.json"}
        archived(store, out)
        assert held(out, bucket) == full(store)

    def test_that_was_damaged_is_refused_by_name(self, store, out, bucket):
        done = archived(store, out)
        file = max(done.archive.segments[0].files, key=lambda each: each.size)
        path = bucket / "deep" / "archive" / file.name
        data = bytearray(path.read_bytes())
        data[len(data) // 4] ^= 1
        path.write_bytes(data)
        with pytest.raises(ArchiveDamaged, match=file.day):
            read(out, ALL)
        name = Archive.manifest_of(0)
        Prefix(out).write(name, Prefix(out).read(name).replace(b'"records":', b'"records":1'))
        with pytest.raises(MalformedFile, match=r"s3://.*check"):
            Archive.open(out)

    def test_is_not_begun_among_other_things(self, store, out, bucket):
        (bucket / "deep" / "archive").mkdir(parents=True)
        (bucket / "deep" / "archive" / "diary").write_text("mine")
        with pytest.raises(NotAnArchive, match="diary"):
            archived(store, out)
        assert names(bucket) == {"deep/archive/diary"}


class TestFilesOfOneRun:
    @pytest.mark.parametrize("form", ["jsonl", "parquet"])
    def test_are_those_of_a_directory_and_their_manifest(self, store, out, bucket, tmp_path, form):
        options = {"store": str(store.root), "format": form, "body": "hex" if form == "jsonl" else None}
        here = export(ExportOptions(out=str(tmp_path / "out"), **options), Loop())
        there = export(ExportOptions(out=out, **options), Loop())
        assert [(each.name, each.rows, each.size, each.crc) for each in there] == [
            (each.name, each.rows, each.size, each.crc) for each in here
        ]
        for each in there:
            assert (bucket / "deep" / "archive" / each.name).read_bytes() == (tmp_path / "out" / each.name).read_bytes()
        found = [read_manifest(location(where), "manifest.json") for where in (out, str(tmp_path / "out"))]
        assert found[0] == found[1] is not None
        assert names(bucket) == {f"deep/archive/{name}" for name in ("manifest.json", *(each.name for each in there))}
        with pytest.raises(OutputTaken, match="finished"):
            export(ExportOptions(out=out, **options), Loop())

    def test_of_a_compaction_are_kept_there(self, store, out, bucket):
        messages = messages_of(FromEither(store=str(store.root), topic=("TopicA",)), tuple(store.rows[0]))
        part = next(number for number, part in enumerate(messages.partitions) if any(True for _ in messages.of(part)))
        batches = messages.of(messages.partitions[part])
        offsets = [offset for batch in batches for offset in batch["commitLogOffset"].to_pylist()]
        rows = pa.record_batch({"part": pa.array([part] * 3, pa.int32()), "offset": pa.array(offsets[:3], pa.int64())})
        where = location(out)
        with where.held(), where.staging() as staging:
            (written,) = write_kept(messages, staging, [rows])
            where.move([(written.name, "kept.parquet")])
        with where.open("kept.parquet") as file:
            assert pq.read_table(file)["commitLogOffset"].to_pylist() == sorted(offsets[:3])

    def test_are_not_kept_once_the_run_is_over(self, out, tmp_path):
        with location(out).staging() as staging:
            pass
        (tmp_path / "late").write_bytes(b"late")
        with staging.attempt() as attempt, pytest.raises(ScratchNotSeen):
            attempt.keep(tmp_path / "late", 0)


class TestAJobThatWrites:
    """Holds its lease, and ends nothing that it could not hold."""

    @pytest.fixture
    def where(self, out: str) -> Location:
        return location(out)

    @staticmethod
    def lease_of(bucket: Path, owner: Owner, age_s: float) -> Path:
        path = bucket / "deep" / "archive" / f"{Lease.NAME}of-another"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(orjson.dumps(owner))
        at = time.time() - age_s
        os.utime(path, (at, at))
        return path

    def test_keeps_others_out_until_it_has_ended(self, where, out, bucket):
        with where.held():
            with pytest.raises(LocationTaken) as refused, location(out).held():
                pass
            assert str(os.getpid()) in refused.value.describe()
        assert names(bucket) == set()
        with location(out).held():
            pass

    @pytest.mark.parametrize(("age_s", "taken"), [(0, False), (STALE_S - 30, False), (STALE_S + 30, True)])
    def test_takes_the_place_of_one_elsewhere_that_has_not_renewed_its_lease(self, where, bucket, age_s, taken):
        path = self.lease_of(bucket, Owner("elsewhere", "another boot", 7, 0), age_s)
        if taken:
            with where.held():
                assert not path.exists()
        else:
            with pytest.raises(LocationTaken, match="elsewhere"), where.held():
                pass
            assert path.exists()
            assert names(bucket) == {str(path.relative_to(bucket))}, "its own has gone"

    def test_does_not_take_the_lease_of_who_says_nothing(self, where, bucket):
        path = self.lease_of(bucket, Owner("", "", 0, 0), 0)
        path.write_bytes(b"{")
        with pytest.raises(LocationTaken, match="does not say"), where.held():
            pass

    def test_publishes_nothing_after_its_lease_was_taken(self, where, bucket):
        with where.held(), where.staging():
            (lease,) = (bucket / "deep" / "archive").glob(f"{Lease.NAME}*")
            lease.unlink()
            for late in (lambda: where.publish({"late": b"x"}), lambda: where.move([("late", "later")])):
                with pytest.raises(LocationLost):
                    late()
        assert names(bucket) == set()

    def test_publishes_nothing_where_it_could_not_renew_its_lease(self, where, bucket, monkeypatch):
        with where.held(), where.staging():
            now = Lease.stands.__globals__["boottime_s"]()
            monkeypatch.setattr("towline.pipeline.lease.boottime_s", lambda: now + STALE_S / 2 + 1)
            with pytest.raises(LocationLost):
                where.publish({"late": b"x"})

    def test_publishes_nothing_after_it_has_renewed_its_lease_too_late(self, out, bucket, monkeypatch):
        """Another run may have come and gone, or be at work, though the object is there again."""
        with Lease.held(Prefix(out)) as lease:
            now = lease._renewed_s
            monkeypatch.setattr("towline.pipeline.lease.boottime_s", lambda: now + STALE_S)
            lease._renew()
            assert len(names(bucket)) == 1, "it is there, and new"
            assert not lease.stands()

    def test_never_replaces_what_was_published(self, where):
        with where.held(), where.staging():
            where.publish({"once": b"first"})
            with pytest.raises(FileExistsError):
                where.publish({"once": b"second"})
        assert where.read("once") == b"first"
        assert where.read("never") is None


class TestAStore:
    """That cannot be reached, or does not know who asks."""

    def test_without_the_bucket_is_named(self, bucket):
        with pytest.raises(LocationFailed, match=r"s3://no-such-bucket/x.*: .*bucket does not exist"):
            archived_nothing("s3://no-such-bucket/x")

    def test_that_refuses_the_credentials_is_named(self, bucket, monkeypatch):
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "wrong")
        file_system.cache_clear()
        with pytest.raises(LocationFailed, match="SIGNATURE_DOES_NOT_MATCH"):
            archived_nothing(f"s3://{bucket.name}/x")

    @pytest.mark.parametrize(
        ("text", "said"),
        [
            ("s3://key:word@bucket/x", r"s3://key:\.\.\.@bucket/x.*password"),
            ("s3://", "no bucket"),
            ("foo://bucket/x", "foo://"),
            ("s3://bucket/x?no_such=option", "no_such"),
        ],
    )
    def test_that_cannot_be_is_refused(self, text, said):
        with pytest.raises(IllegalLocation, match=said):
            location(text)


def test_what_fsspec_knows_is_a_location_too(store, tmp_path):
    """Its own name for local files, which Arrow does not know."""
    out = f"local://{tmp_path}/deep/archive"
    archived(store, out, most=2)
    archived(store, out)
    rows = [row for batch in read(out, ALL, system=True) for row in batch.to_pylist(maps_as_pydicts="strict")]
    assert sorted(rows, key=lambda row: row["commitLogOffset"]) == full(store)
    assert {path.name for path in (tmp_path / "deep" / "archive").iterdir()} == {"archive.json", "data", "segments"}


def test_a_scheme_that_nothing_installed_knows_says_what_is_missing(monkeypatch):
    monkeypatch.setitem(sys.modules, "fsspec.core", None)
    with pytest.raises(IllegalLocation, match=r"foo://.*fsspec.*not installed"):
        location("foo://bucket/x")


def archived_nothing(out: str) -> None:
    with location(out).held():
        pass
