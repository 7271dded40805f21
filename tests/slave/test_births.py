"""A subscription's birth speaks of one node's bitmaps, so no other node takes it over."""

import json
from pathlib import Path

import pytest

from towline.filter.bloom import Bloom
from towline.filter.subscriptions import FILE, FilterTable, read
from towline.format.wire.frames import ANSWER, Kind
from towline.log.files.config_file import ConfigFile

from .test_held_back import Following

BLOOM = Bloom()
NOW = 1_700_000_000_000


@pytest.fixture
def following(tmp_path: Path) -> Following:
    return Following(tmp_path)


def told(following: Following, text: str) -> dict[str, object] | None:
    """What the slave keeps of the master's subscriptions."""
    following.answers.append([ANSWER.pack(Kind.ANSWER, 0, 1, 0), json.dumps({"files": {FILE: text}}).encode()])
    following.cycle()
    return ConfigFile(following.root / FILE).load()


def test_a_slave_keeps_the_subscriptions_of_its_master_as_not_yet_born(following: Following) -> None:
    table = FilterTable(BLOOM)
    table.register("g", "T", "a > 1", now=NOW)
    table.register("h", "U", "b > 1", now=NOW)
    table.confirm(table.fingerprint, NOW)
    content = told(following, json.dumps(table.content()))
    assert content is not None
    kept = read(content, BLOOM, FILE)
    assert [(each.topic, each.expression, each.is_pending) for each in kept] == [
        ("T", "a > 1", True),
        ("U", "b > 1", True),
    ]
    assert kept.fingerprint == table.fingerprint
    assert not any(each.is_pending for each in table)


@pytest.mark.parametrize(
    "content", [{}, {"filterDataByTopic": 7}, {"filterDataByTopic": {"T": {"groupFilterData": {"g": 7}}, "U": 7}}]
)
def test_what_is_no_table_is_kept_as_it_is(following: Following, content: dict[str, object]) -> None:
    assert told(following, json.dumps(content)) == content
