"""The Delta table over an archive has what its manifests name, for a reader that knows nothing of Towline."""

from datetime import UTC
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from deltalake import DeltaTable, QueryBuilder

from tests.pipeline.loop import Loop
from tests.pipeline.test_archive import full
from tests.pipeline.test_archive import store as store
from tests.spark.stores import SEGMENT, MadeStore
from towline.pipeline import archive as job
from towline.pipeline import delta
from towline.pipeline.archive import ArchiveOptions, archive
from towline.pipeline.archive_manifest import Archive
from towline.pipeline.errors import TableFailed


@pytest.fixture(params=["directory", "bucket"])
def out(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "directory":
        return str(tmp_path / "out")
    return f"s3://{request.getfixturevalue('bucket').name}/archive"


def archived(store: MadeStore, out: str, **options: Any) -> job.Done:
    return archive(ArchiveOptions(store=str(store.root), out=out, table="delta", **options), Loop())


def opened(out: str) -> DeltaTable:
    return DeltaTable(out, storage_options={"AWS_ALLOW_HTTP": "true"} if out.startswith("s3") else None)


def asked(out: str, query: str) -> list[dict[str, Any]]:
    """By delta-rs' own SQL engine."""
    return pa.table(QueryBuilder().register("t", opened(out)).execute(query).read_all()).to_pylist()


PLAIN = ("topic", "queueId", "queueOffset", "keys", "body", "storeTimestamp", "commitLogOffset", "size")


def rows(out: str) -> list[dict[str, Any]]:
    return asked(
        out, f'select {", ".join(chr(34) + name + chr(34) for name in PLAIN)} from t order by "commitLogOffset"'
    )


def expected(store: MadeStore) -> list[dict[str, Any]]:
    return [{name: row[name] for name in PLAIN} for row in full(store)]


def test_every_message_is_a_row_and_a_later_run_adds_what_came_since(store, out):
    done = archived(store, out, most=2)
    assert done.added == sum(len(segment.files) for segment in done.archive.segments.values())
    assert archived(store, out).added > 0
    assert rows(out) == expected(store)
    assert archived(store, out).added == 0
    assert opened(out).version() == 1, "a run that adds nothing commits nothing"
    properties = asked(out, 'select "properties", "day" from t order by "commitLogOffset" limit 5')
    assert [dict(row["properties"]) for row in properties] == [row["properties"] for row in full(store)[:5]]
    assert [row["day"] for row in properties] == [row["storeTimestamp"].date() for row in full(store)[:5]]


def test_duckdb_reads_the_files_that_the_table_names(store, tmp_path):
    """By its own reader of Parquet."""
    archived(store, str(tmp_path / "out"))
    files = opened(str(tmp_path / "out")).file_uris()
    session = duckdb.connect()
    session.execute("SET TimeZone = 'UTC'")
    columns = "topic, queueOffset, keys, body, storeTimestamp"
    found = session.read_parquet(files).order("commitLogOffset").select(columns)
    wanted = [(r["topic"], r["queueOffset"], r["keys"], r["body"], r["storeTimestamp"]) for r in full(store)]
    assert [(*row[:-1], row[-1].astimezone(UTC)) for row in found.fetchall()] == wanted


def test_files_are_passed_by_by_topic_day_and_statistics(store, out):
    archived(store, out)
    some = full(store)[400]
    where = f'"topic" = \'{some["topic"]}\' and "commitLogOffset" = {some["commitLogOffset"]}'
    (row,) = asked(out, f"select count(*) as c from t where {where}")
    assert row["c"] == 1
    facts = pa.table(opened(out).get_add_actions(flatten=True)).to_pylist()
    files = [file for segment in Archive.open(out).segments.values() for file in segment.files]
    by_facts = {(file.size, file.rows, file.first): file for file in files}
    for each in facts:
        file = by_facts[each["size_bytes"], each["num_records"], each["min.commitLogOffset"]]
        assert (each["partition.topic"], str(each["partition.day"])) == (file.topic, file.day)
        assert each["max.commitLogOffset"] == file.last


def test_what_a_killed_run_left_out_is_added_by_the_next(store, out, monkeypatch):
    def killed(*_: Any) -> int:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(delta, "bring_up", killed)
        with pytest.raises(KeyboardInterrupt):
            archived(store, out)
    assert len(archived(store, out).there) == 5
    assert rows(out) == expected(store)


def test_a_segment_that_was_archived_again_is_there_once(store, tmp_path):
    """After one of its files was damaged: its manifest is removed by hand, as the error says."""
    out = tmp_path / "out"
    archived(store, str(out))
    (out / Archive.manifest_of(SEGMENT)).unlink()
    archived(store, str(out), compression="gzip")
    assert rows(str(out)) == expected(store)


def test_a_table_that_cannot_be_written_is_named_and_the_archive_is_whole(store, tmp_path):
    out = tmp_path / "out"
    archived(store, str(out), most=1)
    (log,) = (out / "_delta_log").glob("*.json")
    log.write_text("{")
    with pytest.raises(TableFailed, match="archive, which is whole"):
        archived(store, str(out))
    assert len(Archive.open(out).segments) == 5
