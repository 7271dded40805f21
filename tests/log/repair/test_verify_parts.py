"""A store that is verified in parts: the findings are those of one pass over it, whatever is wrong."""

import pickle
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.log.sound import sound_store
from tests.log.stores import SEGMENT, SETTINGS, StoreMaker
from towline.format.record import record, skipped
from towline.format.record.skipped import Lost
from towline.log.repair.repair_plan import make_plan
from towline.log.repair.verify import Verified, verify
from towline.log.repair.verify_report import PER_RULE_MAX, Weight

from .test_repair import STRETCHES
from .test_verify import FAULTS, Fault


def in_turn(what: str, work: Callable[[Any], Any], parts: Sequence[Any]) -> list[Any]:
    """The last part first; everything goes through pickle, as to another machine."""
    done = [pickle.loads(pickle.dumps(pickle.loads(pickle.dumps(work))(part))) for part in reversed(parts)]
    return done[::-1]


def facts(found: Verified) -> tuple[Any, ...]:
    rows = sorted((row.path, row.at, row.end, row.rule, row.sentence, row.weight) for row in found.findings.rows)
    gaps = sorted((gap.at, gap.topic, gap.queue_id, gap.offset, gap.due, gap.filled, gap.alone) for gap in found.gaps)
    return rows, found.findings.dropped, found.weight, found.log, gaps


def same(maker: StoreMaker, limit: int | None = None) -> Verified:
    """Both ways; what the one in parts found."""
    expected = verify(maker.store, SETTINGS, limit=limit)
    found = verify(maker.store, SETTINGS, limit=limit, run=in_turn)
    assert facts(found) == facts(expected)
    return found


def test_a_sound_store_is_sound(maker: StoreMaker) -> None:
    found = same(maker)
    assert found.findings.rows == []
    assert [one.verdict for one in found.log.segments] == ["sound"] * 3
    assert found.bytes == sum(one.used for one in found.log.segments)


def test_property_crcs_of_other_records_are_noted_and_counted(tmp_path: Path) -> None:
    maker = sound_store(tmp_path, with_crc=True)
    assert same(maker).findings.rows == []
    first, *others = maker.records
    for stored in others:
        maker.copy_crc(first, stored)
    found = same(maker)
    segments = [[one.at - one.at % SEGMENT for one in others].count(base) for base in (0, SEGMENT, 2 * SEGMENT)]
    kept = [min(count, PER_RULE_MAX) for count in segments]
    assert found.log.records == len(maker.records)
    assert (found.log.damages, found.weight) == ([], Weight.NOTE)
    assert {(row.rule, row.weight) for row in found.findings.rows} == {("PROPERTY_CRC_FOREIGN", Weight.NOTE)}
    assert [row.at for row in found.findings.rows][:3] == [one.at for one in others[:3]]
    assert (len(found.findings.rows), sum(found.findings.dropped.values())) == (sum(kept), len(others) - sum(kept))
    assert max(segments) > PER_RULE_MAX
    assert make_plan(maker.store, SETTINGS, []).steps == []


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.__name__)
def test_one_fault_of_any_kind_is_told_as_in_one_pass(maker: StoreMaker, fault: Fault) -> None:
    path, at, rule, weight = fault(maker)
    found = same(maker)
    assert (str(path.relative_to(maker.root)), at, rule, weight) in {
        (row.path, row.at, row.rule, row.weight) for row in found.findings.rows
    }


@pytest.mark.parametrize("damage", STRETCHES, ids=lambda damage: damage.__name__)
def test_damaged_stretches_and_what_was_lost_with_them(
    maker: StoreMaker, damage: Callable[[StoreMaker], set[int]]
) -> None:
    damage(maker)
    assert same(maker).weight is Weight.DAMAGE


def renumber(maker: StoreMaker, number: int, queue_offset: int) -> None:
    stored = maker.records[number]
    made = record.decode(stored.data)
    object.__setattr__(made, "queue_offset", queue_offset)
    maker.write(stored.at, record.encode(made))


def first_of(maker: StoreMaker, segment: int) -> int:
    return next(number for number, stored in enumerate(maker.records) if stored.at >= segment * SEGMENT)


@pytest.mark.parametrize("more", [-3, -1, 1, 5, 400])
@pytest.mark.parametrize("segment", [1, 2])
def test_numbers_that_do_not_go_on_in_the_next_segment(maker: StoreMaker, segment: int, more: int) -> None:
    number = first_of(maker, segment)
    renumber(maker, number, maker.records[number].queue_offset + more)
    rule = "QUEUE_GAP" if more > 0 else "QUEUE_TWICE"
    assert rule in {row.rule for row in same(maker).findings.rows}


def test_all_numbers_of_a_segment_given_twice(maker: StoreMaker) -> None:
    first, second = first_of(maker, 1), first_of(maker, 2)
    for number in range(first, second):
        renumber(maker, number, maker.records[number].queue_offset - first // 4)
    assert len(same(maker).gaps) > 50


def test_a_store_time_that_goes_back_between_two_segments(maker: StoreMaker) -> None:
    stored = maker.records[first_of(maker, 1)]
    made = record.decode(stored.data)
    object.__setattr__(made, "store_timestamp", made.store_timestamp - 10)
    maker.write(stored.at, record.encode(made))
    assert [row.rule for row in same(maker).findings.rows][:1] == ["TIME_ORDER"]


def test_a_record_that_was_stepped_over_first_in_its_segment(maker: StoreMaker) -> None:
    stored = maker.records[first_of(maker, 1)]
    lost = Lost(stored.topic.encode(), stored.queue_id, stored.queue_offset - 2, 3)
    maker.write(stored.at, skipped.encode(len(stored.data), stored.at, lost, stored.timestamp, with_crc=False))
    same(maker)


@pytest.mark.parametrize("at", [8, 100, 250])
def test_a_running_node_is_read_to_where_it_was_dispatched(maker: StoreMaker, at: int) -> None:
    found = same(maker, limit=maker.records[at].at)
    assert found.findings.rows == []
    assert found.log.records == at


def test_two_faults_far_from_each_other(maker: StoreMaker) -> None:
    maker.write(maker.records[20].at + 300, b"\xff")
    maker.write(maker.records[280].at + 300, b"\xff")
    found = same(maker)
    assert [one.verdict for one in found.log.segments] == ["damaged", "sound", "damaged"]
