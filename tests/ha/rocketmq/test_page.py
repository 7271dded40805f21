"""docs/migration.md says what the tests beside this file do."""

import re
from typing import Final

from tests.repo.trees import ROOT
from towline.ha.rocketmq.reports import Rule
from towline.runtime.settings import Settings
from towline.slave.rocketmq.rules import Rule as MasterRule

from .brokers import CONFIG, VERSIONS

PAGE: Final = (ROOT / "docs" / "migration.md").read_text(encoding="utf-8")
LINE: Final = re.compile(r"^(\w+)=", re.MULTILINE)


def test_each_rule_by_which_a_broker_is_cut_off_is_in_its_table() -> None:
    assert names_in("| rule |") == {rule.name for rule in Rule}


def test_each_rule_by_which_a_broker_is_not_followed_is_in_its_table() -> None:
    assert names_in("| reason |") == {rule.name for rule in MasterRule}


def names_in(head: str) -> set[str]:
    """Of the table that begins so."""
    table = PAGE.partition(head)[2].partition("\n\n")[0]
    return {name for row in re.findall(r"^\| ([A-Z_, ]+) \|", table, re.MULTILINE) for name in row.split(", ")}


def test_a_broker_is_set_there_as_it_is_here() -> None:
    assert set(LINE.findall(PAGE)) == set(LINE.findall(CONFIG))
    for version in VERSIONS:
        assert version in PAGE


def test_the_settings_that_it_names_are_there() -> None:
    named = set(re.findall(r"`(\w+_\w+)`", PAGE)) - {
        "rocketmq_slaves",
        "towline_rocketmq_slave_behind_bytes",
        "rocketmq_ha",
    }
    assert {"rocketmq_ha_port", "rocketmq_ha_address", "rocketmq_ha_from_oldest"} <= named
    assert {"rocketmq_master_address", "rocketmq_master_broker"} <= named
    assert named <= Settings.model_fields.keys()
