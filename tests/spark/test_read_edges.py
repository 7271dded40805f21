"""What a batch read gives where two things meet: queues and log, tasks and cleaning, equal times. Without a JVM."""

import json
from pathlib import Path
from typing import Any

import pytest

from towline.format.files.checkpoint import Checkpoint
from towline.format.record.record import record_size
from towline.log.files.config_file import ConfigFile
from towline.log.state.checkpoint_file import CheckpointFile
from towline.log.state.queue_minima import NAME, QueueMinimum, minima_content
from towline.spark import stores
from towline.spark.errors import BadOption, MessagesGone
from towline.spark.stores import StoreView

from .reads import MODES, by_place, planned, read, read_plan
from .stores import NOON, SEGMENT, MadeStore

# --- queues and log


@pytest.mark.parametrize("looked_at", [1, 3, 7, 15])
@pytest.mark.parametrize("mode", ["auto", "queue"])
def test_what_is_dispatched_while_queue_after_queue_is_looked_at_is_not_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, looked_at: int, mode: str
) -> None:
    """A queue that is looked at late shows newer entries than those before it: what these got meanwhile counts, too."""
    made = MadeStore(tmp_path / "store").fill(600, topics=8).dispatch().fill(40, topics=8)
    made.store.checkpoint.parent.mkdir(exist_ok=True)
    CheckpointFile(made.root).save(Checkpoint(confirm_phy_offset=made.end))
    seen, written = 0, stores._written

    def meanwhile(*queue: object) -> tuple[int, int]:
        nonlocal seen
        seen += 1
        if seen == looked_at + 1:
            made.dispatch()
        return written(*queue)  # type: ignore[arg-type]

    monkeypatch.setattr(stores, "_written", meanwhile)
    rows = read(made.root, readMode=mode, subscribe="TopicA" if mode == "auto" else "TopicA,TopicB,TopicH")
    assert seen > looked_at
    topics = {row["topic"] for row in rows}
    assert by_place(rows) == [row for row in made.rows if row["topic"] in topics]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("inside", [1, 40, 200])
def test_a_record_over_which_the_safe_end_lies_is_for_the_next_read(made: MadeStore, mode: str, inside: int) -> None:
    """Its entry may stand in the queue: on a slave, bytes are confirmed in chunks that end anywhere."""
    made.safe(made.rows[400]["commitLogOffset"] + inside)
    assert by_place(read(made.root, readMode=mode)) == made.rows[:400]
    made.safe()
    assert by_place(read(made.root, readMode=mode)) == made.rows


@pytest.mark.parametrize("cut", [False, True])
def test_what_retention_has_cut_is_read_from_the_log_where_nobody_asks_for_queues(tmp_path: Path, cut: bool) -> None:
    """A few messages of many are read by their queues, but where queues and log do not give the same."""
    made = MadeStore(tmp_path / "store").fill(600, topics=8).dispatch().safe()
    if cut:
        made.store.config.mkdir(exist_ok=True)
        minimum = QueueMinimum(5, made.rows[100]["commitLogOffset"])
        ConfigFile(made.store.config / NAME).save(minima_content({("TopicA", 0): minimum}))
    wanted = [row for row in made.rows if row["topic"] == "TopicA"]
    plan = planned(made.root, subscribe="TopicA")
    assert plan.mode == ("scan" if cut else "queue")
    assert by_place(read_plan(plan)) == wanted
    assert planned(made.root, subscribe="TopicB").mode == "queue"
    assert planned(made.root, subscribe="TopicA", startingOffsets='{"TopicA": {"0": 3}}').mode == "queue"


# --- times


@pytest.mark.parametrize("mode", MODES)
def test_of_equal_times_all_or_none(tmp_path: Path, mode: str) -> None:
    made = MadeStore(tmp_path / "store", step_ms=0).whole()
    for start, end, expected in (
        (NOON, NOON + 1, made.rows),
        (NOON, NOON, []),
        (NOON - 1, NOON, []),
        (NOON + 1, NOON + 2, []),
    ):
        options = {"startingTimestamp": str(start), "endingTimestamp": str(end)}
        assert by_place(read(made.root, readMode=mode, **options)) == expected


@pytest.mark.parametrize("mode", MODES)
def test_each_queue_begins_and_ends_at_times_of_its_own(made: MadeStore, mode: str) -> None:
    def ms(row: int) -> int:
        return round(made.rows[row]["storeTimestamp"].timestamp() * 1000)

    starting = {
        "TopicA": {"0": ms(100), "1": made.rows[200]["storeTimestamp"].isoformat()},
        "TopicB": {"0": ms(-1) + 1},
    }
    ending = {"TopicA": {"0": ms(300)}}

    def is_wanted(row: dict[str, Any]) -> bool:
        at = round(row["storeTimestamp"].timestamp() * 1000)
        match row["topic"], row["queueId"]:
            case "TopicA", 0:
                return ms(100) <= at < ms(300)
            case "TopicA", 1:
                return at >= ms(200)
            case "TopicB", 0:
                return False
        return True

    times = {"startingOffsetsByTimestamp": json.dumps(starting), "endingOffsetsByTimestamp": json.dumps(ending)}
    rows = read(made.root, readMode=mode, **times)
    expected = [row for row in made.rows if is_wanted(row)]
    assert 0 < len(expected) < len(made.rows)
    assert by_place(rows) == expected


