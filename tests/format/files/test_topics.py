"""Topic names, and topics.json in the dialects of RocketMQ."""

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from towline.errors import IllegalTopic, MalformedFile
from towline.format.files.fastjson import dumps_fastjson
from towline.format.files.topics import (
    RETENTION_BYTES,
    RETENTION_MS,
    DataVersion,
    TopicConfig,
    TopicTable,
    check_topic,
    loads_fastjson,
    read_topics,
    topics_content,
)

GOLDEN = """{
	"dataVersion":{
		"counter":3,
		"stateVersion":0,
		"timestamp":1700000000000
	},
	"topicConfigTable":{
		"TopicA":{
			"attributes":{},
			"order":false,
			"perm":6,
			"readQueueNums":4,
			"topicFilterType":"SINGLE_TAG",
			"topicName":"TopicA",
			"topicSysFlag":0,
			"writeQueueNums":4
		}
	}
}"""
TABLE = TopicTable(
    topics={"TopicA": TopicConfig(topic_name="TopicA")},
    data_version=DataVersion(counter=3, timestamp=1700000000000),
)
INT = st.integers(0, 2**31 - 1)
TOPIC = st.builds(
    TopicConfig,
    topic_name=st.text("abc%|-_09", min_size=1),
    read_queue_nums=INT,
    write_queue_nums=INT,
    perm=st.integers(0, 7),
    order=st.booleans(),
    topic_sys_flag=INT,
    attributes=st.dictionaries(st.text(), st.text(), max_size=3),
)


def read(text: str, path: str = "topics.json") -> TopicTable:
    return read_topics(loads_fastjson(text, path), path)


def test_how_long_messages_are_kept_stands_among_the_attributes_as_a_broker_writes_them():
    kept = {RETENTION_BYTES: "10737418240", RETENTION_MS: "259200000"}
    topic = TopicConfig(topic_name="TopicA", attributes=kept)
    attributes = '{\n\t\t\t\t"retention.bytes":"10737418240",\n\t\t\t\t"retention.ms":"259200000"\n\t\t\t}'
    text = GOLDEN.replace('"attributes":{}', f'"attributes":{attributes}')
    assert dumps_fastjson(topics_content(replace(TABLE, topics={"TopicA": topic}))) == text
    assert read(text).topics["TopicA"] == topic
    assert (topic.retention_ms, topic.retention_bytes) == (259_200_000, 10 << 30)


@pytest.mark.parametrize("text", ["-1", "0", "", "3d", "1.5", " 7", "٣", "9" * 20, "9" * 5000])
def test_what_sets_no_bound_there_is_none(text):
    topic = TopicConfig(topic_name="t", attributes={RETENTION_MS: text, RETENTION_BYTES: text})
    assert (topic.retention_ms, topic.retention_bytes) == (None, None)


class TestNames:
    @pytest.mark.parametrize("name", ["a", "TopicA", "%RETRY%g|1_-", "t" * 127, "%RETRY%" + "g" * 248], ids=len)
    def test_legal_names_pass(self, name):
        check_topic(name)

    @pytest.mark.parametrize(
        ("name", "said"),
        [
            ("", "empty"),
            ("a b", "legal"),
            ("flüge", "legal"),
            ("a\n", "legal"),
            ("a/../b", "legal"),
            ("t" * 128, "has 128 bytes, the limit is 127"),
            ("%RETRY%" + "g" * 249, "has 256 bytes, the limit is 255"),
        ],
        ids=["empty", "space", "umlaut", "newline", "path", "128 bytes", "retry of 256 bytes"],
    )
    def test_other_names_are_refused_with_the_reason(self, name, said):
        with pytest.raises(IllegalTopic, match=said) as caught:
            check_topic(name)
        assert caught.value.name == name

    def test_dots_are_legal_where_they_are_allowed_and_not_in_front(self):
        check_topic("orders.eu.v1", dots=True)
        for name in (".", "..", ".orders", "a/b.c"):
            with pytest.raises(IllegalTopic, match="behind the first, dots"):
                check_topic(name, dots=True)
        with pytest.raises(IllegalTopic, match="dots_in_topic_names"):
            check_topic("orders.eu")


class TestTopicsJson:
    def test_is_written_as_rocketmq_writes_it(self):
        assert dumps_fastjson(topics_content(TABLE)) == GOLDEN

    def test_is_read_as_rocketmq_5_writes_it(self):
        assert read(GOLDEN) == TABLE

    def test_missing_members_keep_their_defaults_and_unknown_ones_are_ignored(self):
        text = '{"topicConfigTable":{"T":{"perm":4,"newer":[1,{"a":2}]}},"other":null}'
        assert read(text) == TopicTable(topics={"T": TopicConfig(topic_name="T", perm=4)})

    @given(st.lists(TOPIC, max_size=4), st.builds(DataVersion, counter=INT, state_version=INT, timestamp=INT))
    def test_a_table_reads_back_as_it_was_written(self, topics, data_version):
        table = TopicTable(topics={topic.topic_name: topic for topic in topics}, data_version=data_version)
        assert read(dumps_fastjson(topics_content(table))) == table

    @pytest.mark.parametrize(
        "text",
        [
            "",
            "{",
            "[]",
            "7",
            '{"topicConfigTable":[]}',
            '{"topicConfigTable":{"T":5}}',
            '{"dataVersion":{"counter":"x"}}',
        ],
        ids=repr,
    )
    def test_a_text_that_is_no_table_is_refused_with_its_path(self, text):
        with pytest.raises(MalformedFile) as caught:
            read(text, "/store/config/topics.json")
        assert caught.value.path == "/store/config/topics.json"


class TestPermissions:
    def test_perm_says_who_may_read_and_write(self):
        read_only = TopicConfig(topic_name="T", perm=4)
        assert (read_only.readable, read_only.writable) == (True, False)
        write_only = TopicConfig(topic_name="T", perm=2)
        assert (write_only.readable, write_only.writable) == (False, True)


class TestFastjson:
    def test_integer_keys_without_quotes_become_strings(self):
        text = '{\n\t"offsetTable":{\n\t\t"TopicA@g1":{0:5,1:7\n\t\t}\n\t}\n}'
        assert loads_fastjson(text, "x") == {"offsetTable": {"TopicA@g1": {"0": 5, "1": 7}}}

    def test_negative_keys_and_spaces_are_read_too(self):
        assert loads_fastjson("{ -1 : 2 , 3 : [4,5] }", "x") == {"-1": 2, "3": [4, 5]}

    def test_strings_that_look_like_keys_are_left_alone(self):
        content = {"a": "{0:5,1:7}", 'quote " and {2:3': 'back\\slash",4:5'}
        assert loads_fastjson(json.dumps(content), "x") == content

    def test_what_is_nested_too_deep_is_malformed(self):
        with pytest.raises(MalformedFile):
            loads_fastjson("[" * 100_000, "x")

    @given(st.recursive(st.none() | st.integers() | st.text(), lambda inner: st.dictionaries(st.text(), inner)))
    def test_standard_json_reads_as_it_is(self, value):
        assert loads_fastjson(json.dumps({"value": value}), "x") == {"value": value}
