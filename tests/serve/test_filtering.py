"""Pulls with an expression: what comes equals what a look at every message gives, whatever the limits."""

import tracemalloc

import numpy as np
import pytest

from towline.filter.bloom import Bloom, mark
from towline.filter.errors import BadExpression
from towline.filter.subscriptions import FilterData
from towline.format.files.consume_queue import ENTRY, encode
from towline.format.files.consume_queue_ext import encode_units
from towline.format.java_hash import string_hash
from towline.format.wire.frames import Pull, decode_pull, encode_pull
from towline.format.wire.refusals import error_facts
from towline.format.wire.status import GetStatus
from towline.limits import MIB
from towline.log.commitlog.commit_log import CommitLogReader
from towline.log.queues.consume_queue import ConsumeQueueFiles
from towline.log.queues.consume_queue_ext import ConsumeQueueExtFiles
from towline.node.store.pull_rules import pull_rules
from towline.runtime.queue_ends import QueueEnds
from towline.serve import filtering
from towline.serve import pull as pulls
from towline.serve.catch_up import CatchUp
from towline.serve.filtering import ExtensionUnits, Filters, PropertyFilterDisabled
from towline.serve.pull import Puller
from towline.serve.topics import TopicsView

from .building import NOON, Built, StillClock
from .conftest import Build

MANY = 1 << 20
EXT_FILE = 4096
BLOOM = Bloom()


class Reader:
    """A puller and its filters, as in the serve process."""

    def __init__(self, built: Built, data: FilterData | None = None, *, extension: bool = False) -> None:
        log = CommitLogReader(built.store.commitlog, built.segment)
        log.load()
        files = ConsumeQueueExtFiles(built.store.root / "consumequeue_ext", EXT_FILE, 16)
        found = ExtensionUnits(files) if extension else None
        self.filters = Filters(True, found, lambda _topic, _group: data)
        self.puller = Puller(
            ConsumeQueueFiles(built.store.consumequeue, built.settings.mapped_file_size_consume_queue, 16),
            log,
            QueueEnds.open(built.runtime.queue_ends),
            TopicsView(built.store.config / "topics.json"),
            built.positions.get,
            pull_rules(built.settings),
            CatchUp(built.positions.get, StillClock()).settled,
            found,
        )

    def read(self, expression: str, *, count: int = MANY, codes: tuple[int, ...] = ()) -> list[int]:
        """Log offsets of what comes, from the first message on, a pull after the other."""
        got: list[int] = []
        offset = 0
        while True:
            pull = Pull(1, b"t", 0, offset, count, MANY, 0, codes, expression, "g")
            found = self.puller.run(pull, self.filters.get(pull))
            assert (found.count > 0) == (found.status is GetStatus.FOUND)
            if found.status is GetStatus.OFFSET_OVERFLOW_ONE:
                return got
            data = bytes(found.records)
            for size in np.frombuffer(found.sizes, dtype=">u4").tolist():
                got.append(int.from_bytes(data[28:36], "big"))
                data = data[size:]
            assert not data
            assert found.next_offset > offset
            offset = found.next_offset


@pytest.fixture
def built(build: Build) -> Built:
    """Four segments, six files of a queue; keys stand for a property, every third message has none."""
    built = build()
    for number in range(45):
        keys = None if number % 3 == 0 else str(number)
        built.append("t", 0, b"y" * 5_000, keys=keys, tag="even" if number % 2 == 0 else "odd")
    built.dispatch()
    return built


def wanted(built: Built, passes) -> list[int]:
    return [at for number, at in enumerate(built.records) if passes(number)]


@pytest.mark.parametrize("count", [1, 3, MANY], ids=["one at a time", "three at a time", "without a limit"])
@pytest.mark.parametrize(
    ("expression", "passes"),
    [
        pytest.param("KEYS > 20", lambda number: number % 3 and number > 20, id="a comparison"),
        pytest.param("KEYS IS NULL", lambda number: number % 3 == 0, id="a missing property"),
        pytest.param("NOT (KEYS > 20)", lambda number: number % 3 and number <= 20, id="NULL stays NULL under NOT"),
        pytest.param("KEYS = 'none'", lambda _: False, id="nothing"),
        pytest.param("TRUE", lambda _: True, id="everything"),
    ],
)
def test_what_comes_is_what_a_look_at_every_message_gives(built, expression, passes, count):
    assert Reader(built).read(expression, count=count) == wanted(built, passes)


def test_tags_and_an_expression_hold_together(built):
    codes = (string_hash("even"),)
    expected = wanted(built, lambda number: number % 2 == 0 and number % 3 and number > 20)
    assert Reader(built).read("KEYS > 20", codes=codes) == expected


