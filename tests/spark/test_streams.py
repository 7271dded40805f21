"""Streams over stores at rest, batch by batch: limits, ends, replays, what was deleted. Without a JVM."""

import json
import random
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows

from towline.arrow.errors import DamagedRecord
from towline.log.state.identity import IdentityFile
from towline.spark.errors import BadOption, CheckpointUnusable, MessagesGone, UnknownRead

from .reads import MODES, Rows, by_place, only, read
from .stores import MadeStore
from .streams import SEEN, Query, begun, joined, stream


@pytest.fixture(scope="module")
def short(tmp_path_factory: pytest.TempPathFactory) -> MadeStore:
    return MadeStore(tmp_path_factory.mktemp("stores") / "store").whole(120)


def expected(made: MadeStore) -> Rows:
    return only(made.rows, SEEN)


# --- everything, once


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("limit", [37, 600, 10_000])
def test_batches_hold_the_limit_of_messages_and_together_every_message_once(
    made: MadeStore, mode: str, limit: int
) -> None:
    batches = begun(made, mode, maxMessagesPerTrigger=str(limit)).run()
    assert [len(batch) for batch in batches[:-1]] == [limit] * (len(batches) - 1)
    assert by_place(joined(batches)) == expected(made)


@pytest.mark.parametrize("mode", MODES)
def test_a_limit_below_the_number_of_queues_is_kept(made: MadeStore, mode: str) -> None:
    found = begun(made, mode, maxMessagesPerTrigger="1")
    batches = [found.trigger() or [] for _ in range(30)]
    assert [len(batch) for batch in batches] == [1] * 30
    assert len({row["commitLogOffset"] for row in joined(batches)}) == 30


@pytest.mark.parametrize("mode", MODES)
def test_the_other_name_of_the_limit_and_no_limit(made: MadeStore, mode: str) -> None:
    assert [len(batch) for batch in begun(made, mode, maxOffsetsPerTrigger="250").run()] == [250, 250, 100]
    (everything,) = begun(made, mode).run()
    assert by_place(everything) == expected(made)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("limit", [2_500, 20_000, 10**9])
def test_batches_hold_the_limit_of_bytes_or_a_single_message(made: MadeStore, mode: str, limit: int) -> None:
    batches = begun(made, mode, maxBytesPerTrigger=str(limit)).run()
    assert by_place(joined(batches)) == expected(made)
    for batch in batches:
        assert sum(row["size"] for row in batch) <= limit or len(batch) == 1


@pytest.mark.parametrize("mode", MODES)
def test_both_limits_are_kept_at_once(made: MadeStore, mode: str) -> None:
    batches = begun(made, mode, maxMessagesPerTrigger="50", maxBytesPerTrigger="9k").run()
    assert by_place(joined(batches)) == expected(made)
    assert all(len(batch) <= 50 and sum(row["size"] for row in batch) <= 9216 for batch in batches)


@pytest.mark.parametrize("mode", MODES)
def test_a_trigger_for_everything_ignores_the_limits(made: MadeStore, mode: str) -> None:
    found = begun(made, mode, maxMessagesPerTrigger="5", maxBytesPerTrigger="1k")
    rows = found.trigger(ReadAllAvailable())
    assert rows is not None
    assert len(rows) == 600
    assert found.trigger(ReadMaxRows(3)) is None


def test_a_batch_waits_for_the_least_number_of_messages_or_the_longest_time(made: MadeStore) -> None:
    count = len(made.rows)
    enough = begun(made, "queue", minMessagesPerTrigger=str(count), maxTriggerDelay="1d")
    assert len(enough.trigger() or []) == count
    waiting = begun(made, "queue", minOffsetsPerTrigger=str(count + 1), maxTriggerDelay="1d")
    assert waiting.trigger() is None
    assert by_place(joined(waiting.run())) == expected(made), "availableNow waits for nothing"
    late = begun(made, "queue", minMessagesPerTrigger=str(count + 1), maxTriggerDelay="0s")
    assert len(late.trigger() or []) == count


