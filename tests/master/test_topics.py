"""Which topics a master makes, and that they are kept."""

import pytest

from master.topics import Topics
from towline.errors import TooManyQueues, TopicExists, UnknownTopic
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
