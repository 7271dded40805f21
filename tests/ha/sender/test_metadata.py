"""A slave's question about metadata is answered when there is something to say."""

import json
import zlib

import pytest

from tests.log.stores import QUEUE_FILE
from towline.errors import MalformedFrame
from towline.ha.sender.metadata import CHECK_EVERY_MS, HOLD_MAX_MS, Metadata
from towline.places import Store

PEER = b"slave"


@pytest.fixture
def store(tmp_path):
    made = Store(tmp_path)
    made.config.mkdir()
    return made


@pytest.fixture
def metadata(store):
    save(store, "topics.json", {"orders": 4})
    return Metadata(store, QUEUE_FILE)


def save(store, name, content):
    fresh = store.config / "fresh"
    fresh.write_text(json.dumps(content))
    fresh.rename(store.config / name)


def question(store, *names, hold_ms=1000):
    have = {name: zlib.crc32((store.config / name).read_bytes()) for name in names}
    return {"op": "metadata", "have": have, "hold_ms": hold_ms}


def test_what_differs_is_answered_at_once(store, metadata):
    assert metadata.ask(PEER, 1, question(store), 0) == {"files": {"topics.json": '{"orders": 4}'}}


def test_what_is_the_same_is_answered_when_it_changes(store, metadata):
    assert metadata.ask(PEER, 1, question(store, "topics.json"), 0) is None
    assert list(metadata.due(CHECK_EVERY_MS)) == []
    save(store, "topics.json", {"orders": 8})
    assert list(metadata.due(2 * CHECK_EVERY_MS)) == [(PEER, 1, {"files": {"topics.json": '{"orders": 8}'}})]
    assert list(metadata.due(10_000)) == [], "one answer"


def test_a_file_that_was_not_there_is_a_change(store, metadata):
    metadata.ask(PEER, 1, question(store, "topics.json"), 0)
    save(store, "delayOffset.json", {})
    assert list(metadata.due(CHECK_EVERY_MS)) == [(PEER, 1, {"files": {"delayOffset.json": "{}"}})]


def test_a_file_that_is_written_anew_with_the_same_content_is_none(store, metadata):
    metadata.ask(PEER, 1, question(store, "topics.json"), 0)
    save(store, "topics.json", {"orders": 4})
    assert list(metadata.due(CHECK_EVERY_MS)) == []
    assert list(metadata.due(1000)) == [(PEER, 1, {"files": {}})], "its time is over"


def test_the_files_are_not_looked_at_each_turn(store, metadata):
    metadata.ask(PEER, 1, question(store, "topics.json"), 0)
    assert list(metadata.due(0)) == []
    save(store, "topics.json", {"orders": 8})
    assert list(metadata.due(CHECK_EVERY_MS - 1)) == []
    assert len(list(metadata.due(CHECK_EVERY_MS))) == 1


def test_one_that_is_not_to_be_held_is_answered_at_once(store, metadata):
    assert metadata.ask(PEER, 1, question(store, "topics.json", hold_ms=0), 0) == {"files": {}}


@pytest.mark.parametrize("hold_ms", [-1, HOLD_MAX_MS + 1, "x", 1.5, True])
def test_times_that_make_no_sense_are_refused(store, metadata, hold_ms):
    with pytest.raises(MalformedFrame):
        metadata.ask(PEER, 1, question(store, hold_ms=hold_ms), 0)
