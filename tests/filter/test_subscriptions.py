"""Subscriptions by expression, and the file that keeps them."""

import json
import random

import pytest

from towline.errors import MalformedFile
from towline.filter import sql
from towline.filter.bloom import Bloom
from towline.filter.errors import BadExpression
from towline.filter.grammar import parse
from towline.filter.subscriptions import DEAD_KEPT_MS, PENDING, SILENT_MS, FilterTable, loads, read, without_births
from towline.format.files.topics import loads_fastjson

NOW = 1_700_000_000_000
BLOOM = Bloom()


@pytest.fixture
def table():
    """Group g1 reads TopicA and TopicB since NOW."""
    table = FilterTable(BLOOM)
    assert table.register("g1", "TopicA", "a > 5", now=NOW)
    assert table.register("g1", "TopicB", "b IS NULL", now=NOW)
    table.confirm(table.fingerprint, NOW)
    return table


def saved_and_read(table, bloom=BLOOM):
    return loads(json.dumps(table.content()), bloom, "consumerFilter.json")


class TestBirth:
    def test_no_bitmap_speaks_for_a_subscription_that_reput_has_not_confirmed(self):
        table = FilterTable(BLOOM)
        table.register("g1", "TopicA", "a > 5", now=NOW)
        entry = table.get("TopicA", "g1")
        assert entry.is_pending
        assert entry.born_time == PENDING

    def test_bitmaps_speak_for_records_stored_after_the_birth(self, table):
        entry = table.get("TopicA", "g1")
        assert entry.born_time == NOW

    def test_only_the_fingerprint_of_this_very_table_confirms(self, table):
        before = table.fingerprint
        table.register("g2", "TopicA", "a > 6", now=NOW)
        assert table.confirm(before, NOW + 5) == []
        assert table.get("TopicA", "g2").is_pending
        (born,) = table.confirm(table.fingerprint, NOW + 5)
        assert (born.consumer_group, born.born_time) == ("g2", NOW + 5)
        assert table.get("TopicA", "g1").born_time == NOW

    def test_a_changed_expression_is_born_anew(self, table):
        assert table.register("g1", "TopicA", "a > 6", now=NOW + 9)
        assert table.get("TopicA", "g1").is_pending
        assert table.get("TopicB", "g1").born_time == NOW

    def test_an_expression_that_comes_back_is_not_the_one_that_was_confirmed(self, table):
        before = table.fingerprint
        table.register("g1", "TopicA", "a > 6", now=NOW)
        table.register("g1", "TopicA", "a > 5", now=NOW)
        assert table.confirm(before, NOW) == []
        assert table.get("TopicA", "g1").is_pending

    def test_a_heartbeat_changes_no_birth_and_needs_no_new_confirmation(self, table):
        before = table.fingerprint
        assert not table.register("g1", "TopicA", "a > 5", now=NOW + 10_000)
        entry = table.get("TopicA", "g1")
        assert (entry.born_time, entry.client_version) == (NOW, NOW + 10_000)
        assert table.fingerprint == before

    def test_reput_has_the_same_fingerprint_from_the_file(self, table):
        table.register("g2", "TopicA", "a > 6", now=NOW)
        assert saved_and_read(table).fingerprint == table.fingerprint
        assert 0 <= table.fingerprint < 2**63


class TestRegistering:
    def test_what_does_not_compile_is_refused_and_changes_nothing(self, table):
        before = list(table)
        with pytest.raises(BadExpression):
            table.register("g1", "TopicA", "a >", now=NOW)
        assert list(table) == before

    def test_what_a_client_said_before_its_latest_word_is_ignored(self, table):
        assert table.register("g1", "TopicA", "a > 7", now=NOW, client_version=NOW + 2)
        assert not table.register("g1", "TopicA", "a > 6", now=NOW + 3, client_version=NOW + 1)
        assert table.get("TopicA", "g1").expression == "a > 7"

    def test_a_clock_that_went_back_holds_nobody_up(self, table):
        assert table.register("g1", "TopicA", "a > 6", now=NOW - 3_600_000)
        assert table.get("TopicA", "g1").expression == "a > 6"

    def test_a_topic_knows_its_subscriptions_by_group(self, table):
        table.register("a-group", "TopicA", "TRUE", now=NOW)
        assert [each.consumer_group for each in table.of_topic("TopicA")] == ["a-group", "g1"]
        assert table.of_topic("TopicC") == []


