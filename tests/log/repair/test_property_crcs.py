"""Records that end with the property CRC of another one: an operator who insists loses them, nobody else does."""

from dataclasses import replace
from pathlib import Path

import pytest

from tests.log.sound import look, rules
from tests.log.stores import SEGMENT, SETTINGS, StoreMaker
from towline.errors import CorruptLog
from towline.log.recovery.recovery import recover
from towline.log.repair.repair import Repair
from towline.log.repair.repair_plan import make_plan
from towline.log.repair.verify_report import Weight

COUNT = 300
INSISTS = replace(SETTINGS, force_property_crc=True)


@pytest.fixture
def maker(tmp_path: Path) -> StoreMaker:
    """A store killed by a power cut. Record 140 is below the durable offset, 160 behind it."""
    maker = StoreMaker(tmp_path, with_crc=True)
    maker.fill(COUNT)
    for number in (140, 160):
        maker.copy_crc(maker.records[0], maker.records[number])
    maker.dispatch(maker.end)
    maker.durable(maker.records[150].at, queues=maker.records[150].at)
    return maker


def test_a_start_keeps_the_whole_log(maker: StoreMaker) -> None:
    before = maker.log_bytes()
    recovered = maker.recover()
    assert (recovered.end, recovered.cut_bytes) == (maker.end, 0)
    assert maker.kept() == {}
    assert maker.log_bytes() == before


def test_a_start_that_insists_refuses_the_durable_one_and_ends_the_log_at_the_other(maker: StoreMaker) -> None:
    with pytest.raises(CorruptLog, match="PROPERTY_CRC") as refusal:
        recover(maker.store, INSISTS)
    assert refusal.value.at == maker.records[140].at % SEGMENT
    maker.write(maker.records[140].at, maker.records[140].data)
    assert recover(maker.store, INSISTS).end == maker.records[160].at
    assert min(maker.kept()) == maker.records[160].at


def test_verify_notes_both_and_repair_has_nothing_to_cut(maker: StoreMaker) -> None:
    found = look(maker)
    told = [(row.at, row.weight) for row in found.findings.of("PROPERTY_CRC_FOREIGN")]
    assert told == [(maker.records[number].at % SEGMENT, Weight.NOTE) for number in (140, 160)]
    assert (found.log.end, found.log.records, found.log.damages) == (maker.end, COUNT, [])
    at = maker.records[140].at
    assert make_plan(maker.store, SETTINGS, [at]).notes == [f"no damage begins at {at}: there is nothing to step over"]


def test_verify_that_insists_calls_the_durable_one_damage_which_repair_steps_over(maker: StoreMaker) -> None:
    maker.durable(maker.end, queues=maker.end)
    assert [row.at for row in look(maker, INSISTS).findings.of("PROPERTY_CRC")] == [
        maker.records[number].at % SEGMENT for number in (140, 160)
    ]
    starts = [maker.records[number].at for number in (140, 160)]
    Repair(maker.store, INSISTS, make_plan(maker.store, INSISTS, starts)).run()
    found = look(maker, INSISTS)
    assert (found.log.damages, found.log.end) == ([], maker.end)
    assert "PROPERTY_CRC" not in rules(found)
    assert found.findings.of("PROPERTY_CRC_FOREIGN") == []
