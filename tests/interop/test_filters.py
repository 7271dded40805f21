"""Filters judge as a real broker's do, and each reads the subscriptions that the other wrote."""

import json
import random

import numpy as np
import pytest

from towline.filter import sql, tags
from towline.filter.bloom import Bloom, mark
from towline.filter.errors import BadExpression, Incomparable
from towline.filter.subscriptions import PENDING, FilterTable, loads
from towline.format.files import consume_queue_ext as ext
from towline.format.record import properties
from towline.kernels.scan.units import rule_out

from .expressions import Expressions
from .releases import NEWEST_BROKER

FILTERS = "towline.interop.BrokerFilters"
PAIRS = 10_000
WELL_FORMED, BROKEN, MESSAGES = 4_500, 2_500, 4
BLOOM = Bloom(64, 20)  # of a ConsumerFilterManager without a broker
BORN, NOW = 1_700_000_000_000, 1_800_000_000_000


@pytest.fixture(scope="module", params=NEWEST_BROKER, ids=str)
def filters(request, start_jvm):
    jvm = start_jvm(request.param, FILTERS)
    yield jvm
    jvm.close()


def answers(expression, messages):
    for message in messages:
        try:
            yield {True: "true", False: "false", None: "null"}[expression.evaluate(message)]
        except Incomparable:
            yield "failed"


def disagreement(text, messages, real):
    """What differs from `real`, None for a refusal. Only a rest that RocketMQ ignores may be refused here alone."""
    try:
        expression = sql.compile(text)
    except BadExpression as refused:
        if real is None:
            return None
        try:
            expression = sql.compile(text[: refused.position])
        except BadExpression:
            return f"{text!r} is refused here only: {refused}"
    if real is None:
        return f"{text!r} is refused by RocketMQ only"
    ours = list(answers(expression, messages))
    return None if ours == real else f"{text!r} of {messages}: {ours}, RocketMQ says {real}"


def check(filters, texts, made):
    asked = [(text, [made.properties() for _ in range(MESSAGES)]) for text in texts]
    real = filters.listed(asked, op="evaluate")[1]
    assert len(real) == len(asked)
    found = [disagreement(*each, told) for each, told in zip(asked, real, strict=True)]
    different = [each for each in found if each]
    assert not different, f"{len(different)} of {len(asked)}: " + "\n".join(different[:20])
    return real


def made(filters, seed):
    return Expressions(seed, later_words=filters.release.number >= (5, 0, 0))


def test_well_formed_expressions_agree(filters):
    expressions = made(filters, 1)
    real = check(filters, [expressions.text() for _ in range(WELL_FORMED)], expressions)
    told = [answer for each in real if each for answer in each]
    assert len(told) >= PAIRS
    assert min(map(told.count, ("true", "false", "null", "failed"))) > len(told) / 20


def test_what_is_refused_agrees(filters):
    expressions = made(filters, 2)
    real = check(filters, [expressions.broken() for _ in range(BROKEN)], expressions)
    assert real.count(None) > BROKEN / 2


def test_a_rest_that_rocketmq_ignores_is_refused(filters):
    ignored = ["a = 1 b", "a = 007", "a = 1 )", "a LIKE 'x'", "a + 1 > 2", "a = 1, b", "a = 0x10"]
    assert None not in check(filters, ignored, made(filters, 3))
    for text in ignored:
        with pytest.raises(BadExpression):
            sql.compile(text)


def test_tags_agree(filters):
    rng = random.Random(4)
    words = ("a", "b", "Aa", "BB", "||", "|", " ", "\t", "*", "中文", "😀", "\u3000", "\x01")
    texts = ["", "*", "||", "|| ||", " ", *("".join(rng.choices(words, k=rng.randint(1, 8))) for _ in range(500))]
    for text, real in zip(texts, filters.listed(texts, op="tags")[1], strict=True):
        if real is None:
            with pytest.raises(BadExpression):
                tags.parse(text)
            continue
        parsed = tags.parse(text)
        assert (set(parsed.names), set(parsed.codes)) == (set(real["names"]), set(real["codes"])), text
        assert parsed.everything == (real["text"] == "*")


def test_bits_agree(filters):
    rng = random.Random(5)
    asked = [
        (rng.randint(1, 50), rng.randint(1, 300), f"group-{rng.random()}", rng.choice(("TopicA", "中文", "😀", "")))
        for _ in range(500)
    ]
    for (error, n, group, topic), real in zip(asked, filters.listed(asked, op="bits")[1], strict=True):
        bloom = Bloom(n, error)
        positions = bloom.positions(group, topic)
        rows = bloom.rows(1)
        mark(rows, rows[:, 0] == 0, positions)
        assert [bloom.k, bloom.m, list(positions), rows[0].tolist()] == real


def test_a_broker_reads_the_subscriptions_of_towline(filters, tmp_path):
    table = FilterTable(BLOOM)
    table.register("g1", "TopicA", "a > 5 AND b = 'it''s \"中文\"'", now=BORN)
    table.register("g2", "TopicA", "a IS NULL", now=BORN)
    table.register("g1", "%RETRY%g1", "TRUE", now=BORN)
    table.confirm(table.fingerprint, BORN)
    table.retire("g2", now=BORN + 1000)
    table.register("late", "TopicA", "b IS NULL", now=BORN)
    path = tmp_path / "consumerFilter.json"
    path.write_text(json.dumps(table.content()), encoding="utf-8")
    found = filters.ask(**{"op": "read_subscriptions", "from": str(path)})["found"]
    for entry, real in zip(table, found, strict=True):
        topic, group, expression, kind, born, dead, version, positions, count, compiled = real
        assert (topic, group, expression, kind) == (entry.topic, entry.consumer_group, entry.expression, "SQL92")
        assert (born, version, tuple(positions), count) == (entry.born_time, BORN, entry.bit_positions, BLOOM.m)
        assert compiled
        assert dead >= born
        if entry.is_dead:
            assert dead == entry.dead_time
    assert [each.born_time for each in table] == [BORN, BORN, BORN, PENDING]


