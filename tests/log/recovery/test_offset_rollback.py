"""Offsets at the start of a master: they go back to where the recovered log ends, dispatched yet or not (H15)."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.log.stores import NOON, QUEUE_FILE, SEGMENT, SETTINGS, StoreMaker
from towline.format.files.consume_queue import ENTRY
from towline.log.files.config_file import ConfigFile
from towline.log.queues.consume_queue import ConsumeQueueFiles
from towline.log.recovery.offset_rollback import (
    LATE_MS,
    Clamped,
    Shorter,
    clamp_levels,
    clamp_offsets,
    clamp_to_recovered,
)
from towline.log.recovery.recovery import recover

COUNT = 300
SIZES = (SEGMENT, QUEUE_FILE)


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
    return clamp_to_recovered(maker.store, recovered, {}, SIZES)


def cut(maker: StoreMaker) -> Clamped:
    """Before the record in the middle goes, and all that follow it."""
    middle = maker.records[COUNT // 2]
    files = ConsumeQueueFiles(maker.store.consumequeue, QUEUE_FILE, 8)
    try:
        return clamp_offsets(maker.store, ends_of(maker), Shorter(middle.at, middle.timestamp), files)
    finally:
        files.close()


def test_what_reput_has_not_dispatched_again_still_counts(maker):
    table = {f"{topic}@g": {str(queue): end} for (topic, queue), end in ends_of(maker).items()}
    save(maker, "consumerOffset.json", offsetTable=table)
    before = (maker.store.config / "consumerOffset.json").stat().st_ino
    assert clamp(maker) == Clamped()
    assert (maker.store.config / "consumerOffset.json").stat().st_ino == before


@pytest.mark.parametrize("beyond", [1, 7])
def test_what_is_beyond_the_log_goes_back_to_its_end_in_both_generations(maker, beyond):
    (topic, queue), end = next(iter(ends_of(maker).items()))
    table = {f"{topic}@g": {str(queue): end + beyond}, "Gone@g": {"0": 3}}
    save(maker, "consumerOffset.json", offsetTable=table, dataVersion={"counter": 1})
    done = clamp(maker)
    assert done.counts == {"consumerOffset.json": 2}
    told = f"group g: its offset {end + beyond} of queue {queue} of {topic} is beyond the queue's end and becomes {end}"
    assert told in done.notes
    path = maker.store.config / "consumerOffset.json"
    for each in (ConfigFile(path), ConfigFile(path.with_name(path.name + ".bak"))):
        assert (each.load() or {})["offsetTable"] == {f"{topic}@g": {str(queue): end}, "Gone@g": {"0": 0}}


def test_a_log_that_is_cut_has_its_transactions_read_from_the_beginning(maker):
    save(maker, "transactionOffset.json", halfOffset=1, opOffset=2, towlineLogEnd=3)
    assert cut(maker).counts == {"transactionOffset.json": 3}
    assert load(maker, "transactionOffset.json") == {"halfOffset": 0, "opOffset": 0, "towlineLogEnd": 0}
    assert cut(maker) == Clamped()


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
    late = LATE_MS if said["towlineLogEnd"] else 0
    save(maker, "timerOffset.json", deliveredDue=NOON * 2, deliveredOffset=9, cancelsFrom=0, **said)
    assert "timerOffset.json" in clamp(maker).counts
    found = load(maker, "timerOffset.json")
    assert (found["upTo"], found["from"], found["cancelsFrom"]) == (0, 0, 0)
    assert found["deliveredDue"] == maker.records[-1].timestamp - late
    assert found["towlineLogEnd"] <= maker.end
    assert clamp_again(maker) == Clamped()


def test_what_was_delivered_before_a_clock_went_back_goes_back_too(maker):
    mark = {"deliveredDue": NOON * 2, "deliveredOffset": 9, "upTo": 3}
    save(maker, "timerOffset.json", deliveredDue=0, deliveredOffset=-1, upTo=0, earlier=[mark])
    assert clamp(maker).counts == {"timerOffset.json": 1}
    (found,) = load(maker, "timerOffset.json")["earlier"]
    assert found["upTo"] == 0
    assert found["deliveredDue"] == maker.records[-1].timestamp


def clamp_again(maker: StoreMaker) -> Clamped:
    return clamp_to_recovered(maker.store, recover(maker.store, SETTINGS), {}, SIZES)


class TestLevels:
    """Of a log that is cut, with entries of a level whose times stand in its queue."""

    @pytest.fixture
    def files(self, tmp_path):
        files = ConsumeQueueFiles(tmp_path / "consumequeue", QUEUE_FILE, 8)
        yield files
        files.close()

    @staticmethod
    def write(files, *times):
        codes = np.zeros(len(times), dtype=ENTRY)
        codes["physical_offset"], codes["record_size"], codes["tags_code"] = range(len(times)), 100, times
        files.write("SCHEDULE_TOPIC_XXXX", 2, 0, codes)

    @pytest.mark.parametrize(
        ("times", "left"),
        [
            ([NOON + place for place in range(50)], 41),
            ([NOON] * 50, 50),
            ([NOON + 100] * 50, 0),
            ([NOON + 90] * 10 + [NOON] * 6 + [NOON + 90] + [NOON] * 3, 0),
            ([NOON] * 47 + [-5, NOON, NOON], 47),
        ],
        ids=["rising", "all before", "all after", "its delay was changed", "the address of a unit"],
    )
    def test_what_is_due_behind_the_cut_waits_again(self, files, times, left):
        self.write(files, *times)
        content = {"offsetTable": {"3": len(times)}, "towlineLogEnd": 5000}
        log = Shorter(4000, NOON + 40 + LATE_MS)
        ends = {("SCHEDULE_TOPIC_XXXX", 2): len(times)}
        assert clamp_levels(content, ends, log, files)
        assert content == {"offsetTable": {"3": left}, "towlineLogEnd": 4000}
        assert clamp_levels(content, ends, log, files) == []

    def test_what_the_log_holds_stays(self, files):
        self.write(files, *[NOON + 100] * 50)
        content = {"offsetTable": {"3": 50}, "towlineLogEnd": 4000}
        assert clamp_levels(content, {("SCHEDULE_TOPIC_XXXX", 2): 50}, Shorter(4000, NOON), files) == []

    def test_what_is_to_be_derived_again_cannot_be_told(self, files):
        self.write(files, *[NOON] * 20)
        content = {"offsetTable": {"3": 25}, "towlineLogEnd": 5000}
        clamp_levels(content, {("SCHEDULE_TOPIC_XXXX", 2): 24}, Shorter(4000, NOON + LATE_MS), files)
        assert content["offsetTable"] == {"3": 20}
