"""Lag of groups against what plain Python makes of the messages and of the offsets as they were written."""

from collections import defaultdict
from pathlib import Path

import pytest

from tests.spark.stores import MadeStore
from towline.format.files.groups import OffsetTable, offsets_content
from towline.log.files.config_file import ConfigFile
from towline.pipeline import lag
from towline.pipeline.errors import IllegalOption, NoOffsets
from towline.pipeline.progress import Progress
from towline.pipeline.running import execute

OFFSETS = {
    ("TopicA", "readers"): {0: 30, 1: 100},
    ("TopicB", "readers"): {0: 0, 1: 99},
    ("TopicC", "late"): {1: 5},
    ("%RETRY%late", "late"): {0: 0},
    ("Gone", "late"): {0: 7},
}


def with_offsets(made: MadeStore, offsets=OFFSETS) -> MadeStore:
    made.store.config.mkdir(exist_ok=True)
    ConfigFile(made.store.config / "consumerOffset.json").save(offsets_content(OffsetTable(offsets=offsets)))
    return made


@pytest.fixture
def made(tmp_path: Path) -> MadeStore:
    return with_offsets(MadeStore(tmp_path / "store").whole(600))


def measured(made: MadeStore, **options):
    return lag.run(None, lag.Options(store=str(made.root), **options), Progress())


def expected(made: MadeStore, offsets=OFFSETS, log_min: int = 0):
    queues = defaultdict(list)
    for row in made.rows:
        queues[row["topic"], row["queueId"]].append(row)
    rows = []
    for topic, group in offsets:
        committed = offsets[topic, group]
        for queue in sorted({number for name, number in queues if name == topic} | committed.keys()):
            stored = queues[topic, queue]
            low = sum(row["commitLogOffset"] < log_min for row in stored)
            at = committed.get(queue)
            unread = stored[max(at or 0, low) :]
            removed = max(0, low - at) if at is not None else 0
            behind = (unread[-1]["storeTimestamp"] - unread[0]["storeTimestamp"]).total_seconds() if unread else 0.0
            rows.append((group, topic, queue, low, at, len(stored), len(unread), removed, behind))
    return sorted(rows, key=lambda row: row[:3])


def test_a_row_for_each_group_and_queue_says_what_was_not_read_and_how_old_it_is(made):
    result = measured(made)
    assert list(result.rows) == expected(made)
    lags = {group: sum(row[6] for row in expected(made) if row[0] == group) for group in ("readers", "late")}
    assert lags == {"readers": 171, "late": 195}
    assert result.summary["groups"] == lags
    assert result.summary["lag"] == sum(lags.values())
    assert result.summary["never_committed"] == 1
    assert result.plots[0].x == sorted(lags, key=lambda group: -lags[group])


def test_what_was_deleted_before_it_was_read_is_told_apart(tmp_path):
    made = MadeStore(tmp_path / "store").fill(600).dispatch()
    log_min = 2 * made.segment_size
    made.path(0).unlink()
    made.path(made.segment_size).unlink()
    with_offsets(made.safe(log_min=log_min))
    result = measured(made, group=("readers",))
    truth = [row for row in expected(made, log_min=log_min) if row[0] == "readers"]
    assert list(result.rows) == truth
    assert result.summary["removed"] == sum(row[7] for row in truth) > 0


def test_offsets_beyond_the_end_lag_nothing(made):
    with_offsets(made, {("TopicA", "ahead"): {0: 10_000}})
    (first, second) = measured(made).rows
    assert first[4:] == (10_000, 100, 0, 0, 0.0)
    assert second[4:8] == (None, 100, 100, 0)


def test_groups_and_topics_are_chosen_by_name(made):
    rows = measured(made, group=("readers",), topic=("TopicB",)).rows
    assert [row[:3] for row in rows] == [("readers", "TopicB", 0), ("readers", "TopicB", 1)]
    with pytest.raises(IllegalOption, match="no offset of 'reader' is known; there are late, readers"):
        measured(made, group=("reader",))


def test_a_limit_makes_a_status_for_monitoring(made):
    assert measured(made).status == 0
    worst, other = sorted(measured(made).summary["groups"].values(), reverse=True)
    assert measured(made, fail_above=worst).status == 0
    result = measured(made, fail_above=other)
    assert (result.status, result.summary["above"]) == (1, ["late"])
    assert f"above {other}: late" in result.sentence


def test_a_store_without_offsets_is_refused(tmp_path):
    made = MadeStore(tmp_path / "store").whole(10)
    with pytest.raises(NoOffsets, match="no consumer group ever committed"):
        measured(made)


def test_the_whole_run_starts_no_jvm(made, monkeypatch):
    monkeypatch.setenv("JAVA_HOME", "/nowhere")
    outcome = execute("lag", {"store": str(made.root), "group": ["late"]})
    document = outcome.document()
    assert document["job"] == "lag"
    assert document["rows"][0] == dict(
        zip([column.name for column in lag.COLUMNS], outcome.result.rows[0], strict=True)
    )
    assert document["schema"][0] == {"name": "group", "type": "string", "meaning": "consumer group"}
