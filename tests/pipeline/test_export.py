"""Exported files, read by other programs' eyes, hold the messages that were chosen, once."""

import base64
import csv
import gzip
import io
import json
import zlib
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.pipeline.loop import Loop
from tests.spark.stores import SEGMENT, MadeStore
from towline.arrow.columns import COLUMNS
from towline.format.record.record import COMPRESSED
from towline.pipeline import export as job
from towline.pipeline import output
from towline.pipeline.archive import ArchiveOptions, archive
from towline.pipeline.errors import ArchiveDamaged, BodyNotText, IllegalOption, NoSuchMessages, OutputTaken
from towline.pipeline.export import ExportOptions, export
from towline.pipeline.export_text import NotUtf8, csv_lines, in_base64, in_hex, json_lines, utf8
from towline.pipeline.options import made as options_of

TEXTS = st.one_of(st.none(), st.text(st.characters(exclude_categories=["Cs"]), max_size=8))


@pytest.fixture
def store(tmp_path):
    made = MadeStore(tmp_path / "store")
    made.put("TopicA", 0, 'quotes ", \\, lines\r\n and ünïcode'.encode(), tags="a,b", keys="k", colour='r"ed')
    made.put("TopicA", 1, b"", empty="x")
    made.put("SCHEDULE_TOPIC_XXXX", 1, b"later")
    for number in range(400):
        made.put(f"Topic{number % 2}", number % 3, b"%d " % number * 100, tags=f"t{number % 3}", keys=f"k{number}")
    return made.dispatch().safe()


def exported(made: MadeStore, out: Any, **options: Any) -> list[output.Written]:
    asked = {"store": str(made.root), "out": str(out), "format": "jsonl"} | options
    return export(options_of(ExportOptions, asked), Loop())


def plain(row: dict[str, Any]) -> dict[str, Any]:
    """A row as JSON carries it."""
    times = {name: row[name].strftime("%Y-%m-%dT%H:%M:%S.%fZ") for name in ("bornTimestamp", "storeTimestamp")}
    return row | times | {"body": row["body"].decode()}


def shown(store: MadeStore) -> list[dict[str, Any]]:
    return [row for row in store.rows if not row["topic"].startswith("SCHEDULE")]


def lines_of(out: Any, written: list[output.Written]) -> list[dict[str, Any]]:
    texts = [(out / each.name).read_text(encoding="utf-8") for each in written]
    rows = [json.loads(line) for text in texts for line in text.split("\n")[:-1]]
    return sorted(rows, key=lambda row: row["commitLogOffset"])


def test_json_lines(store, tmp_path):
    written = exported(store, tmp_path / "out")
    assert lines_of(tmp_path / "out", written) == list(map(plain, shown(store)))
    assert all(each.crc == zlib.crc32((tmp_path / "out" / each.name).read_bytes()) for each in written)
    manifest = json.loads((tmp_path / "out" / output.MANIFEST).read_text())
    assert manifest["rows"] == len(shown(store)) == sum(file["rows"] for file in manifest["files"])
    assert {path.name for path in (tmp_path / "out").iterdir()} == {
        "lock",
        output.MANIFEST,
        *(each.name for each in written),
    }


def test_csv(store, tmp_path):
    written = exported(store, tmp_path / "out", format="csv")
    rows = []
    for each in written:
        text = (tmp_path / "out" / each.name).read_bytes().decode()
        rows += list(csv.DictReader(io.StringIO(text, newline="")))
    expected = [plain(row) for row in shown(store)]
    assert [row["body"] for row in rows] == [row["body"] for row in expected]
    assert [json.loads(row["properties"]) for row in rows] == [row["properties"] for row in expected]
    for name in ("topic", "storeTimestamp", "bornHost"):
        assert [row[name] for row in rows] == [row[name] for row in expected]
    for name in ("queueId", "commitLogOffset", "bodyCRC", "tagsCode"):
        assert [int(row[name]) for row in rows] == [row[name] for row in expected]
    assert [row["keys"] or None for row in rows] == [row["keys"] for row in expected]


