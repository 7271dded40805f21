"""Recovery with deleted topics: when their queues go, and what a lost end of the log does to their floors."""

import pytest

from tests.log.stores import QUEUE_FILE, SEGMENT, StoreMaker
from towline.format.files.consume_queue import SIZE
from towline.format.files.topics import DeletedTopic, TopicConfig, TopicTable, topics_content
from towline.log.files.config_file import ConfigFile
from towline.log.queues.consume_queue import ConsumeQueueFiles
from towline.log.recovery.offset_rollback import lower_floors
from towline.log.state.topics_file import read_table

PER_FILE = QUEUE_FILE // SIZE


@pytest.fixture
def maker(tmp_path):
    made = StoreMaker(tmp_path / "store")
    made.store.config.mkdir(parents=True, exist_ok=True)
    return made


def put(maker, count, topic="TopicA"):
    return [maker.append(b"%d" % number, topic=topic).at for number in range(count)]


def delete(maker, log_offset, floor, *, exists=False):
    topics = {"TopicA": TopicConfig(topic_name="TopicA")} if exists else {}
    deleted = {"TopicA": DeletedTopic(log_offset=log_offset, floors={0: floor})}
    ConfigFile(maker.store.config / "topics.json").save(topics_content(TopicTable(topics=topics, deleted=deleted)))


def queue(recovered, topic="TopicA"):
    return next(((row.min_offset, row.end_offset) for row in recovered.queues if row.topic == topic), None)


def floors(maker, recovered):
    settled = lower_floors(maker.store, recovered, SEGMENT)
    assert settled == read_table(maker.store)
    return settled.floors()


def files(maker):
    return ConsumeQueueFiles(maker.store.consumequeue, QUEUE_FILE, 4)


def test_the_queue_of_a_deleted_topic_stays_while_the_log_has_its_records(maker):
    put(maker, 5)
    maker.dispatch(maker.end)
    maker.durable(maker.end, maker.end)
    delete(maker, maker.end, 5)
    recovered = maker.recover()
    assert queue(recovered) == (0, 5)
    assert floors(maker, recovered) == {(b"TopicA", 0): 5}


@pytest.mark.parametrize("exists", [False, True])
def test_it_goes_with_its_directories_when_the_log_has_nothing_of_it_any_more(maker, exists):
    put(maker, 5)
    maker.append(b"x" * (SEGMENT - 4 * 1024), topic="TopicB")
    maker.append(b"x" * 8 * 1024, topic="TopicB")
    maker.dispatch(maker.end)
    delete(maker, SEGMENT, 5, exists=exists)
    maker.path(0).unlink()
    maker.durable(maker.end, maker.end, log_min=SEGMENT)
    recovered = maker.recover()
    assert (queue(recovered) is not None) is exists
    assert (maker.store.consumequeue / "TopicA").exists() is exists
    assert queue(recovered, "TopicB") == (1, 2)


def test_dispatching_that_begins_before_the_deletion_begins_the_queue_anew(maker):
    """Its first file was removed, and what is left is of records that come again: it must not begin in their middle."""
    places = put(maker, PER_FILE + 5)
    maker.dispatch(maker.end)
    assert files(maker).delete_below("TopicA", 0, PER_FILE) == 1
    delete(maker, maker.end, PER_FILE + 5)
    maker.durable(maker.end, places[3])
    recovered = maker.recover()
    assert recovered.dispatched == places[3]
    assert queue(recovered) is None
    assert not (maker.store.consumequeue / "TopicA").exists()


def test_numbers_that_were_lost_with_the_end_of_the_log_lower_the_floor(maker):
    """The file of topics is synced, the log was not: 3 of 8 records are gone, and number 5 is given next."""
    places = put(maker, 8)
    maker.dispatch(places[3])
    maker.durable(places[3], places[3])
    end = maker.end
    maker.zero_from(places[5])
    delete(maker, end, 8)
    recovered = maker.recover()
    assert recovered.end == places[5]
    assert floors(maker, recovered) == {(b"TopicA", 0): 5}
    assert read_table(maker.store).deleted["TopicA"].log_offset == places[5]


def test_a_queue_of_which_nothing_is_left_keeps_its_floor(maker):
    put(maker, 2, "TopicB")
    end = maker.end
    maker.durable(end, end)
    maker.dispatch(end)
    delete(maker, end + 1000, 8)
    assert floors(maker, maker.recover()) == {(b"TopicA", 0): 8}


def test_a_file_of_topics_that_cannot_be_read_is_left_to_its_owner(maker):
    put(maker, 2)
    maker.durable(maker.end)
    (maker.store.config / "topics.json").write_text("{")
    assert lower_floors(maker.store, maker.recover(), SEGMENT).deleted == {}
    assert (maker.store.config / "topics.json").read_text() == "{"
