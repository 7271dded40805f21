"""The verify job: known answers for stores with known faults, and two logs compared byte by byte."""

import dataclasses
import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.log.sound import copy_of
from tests.log.stores import QUEUE_FILE, SEGMENT, StoreMaker
from towline.format.files.durable import Durable
from towline.format.record import record
from towline.log.files.segment_files import segment_name
from towline.log.state.durable_file import DurableFile
from towline.pipeline import comparing
from towline.pipeline.job import Result
from towline.pipeline.verify import VerifyOptions, check, result_of

from .logs import PlainTasks
from .stores import sound_node


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> StoreMaker:
    return sound_node(tmp_path_factory.mktemp("sound") / "store")


@pytest.fixture
def maker(original: StoreMaker, tmp_path: Path) -> StoreMaker:
    return copy_of(original, tmp_path / "store")


@pytest.fixture
def other(original: StoreMaker, tmp_path: Path) -> StoreMaker:
    return copy_of(original, tmp_path / "other")


def run(maker: StoreMaker, against: StoreMaker | None = None) -> Result:
    options = VerifyOptions(store=str(maker.root), against=None if against is None else str(against.root))
    return result_of(check(options, PlainTasks()))


def told(result: Result) -> list[tuple[str, int, str]]:
    """File, byte and rule of each finding that is more than a note."""
    rows: list[dict[str, Any]] = result.summary["findings"]
    return sorted((row["file"], row["byte"], row["rule"]) for row in rows if row["weight"] != "note")


class TestOneStore:
    def test_that_is_sound(self, maker: StoreMaker) -> None:
        result = run(maker)
        assert [row[:2] for row in result.rows] == [(base * SEGMENT, "sound") for base in range(3)]
        assert sum(row[2] for row in result.rows) == len(maker.records)
        assert [row[4:] for row in result.rows] == [(0, "")] * 3
        assert (result.status, result.plots) == (0, [])
        assert result.sentence == "300 records: the store is sound"

    def test_with_a_flipped_byte_in_each_of_log_queue_and_index(self, maker: StoreMaker) -> None:
        stored = maker.records[150]
        maker.write(stored.at + 300, b"\xff")
        queue = maker.store.consumequeue / "TopicB" / "1" / segment_name(0)
        index = min(maker.store.index.iterdir())
        for path, at in ((queue, 3 * 20 + 7), (index, 40 + 4 * 64 + 20 * 5)):
            data = bytearray(path.read_bytes())
            data[at] ^= 0xFF
            path.write_bytes(data)
        result = run(maker)
        found = told(result)
        assert (f"commitlog/{segment_name(SEGMENT)}", stored.at - SEGMENT, "BODY_CRC") in found
        assert (f"consumequeue/TopicB/1/{segment_name(0)}", 60, "QUEUE_ENTRY") in found
        assert (f"index/{index.name}", 40 + 4 * 64 + 20 * 5, "INDEX_ENTRY") in found
        assert [row[1] for row in result.rows] == ["sound", "damaged", "sound"]
        assert result.rows[1][4] == 1
        assert result.status == 2
        assert "BODY_CRC" in result.sentence

    @pytest.mark.parametrize(("more", "rule"), [(3, "QUEUE_GAP"), (-3, "QUEUE_TWICE")])
    def test_with_a_number_that_does_not_go_on(self, maker: StoreMaker, more: int, rule: str) -> None:
        stored = maker.records[299]
        made = dataclasses.replace(record.decode(stored.data), queue_offset=stored.queue_offset + more)
        maker.write(stored.at, record.encode(made))
        assert (f"commitlog/{segment_name(2 * SEGMENT)}", stored.at - 2 * SEGMENT, rule) in told(run(maker))

    def test_without_a_segment(self, maker: StoreMaker) -> None:
        maker.path(SEGMENT).unlink()
        result = run(maker)
        assert [row[1] for row in result.rows] == ["sound", "missing", "sound"]
        assert (f"commitlog/{segment_name(SEGMENT)}", 0, "MISSING") in told(result)

    def test_names_the_rules_in_its_plot(self, maker: StoreMaker) -> None:
        shutil.rmtree(maker.store.consumequeue / "TopicA" / "0")
        (plot,) = run(maker).plots
        files = -(-75 * 20 // QUEUE_FILE)
        assert dict(zip(plot.x, plot.series["findings"], strict=True)) == {"QUEUE_MISSING": files}


class TestTwoStores:
    def test_with_the_same_log(self, maker: StoreMaker, other: StoreMaker) -> None:
        result = run(maker, other)
        assert [row[5] for row in result.rows] == ["same"] * 3
        assert result.summary["compared"] == {"start": 0, "end": maker.end, "same": True}
        assert result.status == 0

    @pytest.mark.parametrize("at", [0, SEGMENT - 1, SEGMENT, SEGMENT + 5000, 2 * SEGMENT - 1])
    def test_that_differ_in_one_byte(
        self, maker: StoreMaker, other: StoreMaker, monkeypatch: pytest.MonkeyPatch, at: int
    ) -> None:
        monkeypatch.setattr(comparing, "SPLIT_BYTES", SEGMENT // 2)
        path = other.path(at)
        data = bytearray(path.read_bytes())
        data[at % SEGMENT] ^= 1
        path.write_bytes(data)
        result = run(maker, other)
        base = at - at % SEGMENT
        assert told(result) == [(f"commitlog/{segment_name(base)}", at - base, "LOG_DIFFERS")]
        assert [row[5] for row in result.rows] == ["differs" if row[0] == base else "same" for row in result.rows]
        assert (result.status, result.summary["compared"]["same"]) == (2, False)
        assert str(other.root) in result.sentence

    def test_of_which_one_begins_later_and_the_other_ends_earlier(self, maker: StoreMaker, other: StoreMaker) -> None:
        maker.path(0).unlink()
        state = Durable(flushed=maker.end, segment_base=2 * SEGMENT, queues_durable=maker.end, log_min=SEGMENT)
        DurableFile(maker.root).save(state)
        shorter = next(stored.at for stored in other.records if stored.at > SEGMENT + 5000)
        DurableFile(other.root).save(Durable(flushed=shorter, segment_base=SEGMENT, log_min=0))
        (other.root / "checkpoint").unlink()
        compared = run(maker, other).summary["compared"]
        assert compared == {"start": SEGMENT, "end": shorter, "same": True}

    def test_with_segments_of_two_sizes(self, maker: StoreMaker, other: StoreMaker) -> None:
        whole = other.log_bytes().ljust(4 * SEGMENT, b"\0")
        for path in other.store.commitlog.iterdir():
            path.unlink()
        for base in (0, 2 * SEGMENT):
            (other.store.commitlog / segment_name(base)).write_bytes(whole[base : base + 2 * SEGMENT])
        result = run(maker, other)
        assert result.summary["compared"] == {"start": 0, "end": maker.end, "same": True}
