"""Which queues clients may read from, as config/topics.json says, and when a change of it is seen."""

import json

import pytest

from towline.errors import MalformedFile
from towline.format.files.fastjson import dumps_fastjson
from towline.format.files.topics import DeletedTopic, TopicConfig, TopicTable, topics_content
from towline.format.wire.status import GetStatus
from towline.log.files.config_file import ConfigFile
from towline.serve.topics import CHECK_EVERY_MS, TopicsView

from .test_pull import Reader


@pytest.fixture
def path(tmp_path):
    return tmp_path / "topics.json"


def write(path, deleted=None, **perms):
    topics = {name: TopicConfig(topic_name=name, read_queue_nums=2, perm=perm) for name, perm in perms.items()}
    staged = path.with_suffix(".new")
    staged.write_text(dumps_fastjson(topics_content(TopicTable(topics=topics, deleted=deleted or {}))))
    staged.replace(path)


@pytest.mark.parametrize(
    ("topic", "queue", "allowed"),
    [
        (b"both", 0, True), (b"both", 1, True), (b"both", 2, None), (b"both", -1, None), (b"write", 0, False),
        (b"nothing", 0, False), (b"read", 0, True), (b"unknown", 0, None), (b"\xff", 0, None),
        (b"SCHEDULE_TOPIC_XXXX", 17, True),
    ],
)  # fmt: skip
def test_who_may_be_read(path, topic, queue, allowed):
    write(path, both=6, write=2, nothing=0, read=4)
    assert TopicsView(path).allows(topic, queue) is allowed


def test_without_a_file_everything_may_be_read(path):
    assert TopicsView(path).allows(b"any", 9) is True


def test_a_change_is_seen_when_it_is_looked_for_and_not_more_often_than_that(path):
    write(path, t=6)
    view = TopicsView(path)
    assert view.allows(b"t", 0) is True
    assert view.check(CHECK_EVERY_MS) is False
    write(path, t=2)
    assert view.check(2 * CHECK_EVERY_MS - 1) is False
    assert view.allows(b"t", 0) is True
    assert view.check(2 * CHECK_EVERY_MS) is True
    assert view.allows(b"t", 0) is False


def test_a_topic_made_later_is_seen_at_once(path):
    write(path, t=6)
    view = TopicsView(path)
    assert view.allows(b"new", 0) is None
    write(path, t=6, new=6)
    assert view.allows(b"new", 0) is True


def test_floors_are_those_of_deleted_topics(path):
    write(path, {"t": DeletedTopic(log_offset=9, floors={1: 5})})
    view = TopicsView(path)
    view.refresh()
    assert [view.floor("t", 1), view.floor("t", 0), view.floor("u", 1)] == [5, 0, 0]


def test_a_file_that_cannot_be_read_leaves_what_was_known(path):
    write(path, t=6)
    view = TopicsView(path)
    view.refresh()
    path.write_text("{")
    assert view.check(CHECK_EVERY_MS) is False
    assert view.allows(b"t", 0) is True
    with pytest.raises(MalformedFile):
        view.all()


def test_pulls_from_a_topic_that_is_not_readable_are_refused_by_name(build):
    built = build()
    built.topics(t=1)
    built.fill(3)
    reader = Reader(built)
    assert reader.pull(0).status is GetStatus.FOUND
    write(built.store.config / "topics.json", t=2)
    refused = Reader(built).pull(0)
    assert (refused.status, refused.count) == (GetStatus.REFUSED, 0)
    assert json.loads(refused.why[0])["error"] == "NO_PERMISSION"


def test_pulls_from_a_deleted_topic_are_refused_though_it_has_entries(build):
    built = build()
    built.topics(t=1)
    built.fill(3)
    write(built.store.config / "topics.json", other=6)
    refused = Reader(built).pull(2)
    assert (refused.status, refused.next_offset) == (GetStatus.REFUSED, 2)
    assert json.loads(refused.why[0])["error"] == "UnknownTopic"


def test_the_files_owner_is_config_file(path):
    """What put saves with its check is read here."""
    ConfigFile(path).save(topics_content(TopicTable(topics={"t": TopicConfig(topic_name="t")})))
    assert TopicsView(path).get("t") == TopicConfig(topic_name="t")
