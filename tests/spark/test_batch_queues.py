"""Topics whose queues are batch consume queues of a RocketMQ: their messages are read from the log, or not at all."""

from pathlib import Path

import pytest

from towline.spark.errors import BadOption, UnknownRead
from towline.spark.options import SourceOptions
from towline.spark.planning import selection_of
from towline.spark.tail import StoreTail

from .reads import planned, read, read_plan
from .stores import MadeStore

INNER_BATCH = 0xC0  # SYSFLAG of a record that holds several messages
BATCHED = "TopicBatched"


@pytest.fixture
def made(tmp_path: Path) -> MadeStore:
    """Few messages of a topic with batch queues among many of others; `rows` are of all."""
    made = MadeStore(tmp_path / "store").fill(60)
    made.dispatch()
    for number in range(3):
        made.put(BATCHED, 0, b"%d" % number, sys_flag=INNER_BATCH, INNER_NUM="4", INNER_BASE=str(4 * number))
    queue = made.store.batchconsumequeue / BATCHED / "0"
    queue.mkdir(parents=True)
    (queue / f"{0:020}").write_bytes(bytes(46 * 3))
    return made.safe()


def test_a_record_of_the_log_is_a_row(made: MadeStore) -> None:
    plan = planned(made.root, subscribe=BATCHED)
    assert plan.mode == "scan", "by its queues it would look empty"
    rows = read_plan(plan)
    assert rows == made.rows[-3:]
    assert [row["properties"]["INNER_NUM"] for row in rows] == ["4"] * 3
    assert read(made.root, readMode="scan") == made.rows


@pytest.mark.parametrize("options", [{"readMode": "queue"}, {"endingOffsets": f'{{"{BATCHED}": {{"0": 1}}}}'}])
def test_its_queues_are_refused(made: MadeStore, options: dict[str, str]) -> None:
    with pytest.raises(BadOption, match=f"{BATCHED} has batch consume queues, .* use readMode=scan"):
        planned(made.root, **options)


def test_other_topics_are_read_by_their_queues(made: MadeStore) -> None:
    plan = planned(made.root, subscribe="TopicA", readMode="queue")
    assert plan.mode == "queue"
    assert {row["topic"] for row in read_plan(plan)} == {"TopicA"}
    with pytest.raises(UnknownRead, match=BATCHED):
        planned(made.root, subscribe="TopicBatch")


def test_a_stream_by_queues_is_refused(made: MadeStore) -> None:
    for topic, refused in ((BATCHED, True), ("TopicA", False)):
        options = SourceOptions.parse({"path": str(made.root), "subscribe": topic})
        tail = StoreTail(options, selection_of(options))
        try:
            if refused:
                with pytest.raises(BadOption, match="readMode=scan"):
                    tail.queues()
            else:
                assert {name for name, _ in tail.queues()} == {"TopicA"}
        finally:
            tail.close()
