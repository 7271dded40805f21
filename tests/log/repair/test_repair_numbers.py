"""Repair of records whose topic or QUEUEOFFSET is damaged: those that reput stops before, and no walk would notice."""

import pytest

from tests.log.sound import look, mend_all, plan_of, rules
from tests.log.stores import SETTINGS, StoreMaker
from towline.errors import CorruptLog
from towline.format.record.record import LAYOUT
from towline.log.errors import RepairRefused
from towline.log.recovery.recovery import recover
from towline.log.repair.verify_report import Weight

from .test_repair import QUEUES, numbers, of_queue
from .test_verify_parts import first_of, same

NUMBER = 100  # of the damaged record; 25 is its number in its queue
QUEUE_OFFSET = LAYOUT.offset["queue_offset"]


def renumber(maker: StoreMaker, number: int, queue_offset: int) -> int:
    """Where the record stands."""
    at = maker.records[number].at
    maker.write(at + QUEUE_OFFSET, queue_offset.to_bytes(8, "big"))
    return at


def check_mended(maker: StoreMaker, number: int, *skip: int) -> None:
    """One message is lost, its number is a hole, and everything else is where it was."""
    (step, *_) = mend_all(maker, *skip)
    assert step.action == "skip"
    assert look(maker).weight is Weight.NOTE, look(maker).findings.rows
    for topic, queue_id in QUEUES:
        assert numbers(maker, topic, queue_id) == of_queue(maker, {number}, topic, queue_id)
    assert recover(maker.store, SETTINGS).end == maker.end


@pytest.mark.parametrize("queue_offset", [0, 9, 24, 26, 27, 40, 57, 2_000_000, 2**40], ids=str)
def test_a_number_that_is_damaged_costs_its_record_and_no_other(maker: StoreMaker, queue_offset: int) -> None:
    at = renumber(maker, NUMBER, queue_offset)
    before = maker.log_bytes()
    with pytest.raises(RepairRefused, match=f"QUEUE_.*repair --yes --skip {at}`") as refused:
        mend_all(maker)
    assert refused.value.at == at % 65536
    assert len(plan_of(maker).refused) == 1, "no healthy record is accused"
    assert maker.log_bytes() == before
    check_mended(maker, NUMBER, at)


def test_so_does_a_topic_that_has_become_a_path(maker: StoreMaker) -> None:
    stored = maker.records[NUMBER]
    maker.write(stored.at + stored.data.index(b"TopicA") + 1, b"/")
    found = look(maker)
    assert [(damage.start, damage.end) for damage in found.log.damages] == [(stored.at, stored.end)]
    assert "TOPIC_FORM" in rules(found)
    with pytest.raises(RepairRefused, match=f"TOPIC_FORM.*repair --yes --skip {stored.at}`"):
        mend_all(maker)
    check_mended(maker, NUMBER, stored.at)


def test_a_start_that_walks_over_such_a_topic_names_the_record(maker: StoreMaker) -> None:
    stored = maker.records[-5]
    maker.write(stored.at + stored.data.index(stored.topic.encode()) + 1, b"/")
    with pytest.raises(CorruptLog, match="TOPIC_FORM"):
        recover(maker.store, SETTINGS)


def test_the_last_record_of_its_queue_may_have_a_number_that_was_given(maker: StoreMaker) -> None:
    at = renumber(maker, len(maker.records) - 1, 3)
    mend_all(maker, at)
    assert look(maker).weight is Weight.NOTE
    assert recover(maker.store, SETTINGS).end <= maker.end


def test_two_wrong_numbers_of_one_queue_are_stepped_over_together(maker: StoreMaker) -> None:
    places = [renumber(maker, 100, 60), renumber(maker, 140, 2)]
    assert [refused.at for refused in plan_of(maker).refused] == [at % 65536 for at in places]
    mend_all(maker, *places)
    assert look(maker).weight is Weight.NOTE
    for topic, queue_id in QUEUES:
        assert numbers(maker, topic, queue_id) == of_queue(maker, {100, 140}, topic, queue_id)


def test_a_gap_behind_which_the_numbers_go_on_is_filled_with_holes_without_being_told(maker: StoreMaker) -> None:
    for number in range(100, len(maker.records), 4):
        renumber(maker, number, maker.records[number].queue_offset + 5)
    assert plan_of(maker).refused == []
    mend_all(maker)
    found = look(maker)
    assert (found.weight, rules(found)) == (Weight.NOTE, [])
    at = [stored.at for stored in maker.records[::4]]
    assert numbers(maker, "TopicA", 0) == [*at[:25], *[None] * 5, *at[25:]]


def test_a_sound_record_is_never_stepped_over(maker: StoreMaker) -> None:
    at = renumber(maker, NUMBER, 3)
    other = maker.records[NUMBER + 8].at
    plan = plan_of(maker, at, other)
    assert [step.at for step in plan.steps if step.action == "skip"] == [at % 65536]
    assert plan.notes == [f"no damage begins at {other}: there is nothing to step over"]


@pytest.mark.parametrize("place", [-4, -1, 0, 3], ids=lambda place: f"{place} from a border")
@pytest.mark.parametrize("more", [-20, -1, 1, 9])
def test_tasks_of_many_accuse_the_same_record(maker: StoreMaker, place: int, more: int) -> None:
    number = first_of(maker, 1) + place
    at = renumber(maker, number, maker.records[number].queue_offset + more)
    found = same(maker)
    accused = [gap.at for gap in found.gaps if not gap.fillable]
    assert accused == [at]
