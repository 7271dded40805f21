"""Reads of a running node whose cleaning deletes segments between the plan and the tasks. Without a JVM."""

import logging
from collections.abc import Iterator

import pytest

from tests.processes.aging import CLEANED_AT_ONCE, clean, fill
from tests.processes.nodes import TestNode, check_nothing_is_left, ended
from tests.processes.waiting import await_
from towline.runtime.positions import Position
from towline.spark.errors import MessagesGone

from .reads import MODES, Rows, by_place, planned, read, read_plan
from .streams import Query, stop_readers, stream

WAIT_S = 30.0
PLACE = "topic,queueId,queueOffset,commitLogOffset"


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestNode]:
    """Three segments and a half; nothing is deleted yet."""
    made = TestNode("master", tmp_path_factory.mktemp("cleaned") / "master", ha_listen_port=0, **CLEANED_AT_ONCE)
    cleaning = ended(made)
    next(cleaning)
    made.start()
    fill(made)
    yield made
    next(cleaning, None)


def oldest(node: TestNode) -> int:
    """Where the first segment's file begins."""
    return min(int(path.name) for path in node.store.commitlog.iterdir())


def drained(query: Query) -> Rows:
    return by_place([row for batch in query.run() for row in batch])


def test_what_cleaning_took_fails_by_name_or_is_left_out_and_counted(
    node: TestNode, caplog: pytest.LogCaptureFixture
) -> None:
    """Plans and checkpoints of before meet the files of after."""
    caplog.set_level(logging.WARNING)
    root, columns = node.store.root, PLACE.split(",")
    before = by_place(read(root, columns))
    plans = {
        (mode, loss): planned(root, columns, readMode=mode, failOnDataLoss=loss)
        for mode in MODES
        for loss in ("true", "false")
    }
    options = {"columns": PLACE, "startingOffsets": "earliest", "maxMessagesPerTrigger": "100"}
    queries = {
        key: Query(stream(root, readMode=key[0], failOnDataLoss=key[1], **options))
        for key in [(mode, loss) for mode in MODES for loss in ("true", "false")]
    }
    first = {key: query.trigger() or [] for key, query in queries.items()}
    clean(node, 2)
    await_(lambda: node.at(Position.LOG_MIN) > 0, WAIT_S, "the log begins later")
    await_(lambda: oldest(node) == node.at(Position.LOG_MIN), WAIT_S, "everything before it is deleted")
    low = node.at(Position.LOG_MIN)
    left = [row for row in before if row["commitLogOffset"] >= low]
    assert 0 < len(left) < len(before)
    for mode in MODES:
        with pytest.raises(MessagesGone, match=f"{0:020d}"):
            read_plan(plans[mode, "true"])
        caplog.clear()
        assert by_place(read_plan(plans[mode, "false"])) == left
        told = [record.getMessage() for record in caplog.records]
        assert told
        assert all("left out, as failOnDataLoss=false allows" in one for one in told)
        with pytest.raises(MessagesGone, match=r"deleted|begins at"):
            drained(queries[mode, "true"])
        caplog.clear()
        already = {row["commitLogOffset"] for row in first[mode, "false"]}
        expected = [row for row in left if row["commitLogOffset"] not in already]
        assert drained(queries[mode, "false"]) == expected
        assert "left out" in caplog.text
        assert by_place(read(root, columns, readMode=mode)) == left, "a new read begins where the log does"
    stop_readers()
    assert node.stop()
    check_nothing_is_left(node)
