"""Offsets at the start of a master: they go back to where the recovered log ends, dispatched yet or not (H15)."""

from pathlib import Path
from typing import Any

import pytest

from tests.log.stores import NOON, SEGMENT, SETTINGS, StoreMaker
from towline.log.clamping import Clamped, clamp_offsets, clamp_to_recovered
from towline.log.config_file import ConfigFile
from towline.log.recovery import recover

COUNT = 300


@pytest.fixture
def maker(tmp_path: Path) -> StoreMaker:
    """Killed by a power cut: queues are durable up to record 150, the log to its end."""
    maker = StoreMaker(tmp_path)
    maker.fill(COUNT)
    maker.dispatch(maker.end)
    maker.durable(maker.end, queues=maker.records[150].at)
    return maker


def ends_of(maker: StoreMaker) -> dict[tuple[str, int], int]:
    return {(each.topic, each.queue_id): each.queue_offset + 1 for each in maker.records}


def save(maker: StoreMaker, name: str, **content: Any) -> None:
    maker.store.config.mkdir(exist_ok=True)
    ConfigFile(maker.store.config / name).save(content)


def load(maker: StoreMaker, name: str) -> dict[str, Any]:
    return ConfigFile(maker.store.config / name).load() or {}


def clamp(maker: StoreMaker) -> Clamped:
    recovered = recover(maker.store, SETTINGS)
    assert recovered.dispatched < recovered.end == maker.end
    return clamp_to_recovered(maker.store, recovered, {}, SEGMENT)


def test_what_reput_has_not_dispatched_again_still_counts(maker):
    table = {f"{topic}@g": {str(queue): end} for (topic, queue), end in ends_of(maker).items()}
    save(maker, "consumerOffset.json", offsetTable=table)
    before = (maker.store.config / "consumerOffset.json").stat().st_ino
    assert clamp(maker) == Clamped()
    assert (maker.store.config / "consumerOffset.json").stat().st_ino == before


def test_what_is_beyond_the_log_goes_back_to_its_end_in_both_generations(maker):
    (topic, queue), end = next(iter(ends_of(maker).items()))
    table = {f"{topic}@g": {str(queue): end + 7}, "Gone@g": {"0": 3}}
    save(maker, "consumerOffset.json", offsetTable=table, dataVersion={"counter": 1})
    done = clamp(maker)
    assert done.counts == {"consumerOffset.json": 2}
    told = f"group g: its offset {end + 7} of queue {queue} of {topic} is beyond the queue's end and becomes {end}"
    assert told in done.notes
    path = maker.store.config / "consumerOffset.json"
    for each in (ConfigFile(path), ConfigFile(path.with_name(path.name + ".bak"))):
        assert (each.load() or {})["offsetTable"] == {f"{topic}@g": {str(queue): end}, "Gone@g": {"0": 0}}


def test_a_log_that_is_cut_has_its_transactions_read_from_the_beginning(maker):
    save(maker, "transactionOffset.json", halfOffset=1, opOffset=2, towlineLogEnd=3)
    assert clamp_offsets(maker.store, {}).counts == {"transactionOffset.json": 3}
    assert load(maker, "transactionOffset.json") == {"halfOffset": 0, "opOffset": 0, "towlineLogEnd": 0}
    assert clamp_offsets(maker.store, {}) == Clamped()


def test_where_the_newest_generation_is_damaged_the_one_before_is_compared(maker):
    (topic, queue), end = next(iter(ends_of(maker).items()))
    for more in (7, 8):
        save(maker, "consumerOffset.json", offsetTable={f"{topic}@g": {str(queue): end + more}})
    (maker.store.config / "consumerOffset.json").write_bytes(b'{"offsetTable":')
    done = clamp(maker)
    assert load(maker, "consumerOffset.json")["offsetTable"] == {f"{topic}@g": {str(queue): end}}
    assert any(
        note.endswith("consumerOffset.json.bak is used: consumerOffset.json cannot be read") for note in done.notes
    )


@pytest.mark.parametrize(
    "content", [b'{"offsetTable":', b'{"offsetTable":{"t@g":{"0":"far"}}}', b'{"offsetTable":[1]}']
)
def test_what_cannot_be_read_is_left_to_who_refuses_it(maker, content):
    save(maker, "delayOffset.json", offsetTable={"1": 5})
    path = maker.store.config / "consumerOffset.json"
    path.write_bytes(content)
    assert clamp(maker).counts == {"delayOffset.json": 1}
    assert path.read_bytes() == content
    assert load(maker, "delayOffset.json")["offsetTable"] == {"1": 0}


@pytest.mark.parametrize(
    "said", [{"upTo": 3, "from": 2, "towlineLogEnd": 0}, {"upTo": 0, "from": 0, "towlineLogEnd": 1 << 40}]
)
def test_messages_with_a_time_that_a_longer_log_delivered_are_looked_at_again(maker, said):
    save(maker, "timerOffset.json", deliveredDue=NOON * 2, deliveredOffset=9, cancelsFrom=0, **said)
    assert "timerOffset.json" in clamp(maker).counts
    found = load(maker, "timerOffset.json")
    assert (found["upTo"], found["from"], found["cancelsFrom"]) == (0, 0, 0)
    assert NOON <= found["deliveredDue"] < NOON * 2
    assert found["towlineLogEnd"] <= maker.end
    assert clamp_again(maker) == Clamped()


def test_what_was_delivered_before_a_clock_went_back_goes_back_too(maker):
    mark = {"deliveredDue": NOON * 2, "deliveredOffset": 9, "upTo": 3}
    save(maker, "timerOffset.json", deliveredDue=0, deliveredOffset=-1, upTo=0, earlier=[mark])
    assert clamp(maker).counts == {"timerOffset.json": 1}
    (found,) = load(maker, "timerOffset.json")["earlier"]
    assert found["upTo"] == 0
    assert NOON <= found["deliveredDue"] < NOON * 2


def clamp_again(maker: StoreMaker) -> Clamped:
    return clamp_to_recovered(maker.store, recover(maker.store, SETTINGS), {}, SEGMENT)
