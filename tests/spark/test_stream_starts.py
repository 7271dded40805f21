"""Where a stream begins, beside damage and beside cleaning. Without a JVM."""

import pytest

from towline.arrow.errors import DamagedRecord
from towline.spark import planning, streams
from towline.spark.errors import BadOption, MessagesGone
from towline.spark.stores import StoreView

from .reads import MODES, Rows, by_place, only
from .stores import SEGMENT, MadeStore
from .streams import SEEN, Query, begun, joined


def everything(query: Query) -> Rows:
    return by_place(joined(query.run()))


# --- damage before the wanted start


@pytest.mark.parametrize("limit", [{}, {"maxMessagesPerTrigger": "30"}, {"maxBytesPerTrigger": "9000"}])
@pytest.mark.parametrize("ahead", [1, 2, 30])
@pytest.mark.parametrize("inside", [0, 1])
def test_behind_damage_no_row_is_older_than_the_wanted_start(
    made: MadeStore, ahead: int, inside: int, limit: dict[str, str]
) -> None:
    damaged = made.rows[250]["commitLogOffset"]
    made.write(damaged + 4, b"\x00\x01")
    start = made.rows[250 + ahead]["commitLogOffset"] + inside
    asked = {"startingPhysicalOffset": str(start), "readMode": "scan", **limit}
    wanted = [row for row in only(made.rows, SEEN) if row["commitLogOffset"] >= start]
    skipping = begun(made, onCorruption="skip", **asked)
    assert everything(skipping) == wanted
    assert skipping.log[0]["began"][""] == wanted[0]["commitLogOffset"]
    behind = [row for row in wanted if row["commitLogOffset"] >= damaged - damaged % SEGMENT + SEGMENT]
    assert everything(begun(made, onCorruption="stop", **asked)) == behind
    with pytest.raises(DamagedRecord, match=str(damaged)):
        everything(begun(made, **asked))


def test_where_damage_goes_on_to_the_segments_end_a_stream_begins_in_the_next(made: MadeStore) -> None:
    last = max(row["commitLogOffset"] for row in made.rows if row["commitLogOffset"] < SEGMENT)
    first = made.rows[100]["commitLogOffset"]
    made.write(first, b"\xff" * (SEGMENT - first))
    rows = everything(begun(made, onCorruption="skip", readMode="scan", startingPhysicalOffset=str(last)))
    assert rows == [row for row in only(made.rows, SEEN) if row["commitLogOffset"] >= SEGMENT]


# --- starts that are not there


def test_a_start_behind_the_end_is_refused(made: MadeStore) -> None:
    """To begin earlier would show what is older than wanted."""
    with pytest.raises(BadOption, match=f"startingPhysicalOffset.*ends at {made.end}"):
        begun(made, startingPhysicalOffset=str(made.end + 1)).trigger()
    with pytest.raises(BadOption, match=r"startingOffsets.*queue 0 of TopicA ends at 100"):
        begun(made, startingOffsets='{"TopicA": {"0": 101}}').trigger()
    at_the_end = begun(made, startingPhysicalOffset=str(made.end), readMode="scan")
    assert at_the_end.trigger() is None
    before = len(made.rows)
    made.fill(5).safe()
    assert at_the_end.trigger() == only(made.rows[before:], SEEN)


# --- cleaning


@pytest.mark.parametrize("mode", MODES)
def test_cleaning_between_the_plan_of_a_batch_and_its_tasks(
    made: MadeStore, mode: str, caplog: pytest.LogCaptureFixture
) -> None:
    """`True` fails by name; `false` counts what is gone and gives everything else, in this batch and the next ones."""
    for loses in (True, False):
        found = begun(made, readMode=mode, maxMessagesPerTrigger="400", failOnDataLoss=str(not loses).lower())
        start = found.start
        end = found.reader.latestOffset(start, found.reader.getDefaultReadLimit())
        parts = found.reader.partitions(start, end)
        made.path(SEGMENT).rename(made.root / "kept")
        if not loses:
            with pytest.raises(MessagesGone, match=f"{SEGMENT:020d}"):
                [list(found.reader.read(part)) for part in parts]
        else:
            rows = [row for part in parts for batch in found.reader.read(part) for row in batch.to_pylist()]
            places = {row["commitLogOffset"] for row in rows}
            left = {row["commitLogOffset"] for row in made.rows if not SEGMENT <= row["commitLogOffset"] < 2 * SEGMENT}
            assert len(rows) == len(places)
            assert places <= left
            assert f"{SEGMENT:020d}" in caplog.text
        (made.root / "kept").rename(made.path(SEGMENT))


@pytest.mark.parametrize("limit", [{"maxMessagesPerTrigger": "150"}, {"maxBytesPerTrigger": "30000"}, {}])
@pytest.mark.parametrize("moment", range(1, 8))
def test_cleaning_while_a_batch_is_planned(
    made: MadeStore, monkeypatch: pytest.MonkeyPatch, moment: int, limit: dict[str, str]
) -> None:
    """Whichever look at the store it comes between. Without data loss allowed nothing is left out silently."""
    opened, looks = StoreView.open, 0

    def look(*arguments: object, **named: object) -> StoreView:
        nonlocal looks
        looks += 1
        view = opened(*arguments, **named)  # type: ignore[arg-type]
        if looks == moment:
            made.safe(log_min=2 * SEGMENT)
            for base in (0, SEGMENT):
                made.path(base).unlink()
        return view

    monkeypatch.setattr(StoreView, "open", look)
    rows = everything(begun(made, readMode="scan", failOnDataLoss="false", **limit))
    whole = only(made.rows, SEEN)
    left = [row for row in whole if row["commitLogOffset"] >= 2 * SEGMENT]
    assert rows[-len(left) :] == left
    assert all(row in whole for row in rows)


def test_a_start_in_a_segment_that_goes_meanwhile(made: MadeStore, monkeypatch: pytest.MonkeyPatch) -> None:
    pruned = planning.pruned

    def clean_first(*arguments: object) -> tuple[int, int]:
        found = pruned(*arguments)  # type: ignore[arg-type]
        made.safe(log_min=2 * SEGMENT)
        for base in (0, SEGMENT):
            made.path(base).unlink(missing_ok=True)
        return found

    monkeypatch.setattr(streams, "pruned", clean_first)
    options = {"readMode": "scan", "startingPhysicalOffset": str(SEGMENT // 2)}
    left = [row for row in only(made.rows, SEEN) if row["commitLogOffset"] >= 2 * SEGMENT]
    assert everything(begun(made, failOnDataLoss="false", **options)) == left
