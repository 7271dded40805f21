"""The judge of drills: every kind of broken promise is found and named, and a whole history of a million is quick."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from towline.loadtest.drill.check import DrillVerdict, Found, Judge, compare
from towline.loadtest.drill.history import (
    ACKNOWLEDGED,
    HISTORY,
    STORED,
    UNKNOWN,
    Outcome,
    key_of,
    line_of,
    read_history,
    topic_of,
)

RUN = 0xABCDEF01
SEGMENT = 4096


def outcome(number: int, status: str = ACKNOWLEDGED, *, offset: int | None = None, crc: int = 7) -> Outcome:
    """Of producer 0, in queue 0, one after the other, each sent at its number's second and answered in half of one."""
    at = number if offset is None else offset
    return Outcome(key_of(RUN, 0, number), topic_of(RUN, 0), 0, at, crc, status, 1, float(number), number + 0.5)


def history_of(directory: Path, *outcomes: Outcome):
    (directory / HISTORY).write_bytes(b"".join(map(line_of, outcomes)))
    return read_history(directory)


def found_of(*numbers: int, crcs: dict[int, int] | None = None) -> Found:
    """A log with these messages in queue 0, in this order."""
    keys = np.array([key_of(RUN, 0, number) for number in numbers], dtype="S24")
    body = np.array([(crcs or {}).get(number, 7) for number in numbers], dtype=np.int64)
    size = len(numbers)
    return Found(keys, np.zeros(size, dtype=np.int64), np.arange(size), body, 0, 100 * size)


def judged(directory: Path, outcomes: list[Outcome], found: Found) -> DrillVerdict:
    judge = Judge(history_of(directory, *outcomes))
    judge.check("node 0", found)
    return judge.verdict


def test_a_history_is_json_and_is_read_as_columns(tmp_path):
    history = history_of(tmp_path, outcome(3, STORED), outcome(4, UNKNOWN, offset=-1))
    lines = [json.loads(line) for line in (tmp_path / HISTORY).read_text().splitlines()]
    assert lines[0] == {
        "key": "abcdef0100" + "3".zfill(14),
        "topic": "drill-abcdef01-0",
        "queue": 0,
        "offset": 3,
        "crc": 7,
        "status": "stored",
        "attempts": 1,
        "t_start": 3.0,
        "t_end": 3.5,
    }
    assert history.keys.tolist() == [key_of(RUN, 0, number).encode() for number in (3, 4)]
    assert history.offsets.tolist() == [3, -1]
    assert history.has(STORED).tolist() == [True, False]
    assert history.t_end.tolist() == [3.5, 4.5]


def test_a_torn_history_is_refused(tmp_path):
    (tmp_path / HISTORY).write_bytes(line_of(outcome(1))[:-3])
    with pytest.raises(ValueError, match="no multiple"):
        read_history(tmp_path)


def test_a_good_drill_passes(tmp_path):
    outcomes = [outcome(0), outcome(1), outcome(2, STORED), outcome(3, UNKNOWN, offset=-1)]
    verdict = judged(tmp_path, outcomes, found_of(0, 1))
    assert verdict.passed, verdict.faults
    assert (verdict.sent, verdict.acknowledged, verdict.stored, verdict.unknown) == (4, 2, 1, 1)
    assert (verdict.stored_lost, verdict.without_service_s) == (1, 1.0)


@pytest.mark.parametrize(
    ("found", "field", "said"),
    [
        (found_of(0, 2), "lost", "acknowledged and lost: 1 messages"),
        (found_of(0, 1, 2, crcs={1: 8}), "changed", "another body than was sent: 1 messages"),
        (found_of(0, 1, 2, 9), "strangers", "never sent: 1 messages"),
        (found_of(1, 0, 2), "moved", "acknowledged and not at its queue offset: 2 messages"),
        (found_of(1, 0, 2), "disordered", "out of order: 1 messages"),
        (found_of(0, 1, 2, 1), "doubled", "there twice: 1 messages"),
    ],
    ids=["lost", "changed", "stranger", "moved", "disordered", "doubled"],
)
def test_a_broken_promise_is_named(tmp_path, found, field, said):
    verdict = judged(tmp_path, [outcome(0), outcome(1), outcome(2)], found)
    assert getattr(verdict, field)
    assert any(said in fault for fault in verdict.faults), verdict.faults


def test_what_is_sent_again_by_a_producer_that_is_not_idempotent_may_stand_as_often_as_it_was_sent(tmp_path):
    again = replace(outcome(1), attempts=2)
    judge = Judge(history_of(tmp_path, outcome(0), again, outcome(2)), idempotent=False)
    judge.check("node 0", found_of(0, 1, 2, 1))
    assert (judge.verdict.doubled, judge.verdict.faults) == (1, [])
    judge.check("node 1", found_of(0, 1, 2, 2))
    assert [fault.partition(":")[2] for fault in judge.verdict.faults] == [
        f" there more often than sent: 1 messages, {key_of(RUN, 0, 2)}"
    ]


def test_a_gap_in_a_queue_is_named(tmp_path):
    found = found_of(0, 1, 2)
    found.offsets[2] = 5
    verdict = judged(tmp_path, [outcome(0), outcome(1), outcome(2, offset=5)], found)
    assert any("has a gap" in fault for fault in verdict.faults)


@pytest.mark.parametrize("begins", [SEGMENT, SEGMENT + 50])
def test_logs_that_have_no_byte_in_common_are_not_the_same(tmp_path, begins):
    found = {"a": Found(*[np.empty(0)] * 4, low=0, end=SEGMENT), "b": Found(*[np.empty(0)] * 4, low=begins, end=begins)}
    verdict = DrillVerdict()
    compare(verdict, {"a": tmp_path / "a", "b": tmp_path / "b"}, found, SEGMENT)
    assert (verdict.compared_bytes, verdict.identical, verdict.passed) == (0, False, False)


@pytest.mark.parametrize("changed", [None, SEGMENT + 17], ids=["the same", "one byte"])
def test_logs_are_compared_over_what_all_hold(tmp_path, changed):
    stores, found = {}, {}
    for name, low in (("a", 0), ("b", SEGMENT)):
        stores[name] = tmp_path / name
        stores[name].mkdir()
        for base in range(low, 3 * SEGMENT, SEGMENT):
            (stores[name] / f"{base:020d}").write_bytes(bytes([base // SEGMENT]) * SEGMENT)
        found[name] = Found(*[np.empty(0)] * 4, low=low, end=2 * SEGMENT + 50 + low)
    if changed is not None:
        path = stores["b"] / f"{changed // SEGMENT * SEGMENT:020d}"
        data = bytearray(path.read_bytes())
        data[changed % SEGMENT] ^= 1
        path.write_bytes(data)
    verdict = DrillVerdict()
    compare(verdict, stores, found, SEGMENT)
    assert verdict.compared_bytes == SEGMENT + 50
    assert verdict.identical is (changed is None)
    assert verdict.faults == ([] if changed is None else [f"the CommitLogs of a and b differ at {changed}"])