class TestBitmaps:
    def test_no_expression_is_compiled_twice_however_many_there_are(self, monkeypatch):
        table = FilterTable(BLOOM)
        for number in range(600):
            table.register(f"g{number}", f"Topic{number % 2}", f"a > {number}", now=NOW)
        encoded = [b"a\x01300\x02"]
        found = table.bitmaps("Topic0", encoded)
        compiled = []
        monkeypatch.setattr(sql, "parse", lambda text: compiled.append(text) or parse(text))
        assert table.bitmaps("Topic0", encoded).tolist() == found.tolist()
        read_again = saved_and_read(table)
        assert read_again.bitmaps("Topic0", encoded).tolist() == found.tolist()
        assert table.bitmaps("Topic2", encoded) is None
        assert compiled == []


class TestDeath:
    def test_a_topic_that_is_no_longer_subscribed_to_is_dead_but_evaluated_on(self, table):
        before = table.fingerprint
        assert table.retire("g1", now=NOW + 1, still=["TopicB"])
        assert table.get("TopicA", "g1").is_dead
        assert not table.get("TopicB", "g1").is_dead
        assert [each.is_dead for each in table.of_topic("TopicA")] == [True]
        assert table.fingerprint == before
        assert not table.retire("g1", now=NOW + 2, still=["TopicB"])
        assert table.get("TopicA", "g1").dead_time == NOW + 1

    def test_who_comes_back_within_a_day_keeps_the_birth(self, table):
        table.retire("g1", now=NOW + 1)
        assert not table.clean(NOW + DEAD_KEPT_MS)
        assert table.register("g1", "TopicA", "a > 5", now=NOW + DEAD_KEPT_MS)
        entry = table.get("TopicA", "g1")
        assert (entry.is_dead, entry.born_time) == (False, NOW)

    def test_who_stays_away_for_a_day_is_forgotten(self, table):
        table.retire("g1", now=NOW + 1)
        table.register("g1", "TopicB", "b IS NULL", now=NOW + 2)
        assert table.clean(NOW + 1 + DEAD_KEPT_MS)
        assert table.get("TopicA", "g1") is None
        assert table.get("TopicB", "g1") is not None

    def test_a_clock_that_went_back_does_not_make_the_dead_alive(self, table):
        table.retire("g1", now=NOW - 3_600_000)
        assert table.get("TopicA", "g1").is_dead

    def test_the_pending_die_and_are_forgotten_too(self, table):
        table.register("g2", "TopicA", "TRUE", now=NOW)
        assert table.retire("g2", now=NOW + 1)
        assert table.get("TopicA", "g2").is_dead
        assert table.clean(NOW + 1 + DEAD_KEPT_MS)
        assert table.get("TopicA", "g2") is None

    def test_after_a_restart_everybody_is_gone_until_heard_of(self, table):
        table.retire("g1", now=NOW + 1, still=["TopicB"])
        table.register("g2", "TopicA", "TRUE", now=NOW)
        later = NOW + 3_600_000
        fresh = saved_and_read(table)
        fresh.restart(later)
        assert fresh.get("TopicA", "g1").dead_time == NOW + 1
        assert fresh.get("TopicB", "g1").dead_time == later - SILENT_MS
        assert fresh.get("TopicA", "g2") is None
        fresh.register("g1", "TopicB", "b IS NULL", now=later)
        assert (fresh.get("TopicB", "g1").is_dead, fresh.get("TopicB", "g1").born_time) == (False, NOW)


class TestFile:
    def test_it_reads_back_as_it_was_written(self, table):
        table.register("g2", "中文", "a = '\"'", now=NOW)
        table.retire("g1", now=NOW + 1, still=["TopicB"])
        again = saved_and_read(table)
        assert list(again) == list(table)
        assert again.content() == table.content()

    def test_another_shape_of_bitmaps_makes_all_of_it_void(self, table):
        assert list(saved_and_read(table, Bloom(64, 20))) == []
        assert list(saved_and_read(table, Bloom(32, 10))) == []

    def test_one_entry_without_bits_makes_all_of_it_void(self, table):
        content = table.content()
        del content["filterDataByTopic"]["TopicA"]["groupFilterData"]["g1"]["bloomFilterData"]
        assert list(read(content, BLOOM, "f")) == []

    @pytest.mark.parametrize(("member", "value"), [("expression", "a LIKE 'x'"), ("expressionType", "GROOVY")])
    def test_what_cannot_be_evaluated_here_is_left_out(self, table, member, value):
        content = table.content()
        content["filterDataByTopic"]["TopicA"]["groupFilterData"]["g1"][member] = value
        assert [each.topic for each in read(content, BLOOM, "f")] == ["TopicB"]

    def test_an_entry_without_a_birth_is_not_trusted(self, table):
        content = table.content()
        del content["filterDataByTopic"]["TopicA"]["groupFilterData"]["g1"]["bornTime"]
        assert read(content, BLOOM, "f").get("TopicA", "g1").is_pending

    @pytest.mark.parametrize(
        "text",
        [
            '{"filterDataByTopic":7}',
            '{"filterDataByTopic":{"T":7}}',
            '{"filterDataByTopic":{"T":{"groupFilterData":{"g":{}}}}}',
            '{"towlineGeneration":"x"}',
        ],
    )
    def test_what_is_no_table_is_refused_with_the_path(self, text):
        with pytest.raises(MalformedFile, match=r"consumerFilter\.json"):
            loads(text, BLOOM, "consumerFilter.json")

    def test_an_empty_file_is_an_empty_table(self):
        assert list(read(loads_fastjson("{}", "f"), BLOOM, "f")) == []