def test_a_least_number_needs_queues_and_is_no_more_than_the_greatest(made: MadeStore) -> None:
    with pytest.raises(BadOption, match="name topics"):
        begun(made, "scan", minMessagesPerTrigger="5")
    with pytest.raises(BadOption, match="more than maxMessagesPerTrigger"):
        begun(made, "queue", minMessagesPerTrigger="5", maxMessagesPerTrigger="4")
    with pytest.raises(BadOption, match="500ms"):
        begun(made, "queue", maxTriggerDelay="soon")


def test_a_filtered_scan_counts_the_messages_that_it_gives(made: MadeStore) -> None:
    batches = begun(made, "scan", maxMessagesPerTrigger="30", subscribe="TopicB", subExpression="tag1").run()
    wanted = [row for row in made.rows if row["topic"] == "TopicB" and row["tags"] == "tag1"]
    assert by_place(joined(batches)) == only(wanted, SEEN)
    assert [len(batch) for batch in batches if batch][:-1] == [30] * (len(wanted) // 30)


def test_queues_share_a_batch_in_proportion_and_none_starves(tmp_path: Path) -> None:
    made = MadeStore(tmp_path / "store")
    for number in range(400):
        made.put("Large", 0, b"x")
        if number < 4:
            made.put("Small", 0, b"y")
    found = begun(made.dispatch().safe(), "queue", maxMessagesPerTrigger="101")
    rows = found.trigger()
    assert rows is not None
    assert [sum(row["topic"] == topic for row in rows) for topic in ("Large", "Small")] == [99, 2]


def test_the_mode_is_chosen_by_the_options_alone(made: MadeStore) -> None:
    assert "commitLog" in begun(made).start
    assert "queues" in begun(made, subscribe="TopicA").start
    assert "queues" in begun(made, startingOffsets='{"TopicA": {"0": 5}}').start


# --- where a stream begins


@pytest.mark.parametrize("mode", MODES)
def test_a_stream_begins_at_the_end_unless_told_otherwise(made: MadeStore, mode: str) -> None:
    found = Query(stream(made.root, readMode=mode))
    assert found.trigger() is None
    before = len(made.rows)
    made.fill(30).dispatch().safe()
    rows = found.trigger()
    assert rows is not None
    assert by_place(rows) == only(made.rows[before:], SEEN)


@pytest.mark.parametrize("mode", MODES)
def test_the_first_batch_of_a_stream_that_began_at_the_end_is_the_same_in_a_replay(made: MadeStore, mode: str) -> None:
    found = Query(stream(made.root, readMode=mode))
    assert found.trigger() is None
    made.fill(20).dispatch().safe()
    rows = found.trigger()
    made.fill(20).dispatch().safe()
    again = found.restart(stream(made.root, readMode=mode))
    assert again.replay() == rows
    following = again.trigger()
    assert following is not None
    assert by_place(following) == only(made.rows[-20:], SEEN)


@pytest.mark.parametrize("mode", MODES)
def test_a_stream_begins_at_a_time(made: MadeStore, mode: str) -> None:
    when = made.rows[350]["storeTimestamp"]
    batches = begun(made, mode, startingTimestamp=str(int(when.timestamp() * 1000))).run()
    assert by_place(joined(batches)) == only(made.rows[350:], SEEN)


def test_a_stream_begins_in_each_queue_at_a_time_of_its_own(made: MadeStore) -> None:
    when = made.rows[350]["storeTimestamp"]
    starting = json.dumps({"TopicA": {"0": int(when.timestamp() * 1000)}, "TopicB": {"0": "2100-01-01T00:00Z"}})
    rows = joined(Query(stream(made.root, startingOffsetsByTimestamp=starting)).run())
    late = [row for row in made.rows if row["storeTimestamp"] >= when]
    assert {row["queueOffset"] for row in rows if (row["topic"], row["queueId"]) == ("TopicA", 0)} == {
        row["queueOffset"] for row in late if (row["topic"], row["queueId"]) == ("TopicA", 0)
    }
    assert not [row for row in rows if (row["topic"], row["queueId"]) == ("TopicB", 0)]


def test_a_stream_begins_at_offsets_of_queues(made: MadeStore) -> None:
    starting = '{"TopicA": {"0": 23, "1": -1}, "TopicB": {"0": -2}}'
    rows = joined(begun(made, startingOffsets=starting, subscribe="TopicA,TopicB").run())
    first: dict[Any, int] = {}
    for row in rows:
        first.setdefault((row["topic"], row["queueId"]), row["queueOffset"])
    assert first == {("TopicA", 0): 23, ("TopicB", 0): 0, ("TopicB", 1): 0}


@given(st.integers(0, 40_000))
@settings(max_examples=25, deadline=None)
def test_a_stream_begins_at_the_first_record_at_or_behind_a_place(short: MadeStore, place: int) -> None:
    made = short
    found = begun(made, startingPhysicalOffset=str(place), startingOffsets="earliest")
    assert by_place(joined(found.run())) == [row for row in expected(made) if row["commitLogOffset"] >= place]


def test_a_new_queue_begins_at_its_earliest_message(made: MadeStore) -> None:
    found = Query(stream(made.root, readMode="queue", subscribePattern="Topic.*|New"))
    assert found.trigger() is None
    for _ in range(5):
        made.put("New", 3, b"new")
    made.dispatch().safe()
    rows = found.trigger()
    assert rows is not None
    assert [(row["topic"], row["queueOffset"]) for row in rows] == [("New", number) for number in range(5)]
    assert found.restart(stream(made.root, readMode="queue", subscribePattern="Topic.*|New")).replay() == rows


# --- replays


@pytest.mark.parametrize("mode", MODES)
def test_a_replayed_batch_is_the_same_whatever_came_since(made: MadeStore, mode: str) -> None:
    found = begun(made, mode, maxMessagesPerTrigger="100")
    for _ in range(3):
        rows = found.trigger()
    made.fill(200).dispatch().safe()
    assert found.restart(stream(made.root, readMode=mode, startingOffsets="earliest")).replay() == rows


@pytest.mark.parametrize("mode", MODES)
def test_drivers_that_die_anywhere_lose_and_double_nothing(made: MadeStore, mode: str) -> None:
    """The sink knows a batch by its number, so a replay overwrites it."""
    draw, died = random.Random(7), False
    found, sink = begun(made, mode, maxMessagesPerTrigger="37"), dict[int, Rows]()
    while True:
        if died or draw.random() < 0.1:
            again = stream(made.root, readMode=mode, startingOffsets="latest", maxMessagesPerTrigger="37")
            found = found.restart(again)
            if found.log:
                sink[len(found.log)] = found.replay()
        if draw.random() < 0.2 and len(made.rows) < 900:
            made.fill(11).dispatch().safe()
        rows = found.trigger()
        died = draw.random() < 0.3
        if rows is None and len(made.rows) >= 900:
            break
        if rows and not died:
            sink[len(found.log)] = rows
    assert by_place(joined(list(sink.values()))) == expected(made)


# --- what is not there, or not to be read


@pytest.mark.parametrize("mode", MODES)
def test_a_stream_never_passes_the_safe_end(made: MadeStore, mode: str) -> None:
    safe = made.rows[400]["commitLogOffset"]
    made.safe(safe)
    assert by_place(joined(begun(made, mode).run())) == expected(made)[:400]


@pytest.mark.parametrize("inside", [1, 40, 200])
def test_a_safe_end_inside_a_record_is_not_passed(made: MadeStore, inside: int) -> None:
    made.safe(made.rows[400]["commitLogOffset"] + inside)
    found = begun(made, "scan")
    assert by_place(joined(found.run())) == expected(made)[:400]
    made.safe()
    rows = found.trigger()
    assert rows is None, "the target of this run stays where it was"
    again = found.restart(stream(made.root, readMode="scan"))
    assert by_place(joined(again.run())) == expected(made)[400:]


@pytest.mark.parametrize("mode", MODES)
def test_what_was_deleted_before_it_was_read_is_told(made: MadeStore, mode: str) -> None:
    found = begun(made, mode, maxMessagesPerTrigger="50")
    found.trigger()
    made.path(0).unlink()
    made.safe(log_min=made.segment_size)
    with pytest.raises(MessagesGone, match=r"deleted|begins at"):
        found.trigger()


@pytest.mark.parametrize("mode", MODES)
def test_what_was_deleted_is_left_out_where_that_is_allowed(made: MadeStore, mode: str) -> None:
    found = begun(made, mode, maxMessagesPerTrigger="50", failOnDataLoss="false")
    first = found.trigger()
    made.path(0).unlink()
    made.safe(log_min=made.segment_size)
    assert first is not None
    kept = [row for row in expected(made) if row["commitLogOffset"] >= made.segment_size]
    assert by_place(joined(found.run())) == kept


@pytest.mark.parametrize("mode", MODES)
def test_a_checkpoint_of_another_store_or_mode_is_refused(made: MadeStore, tmp_path: Path, mode: str) -> None:
    IdentityFile(made.root).take_over("c", "ab" * 16)
    found = begun(made, mode)
    found.trigger()
    other = MadeStore(tmp_path / "other").whole()
    IdentityFile(other.root).take_over("c", "cd" * 16)
    with pytest.raises(CheckpointUnusable, match="of the store abab"):
        found.restart(stream(other.root, readMode=mode)).trigger()
    with pytest.raises(CheckpointUnusable, match="readMode"):
        found.restart(stream(made.root, readMode=MODES[mode == "scan"])).trigger()


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"endingOffsets": "latest"}, "endingOffsets"),
        ({"endingTimestamp": "5"}, "endingTimestamp"),
        ({"endingPhysicalOffset": "5"}, "endingPhysicalOffset"),
        ({"startingOffsets": '{"TopicA": {"0": 5}}', "readMode": "scan"}, "startingOffsets"),
        ({"endpoint": "tcp://127.0.0.1:1", "endingOffsets": "latest"}, "endingOffsets"),
    ],
)
def test_options_that_a_stream_cannot_keep_are_refused_at_once(
    made: MadeStore, options: dict[str, str], named: str
) -> None:
    with pytest.raises(BadOption, match=named):
        stream(None if "endpoint" in options else made.root, **options)


