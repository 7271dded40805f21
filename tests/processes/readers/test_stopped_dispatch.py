"""A record that is damaged under a running node: reput stops before it, status says where, puts are refused."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.processes.damage.test_verify_repair import read, towline
from tests.processes.nodes import SEGMENT, TestNode, ending
from tests.processes.stopping import stopped
from tests.processes.waiting import await_
from towline.client.errors import PutRefused
from towline.client.message import Message
from towline.client.producer import Producer
from towline.errors import CorruptLog
from towline.format.record.record import LAYOUT, SIZE_MIN
from towline.node.report.status import read_status
from towline.runtime.positions import Position

TOPIC = "stopped"  # one bit of the o makes it a slash
FIRST = 40  # messages that are dispatched before anything is damaged
MORE = 20  # that are put while reput stands still
BAD = 7  # of those
QUEUE_OFFSET = LAYOUT.offset["queue_offset"]


@pytest.fixture
def node(tmp_path: Path) -> Iterator[TestNode]:
    made = TestNode("master", tmp_path / "store", ha_listen_port=0)
    with ending(made):
        yield made


class Record:
    """Bytes of a segment's file, from where a record stands on."""

    def __init__(self, node: TestNode, at: int) -> None:
        self.path = node.store.commitlog / f"{at - at % SEGMENT:020d}"
        self.byte = at % SEGMENT

    def read(self, at: int, size: int) -> int:
        with self.path.open("rb") as file:
            file.seek(self.byte + at)
            return int.from_bytes(file.read(size), "big")

    def flip(self, at: int, size: int, bits: int) -> None:
        value = self.read(at, size) ^ bits
        with self.path.open("r+b") as file:
            file.seek(self.byte + at)
            file.write(value.to_bytes(size, "big"))


def the_length_word(record: Record) -> None:
    record.flip(0, 4, 0x7FFF_FFFF)
    assert record.read(0, 4) > SIZE_MIN


def the_magic(record: Record) -> None:
    record.flip(LAYOUT.offset["magic"], 4, 1)


def the_topic(record: Record) -> None:
    data = record.path.read_bytes()
    at = data.index(TOPIC.encode(), record.byte) - record.byte
    record.flip(at + TOPIC.index("o"), 1, ord("o") ^ ord("/"))


def the_number_downwards(record: Record) -> None:
    number = record.read(QUEUE_OFFSET, 8)
    assert number > 0
    record.flip(QUEUE_OFFSET, 8, 1 << number.bit_length() - 1)


def the_number_upwards(record: Record) -> None:
    number = record.read(QUEUE_OFFSET, 8)
    record.flip(QUEUE_OFFSET, 8, 1 << number.bit_length())


def put(node: TestNode, first: int, count: int) -> dict[int, int]:
    """Log offsets of messages with numbers from `first` on."""
    numbers = range(first, first + count)
    with Producer(node.endpoint) as producer:
        results = producer.send_batch(Message(TOPIC, b"%06d" % number * 100) for number in numbers)
    assert all(result.acknowledged for result in results)
    return {number: result.physical_offset for number, result in zip(numbers, results, strict=True)}


def put_dispatched(node: TestNode, first: int, count: int) -> None:
    put(node, first, count)
    await_(lambda: node.at(Position.DISPATCHED) == node.at(Position.APPENDED), 60.0, "everything is dispatched")


def damage_behind(node: TestNode, first: int, damage: Callable[[Record], None]) -> tuple[int, dict[int, int]]:
    """A record that reput has not seen is damaged; its offset, and those of all that were put beside it."""
    with stopped(node.pids()["reput"]):
        places = put(node, first, MORE)
        at = sorted(places.values())[BAD]
        damage(Record(node, at))
    await_(lambda: node.at(Position.DISPATCH_STOPPED) > 0, 60.0, "dispatching stops")
    assert node.at(Position.DISPATCHED) == at
    return at, places


def check_refused(node: TestNode, at: int, rule: str) -> None:
    """Status names the record, its rule and what to do; puts are refused."""
    told = read_status(node.store.root)["dispatch_stopped"]
    assert told["offset"] == at
    assert (told["segment"], told["byte"]) == (str(Record(node, at).path), at % SEGMENT)
    assert told["rule"] == rule
    assert ("--skip" in told["remedy"]) is (rule != "QUEUE_GAP")
    with Producer(node.endpoint) as producer, pytest.raises(PutRefused, match="dispatch"):
        producer.send(Message(TOPIC, b"refused"))


def repair(node: TestNode, at: int) -> None:
    status, done = towline("store", "repair", "--store", node.store.root, "--yes", "--skip", at)
    assert status == 0, done


def test_a_flipped_length_word_stops_dispatching_and_puts_until_the_store_is_repaired(node: TestNode) -> None:
    node.start()
    put_dispatched(node, 0, FIRST)
    at, places = damage_behind(node, FIRST, the_length_word)
    check_refused(node, at, "SIZE_PAST_END")
    shown = towline("master", "status", "--store", node.store.root)[1]
    stopped, told = shown["dispatch_stopped"], read_status(node.store.root)["dispatch_stopped"]
    assert f"--yes --skip {at} --store {node.store.root}`" in stopped["remedy"], "it can be typed"
    assert {**stopped, "remedy": ""} == {**told, "remedy": ""}
    assert "LOGIC_QUEUE_ERROR" in shown["flags"]
    before = set(range(FIRST)) | {number for number, place in places.items() if place < at}
    assert read(node, len(before), TOPIC) == before, "what was dispatched before is still read"
    assert not node.stop()
    with pytest.raises(CorruptLog, match="towline store repair"):
        node.start()
    status, planned = towline("store", "repair", "--store", node.store.root)
    assert (status, f"--yes --skip {at}" in str(planned)) == (2, True), planned
    repair(node, at)
    node.start()
    put_dispatched(node, FIRST + MORE, FIRST)
    everything = set(range(FIRST + MORE + FIRST)) - {number for number, place in places.items() if place == at}
    assert read(node, len(everything), TOPIC) == everything
    assert read_status(node.store.root)["dispatch_stopped"] is None
    assert node.stop()


@pytest.mark.slow
def test_so_do_other_flipped_bits_one_after_the_other_on_one_node(node: TestNode) -> None:
    damages = {
        the_topic: "TOPIC_FORM",
        the_number_downwards: "QUEUE_TWICE",
        the_magic: "MAGIC",
        the_number_upwards: "QUEUE_GAP",
    }
    node.start()
    put_dispatched(node, 0, FIRST)
    there = set(range(FIRST))
    for damage, rule in damages.items():
        first = max(there) + 1
        at, places = damage_behind(node, first, damage)
        check_refused(node, at, rule)
        before = there | {number for number, place in places.items() if place < at}
        assert read(node, len(before), TOPIC) == before
        assert not node.stop()
        repair(node, at)
        node.start()
        put_dispatched(node, first + MORE, 1)
        there |= {first + MORE} | {number for number, place in places.items() if place != at}
        assert read(node, len(there), TOPIC) == there
        assert read_status(node.store.root)["dispatch_stopped"] is None
    assert node.stop()
    status, found = towline("store", "verify", "--store", node.store.root)
    assert (status, [row["rule"] for row in found["findings"]]) == (0, ["SKIPPED"] * len(damages))