class Disk:
    """What a node keeps: the file, and of each record the store time and the (group, expression) that its reput
    evaluated; nothing of those that it dispatched as a slave.
    """

    def __init__(self):
        self.file = FilterTable(BLOOM).content()
        self.records = []


class Pair:
    """Of the master both processes: serve's table, its file, and what reput has read and published."""

    def __init__(self):
        self.disk, self.other = Disk(), Disk()
        self.clock, self.newest, self.born, self.promoted = NOW, 0, 0, -1
        self.the_slave_is_promoted()

    def the_slave_follows(self):
        self.other.file = without_births(self.disk.file)

    def the_slave_is_promoted(self):
        self.disk, self.other = self.other, self.disk
        self.promoted += 1
        self.serve_starts_again()
        self.reput_reads()
        self.published = 0

    def subscribe(self):
        self.table.register("g", "T", "a > 1", now=self.clock)

    def subscribe_differently(self):
        self.table.register("g", "T", "a > 2", now=self.clock)

    def another_subscribes(self):
        self.table.register("h", "T", "a > 1", now=self.clock)

    def unsubscribe(self):
        self.table.retire("g", now=self.clock)

    def a_day_passes(self):
        self.clock += DEAD_KEPT_MS
        self.table.clean(self.clock)

    def the_clock_goes_back(self):
        self.clock -= 3_600_000

    def serve_starts_again(self):
        self.table = read(self.disk.file, BLOOM, "f")
        self.table.restart(self.clock)

    def serve_confirms(self):
        self.born += len(self.table.confirm(self.published, max(self.clock, self.newest)))

    def reput_reads(self):
        self.evaluated = read(self.disk.file, BLOOM, "f")

    def reput_publishes_and_dispatches(self):
        self.published = self.evaluated.fingerprint
        self.clock += 1
        self.newest = max(self.clock, self.newest)
        self.disk.records.append((self.newest, {(each.consumer_group, each.expression) for each in self.evaluated}))

    def check(self):
        for stored, evaluated in self.disk.records:
            for each in self.table:
                assert stored <= each.born_time or (each.consumer_group, each.expression) in evaluated


WEIGHTS = {
    **dict.fromkeys(("a_day_passes", "serve_starts_again", "the_clock_goes_back", "the_slave_is_promoted"), 1),
    **dict.fromkeys(
        ("subscribe", "subscribe_differently", "another_subscribes", "unsubscribe", "the_slave_follows"), 3
    ),
    **dict.fromkeys(("reput_reads", "reput_publishes_and_dispatches", "serve_confirms"), 12),
}


@pytest.mark.parametrize("seed", range(10))
def test_no_bitmap_is_trusted_whose_maker_did_not_evaluate_the_expression(seed):
    rng = random.Random(seed)
    born = promoted = 0
    for _ in range(8):
        pair = Pair()
        for name in rng.choices(list(WEIGHTS), list(WEIGHTS.values()), k=400):
            getattr(pair, name)()
            pair.disk.file = pair.table.content()
            pair.check()
        born, promoted = born + pair.born, promoted + pair.promoted
    assert born > 5
    assert promoted > 5


def test_a_birth_does_not_come_back_to_the_node_that_has_evaluated_another_expression_since():
    """By way of a slave that has followed the first file only, and was master for a while."""
    pair = Pair()
    evaluated = (pair.reput_reads, pair.reput_publishes_and_dispatches)
    first = (pair.subscribe, *evaluated, pair.serve_confirms, pair.the_slave_follows)
    back = (pair.the_slave_is_promoted, pair.subscribe, pair.the_slave_follows, pair.the_slave_is_promoted)
    for step in (*first, pair.subscribe_differently, *evaluated, *back, pair.subscribe, pair.check):
        step()
        pair.disk.file = pair.table.content()
    assert pair.table.get("T", "g").is_pending