def test_towline_reads_the_subscriptions_of_a_broker(filters, tmp_path):
    asked = [("TopicA", "g1", "a > 5", 7), ("TopicA", "g2", "b = '中文'", 8), ("TopicB", "g1", "TRUE", 9)]
    path = tmp_path / "consumerFilter.json"
    assert filters.ask_about(asked, op="write_subscriptions", to=str(path))["registered"] == [True] * 3
    text = path.read_text(encoding="utf-8")
    table = loads(text, BLOOM, str(path))
    found = [(each.topic, each.consumer_group, each.expression, each.client_version) for each in table]
    assert found == asked
    for each in table:
        assert each.bit_positions == BLOOM.positions(each.consumer_group, each.topic)
        assert BORN < each.born_time < PENDING
        assert not each.is_dead
    assert list(loads(text, Bloom(), str(path))) == []
    theirs = json.loads(text)["filterDataByTopic"]
    for topic, members in table.content()["filterDataByTopic"].items():
        assert members == theirs[topic]


def test_bitmaps_and_what_a_pull_makes_of_them_agree(filters, tmp_path):
    """Of a table with subscriptions that were born before, in the midst of and after the messages, dead and pending."""
    made, table = Expressions(11, later_words=False), FilterTable(BLOOM)
    for number in range(24):
        while True:
            text = made.text()
            if filters.listed([(text, [])], op="evaluate")[1] != [None] and compiles(text):
                break
        table.register(f"g{number:02}", "T", text, now=BORN)
        if number < 20:
            table.confirm(table.fingerprint, BORN + 10 * number)
    table.retire("g03", now=BORN + 500)
    path = tmp_path / "consumerFilter.json"
    path.write_text(json.dumps(table.content()), encoding="utf-8")
    messages = [(storable(made.properties()), BORN + number) for number in range(300)]
    _, real = filters.listed(messages, op="calculate_bitmaps", topic="T", **{"from": str(path)})
    encoded = [properties.encode(list(each.items())) for each, _ in messages]
    rows = table.bitmaps("T", encoded)
    assert rows.tolist() == [bitmap for bitmap, _ in real]
    assert 0 < np.unpackbits(rows).mean() < 1
    stored = np.array([time for _, time in messages])
    units = ext.encode_units(np.full(len(messages), 7), stored, rows)
    flat, places = units.reshape(-1), np.arange(len(messages)) * units.shape[1]
    skipped = 0
    for each in table:
        out = np.zeros(len(messages), np.uint8)
        skipped += rule_out(flat, places, BLOOM.size, each.born_time, np.array(each.bit_positions), out)
        assert [not one for one in out.tolist()] == [taken[each.consumer_group] for _, taken in real], each
    assert skipped > 100


def storable(found):
    return {name: value for name, value in found.items() if value and not set(value) & set("\x00\x01\x02")}


def compiles(text):
    try:
        sql.compile(text)
    except BadExpression:
        return False
    return True


UNITS_FILE = 1000  # bytes, so that many files are filled


def units_at_random(count):
    """Tags code, store time and bitmap of each: most with one of 14 bytes, some without."""
    rng = random.Random(6)
    return [
        (rng.randint(-(2**31), 2**31 - 1), BORN + number, list(rng.randbytes(14 if rng.random() < 0.8 else 0)))
        for number in range(count)
    ]


def laid_out(units):
    """The addresses, and the files by their first byte."""
    addresses, files, end = [], {}, 0
    for code, stored, bitmap in units:
        row = ext.encode_units(np.array([code]), np.array([stored]), np.array([bitmap], np.uint8))
        run = ext.lay_out(end, row, UNITS_FILE)
        end = run.end
        addresses += run.addresses.tolist()
        for offset, written in run.slices:
            base, at = offset - offset % UNITS_FILE, offset % UNITS_FILE
            files.setdefault(base, bytearray(UNITS_FILE))[at : at + len(written)] = written
    return addresses, files


def test_extended_entries_are_the_same_bytes(filters, tmp_path):
    units = units_at_random(300)
    told = filters.ask_about(units, op="write_units", root=str(tmp_path), size=UNITS_FILE)
    addresses, files = laid_out(units)
    assert told["addresses"] == addresses
    folder = tmp_path / "T" / "0"
    assert {int(path.name): path.read_bytes() for path in folder.iterdir()} == files
    starts = [base + ext.walk(np.frombuffer(data, np.uint8))[0] for base, data in sorted(files.items())]
    assert np.concatenate(starts).tolist() == ext.offsets_of(np.array(addresses)).tolist()


def test_a_broker_reads_extended_entries_of_towline(filters, tmp_path):
    units = units_at_random(300)
    addresses, files = laid_out(units)
    folder = tmp_path / "T" / "0"
    folder.mkdir(parents=True)
    for base, data in files.items():
        (folder / f"{base:020d}").write_bytes(data)
    found = filters.listed(addresses, op="read_units", root=str(tmp_path), size=UNITS_FILE)[1]
    assert found == [list(unit) for unit in units]
