"""consumerOffset.json and subscriptionGroup.json, letter by letter as RocketMQ writes them."""

import pytest

from towline.errors import MalformedFile
from towline.format.files.fastjson import dumps_fastjson
from towline.format.files.groups import (
    GROUP_SIZE_MAX,
    MEMBER_SIZE_MAX,
    GroupTable,
    OffsetTable,
    SubscriptionGroup,
    group_members,
    group_problem,
    groups_content,
    member_problem,
    offsets_content,
    read_group,
    read_groups,
    read_offsets,
)
from towline.format.files.topics import DataVersion, loads_fastjson

OFFSETS_5 = """{
	"dataVersion":{
		"counter":3,
		"stateVersion":0,
		"timestamp":1700000000000
	},
	"groupTopicMap":{
		"g1":["%RETRY%g1","TopicA"],
		"g2":["TopicA"]
	},
	"offsetTable":{
		"%RETRY%g1@g1":{0:1
		},
		"TopicA@g1":{0:5,1:7,10:2
		},
		"TopicA@g2":{0:9007199254740993
		}
	}
}"""
OFFSETS_4 = """{
	"offsetTable":{
		"TopicA@g1":{0:5,1:7
		}
	}
}"""
GROUPS_5 = """{
	"dataVersion":{
		"counter":1,
		"stateVersion":0,
		"timestamp":1700000000000
	},
	"forbiddenTable":{},
	"subscriptionGroupTable":{
		"g1":{
			"attributes":{},
			"brokerId":0,
			"consumeBroadcastEnable":true,
			"consumeEnable":true,
			"consumeFromMinEnable":true,
			"consumeMessageOrderly":false,
			"consumeTimeoutMinute":15,
			"groupName":"g1",
			"groupRetryPolicy":{
				"type":"CUSTOMIZED"
			},
			"groupSysFlag":0,
			"notifyConsumerIdsChangedEnable":true,
			"retryMaxTimes":16,
			"retryQueueNums":1,
			"whichBrokerWhenConsumeSlowly":1
		}
	}
}"""
VERSION = DataVersion(counter=3, timestamp=1_700_000_000_000)
TABLE = OffsetTable(
    offsets={
        ("TopicA", "g1"): {10: 2, 1: 7, 0: 5},
        ("%RETRY%g1", "g1"): {0: 1},
        ("TopicA", "g2"): {0: 2**53 + 1},
    },
    data_version=VERSION,
)


def _offsets(text: str) -> OffsetTable:
    return read_offsets(loads_fastjson(text, "consumerOffset.json"), "consumerOffset.json")


def _groups(text: str) -> GroupTable:
    return read_groups(loads_fastjson(text, "subscriptionGroup.json"), "subscriptionGroup.json")


class TestOffsets:
    def test_the_text_is_that_of_rocketmq_5(self):
        assert dumps_fastjson(offsets_content(TABLE)) == OFFSETS_5
        assert _offsets(OFFSETS_5) == TABLE

    def test_rocketmq_4_writes_the_table_alone(self):
        assert _offsets(OFFSETS_4) == OffsetTable(offsets={("TopicA", "g1"): {0: 5, 1: 7}})

    def test_members_of_other_versions_are_written_again(self):
        text = '{"offsetTable":{"t@g":{0:1}},"pullOffsetTable":{"t@g":{0:9}}}'
        content = offsets_content(_offsets(text))
        assert content["pullOffsetTable"] == {"t@g": {"0": 9}}
        assert content["offsetTable"] == {"t@g": {0: 1}}

    def test_an_empty_table(self):
        text = dumps_fastjson(offsets_content(OffsetTable()))
        assert '"offsetTable":{}' in text
        assert _offsets(text) == OffsetTable()

    @pytest.mark.parametrize(
        "table",
        ['"TopicA":{0:1}', '"@g":{0:1}', '"t@":{0:1}', '"t@g":[1]', '"t@g":{"x":1}', '"t@g":{0:-1}',
         '"t@g":{0:1.5}', '"t@g":{0:null}', '"t@g":{0:true}', '"t@g":{0:9223372036854775808}', '"t@g":{2147483648:1}'],
        ids=["no separator", "no topic", "no group", "queues in a list", "a queue named x", "a negative offset",
             "half an offset", "no offset", "a truth", "beyond a long", "beyond an int"],
    )  # fmt: skip
    def test_an_entry_that_cannot_be_is_left_out_alone_and_named(self, table: str):
        found = _offsets(f'{{"offsetTable":{{"t@before":{{0:5}},{table},"t@behind":{{1:7}}}}}}')
        assert {key: dict(of) for key, of in found.offsets.items() if of} == {
            ("t", "before"): {0: 5}, ("t", "behind"): {1: 7},
        }  # fmt: skip
        [sentence] = found.left_out
        assert table.partition(":")[0].strip('"') in sentence

    def test_the_other_queues_of_such_an_entry_stay(self):
        found = _offsets('{"offsetTable":{"t@g":{0:5,1:-1,2:7}}}')
        assert found.offsets == {("t", "g"): {0: 5, 2: 7}}
        assert found.left_out == ("of 't@g': queue '1' at -1 is no queue and offset",)

    @pytest.mark.parametrize("table", ["[]", "7"], ids=["a list", "a number"])
    def test_what_is_no_table_of_offsets_is_refused(self, table: str):
        with pytest.raises(MalformedFile, match="it does not hold a table of offsets"):
            _offsets(f'{{"offsetTable":{table}}}')