def test_a_topic_that_is_named_has_to_exist(made: MadeStore) -> None:
    with pytest.raises(UnknownRead, match="did you mean TopicA"):
        begun(made, subscribe="TopicX").trigger()


# --- damage


@pytest.mark.parametrize("limit", [{"maxBytesPerTrigger": "20000"}, {"maxMessagesPerTrigger": "50"}, {}])
def test_a_stream_says_what_is_damaged_and_does_not_stand_still(made: MadeStore, limit: dict[str, str]) -> None:
    offset = made.rows[300]["commitLogOffset"]
    made.write(offset + 4, b"\x00\x01")
    with pytest.raises(DamagedRecord, match=str(offset)):
        begun(made, "scan", **limit).run()
    rows = joined(begun(made, "scan", onCorruption="skip", **limit).run())
    assert by_place(rows) == [row for row in expected(made) if row["commitLogOffset"] != offset]


@pytest.mark.parametrize("mode", MODES)
def test_the_due_time_of_a_delayed_message_is_that_of_a_batch_read(tmp_path: Path, mode: str) -> None:
    made = MadeStore(tmp_path / "store")
    made.put("SCHEDULE_TOPIC_XXXX", 2, b"later", tags="red", DELAY="3", REAL_TOPIC="TopicA", REAL_QID="0")
    made.dispatch().safe()
    options = {"includeSystemTopics": "true", "columns": "tagsCode,commitLogOffset"}
    ((streamed,),) = begun(made, mode, **options).run()
    (whole,) = read(made.root, readMode=mode, includeSystemTopics="true")
    assert streamed == {name: whole[name] for name in streamed}
    due = round(made.rows[0]["storeTimestamp"].timestamp() * 1000) + 10_000
    assert streamed["tagsCode"] == due
