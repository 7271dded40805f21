"""Filters that consumers send, and the file that keeps them."""

import json
from typing import Final

import numpy as np

from tests.fuzz.target import Grammar, Target, hold
from tests.fuzz.targets.records import PROPERTIES
from towline.errors import MalformedFile
from towline.filter import sql, subscriptions, tags
from towline.filter.bloom import Bloom
from towline.filter.errors import BadExpression
from towline.filter.grammar import parse
from towline.filter.subscriptions import FilterTable
from towline.format.record.properties import decode

PATH: Final = "config/consumerFilter.json"
BLOOM: Final = Bloom()
EXPRESSIONS: Final = (
    "a > 5 AND b = 'x' OR c IS NOT NULL", "NOT (a BETWEEN 1 AND 9.5e2) -- end",
    "k IN ('x', 'it''s') AND TAGS <> 'TagA'",
    "KEYS CONTAINS 'k1' AND NOT KEYS STARTSWITH 'z'", "- - 5 = a", "/* c */ TRUE AND x >= -0.5",
    "a NOT IN ('1') = TRUE",
)  # fmt: skip
WORDS: Final = tuple(
    f" {word} ".encode()
    for word in (
        *(
            "AND",
            "OR",
            "NOT",
            "IS NULL",
            "BETWEEN",
            "IN ('a')",
            "CONTAINS 'a'",
            "ENDSWITH ''",
            "TRUE",
            "NULL",
            "=",
            "<>",
        ),
        *(
            "(",
            ")",
            "--",
            "/*",
            "*/",
            "'",
            "''",
            "1e400",
            "0.0",
            ".5E-9",
            "9223372036854775808",
            "5L",
            "-",
            "a",
            "TAGS",
        ),
        *("NOT " * 120, "(" * 120, "a = 1 AND " * 40, "-" * 200),
    )
)


def _sql(data: bytes) -> object:
    text = data.decode("utf-8", "replace")
    found = sql.Expression(text)
    hold(found.names == tuple(sorted(parse(text).names)), "both readers find the same names")
    encoded = [PROPERTIES, b"a\x017\x02b\x01x\x02", b"a\x01\xff\x02k\x01it's\x02", b""]
    chosen = found.select(encoded).tolist()
    each = [found.matches(decode(one)) is True for one in encoded]
    hold(chosen == each, "many messages are judged as one by one")
    found.clear_cache()
    return found.conditions, len(found.names), tuple(chosen)


def _tags(data: bytes) -> object:
    found = tags.parse(data.decode("utf-8", "replace"))
    codes = np.array([0, *found.codes], np.int64)
    hold(all(found.may_match(codes)[1:]), "the hash of each tag may match")
    hold(all(map(found.matches, found.names)), "each tag matches")
    return found.everything, len(found.names)


def _table(data: bytes) -> object:
    found = subscriptions.loads(data.decode("utf-8", "replace"), BLOOM, PATH)
    content = json.dumps(found.content())
    again = subscriptions.loads(content, BLOOM, PATH)
    hold(
        [each.expression for each in again] == [each.expression for each in found], "what was read is written as it was"
    )
    subscriptions.without_births(found.content())
    return len(found), len(found.refused)


def _tables() -> list[bytes]:
    made = FilterTable(BLOOM)
    for number, text in enumerate(EXPRESSIONS[:3]):
        made.register(f"g{number}", "T", text, now=1_700_000_000_000)
    return [json.dumps(made.content()).encode(), b"{}"]


TARGETS: Final = (
    Target(
        name="filter.sql", covers=("towline.filter.grammar:parse", "towline.filter.sql:Expression.select"),
        seeds=lambda: [text.encode() for text in EXPRESSIONS], run=_sql, refusals=(BadExpression,),
        grammar=Grammar.TEXT, words=WORDS, size_max=40_000, weight=0.25,
    ),
    Target(
        name="filter.tags", covers=("towline.filter.tags:parse",),
        seeds=lambda: [b"*", b"TagA || TagB", b"a||a|| b ", "\u4e2d || x".encode()],
        run=_tags, refusals=(BadExpression,), words=(b"||", b" ", b"*"),
    ),
    Target(
        name="filter.table", covers=("towline.filter.subscriptions:loads", "towline.filter.subscriptions:read"),
        seeds=_tables, run=_table, refusals=(MalformedFile,), grammar=Grammar.JSON, weight=0.25,
    ),
)  # fmt: skip