class TestGroups:
    def test_the_text_is_that_of_rocketmq_5(self):
        table = GroupTable(
            groups={"g1": SubscriptionGroup(group_name="g1")},
            data_version=DataVersion(counter=1, timestamp=1_700_000_000_000),
        )
        assert dumps_fastjson(groups_content(table)) == GROUPS_5
        assert _groups(GROUPS_5) == table

    def test_members_that_are_missing_have_rocketmqs_defaults(self):
        text = '{"subscriptionGroupTable":{"g":{"groupName":"g","retryMaxTimes":3,"brokerId":0}}}'
        assert _groups(text).groups["g"] == SubscriptionGroup(group_name="g", retry_max_times=3)

    def test_what_is_not_known_is_written_again(self):
        text = """{"forbiddenTable":{"g":{"TopicA":1}},"subscriptionGroupTable":{"g":{"future":{"a":[1]}}}}"""
        content = groups_content(_groups(text))
        assert content["forbiddenTable"] == {"g": {"TopicA": 1}}
        assert content["subscriptionGroupTable"]["g"]["future"] == {"a": [1]}

    @pytest.mark.parametrize("members", [{"retryMaxTimes": "many"}, {"consumeEnable": 1}, {"brokerId": True}])
    def test_a_value_of_another_kind_is_refused_by_name(self, members: dict[str, object]):
        with pytest.raises(ValueError, match=next(iter(members))):
            read_group(SubscriptionGroup(group_name="g"), members)

    def test_a_group_keeps_its_name(self):
        changed = read_group(SubscriptionGroup(group_name="g"), {"groupName": "other", "retryQueueNums": 2})
        assert (group_members(changed)["groupName"], changed.retry_queue_nums) == ("g", 2)

    def test_a_setting_that_cannot_be_has_its_default_and_is_named(self):
        text = """{"subscriptionGroupTable":{"a":{"retryMaxTimes":3},"b":7,
            "c":{"consumeTimeoutMinute":15.0,"retryMaxTimes":true,"retryQueueNums":2,"future":1.5}}}"""
        found = _groups(text)
        assert found.groups == {
            "a": SubscriptionGroup(group_name="a", retry_max_times=3),
            "c": SubscriptionGroup(group_name="c", retry_queue_nums=2, others={"future": 1.5}),
        }
        assert found.left_out == (
            "of group 'b': 7 are no settings",
            "of group 'c': consumeTimeoutMinute is 15.0",
            "of group 'c': retryMaxTimes is True",
        )

    @pytest.mark.parametrize("table", ["[]", "7"], ids=["a list", "a number"])
    def test_what_is_no_table_of_groups_is_refused(self, table: str):
        with pytest.raises(MalformedFile, match="it does not hold a table of groups"):
            _groups(f'{{"subscriptionGroupTable":{table}}}')


class TestNames:
    @pytest.mark.parametrize("name", ["g", "%G|1_-", "g" * GROUP_SIZE_MAX])
    def test_legal_groups(self, name: str):
        assert group_problem(name) is None

    @pytest.mark.parametrize(
        ("name", "problem"),
        [("", "empty"), ("a b", "letters"), ("a@b", "letters"), ("gruppe-ä", "letters"),
         ("g" * (GROUP_SIZE_MAX + 1), "limit is 120")],
    )  # fmt: skip
    def test_illegal_groups(self, name: str, problem: str):
        assert problem in str(group_problem(name))

    def test_members_are_printable_and_not_too_long(self):
        assert member_problem("10.0.0.9@123#7") is None
        assert all(map(member_problem, ("", "a\nb", "m" * (MEMBER_SIZE_MAX + 1))))


def test_bare_keys_stand_below_the_offset_table_alone():
    content = {"topicConfigTable": {"7": {"8": 9}}, "offsetTable": {"3": 12, "4": 7}, "none": None}
    assert dumps_fastjson(content) == (
        '{\n\t"offsetTable":{3:12,4:7\n\t},\n\t"topicConfigTable":{\n\t\t"7":{\n\t\t\t"8":9\n\t\t}\n\t}\n}'
    )