# --- cleaning


@pytest.fixture
def cleaned_in_planning(made: MadeStore, monkeypatch: pytest.MonkeyPatch) -> MadeStore:
    """Its first two segments go when the store was opened and nothing was planned yet."""
    opened = StoreView.open

    def open_and_clean(*arguments: object, **named: object) -> StoreView:
        view = opened(*arguments, **named)  # type: ignore[arg-type]
        for base in (0, SEGMENT):
            made.path(base).unlink(missing_ok=True)
        return view

    monkeypatch.setattr(StoreView, "open", open_and_clean)
    return made


OPTIONS = [
    {"startingPhysicalOffset": str(SEGMENT // 2)},
    {"startingPhysicalOffset": str(SEGMENT // 2), "minPartitions": "5"},
    {"readMode": "queue"},
    {"readMode": "queue", "startingTimestamp": str(NOON)},
    {"startingTimestamp": str(NOON)},
    {"assign": '{"TopicA": [0, 1], "TopicB": [0, 1], "TopicC": [0, 1]}'},
]


@pytest.mark.parametrize("options", OPTIONS)
def test_what_goes_while_it_is_planned_is_left_out_and_told_by_the_task(
    cleaned_in_planning: MadeStore, options: dict[str, str], caplog: pytest.LogCaptureFixture
) -> None:
    rows = read(cleaned_in_planning.root, failOnDataLoss="false", **options)
    left = [row for row in cleaned_in_planning.rows if row["commitLogOffset"] >= 2 * SEGMENT]
    assert by_place(rows) == left
    assert f"{0:020d}" in caplog.text
    assert f"{SEGMENT:020d}" in caplog.text


@pytest.mark.parametrize("options", OPTIONS)
def test_or_fails_by_name(cleaned_in_planning: MadeStore, options: dict[str, str]) -> None:
    with pytest.raises(MessagesGone, match=f"{0:020d}"):
        read(cleaned_in_planning.root, **options)


def test_without_queues_splits_of_a_segment_that_went_are_none(made: MadeStore, tmp_path: Path) -> None:
    backup = made.backup(tmp_path / "backup")
    plan = planned(backup, minPartitions="9", failOnDataLoss="false")
    (backup / "commitlog" / f"{0:020d}").unlink()
    left = [row["commitLogOffset"] for row in made.rows if row["commitLogOffset"] >= SEGMENT]
    assert [row["commitLogOffset"] for row in read_plan(plan)] == left


def test_only_what_was_asked_for_can_be_lost(made: MadeStore, caplog: pytest.LogCaptureFixture) -> None:
    """The queue begins behind the end that was asked for: three messages are missing, and no more."""
    made.safe(log_min=SEGMENT)
    made.path(0).unlink()
    options = {"assign": '{"TopicA": [0]}', "endingOffsets": '{"TopicA": {"0": 5}}'}
    assert read(made.root, **options) == [], "from the earliest that there is"
    options["startingOffsets"] = '{"TopicA": {"0": 2}}'
    with pytest.raises(MessagesGone, match=r"messages 2 to 4 of queue 0 of TopicA .*\(3 messages\)"):
        read(made.root, **options)
    assert read(made.root, failOnDataLoss="false", **options) == []
    assert "(3 messages)" in caplog.text


# --- ends


def test_an_end_behind_the_queues_is_refused_and_one_behind_the_log_is_its_end(made: MadeStore) -> None:
    with pytest.raises(BadOption, match=r"endingOffsets.*queue 0 of TopicA ends at 100"):
        read(made.root, endingOffsets='{"TopicA": {"0": 101}}')
    whole = '{"TopicA": {"0": 100, "1": -1}}'
    rows = [row for row in made.rows if row["topic"] == "TopicA"]
    assert by_place(read(made.root, subscribe="TopicA", endingOffsets=whole)) == rows
    assert read(made.root, endingPhysicalOffset=str(made.end + 1000)) == made.rows


@pytest.mark.parametrize("left", [8, 9, 30, 91])
@pytest.mark.parametrize("mode", MODES)
def test_a_record_that_leaves_just_a_blank(tmp_path: Path, mode: str, left: int) -> None:
    """The next one begins a segment; ends that lie on either side of the border, or in the blank, give the same."""
    made = MadeStore(tmp_path / "store").fill(30)
    around = record_size(0, len("TopicA"), 0)
    made.put("TopicA", 1, bytes(SEGMENT - made.end % SEGMENT - left - around))
    assert SEGMENT - made.end % SEGMENT == left
    border = made.end
    first = len(made.rows)
    made.fill(30).dispatch()
    for end in (border, border + 1, border + left - 1, border + left):
        made.safe(end)
        assert by_place(read(made.root, readMode=mode)) == made.rows[:first]
    made.safe()
    assert by_place(read(made.root, readMode=mode, minPartitions="7")) == made.rows
    for start in (border, border + left):
        rows = read(made.root, startingPhysicalOffset=str(start))
        assert rows == made.rows[first:]
        assert read(made.root, endingPhysicalOffset=str(start)) == made.rows[:first]
