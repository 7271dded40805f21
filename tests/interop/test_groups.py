"""Offsets and settings of consumer groups: a real broker reads what Towline wrote, letter by letter and the reverse."""

import json
from pathlib import Path

import pytest

from towline.format.files.fastjson import dumps_fastjson
from towline.format.files.groups import (
    GroupTable,
    OffsetTable,
    SubscriptionGroup,
    group_members,
    groups_content,
    offsets_content,
    read_groups,
    read_offsets,
)
from towline.format.files.topics import DataVersion, loads_fastjson
from towline.log.files.config_file import ConfigFile

from .releases import BROKERS

GROUPS = "towline.interop.BrokerGroups"
VERSION = DataVersion(counter=3, timestamp=1_700_000_000_000)
OFFSETS = OffsetTable(
    offsets={("TopicA", "g1"): {0: 5, 1: 7, 10: 2**53 + 1}, ("%RETRY%g1", "g1"): {0: 1}, ("TopicA", "g2"): {3: 0}},
    data_version=VERSION,
)
TABLE = GroupTable(
    groups={
        "g1": SubscriptionGroup(group_name="g1"),
        "g2": SubscriptionGroup(group_name="g2", retry_max_times=3, consume_enable=False, retry_queue_nums=4),
    },
    data_version=VERSION,
)


@pytest.fixture(scope="module", params=BROKERS, ids=str)
def groups(request, start_jvm):
    jvm = start_jvm(request.param, GROUPS)
    yield jvm
    jvm.close()


def test_a_broker_reads_the_offsets_of_towline(groups, tmp_path: Path):
    file = ConfigFile(tmp_path / "consumerOffset.json")
    file.save(offsets_content(OFFSETS))
    found = groups.ask(**{"op": "read_offsets", "from": str(file.path)})["found"]
    expected = {f"{topic}@{group}": of for (topic, group), of in OFFSETS.offsets.items()}
    assert found == {key: {str(queue): at for queue, at in of.items()} for key, of in expected.items()}


def test_towline_reads_the_offsets_of_a_broker(groups, tmp_path: Path):
    path = tmp_path / "consumerOffset.json"
    groups.ask(op="write_offsets", to=str(path), content=json.dumps(offsets_content(OFFSETS)))
    text = path.read_text(encoding="utf-8")
    assert "10:9007199254740993" in text  # no quotes
    assert read_offsets(loads_fastjson(text, str(path)), str(path)).offsets == OFFSETS.offsets


def test_the_table_is_laid_out_as_a_broker_does(groups, tmp_path: Path):
    """One key, because a broker's maps have no order. RocketMQ 5.5 has another writer, which breaks lines elsewhere."""
    path = tmp_path / "consumerOffset.json"
    one = OffsetTable(offsets={("TopicA", "g1"): {0: 5, 1: 7}}, data_version=VERSION)
    groups.ask(op="write_offsets", to=str(path), content=json.dumps(offsets_content(one)))
    ours, real = dumps_fastjson(offsets_content(one)), path.read_text(encoding="utf-8")
    table = ours[ours.index('\t"offsetTable"') : -2]
    assert "".join(table.split()) in "".join(real.split())
    if '"groupTopicMap"' in real:  # RocketMQ 5
        assert '"groupTopicMap":{"g1":["TopicA"]}' in "".join(real.split())
    else:
        assert table in real


def test_a_broker_reads_the_settings_of_towline(groups, tmp_path: Path):
    file = ConfigFile(tmp_path / "subscriptionGroup.json")
    file.save(groups_content(TABLE))
    found = groups.ask(**{"op": "read_groups", "from": str(file.path)})["found"]
    for name, group in TABLE.groups.items():
        members = group_members(group)
        shared = found[name].keys() & members.keys()
        assert {"groupName", "retryMaxTimes", "consumeEnable", "retryQueueNums"} <= shared
        assert {member: found[name][member] for member in shared - {"groupRetryPolicy"}} == {
            member: members[member] for member in shared - {"groupRetryPolicy"}
        }


def test_towline_reads_the_settings_of_a_broker(groups, tmp_path: Path):
    path = tmp_path / "subscriptionGroup.json"
    groups.ask(op="write_groups", to=str(path), content=json.dumps(groups_content(TABLE)))
    read = read_groups(loads_fastjson(path.read_text(encoding="utf-8"), str(path)), str(path))
    for name, group in TABLE.groups.items():
        real = read.groups[name]
        assert (real.retry_max_times, real.consume_enable, real.retry_queue_nums) == (
            group.retry_max_times,
            group.consume_enable,
            group.retry_queue_nums,
        )
        again = read_groups(groups_content(read), str(path)).groups[name]
        assert again == real  # what this version does not know is kept
