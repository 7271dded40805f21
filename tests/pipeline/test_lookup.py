"""Bulk lookup against a plain search of the messages as they were put."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest

from tests.spark.stores import SEGMENT, MadeStore
from towline.errors import MalformedFile
from towline.format.files.index_file import ENTRY, HEADER_SIZE, SLOT, entry_at, key_hash
from towline.kernels.base.directory import QueueDirectory
from towline.log.commitlog.commit_log import CommitLogReader
from towline.log.commitlog.dispatch import DispatchScan
from towline.log.files.store_files import IndexShape
from towline.log.queues.index_service import IndexService
from towline.pipeline import finding, lookup
from towline.pipeline.errors import IllegalOption
from towline.pipeline.finding import KEY, UNIQUE_KEY, Wanted, walk
from towline.spark.errors import UnknownRead

SHAPE = IndexShape(slots=16, indexes=500)


def indexed(made: MadeStore) -> MadeStore:
    """With index files as reput writes them: several, with few slots, so that chains are long and shared."""
    log = CommitLogReader(made.store.commitlog, SEGMENT)
    log.load()
    scan, index = DispatchScan(log, QueueDirectory()), IndexService(made.store.index, *vars_of(SHAPE), writable=True)
    index.load()
    at = 0
    while at < made.end:
        batch = scan.read(at, made.end)
        index.put(batch.log, batch.rows, batch.keys)
        at = batch.end
    index.close()
    log.close()
    made.store.settings.parent.mkdir(parents=True, exist_ok=True)
    made.store.settings.write_text(json.dumps({"max_hash_slot_num": SHAPE.slots, "max_index_num": SHAPE.indexes}))
    return made


def vars_of(shape: IndexShape) -> tuple[int, int]:
    return shape.slots, shape.indexes


@pytest.fixture
def made(tmp_path: Path) -> MadeStore:
    store = MadeStore(tmp_path / "store").fill(400)
    store.put("TopicA", 1, b"twice", keys="U00000007 twice twice", uniq="twice")
    store.put("TopicB", 0, b"no keys at all")
    return store.dispatch().safe()


def rows_by(options: lookup.Options) -> tuple[str, list[dict[str, Any]]]:
    """What the tasks give, without Spark."""
    wanted = Wanted(lookup.asked_keys(options), options.body)
    by, tasks, task = lookup.planned(options, wanted)
    found = [batch for number in range(tasks) for batch in task(number)]
    return by, pa.Table.from_batches(found, wanted.schema).to_pylist()


def expected(made: MadeStore, keys: set[str], topics: set[str] | None = None) -> list[dict[str, Any]]:
    """A row for each key of a message that is asked for, once."""
    rows = []
    for row in made.rows:
        plain = set((row["keys"] or "").split())
        for key in keys & (plain | {row["uniqKey"]}):
            if topics is None or row["topic"] in topics:
                kind = UNIQUE_KEY if key == row["uniqKey"] else KEY
                rows.append({"asked": key, "kind": kind, **{name: row[name] for name in Wanted((), False).columns}})
    return rows


def in_order(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return sorted(rows, key=lambda row: (row["commitLogOffset"], row["asked"]))


def once(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """A message whose keys stand in two index files is found by both."""
    return list({(row["asked"], row["commitLogOffset"]): row for row in rows}.values())


ASKED = {"k5", "k399", "all", "U00000007", "twice", "nobody's"}


class TestWithoutSpark:
    def test_a_scan_finds_keys_and_unique_keys_in_every_topic(self, made):
        by, rows = rows_by(lookup.Options(store=str(made.root), key=tuple(ASKED)))
        assert by == "scan"
        assert in_order(rows) == in_order(expected(made, ASKED))
        assert {row["kind"] for row in rows if row["asked"] == "twice"} == {UNIQUE_KEY}
        assert sum(row["asked"] == "U00000007" for row in rows) == 2

    def test_the_index_finds_the_same_within_topics(self, made):
        indexed(made)
        assert len(list(made.store.index.iterdir())) > 2
        options = lookup.Options(store=str(made.root), key=tuple(ASKED), topic=("TopicA", "TopicB"))
        by, rows = rows_by(options)
        assert by == "index"
        assert in_order(once(rows)) == in_order(expected(made, ASKED, {"TopicA", "TopicB"}))

    def test_bodies_come_where_they_are_asked_for(self, made):
        _, rows = rows_by(lookup.Options(store=str(made.root), key=("twice",), body=True))
        assert [row["body"] for row in rows] == [b"twice"]

    def test_other_choices_narrow_both_ways(self, made):
        indexed(made)
        wanted = [row for row in expected(made, {"all"}, {"TopicB"}) if row["tags"] == "tag2"]
        for by in ("scan", "index"):
            options = lookup.Options(store=str(made.root), key=("all",), topic=("TopicB",), tags="tag2", by=by)
            assert in_order(rows_by(options)[1]) == in_order(wanted)

    def test_an_entry_that_leads_nowhere_is_passed_over(self, made):
        indexed(made)
        path = max(made.store.index.iterdir())
        file = np.memmap(path, dtype=np.uint8, mode="r+")
        entries = file[entry_at(SHAPE.slots, 0) :].view(ENTRY)
        entries["physical_offset"][1:4] = (made.end + 8, 11, 2**40)
        file.flush()
        options = lookup.Options(store=str(made.root), key=tuple(ASKED), topic=("TopicA",))
        found = {row["commitLogOffset"] for row in rows_by(options)[1]}
        assert found <= {row["commitLogOffset"] for row in expected(made, ASKED, {"TopicA"})}

    def test_a_chain_that_leads_in_a_circle_ends(self, made):
        indexed(made)
        file = np.fromfile(max(made.store.index.iterdir()), dtype=np.uint8)
        entries = file[entry_at(SHAPE.slots, 0) :].view(ENTRY)
        entries["previous"] = np.arange(len(entries)) % 7 + 1
        hashes = np.array([key_hash("TopicA", "all")])
        assert len(walk(file, "index", SHAPE, hashes)) <= SHAPE.indexes
        file[HEADER_SIZE : entry_at(SHAPE.slots, 0)].view(SLOT)[:] = SHAPE.indexes + 5
        assert not len(walk(file, "index", SHAPE, hashes))

    def test_a_long_chain_is_found_whole_without_going_along_it(self, made, monkeypatch):
        indexed(made)
        options = lookup.Options(store=str(made.root), key=("all", "k7"), topic=("TopicA", "TopicB"))
        _, whole = rows_by(options)
        monkeypatch.setattr(finding, "STEPS_MAX", 3)
        _, rows = rows_by(options)
        assert (
            in_order(once(rows))
            == in_order(once(whole))
            == in_order(expected(made, {"all", "k7"}, {"TopicA", "TopicB"}))
        )

    def test_an_index_file_of_another_size_is_refused(self, made):
        indexed(made)
        made.store.settings.write_text("{}")
        with pytest.raises(MalformedFile, match="slots and"):
            rows_by(lookup.Options(store=str(made.root), key=("k5",), topic=("TopicA",)))


class TestOptions:
    def test_keys_come_from_a_file_and_the_command_line_without_doubles(self, tmp_path):
        path = tmp_path / "keys"
        path.write_text("a\n\n b \na\n")
        assert lookup.asked_keys(lookup.Options(store="s", key=("c", "b"), keys=path)) == ("c", "b", "a")

    @pytest.mark.parametrize(
        ("wrong", "told"),
        [
            ({}, "--keys: give keys by"),
            ({"keys": Path("no-such-file")}, "--keys: no-such-file cannot be read"),
        ],
    )
    def test_no_keys_are_refused(self, wrong, told):
        with pytest.raises(IllegalOption, match=told):
            lookup.asked_keys(lookup.Options(store="s", **wrong))

    def test_a_file_that_holds_no_keys_is_told_from_one_that_is_not_there(self, made, tmp_path):
        path = tmp_path / "keys"
        options = lookup.Options(store=str(made.root), keys=path)
        with pytest.raises(IllegalOption, match="cannot be read: No such file"):
            lookup.asked_keys(options)
        path.write_bytes(b"\xff\xfe")
        with pytest.raises(IllegalOption, match="no UTF-8 text"):
            lookup.asked_keys(options)

    @pytest.mark.parametrize("by", ["auto", "index", "scan"])
    def test_a_topic_that_is_none_is_not_one_without_the_keys(self, made, by):
        options = lookup.Options(store=str(indexed(made).root), topic=("TopicAA",), key=("k1",), by=by)
        with pytest.raises(UnknownRead, match="did you mean TopicA"):
            rows_by(options)

    def test_an_index_needs_a_topic_and_files(self, made):
        with pytest.raises(IllegalOption, match="--by: an index knows keys within topics"):
            rows_by(lookup.Options(store=str(made.root), key=("k5",), by="index"))
        with pytest.raises(IllegalOption, match="holds no index file"):
            rows_by(lookup.Options(store=str(made.root), key=("k5",), by="index", topic=("TopicA",)))
