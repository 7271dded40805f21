"""SQL92 expressions on properties, with the oddities of RocketMQ's evaluator."""

import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from towline.filter import sql
from towline.filter.errors import BadExpression, Incomparable
from towline.format.record import properties
from towline.limits import FILTER_DEPTH_MAX, FILTER_SIZE_MAX, MIB

MESSAGE = {"color": "red", "size": "12", "weight": "1.5", "big": "3000000000", "quote": "it's"}


def answer(text: str) -> bool | None:
    return sql.compile(text).evaluate(MESSAGE)


def table(expected, *texts):
    return [pytest.param(text, expected, id=text) for text in texts]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        *table(True, "color = 'red'", "color <> 'blue'", "size = 12", "size > 11", "size >= 12", "size < 1e2"),
        *table(True, "size BETWEEN 10 AND 12", "size NOT BETWEEN 13 AND 20", "weight > 1.0", "12 = size", "5 > 3"),
        *table(True, "color IN ('blue', 'red')", "color NOT IN ('blue')", "quote = 'it''s'", "size = +12"),
        *table(True, "color CONTAINS 'e'", "color STARTSWITH 're'", "color ENDSWITH 'ed'", "color NOT CONTAINS 'x'"),
        *table(True, "color IS NOT NULL", "missing IS NULL", "NULL IS NULL", "TRUE", "NOT FALSE", "Color is null"),
        *table(True, "size = 12 AND color = 'red' OR missing = 1", "(TRUE)", "big > 2999999999L", "size > -12"),
        *table(False, "color = 'blue'", "size = 13", "size BETWEEN 13 AND 20", "color IS NULL", "FALSE", "5 IS NULL"),
    ],
)
def test_conditions(text, expected):
    assert answer(text) is expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        *table(None, "missing = 1", "missing > 1", "missing <> 'a'", "missing IN ('a')", "missing NOT IN ('a')"),
        *table(None, "NOT missing = 1", "missing", "NULL", "NOT NULL", "missing BETWEEN 1 AND 2", "1 > missing"),
        *table(None, "TRUE AND NULL", "FALSE OR NULL", "missing = 1 OR color = 'blue'"),
        *table(True, "TRUE OR NULL", "NULL OR TRUE", "color <> missing", "missing = other"),
        *table(False, "FALSE AND NULL", "NULL AND FALSE", "color = missing", "missing <> other"),
    ],
)
def test_null_is_neither_true_nor_false(text, expected):
    assert answer(text) is expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        *table(False, "color", "size = -'5'", "missing CONTAINS 'a'", "missing NOT CONTAINS 'a'", "color CONTAINS ''"),
        *table(False, "(size > 1) = 5", "5 = TRUE", "5 CONTAINS '5'", "(size = 12) CONTAINS 't'", "color = TRUE"),
        *table(True, "NOT color", "(size > 1) = (weight > 1.0)", "NOT (missing CONTAINS 'a')", "size = --12"),
        *table(None, "size > -size", "missing = -'5' AND NULL", "missing > -(color = 5)"),
    ],
)
def test_oddities_of_the_real_evaluator(text, expected):
    assert answer(text) is expected


@pytest.mark.parametrize(
    "text",
    [
        *("color > 5", "color > size", "weight = 1", "big = 5", "color = 1.5", "TRUE = color", "5 = color"),
        *("color > 5 OR TRUE", "NOT (color > 5)", "(weight = 1) IS NULL", "-(color = 5) IS NULL"),
    ],
)
def test_what_cannot_be_compared_ends_the_evaluation_without_a_match(text):
    expression = sql.compile(text)
    with pytest.raises(Incomparable):
        expression.evaluate(MESSAGE)
    assert expression.matches(MESSAGE) is None
    assert not expression.select([properties.encode(MESSAGE.items())]).any()


@pytest.mark.parametrize("text", ["TRUE OR color > 5", "NOT (FALSE AND color > 5)", "missing > 1 OR size = 12"])
def test_what_need_not_be_evaluated_is_not(text):
    assert answer(text) is True


@pytest.mark.parametrize(
    ("text", "value", "expected"),
    [
        ("n = 5", "+5", True),
        ("n = 5", "005", True),
        ("n = 5", "٥", True),
        ("n = 5", "0" * 5000 + "5", True),
        ("n = -5", "-5", True),
        ("n = 5", " 5", None),
        ("n = 5", "5_0", None),
        ("n = 5", "5L", None),
        ("n = 5", "5.0", None),
        ("n = 5", "", None),
        ("n = 2147483647", "2147483648", None),
        ("n = 2147483648", "2147483648", True),
        ("n < 5L", "2147483648", None),
        ("n < 9223372036854775807", "9223372036854775808", None),
        ("n > 1.5", " 2 ", True),
        ("n > 1.5", "2f", True),
        ("n > 1.5", "0x1p1", True),
        ("n > 1.5", "0x1p99999", True),
        ("n > 1.5", "1e999", True),
        ("n > 1.5", "-Infinity", False),
        ("n > 1.5", "NaN", True),
        ("n > 1.5", "nan", None),
        ("n > 1.5", "1e", None),
        ("n > 1.5", "1_0.0", None),
        ("n > 1.5", "٥", None),
        ("n > 1.5", "inf", None),
        ("n = 9007199254740993", "9007199254740992", False),
        ("n <= m", "-0.0", True),
        ("n < m", "-0.0", True),
        ("m < n", "NaN", True),
    ],
)
def test_text_becomes_a_number_as_java_reads_it(text, value, expected):
    assert sql.compile(text).matches({"n": value, "m": "0.0"}) is expected