def test_parquet(store, tmp_path):
    written = exported(store, tmp_path / "out", format="parquet", compression="zstd")
    tables = [pq.read_table(tmp_path / "out" / each.name) for each in written]
    assert pa.concat_tables(tables).to_pylist(maps_as_pydicts="strict") == shown(store)


@pytest.mark.parametrize(("body", "made"), [("base64", base64.b64encode), ("hex", lambda body: body.hex().encode())])
def test_bodies_of_any_bytes(store, tmp_path, body, made):
    store.put("TopicA", 0, b"\xff\x00", tags="raw")
    store.dispatch().safe()
    written = exported(store, tmp_path / "out", body=body, column=("body",), topic=("TopicA",), compression="gzip")
    text = b"".join(gzip.decompress((tmp_path / "out" / each.name).read_bytes()) for each in written)
    found = [json.loads(line) for line in text.splitlines()]
    expected = [made(row["body"]).decode() for row in store.rows if row["topic"] == "TopicA"]
    assert sorted(row["body"] for row in found) == sorted(expected)
    assert written[0].name.endswith(".jsonl.gz")


def test_a_body_that_is_no_text_is_refused_by_name_and_nothing_is_published(store, tmp_path):
    row = store.put("TopicA", 1, b"x" * 5 + b"\xff", tags="raw")
    store.fill(30).dispatch().safe()
    with pytest.raises(BodyNotText, match=f"TopicA, queue 1, offset {row['queueOffset']} "):
        exported(store, tmp_path / "out", column=("body",))
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["lock"]
    assert exported(store, tmp_path / "out", column=("topic",))
    assert exported(store, tmp_path / "more", tags="t1 || t2")


def test_what_is_chosen(store, tmp_path):
    middle = store.rows[200]["storeTimestamp"].isoformat()
    written = exported(store, tmp_path / "out", topic=("Topic1",), since=middle, tags="t1 || t2", column=("keys",))
    expected = [row for row in store.rows if row["topic"] == "Topic1" and row["storeTimestamp"].isoformat() >= middle]
    expected = [{"keys": row["keys"]} for row in expected if row["tags"] in ("t1", "t2")]
    found = [json.loads(line) for each in written for line in (tmp_path / "out" / each.name).read_text().splitlines()]
    assert sorted(found, key=str) == sorted(expected, key=str)


@pytest.mark.parametrize("options", [{}, {"system": True}, {"topic": ("Topic1",)}, {"tags": "t2"}, {"since": "middle"}])
def test_an_archive_gives_the_same_as_its_store(store, tmp_path, options):
    archive(ArchiveOptions(store=str(store.root), out=str(tmp_path / "archive")), Loop())
    if "since" in options:
        options = {"since": store.rows[99]["storeTimestamp"].isoformat()}
        options["until"] = store.rows[150]["storeTimestamp"].isoformat()
    end = store.end - store.end % SEGMENT
    from_store = exported(store, tmp_path / "a", **options)
    from_archive = exported(store, tmp_path / "b", **options, store=None, archive=str(tmp_path / "archive"))
    expected = [row for row in lines_of(tmp_path / "a", from_store) if row["commitLogOffset"] < end]
    assert lines_of(tmp_path / "b", from_archive) == expected
    assert expected


def test_bodies_that_were_archived_as_they_stood_are_restored(tmp_path):
    made = MadeStore(tmp_path / "store")
    made.put("TopicA", 0, b"no zlib at all", sys_flag=COMPRESSED)
    made.put("TopicB", 0, zlib.compress(b"plain"), sys_flag=COMPRESSED, body_read=b"plain")
    made.fill(300).safe()
    archive(ArchiveOptions(store=str(made.root), out=str(tmp_path / "archive")), Loop())
    where = {"store": None, "archive": str(tmp_path / "archive"), "body": "base64"}
    written = exported(made, tmp_path / "out", **where, topic=("TopicB",))
    assert lines_of(tmp_path / "out", written)[0]["body"] == base64.b64encode(b"plain").decode()


