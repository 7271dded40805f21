"""The newest message of each key, as told by the messages themselves; on Spark to files and into a topic."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.pipeline.loop import Loop
from tests.spark.stores import SEGMENT, MadeStore
from towline.pipeline import compact as job
from towline.pipeline.archive import ArchiveOptions, archive
from towline.pipeline.compact import CompactOptions
from towline.pipeline.compacting import NEWEST, Key, kept, newest_in, write_kept
from towline.pipeline.errors import IllegalOption
from towline.pipeline.location import location
from towline.pipeline.progress import Progress
from towline.pipeline.sources import FromEither, messages_of

TOPIC = "Prices"
WAIT_S = 60.0


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> MadeStore:
    """TOPIC with some 90 keys, a few of which end with an empty body, among messages without a key and other topics."""
    made = MadeStore(tmp_path_factory.mktemp("compact") / "store")
    for number in range(900):
        key = f"k{number * 7 % 90} {number % 2}" if number % 11 else None
        made.put(TOPIC, number % 3, b"%d " % number * 30, keys=key, uniq=f"U{number % 200}", region=f"r{number % 5}")
        made.put("Others", 0, b"x" * 50, keys=key)
    for number in range(0, 90, 10):
        made.put(TOPIC, 0, b"", keys=f"k{number} 0")
    made.put(TOPIC, 0, b"back", keys="k10 0")
    made.put(TOPIC, 0, b"no key", keys="")
    return made.safe()


def newest(source: MadeStore, name: str = "keys", end: int | None = None) -> list[dict[str, Any]]:
    """By a plain dict, in the log's order."""
    found: dict[str, dict[str, Any]] = {}
    for row in source.rows:
        text = row["properties"].get(name) if name not in row else row[name]
        if row["topic"] == TOPIC and text and (end is None or row["commitLogOffset"] < end):
            found[text] = row
    return sorted(found.values(), key=lambda row: row["commitLogOffset"])


def options(source: MadeStore, **more: Any) -> CompactOptions:
    return CompactOptions(**({"store": str(source.root), "topic": (TOPIC,)} | more))


@pytest.fixture(scope="module")
def archived(source: MadeStore, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("compact") / "archive"
    archive(ArchiveOptions(store=str(source.root), out=str(out)), Loop())
    return out


@pytest.mark.parametrize("where", ["store", "archive"])
@pytest.mark.parametrize(
    ("key", "name"), [(Key("keys"), "keys"), (Key("uniqKey"), "uniqKey"), (Key("properties", "region"), "region")]
)
def test_a_part_tells_the_newest_of_each_key_and_how_many_there_are(source, archived, where, key, name):
    path = {"store": str(source.root)} if where == "store" else {"archive": str(archived)}
    end = source.end if where == "store" else source.end - source.end % SEGMENT
    messages = messages_of(FromEither(**path, topic=(TOPIC,)), key.columns)
    parts = [list(newest_in(messages, key, number)) for number in range(len(messages.partitions))]
    rows = [row for part in parts for batch in part for row in batch.to_pylist()]
    assert all(batch.schema == NEWEST for part in parts for batch in part)
    best: dict[str, int] = {}
    for row in rows:
        if row["key"] is not None:
            best[row["key"]] = max(best.get(row["key"], 0), row["newest"])
    expected = newest(source, name, end)
    assert sorted(value // 2 for value in best.values()) == [row["commitLogOffset"] for row in expected]
    gone = {row["commitLogOffset"] for row in expected if not row["body"]}
    assert {value // 2 for value in best.values() if value % 2} == gone
    read = [row for row in source.rows if row["topic"] == TOPIC and row["commitLogOffset"] < end]
    assert sum(row["messages"] for row in rows) == len(read)


def test_the_kept_ones_of_a_part_are_written_once(source, tmp_path):
    messages = messages_of(FromEither(store=str(source.root), topic=(TOPIC,)), tuple(source.rows[0]))
    expected = newest(source)
    number = next(  # the part that has them, where there are several
        number for number, part in enumerate(messages.partitions) if any(True for _ in messages.of(part))
    )
    here = {
        offset for batch in messages.of(messages.partitions[number]) for offset in batch["commitLogOffset"].to_pylist()
    }
    wanted = [row for row in expected if row["commitLogOffset"] in here]
    offsets = pa.array([row["commitLogOffset"] for row in reversed(wanted)], pa.int64())
    rows = pa.record_batch({"part": pa.array([number] * len(wanted), pa.int32()), "offset": offsets})
    assert [part for part, _ in kept(messages, [rows.slice(0, 5), rows.slice(5)])] == [number]
    with location(str(tmp_path)).staging() as staging:
        (written,) = write_kept(messages, staging, [rows.slice(0, 5), rows.slice(5)])
        assert pq.read_table(tmp_path / written.name).to_pylist(maps_as_pydicts="strict") == wanted


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"topic": ()}, "one topic"),
        ({"topic": ("a", "b")}, "one topic"),
        ({"out": None}, "--out, or --into"),
        ({"into": "x"}, "not both"),
        ({"by": "property"}, "goes with"),
        ({"property": "region"}, "goes with"),
        ({"out": None, "into": "x"}, "needs it"),
        ({"out": None, "into": TOPIC, "endpoint": "ipc://x"}, "is read"),
    ],
)
def test_options_that_do_not_fit(source, tmp_path, wrong, said):
    with pytest.raises(IllegalOption, match=said):
        job.run(SimpleNamespace(), options(source, **({"out": str(tmp_path / "x")} | wrong)), Progress())  # type: ignore[arg-type]