@pytest.mark.parametrize(
    ("text", "position"),
    [
        ("", 0),
        ("color =", 7),
        ("color = = 1", 8),
        ("color = 1 size = 2", 10),
        ("5", 0),
        ("color AND 'red'", 10),
        ("-size OR TRUE", 0),
        ("color > 'red'", 8),
        ("size > TRUE", 7),
        ("color = NULL", 8),
        ("color IN (1)", 10),
        ("color IN ()", 10),
        ("5 IN ('a')", 0),
        ("color LIKE 'r%'", 6),
        ("size + 1 > 5", 5),
        ("size * 2 = 4", 5),
        ("size != 4", 5),
        ("size = 007", 8),
        ("size = 0.0", 7),
        ("size = 1e400", 7),
        ("size = 9223372036854775808", 7),
        ("size BETWEEN 5 AND 3", 13),
        ("size BETWEEN 1 OR 3", 15),
        ("TRUE = 5", 7),
        ("color IS red", 9),
        ("color NOT red", 10),
        ("color CONTAINS 5", 15),
        ("color = 'red", 8),
        ("color # 1", 6),
        ("straße = 1", 4),
        ("size = 1 /* open", 9),
        ("(size = 1", 9),
        ("size = 1)", 8),
        ("and = 1", 0),
        ("size > 1 > 2", 0),
    ],
)
def test_anything_else_is_refused_at_its_position(text, position):
    with pytest.raises(BadExpression) as refused:
        sql.compile(text)
    assert refused.value.position == position
    assert f"character {position} " in str(refused.value)


@pytest.mark.parametrize(
    "text",
    [
        "size = 12 -- twelve",
        "size -- how large\r\n = 12",
        "size = /* not * 13 / */ 12 /**/",
        "\tsize\f=\n12\r",
        "Size Is Null aNd size In ('12')",
        "nothing IS NULL AND inside IS NULL AND $_a1 IS NULL",
    ],
)
def test_comments_blanks_and_cases_do_not_matter(text):
    assert answer(text) is True


def test_an_open_comment_does_not_complete_an_expression():
    with pytest.raises(BadExpression) as refused:
        sql.compile("(size = 12 -- )")
    assert refused.value.position == len("(size = 12 ")


def test_expressions_have_a_size_and_a_depth():
    assert answer(" OR ".join(["size = 1"] * 2000)) is False
    assert answer("(" * 3000 + "size = 12" + ")" * 3000) is True
    with pytest.raises(BadExpression, match="nested"):
        sql.compile("NOT " * FILTER_DEPTH_MAX + "TRUE")
    with pytest.raises(BadExpression, match="at most"):
        sql.compile("size = 1 OR " * (FILTER_SIZE_MAX // 8) + "TRUE")


def test_an_expression_is_compiled_once():
    assert sql.compile("size = 77") is sql.compile("size = 77")
    assert sql.compile("b = 1 OR a = 1 OR b = 2").names == ("a", "b")


VALUES = st.sampled_from(["1", "2", "red", "x\x01y", "ä", "2.5", "9" * 300])
NAMES = st.sampled_from(["a", "b", "xa", "ab", "A"])
MANY_NAMES = " OR ".join(f"n{number} = b" for number in range(40))


@given(st.lists(st.dictionaries(NAMES, VALUES), max_size=8), st.booleans())
@pytest.mark.parametrize(
    "text", ["a = 2", "a > b", "a IS NULL AND b = 'x\x01y'", "TRUE", "A <> xa OR ab = 'ä'", f"a = 2 OR {MANY_NAMES}"]
)
def test_a_batch_of_stored_properties_is_judged_like_each_message(text, messages, trimmed):
    expression = sql.compile(text)
    encoded = ["".join(f"{name}\x01{value}\x02" for name, value in each.items()).encode() for each in messages]
    if trimmed:
        encoded = [each.removesuffix(b"\x02") for each in encoded]
    expected = [expression.matches(message) is True for message in messages]
    assert expression.select(encoded).tolist() == expected


@given(st.lists(st.sampled_from([b"a", b"b", b"\x01", b"\x02", b"1", b"\xff"]), max_size=20).map(b"".join))
@pytest.mark.parametrize("text", ["a = 1", "a IS NULL", "a = '1' OR b = '1'", "a > b", f"a IS NULL OR {MANY_NAMES}"])
def test_properties_that_nobody_writes_are_read_as_they_are_elsewhere(text, encoded):
    expression = sql.compile(text)
    assert expression.select([encoded]).tolist() == [expression.matches(properties.decode(encoded)) is True]


def test_more_values_than_are_remembered_are_judged_all_the_same(monkeypatch):
    monkeypatch.setattr(sql, "_REMEMBERED_MAX", 100_000)
    encoded = [properties.encode([("size", str(number))]) for number in range(2_000)]
    for text, limit in (("size > 499", 499), ("size > 1499", 1499)):
        selected = sql.compile(text).select(encoded + encoded)
        assert selected.tolist() == [number > limit for number in range(2_000)] * 2


def test_what_all_expressions_remember_together_has_a_bound(monkeypatch):
    monkeypatch.setattr(sql, "_REMEMBERED_MAX", MIB)
    expressions = [sql.compile(f"size <> '{number}'") for number in range(40)]
    encoded = [properties.encode([("size", f"{number:0200}")]) for number in range(500)]
    tracemalloc.start()
    try:
        for each in expressions:
            each.select(encoded)
        held, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert held < 2 * MIB, "of 5 MiB"


def test_an_expression_costs_what_its_conditions_cost():
    assert [sql.compile(text).conditions for text in ("a", "a = 1", "a BETWEEN 1 AND 2 OR NOT b IS NULL")] == [1, 1, 7]


def test_an_expression_that_somebody_holds_is_not_compiled_again():
    held = sql.compile("size = 1234")
    for number in range(600):
        sql.compile(f"size = {number}")
    assert sql.compile("size = 1234") is held