def test_an_archive_whose_files_were_damaged_or_taken_away_is_refused_by_name(store, tmp_path):
    done = archive(ArchiveOptions(store=str(store.root), out=str(tmp_path / "archive")), Loop())
    file = max(
        (file for segment in done.archive.segments.values() for file in segment.files), key=lambda each: each.size
    )
    path = tmp_path / "archive" / file.name
    data = bytearray(path.read_bytes())
    data[len(data) // 4] ^= 1
    path.write_bytes(data)
    where = {"store": None, "archive": str(tmp_path / "archive"), "topic": (file.topic,)}
    with pytest.raises(ArchiveDamaged, match=path.name):
        exported(store, tmp_path / "out", **where)
    path.unlink()
    with pytest.raises(ArchiveDamaged, match=path.name):
        exported(store, tmp_path / "out", **where)
    assert not (tmp_path / "out" / output.MANIFEST).exists()


def test_options_that_do_not_fit(store, tmp_path):
    with pytest.raises(IllegalOption, match="both"):
        exported(store, tmp_path / "out", archive="x")
    with pytest.raises(IllegalOption, match="is text"):
        exported(store, tmp_path / "out", body="binary")
    with pytest.raises(IllegalOption, match="'queueId'"):
        exported(store, tmp_path / "out", column=("queue_id",))
    archive(ArchiveOptions(store=str(store.root), out=str(tmp_path / "archive")), Loop())
    with pytest.raises(NoSuchMessages, match="TopicX"):
        exported(store, tmp_path / "out", store=None, archive=str(tmp_path / "archive"), topic=("TopicX",))


def test_a_directory_is_written_once_and_only_where_nothing_else_is(store, tmp_path, monkeypatch):
    def fails(*_: Any) -> bool:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(output, "publish_manifests", fails)
        with pytest.raises(KeyboardInterrupt):
            exported(store, tmp_path / "out", format="csv")
    assert list((tmp_path / "out").glob("part-*")), "files without a manifest"
    written = exported(store, tmp_path / "out")
    assert {path.name for path in (tmp_path / "out").glob("part-*")} == {each.name for each in written}
    with pytest.raises(OutputTaken, match="finished"):
        exported(store, tmp_path / "out")
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "diary").touch()
    with pytest.raises(OutputTaken, match="diary"):
        exported(store, tmp_path / "mine")


def test_the_job_has_its_schema():
    assert len(job.COLUMNS) == 4
    assert {"body", "keys"} < set(COLUMNS)


@given(st.lists(st.binary(max_size=10)), st.integers(0, 5))
def test_base64_and_hex_of_any_values(values, skipped):
    array = pa.array(values, pa.binary()).slice(skipped)
    assert in_base64(array).to_pylist() == [base64.b64encode(value).decode() for value in values[skipped:]]
    assert in_hex(array).to_pylist() == [value.hex() for value in values[skipped:]]


@given(st.lists(st.tuples(TEXTS, st.dictionaries(st.text(max_size=3), st.text(max_size=5), max_size=3)), max_size=6))
def test_json_of_any_text(rows):
    texts, maps = [row[0] for row in rows], [list(row[1].items()) for row in rows]
    batch = pa.record_batch({"a": pa.array(texts, pa.string()), "m": pa.array(maps, pa.map_(pa.string(), pa.string()))})
    found = [json.loads(line) for line in json_lines(batch).decode().split("\n")[:-1]]
    assert found == [{"a": text, "m": pairs} for text, pairs in rows]
    lines = csv_lines(batch, header=False).decode()
    read = list(csv.reader(io.StringIO(lines, newline="")))
    assert [(text, json.loads(pairs)) for text, pairs in read] == [(text or "", pairs) for text, pairs in rows]


@given(st.lists(st.binary(max_size=3), min_size=1))
def test_the_first_row_that_is_no_text(values):
    wrong = next((row for row, value in enumerate(values) if value.decode("utf-8", "replace").encode() != value), None)
    array = pa.array(values, pa.binary())
    if wrong is None:
        assert utf8(array).to_pylist() == [value.decode() for value in values]
    else:
        with pytest.raises(NotUtf8) as caught:
            utf8(array)
        assert caught.value.row == wrong
