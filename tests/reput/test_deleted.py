"""Queues of deleted topics, as reput treats them: nothing below the floor is read, and whole files below it go."""

from dataclasses import replace

import pytest

from tests.log.stores import QUEUE_FILE
from towline.format.files.consume_queue import SIZE
from towline.format.files.durable import Durable
from towline.format.files.topics import DeletedTopic, TopicConfig, TopicTable, topics_content
from towline.log.files.config_file import ConfigFile
from towline.log.queues.consume_queue import ConsumeQueueFiles
from towline.log.state.durable_file import DurableFile
from towline.log.state.topics_file import TopicsConfig
from towline.runtime.positions import Position
from towline.runtime.queue_ends import QueueEnds

from .test_reput import Bench

PER_FILE = QUEUE_FILE // SIZE


@pytest.fixture
def bench(tmp_path):
    return Bench(tmp_path)


def put(bench, count, topic="Topic0"):
    for number in range(count):
        bench.maker.append(b"%d" % number, topic=topic)
    bench.publish(bench.maker.end)


def delete(bench, log_offset, floor, topic="Topic0", *, exists=False):
    topics = {topic: TopicConfig(topic_name=topic)} if exists else {}
    deleted = {topic: DeletedTopic(log_offset=log_offset, floors={0: floor})}
    bench.store.config.mkdir(exist_ok=True)
    TopicsConfig(bench.store.config / "topics.json").save(topics_content(TopicTable(topics=topics, deleted=deleted)))
    bench.clock.ms += 1000


def bounds(bench, topic="Topic0"):
    ends = QueueEnds.open(bench.runtime.queue_ends)
    return ends.bounds(ends.find(topic.encode(), 0))


def files(bench, topic="Topic0"):
    return [base // QUEUE_FILE for base in ConsumeQueueFiles(bench.store.consumequeue, QUEUE_FILE, 4).bases(topic, 0)]


def test_it_is_empty_at_once_and_its_files_go_but_the_newest(bench):
    agent = bench.agent()
    count = 2 * PER_FILE + 3
    put(bench, count)
    bench.work(agent)
    delete(bench, bench.maker.end, count)
    bench.work(agent)
    assert bounds(bench) == (count, count)
    assert files(bench) == [2]


def test_what_is_put_after_it_is_read_and_other_topics_are_left_alone(bench):
    agent = bench.agent()
    count = PER_FILE + 3
    put(bench, count)
    put(bench, count, "Topic1")
    bench.work(agent)
    delete(bench, bench.maker.end, count, exists=True)
    put(bench, 4)
    bench.work(agent)
    assert bounds(bench) == (count, count + 4)
    assert (bounds(bench, "Topic1"), files(bench, "Topic1")) == ((0, count), [0, 1])


def test_while_older_records_are_still_dispatched_the_queue_looks_empty_and_no_file_goes(bench):
    """A slave, or a start that derives again, hears of the deletion before it has all of the topic's records."""
    agent = bench.agent()
    count = 2 * PER_FILE + 3
    put(bench, PER_FILE + 5)
    early = bench.maker.end
    put(bench, count - PER_FILE - 5)
    end = bench.maker.end
    bench.positions.words[Position.APPENDED.word] = bench.positions.words[Position.FLUSHED.word] = early
    delete(bench, end, count)
    bench.work(agent)
    assert bounds(bench) == (PER_FILE + 5, PER_FILE + 5)
    assert files(bench) == [0, 1]
    bench.publish(end)
    bench.work(agent)
    assert bounds(bench) == (count, count)
    bench.clock.ms += 1000
    bench.work(agent)
    assert files(bench) == [2]


def test_a_start_knows_it_before_it_dispatches(bench):
    put(bench, 10)
    delete(bench, bench.maker.end, 7, exists=True)
    bench.work(bench.agent())
    assert bounds(bench) == (7, 10)


def test_a_file_that_cannot_be_read_changes_nothing(bench):
    agent = bench.agent()
    put(bench, 3)
    bench.work(agent)
    bench.store.config.mkdir(exist_ok=True)
    (bench.store.config / "topics.json").write_text("{")
    bench.clock.ms += 1000
    bench.work(agent)
    assert bounds(bench) == (0, 3)


def test_a_deletion_that_may_still_be_put_back_is_left_alone(bench):
    """Between the rename and the sync of the file's directory, one generation alone says that the topic is gone."""
    agent = bench.agent()
    put(bench, 3)
    bench.work(agent)
    path = bench.store.config / "topics.json"
    bench.store.config.mkdir(exist_ok=True)
    TopicsConfig(path).save(topics_content(TopicTable(topics={"Topic0": TopicConfig(topic_name="Topic0")})))
    deleted = topics_content(TopicTable(deleted={"Topic0": DeletedTopic(log_offset=bench.maker.end, floors={0: 3})}))
    ConfigFile(path).save(deleted)
    bench.clock.ms += 1000
    bench.work(agent)
    assert bounds(bench) == (0, 3)
    TopicsConfig(path).settle(deleted)
    bench.clock.ms += 1000
    bench.work(agent)
    assert bounds(bench) == (3, 3)


def begin_log_at(bench, offset):
    """The log's beginning, as cleaning publishes it and flush records it."""
    bench.positions.words[Position.LOG_MIN.word] = offset
    durable = DurableFile(bench.store.root)
    durable.save(replace(durable.load() or Durable(), log_min=offset))
    durable.close()
    bench.clock.ms += 1000


def test_when_nothing_of_it_is_in_the_log_all_of_it_goes_and_it_may_be_made_again(bench):
    agent = bench.agent()
    count = PER_FILE + 3
    put(bench, count)
    put(bench, 1, "Topic1")
    bench.work(agent)
    delete(bench, bench.maker.end, count)
    bench.work(agent)
    reader = ConsumeQueueFiles(bench.store.consumequeue, QUEUE_FILE, 4)
    assert len(reader.read("Topic0", 0, count - 1, 1)) == 1, "somebody has the newest file open"
    bench.clock.ms += 1000
    bench.work(agent)
    assert files(bench) == [1]
    begin_log_at(bench, bench.maker.end)
    bench.work(agent)
    assert not (bench.store.consumequeue / "Topic0").exists()
    assert bounds(bench) == (count, count)
    delete(bench, bench.maker.end, count, exists=True)
    at = bench.maker.end
    put(bench, 2)
    bench.work(agent)
    assert bounds(bench) == (count, count + 2)
    assert reader.read("Topic0", 0, count, 2)["physical_offset"][0] == at, "it opens the file that was made anew"
    bench.clock.ms += 1000
    bench.work(agent)
    assert files(bench) == [1]


def test_one_that_was_made_again_before_keeps_its_newest_file(bench):
    agent = bench.agent()
    put(bench, 5)
    bench.work(agent)
    deleted = bench.maker.end
    delete(bench, deleted, 5)
    bench.work(agent)
    put(bench, 3)  # its topic exists again, which reput has not seen yet
    bench.work(agent)
    begin_log_at(bench, deleted)
    bench.work(agent)
    assert (files(bench), bounds(bench)) == ([0], (5, 8))