def evaluated_by_one_pull(reader: Reader, expression: str) -> int:
    """How many messages it has looked at, of which none matches."""
    pull = Pull(1, b"t", 0, 0, MANY, MANY, 0, (), expression, "g")
    found = reader.puller.run(pull, reader.filters.get(pull))
    assert found.status is GetStatus.NO_MATCHED_MESSAGE
    return found.next_offset


class TestWorkOfOnePull:
    """Everybody else waits for it, so it has an end; the next pull goes on there."""

    MANY_CONDITIONS = " OR ".join(["KEYS = 'none'"] * 3 * filtering.PLAIN_CONDITIONS)

    @pytest.fixture(autouse=True)
    def two_at_a_time(self, monkeypatch):
        monkeypatch.setattr(pulls, "EVALUATED", 2)

    @pytest.mark.parametrize(
        ("expression", "count"), [("KEYS = 'none'", 5), (MANY_CONDITIONS, 1)], ids=["a short one", "a long one"]
    )
    def test_an_expression_is_evaluated_less_often_the_longer_it_is(self, built, monkeypatch, expression, count):
        monkeypatch.setattr(filtering, "EVALUATED_MAX", 5)
        reader = Reader(built)
        assert evaluated_by_one_pull(reader, expression) == count
        longer = expression.replace("KEYS = 'none'", "KEYS > 20")
        assert reader.read(longer) == wanted(built, lambda number: number % 3 and number > 20)

    def test_large_properties_count_for_more(self, build, monkeypatch):
        built = build()
        for number in range(6):
            built.append("t", 0, keys=str(number), tag="x" * 3 * filtering.PLAIN_SIZE)
        built.dispatch()
        monkeypatch.setattr(filtering, "EVALUATED_MAX", 7)
        assert evaluated_by_one_pull(Reader(built), "KEYS = 'none'") == 2
        monkeypatch.setattr(filtering, "EVALUATED_MAX", 2)
        assert evaluated_by_one_pull(Reader(built), "KEYS = 'none'") == 1
        assert Reader(built).read("KEYS > 3") == wanted(built, lambda number: number > 3)

    def test_the_log_is_read_up_to_so_many_bytes(self, built, monkeypatch):
        monkeypatch.setattr(pulls, "READ_MAX", 15_500)  # three records
        reader = Reader(built)
        assert evaluated_by_one_pull(reader, "KEYS = 'none'") == 3
        monkeypatch.setattr(pulls, "READ_MAX", 1)
        assert evaluated_by_one_pull(reader, "KEYS = 'none'") == 1
        assert reader.read("KEYS > 20") == wanted(built, lambda number: number % 3 and number > 20)

    def test_large_bodies_are_not_copied_for_their_properties(self, build, monkeypatch):
        built = build(segment=16 * MIB)
        body = b"y" * MIB
        for number in range(7):
            built.append("t", 0, body, keys=str(number))
        built.dispatch()
        monkeypatch.setattr(pulls, "EVALUATED", 1_024)
        reader = Reader(built)
        assert evaluated_by_one_pull(reader, "KEYS = 'first of all'") == 7  # and what is made once is made
        tracemalloc.start()
        try:
            assert evaluated_by_one_pull(reader, "KEYS = 'none'") == 7
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert peak < len(body)


def test_what_comes_behind_a_stretch_without_any_is_found_in_the_same_pull(built, monkeypatch):
    monkeypatch.setattr(pulls, "EVALUATED", 2)
    reader = Reader(built)
    pull = Pull(1, b"t", 0, 16, MANY, MANY, 0, (), "KEYS > 18", "g")
    found = reader.puller.run(pull, reader.filters.get(pull))
    assert (found.status, found.count, found.next_offset) == (GetStatus.FOUND, 4, 24)  # 19, 20, 22 and 23


def test_records_that_left_the_log_are_told(built):
    places = list(built.records)
    built.forget_before(built.segment)
    reader = Reader(built)
    pull = Pull(1, b"t", 0, 0, MANY, MANY, 0, (), "TRUE", "g")
    found = reader.puller.run(pull, reader.filters.get(pull))
    following = next(number for number, at in enumerate(places) if at >= built.segment)
    assert found.status is GetStatus.MESSAGE_WAS_REMOVING
    assert 0 < found.next_offset <= following


def test_an_expression_that_is_none_is_named_with_its_position():
    pull = Pull(1, b"t", 0, 0, 1, 1, 0, (), "a > ", "g")
    with pytest.raises(BadExpression) as raised:
        Filters(True, None, lambda _topic, _group: None).get(pull)
    facts = error_facts(raised.value)
    assert facts["error"] == "BadExpression"
    assert facts["position"] == raised.value.position > 0


