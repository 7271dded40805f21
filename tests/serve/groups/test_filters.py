"""SQL92 subscriptions: checked when a member joins, kept in consumerFilter.json, born when reput evaluates them."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from towline.filter.bloom import Bloom
from towline.filter.errors import BadExpression
from towline.filter.subscriptions import PENDING, FilterTable, loads
from towline.log.files.config_file import ConfigFile, read_config
from towline.serve.groups.errors import GroupRefused, Refusal

from .faces import Room

BLOOM = Bloom(32, 20)


def sql(expression: str, topic: str = "t") -> dict[str, Any]:
    return {topic: {"expression": expression, "type": "SQL92"}}


@pytest.fixture
def filtering(tmp_path: Path) -> Iterator[Room]:
    made = Room(tmp_path, {"enable_property_filter": True}, bloom=BLOOM)
    yield made
    made.service.close()


def file_of(room: Room) -> FilterTable:
    """As reput reads it, when what was submitted is on disk."""
    room.until_answered(room.ask("group_configure", group="other", settings={}))
    path = room.store.config / "consumerFilter.json"
    return loads(path.read_text(encoding="utf-8"), BLOOM, str(path))


class TestChecking:
    def test_an_expression_that_does_not_parse_is_refused_with_its_position(self, filtering: Room):
        with pytest.raises(BadExpression) as error:
            filtering.join("a", topics=sql("price > > 5"))
        assert error.value.position == 8
        assert filtering.told("group_list")["groups"] == []
        with pytest.raises(BadExpression):
            filtering.join("a", topics={"t": {"expression": "||", "type": "TAG"}})

    def test_a_node_that_filters_by_tags_only(self, room: Room):
        with pytest.raises(GroupRefused) as error:
            room.join("a", topics=sql("price > 5"))
        assert error.value.refusal is Refusal.FILTER_DISABLED


class TestSubscriptions:
    def test_one_is_born_when_reput_evaluates_the_file_that_names_it(self, filtering: Room):
        filtering.join("a", topics=sql("price > 5"))
        filtering.advance(1_000)
        found = filtering.service.subscription("t", "g")
        assert found is not None
        assert found.is_pending
        written = file_of(filtering)
        assert [each.expression for each in written] == ["price > 5"]
        filtering.evaluated = written.fingerprint
        filtering.newest = filtering.clock.now_ms() + 7_000  # of a record stored before a clock went back
        filtering.advance(1_000)
        found = filtering.service.subscription("t", "g")
        assert found is not None
        assert found.born_time == filtering.newest
        assert [each.born_time for each in file_of(filtering)] == [filtering.newest]

    def test_another_expression_is_another_subscription(self, filtering: Room):
        filtering.join("a", topics=sql("price > 5"))
        filtering.evaluated = file_of(filtering).fingerprint
        filtering.advance(1_000)
        filtering.join("a", topics=sql("price > 6"))
        found = filtering.service.subscription("t", "g")
        assert found is not None
        assert (found.expression, found.is_pending) == ("price > 6", True)
        filtering.advance(1_000)
        assert filtering.service.subscription("t", "g") == found  # reput still evaluates the one before
        filtering.join("b", topics=sql("price > 7"))
        filtering.join("a", topics=sql("price > 6"))  # a heartbeat is no news
        found = filtering.service.subscription("t", "g")
        assert found is not None
        assert found.expression == "price > 7"

    def test_a_group_without_members_is_dead_and_comes_back_to_its_bits(self, filtering: Room):
        filtering.join("a", topics=sql("price > 5"))
        filtering.evaluated = file_of(filtering).fingerprint
        filtering.advance(1_000)
        born = [each.born_time for each in file_of(filtering)]
        filtering.advance(11_000)  # a is silent
        assert [each.is_dead for each in file_of(filtering)] == [True]
        filtering.begin()
        filtering.join("a", topics=sql("price > 5"))
        found = filtering.service.subscription("t", "g")
        assert found is not None
        assert (found.is_dead, [found.born_time]) == (False, born)

    def test_a_member_that_goes_over_to_tags(self, filtering: Room):
        filtering.join("a", topics=sql("price > 5"))
        filtering.join("a", topics={"t": {"expression": "red", "type": "TAG"}})
        assert [each.is_dead for each in file_of(filtering)] == [True]

    def test_a_damaged_file_speaks_for_nobody(self, filtering: Room, caplog: pytest.LogCaptureFixture):
        filtering.join("a", topics=sql("price > 5"))
        filtering.evaluated = file_of(filtering).fingerprint
        filtering.advance(1_000)
        filtering.service.close()
        path = filtering.store.config / "consumerFilter.json"
        path.write_text(json.dumps({"filterDataByTopic": []}))
        filtering.begin()
        assert "bitmaps speak for nobody" in caplog.text
        assert filtering.service.subscription("t", "g") is None
        filtering.join("a", topics=sql("price > 5"))
        found = filtering.service.subscription("t", "g")
        assert found is not None
        assert found.is_pending

    def test_what_a_broker_took_and_is_no_expression_here_is_named_once(
        self, filtering: Room, caplog: pytest.LogCaptureFixture
    ):
        filtering.join("a", topics=sql("price > 5") | sql("price > 6", "u"))
        file_of(filtering)
        filtering.service.close()
        path = filtering.store.config / "consumerFilter.json"
        written = json.dumps(read_config(path)).replace("price > 6", "price LIKE 'x'")
        ConfigFile(path).save(json.loads(written.replace(str(PENDING), "1700000000000")))
        filtering.begin()
        (line,) = [each for each in caplog.messages if "is left out" in each]
        assert "the subscription of g to u is left out" in line
        assert "at character 6" in line
        assert [each.expression for each in file_of(filtering)] == ["price > 5"]
        filtering.begin()
        assert caplog.text.count("is left out") == 1
