"""A running node keeps what is not archived yet, its status says how much, and what has gone is in the archive."""

from collections.abc import Iterator
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from tests.pipeline.loop import Loop
from tests.processes.aging import CLEANED_AT_ONCE, clean, fill
from tests.processes.nodes import SEGMENT, TestNode, ended
from tests.processes.waiting import await_
from towline.node.report.status import read_status
from towline.pipeline.archive import ArchiveOptions, archive
from towline.pipeline.archive_manifest import Archive
from towline.runtime.positions import Position

DEADLINE_S = 60.0


@pytest.fixture
def node(tmp_path: Path) -> Iterator[TestNode]:
    made = TestNode("master", tmp_path / "node", ha_listen_port=0, keep_until_archived="true", **CLEANED_AT_ONCE)
    cleaning = ended(made)
    next(cleaning)
    made.start()
    yield made
    next(cleaning, None)


def test_segments_go_when_they_are_archived(node: TestNode, tmp_path: Path) -> None:
    fill(node)
    for _ in range(2):  # when the second one is heard, the first one was looked into
        clean(node, 10.0)
    assert node.at(Position.LOG_MIN) == 0
    told = read_status(node.store.root)["archive"]
    assert (told["keep_until_archived"], told["until"], told["waiting"]) == (True, 0, 3 * SEGMENT)
    options = ArchiveOptions(store=str(node.store.root), out=str(tmp_path / "archive"), most=2)
    assert archive(options, Loop()).until == 2 * SEGMENT
    clean(node, 10.0)
    await_(lambda: node.at(Position.LOG_MIN) == 2 * SEGMENT, DEADLINE_S, "what is archived goes")
    for _ in range(2):
        clean(node, 10.0)
    assert node.at(Position.LOG_MIN) == 2 * SEGMENT
    told = read_status(node.store.root)["archive"]
    assert (told["until"], told["waiting"], told["deleted"]) == (2 * SEGMENT, SEGMENT, 0)
    assert told["archive"] == str(tmp_path / "archive")
    opened = Archive.open(tmp_path / "archive")
    files = [tmp_path / "archive" / file.name for segment in opened.segments.values() for file in segment.files]
    tables = [pq.read_table(path, columns=["queueId", "queueOffset"], partitioning=None) for path in files]
    numbers = {(row["queueId"], row["queueOffset"]) for table in tables for row in table.to_pylist()}
    assert numbers == {(0, offset) for offset in range(len(numbers))}, "from the first message on, none is missing"
