"""What is asked of a node often: a brief status, and the map of its segments."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.pipeline.loop import Loop
from tests.processes.aging import fill
from tests.processes.nodes import SEGMENT, TestNode, ending, free_port
from towline.client.admin import AdminClient
from towline.node.report.segments import read_segments
from towline.node.report.status import read_status
from towline.pipeline.archive import ArchiveOptions, archive

LONG = {"pss", "disk", "config_backups"}  # and with each topic longer
HOUR_MS = 3_600_000


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestNode]:
    made = TestNode("master", tmp_path_factory.mktemp("often") / "node", listen_port=free_port())
    with ending(made):
        made.start()
        fill(made)
        yield made


def test_a_brief_status_lacks_what_takes_long_and_nothing_else(node: TestNode) -> None:
    brief, whole = read_status(node.store.root, brief=True), read_status(node.store.root)
    assert whole.keys() - brief.keys() == LONG
    assert brief.keys() < whole.keys()
    for few, many in zip(brief["processes"], whole["processes"], strict=True):
        assert many.keys() - few.keys() == {"pss", "uss"}
    assert brief["statistics"]["put_messages"] == whole["statistics"]["put_messages"] > 0


def test_a_node_tells_the_same_over_its_port(node: TestNode) -> None:
    with AdminClient(node.facts["endpoints"]["remoting"][0]) as admin:
        assert admin.node_status(brief=True).keys() == read_status(node.store.root, brief=True).keys()
        assert "pss" in admin.node_status()
        told, read = admin.node_segments(), read_segments(node.store.root)
    assert [row[0] for row in told["segments"]] == [row[0] for row in read["segments"]]


def test_the_map_has_every_segment_with_its_place_in_memory_and_on_disk(node: TestNode) -> None:
    found = read_segments(node.store.root)
    bases = [row[0] for row in found["segments"]]
    assert bases == [SEGMENT * number for number in range(len(bases))]
    assert found["log_min"] == 0
    assert bases[-1] + found["size"] >= found["end"] > SEGMENT
    assert (found["older"], found["keeps"]) == (0, False)
    assert found["reserved_ms"] == 72 * HOUR_MS
    for _, modified_ms, allocated, share, _ in found["segments"]:
        assert found["now_ms"] - HOUR_MS < modified_ms <= found["now_ms"] + 1_000
        assert allocated >= SEGMENT
        assert 0 <= share <= 1


def test_a_segment_that_was_just_written_is_in_memory_and_one_that_was_archived_is_marked(
    node: TestNode, tmp_path: Path
) -> None:
    before = read_segments(node.store.root)["segments"]
    assert any(row[3] > 0.5 for row in before)
    assert not any(row[4] for row in before)
    archive(ArchiveOptions(store=str(node.store.root), out=str(tmp_path / "archive"), most=1), Loop())
    after = read_segments(node.store.root)["segments"]
    assert [row[4] for row in after] == [True, *[False] * (len(after) - 1)]