def test_without_the_setting_no_expression_is_taken():
    with pytest.raises(PropertyFilterDisabled, match="enable_property_filter"):
        Filters(False, None, lambda _topic, _group: None).get(Pull(1, b"t", 0, 0, 1, 1, 0, (), "a > 3"))


def test_a_pull_s_expression_survives_the_wire():
    pull = Pull(9, b"t", 1, 2, 3, 4, 5, (7,), "a > 'ä'", "g")
    assert decode_pull(encode_pull(pull)) == pull


class TestBitmaps:
    """Bits as reput sets them, and wrong ones, which show who was asked."""

    BORN = NOON + 20

    def subscribed(self, expression: str, born: int = BORN) -> FilterData:
        positions = BLOOM.positions("g", "t")
        return FilterData(
            consumer_group="g",
            topic="t",
            expression=expression,
            bit_positions=positions,
            bit_count=BLOOM.m,
            born_time=born,
        )

    def extend(self, built: Built, hits: list[bool]) -> None:
        """Units with these bits for every message of the queue, and their addresses in its entries."""
        rows = BLOOM.rows(len(hits))
        mark(rows, np.array(hits), BLOOM.positions("g", "t"))
        codes = np.array([string_hash("odd" if number % 2 else "even") for number in range(len(hits))])
        units = encode_units(codes, NOON + np.arange(len(hits)), rows)
        files = ConsumeQueueExtFiles(built.store.root / "consumequeue_ext", EXT_FILE, 16)
        addresses, _ = files.write("t", 0, 0, units)
        for number, (at, data) in enumerate(built.records.items()):
            entry = encode(at, len(data), int(addresses[number]))
            built.queues.write("t", 0, number, np.frombuffer(entry, dtype=ENTRY))

    def test_what_is_skipped_is_not_looked_at_and_all_else_is(self, built):
        self.extend(built, [False] * 45)  # wrong: some do match
        reader = Reader(built, self.subscribed("KEYS > 0"), extension=True)
        expected = wanted(built, lambda number: number % 3 and number <= 20)  # stored before the subscription was born
        assert reader.read("KEYS > 0") == expected

    def test_few_that_are_possible_are_evaluated_together(self, built, monkeypatch):
        monkeypatch.setattr(pulls, "EVALUATED", 2)
        self.extend(built, [number % 8 == 7 for number in range(45)])
        reader = Reader(built, self.subscribed("TRUE", born=0), extension=True)
        calls: list[int] = []
        pull = Pull(1, b"t", 0, 0, MANY, MANY, 0, (), "TRUE", "g")
        record_filter = reader.filters.get(pull)
        keep = record_filter.keep
        monkeypatch.setattr(
            record_filter, "keep", lambda log, starts, sizes: calls.append(len(starts)) or keep(log, starts, sizes)
        )
        assert reader.puller.run(pull, record_filter).next_offset == 8  # a file of the queue
        assert calls == [1]
        assert reader.read("TRUE") == wanted(built, lambda number: number % 8 == 7)

    def test_an_entry_that_points_to_no_unit_is_evaluated(self, built):
        self.extend(built, [False] * 45)
        for number in (2, 40):
            at, data = list(built.records.items())[number]
            entry = encode(at, len(data), string_hash("even"))
            built.queues.write("t", 0, number, np.frombuffer(entry, dtype=ENTRY))
        reader = Reader(built, self.subscribed("TRUE", born=0), extension=True)
        assert reader.read("TRUE") == wanted(built, lambda number: number in (2, 40))

    def test_a_bit_that_is_set_decides_nothing(self, built):
        self.extend(built, [True] * 45)
        reader = Reader(built, self.subscribed("KEYS > 30", born=0), extension=True)
        assert reader.read("KEYS > 30") == wanted(built, lambda number: number % 3 and number > 30)

    @pytest.mark.parametrize("changed", ["another expression", "pending", "another group"])
    def test_bits_of_anything_else_than_this_subscription_are_not_asked(self, built, changed):
        self.extend(built, [False] * 45)
        data: FilterData | None = self.subscribed("KEYS > 30", born=0)
        if changed == "another expression":
            data = self.subscribed("KEYS > 31", born=0)
        elif changed == "pending":
            data = self.subscribed("KEYS > 30", born=2**63 - 1)
        else:
            data = None
        reader = Reader(built, data, extension=True)
        assert reader.read("KEYS > 30") == wanted(built, lambda number: number % 3 and number > 30)

    def test_tags_are_found_in_the_units(self, built):
        self.extend(built, [True] * 45)
        reader = Reader(built, extension=True)
        expected = wanted(built, lambda number: number % 2 == 0)
        assert reader.read("TRUE", codes=(string_hash("even"),)) == expected
        pull = Pull(1, b"t", 0, 0, MANY, MANY, 0, (string_hash("even"),))
        assert reader.puller.run(pull).count == 4  # a file of the queue holds eight
