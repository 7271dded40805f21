"""Which topics a master makes, and that they are kept."""

import pytest

from master.topics import Topics
from towline.errors import IllegalTopic, TooManyQueues, TopicExists, UnknownTopic
from towline.format.topics import SYSTEM_TOPICS, TopicConfig, TopicTable, dumps_topics
from towline.log.config_file import ConfigFile


class StillClock:
    def now_ms(self):
        return 1

    monotonic_ms = now_ms


def topics(tmp_path, **options):
    defaults = {"auto_create": True, "queue_nums_default": 8, "queues_max": 10}
    made = Topics(ConfigFile(tmp_path / "topics.json"), StillClock(), **(defaults | options))
    made.load()
    return made


def test_a_topic_made_by_itself_has_four_queues_and_is_there_after_a_restart(tmp_path):
    assert topics(tmp_path).route("orders").write_queue_nums == 4
    assert topics(tmp_path, auto_create=False).write_queues(b"orders") == 4


def test_an_unknown_topic_is_refused_when_topics_are_not_made_by_themselves(tmp_path):
    with pytest.raises(UnknownTopic, match="orders"):
        topics(tmp_path, auto_create=False).route("orders")


def test_a_topic_is_not_made_twice(tmp_path):
    made = topics(tmp_path)
    made.create("orders", 1)
    with pytest.raises(TopicExists):
        made.create("orders", 2)


def test_no_topic_is_made_whose_queues_the_node_cannot_hold(tmp_path):
    made = topics(tmp_path)
    made.create("orders", 8)
    with pytest.raises(TooManyQueues, match="10"):
        made.create("refunds", 3)
    assert made.create("refunds", 2).write_queue_nums == 2


def test_without_any_file_the_topics_of_the_queues_are_adopted(tmp_path):
    made = topics(tmp_path)
    made.adopt([(b"orders", 0), (b"orders", 5), ("%RETRY%bücher".encode(), 0)])
    assert made.names() == ["%RETRY%bücher", "orders"]
    assert (made.get("orders").read_queue_nums, made.write_queues(b"orders")) == (6, 6)
    assert topics(tmp_path).names() == ["%RETRY%bücher", "orders"]


def test_a_topic_that_the_file_leaves_out_stays_unknown(tmp_path):
    topics(tmp_path).create("orders", 1)
    made = topics(tmp_path)
    made.adopt([(b"orders", 3), (b"deleted", 0)])
    assert made.names() == ["orders"]
    assert made.write_queues(b"orders") == 1


LONG = "%RETRY%" + "g" * 121


def test_a_long_name_is_refused_where_records_of_version_2_are_not_written(tmp_path):
    assert topics(tmp_path).create(LONG, 1).write_queue_nums == 1
    kept = topics(tmp_path, long_names=False)
    assert kept.write_queues(LONG.encode()) == 0
    for ask in (kept.route, lambda name: kept.create(name, 1)):
        with pytest.raises(IllegalTopic, match="auto_message_version_on_topic_len"):
            ask(LONG + "h")
    assert kept.create(LONG[:-1], 1).write_queue_nums == 1


@pytest.mark.parametrize("name", [*sorted(SYSTEM_TOPICS), "RMQ_SYS_TRACE_TOPIC", "rmq_sys_wheel_timer"])
def test_a_topic_of_the_broker_is_nobodys_to_make_or_write(tmp_path, name):
    table = TopicTable(topics={name: TopicConfig(topic_name=name)})
    for made in (topics(tmp_path / "without"), topics(tmp_path)):
        with pytest.raises(IllegalTopic, match="for itself"):
            made.create(name, 1)
    (tmp_path / "topics.json").write_text(dumps_topics(table))
    assert topics(tmp_path).write_queues(name.encode()) == 0


@pytest.mark.parametrize("name", ["%RETRY%group", "%DLQ%group", "BenchmarkTest", "RMQ_SYSTEM", "DefaultCluster"])
def test_a_topic_that_clients_write_is_theirs_to_make(tmp_path, name):
    made = topics(tmp_path)
    made.create(name, 3)
    assert made.write_queues(name.encode()) == 3
