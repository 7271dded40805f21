"""Numbers of queues whose records all stand before the beginning of a log."""

import pytest

from tests.log.sound import content_of
from tests.log.stores import QUEUE_FILE, SEGMENT, StoreMaker
from towline.errors import MalformedFile
from towline.log.files.config_file import ConfigFile
from towline.log.state.floors import QUEUE_FLOORS, adopt_queue_floors, floors_at
from towline.log.state.topics_file import read_table


@pytest.fixture
def maker(tmp_path):
    """TopicA/0 has records everywhere; TopicA/1 and Quiet/5 only in the first segment."""
    made = StoreMaker(tmp_path / "store")
    for number in range(400):
        if number < 50:
            made.append(b"x" * 300, "TopicA", 1)
            made.append(b"x" * 300, "Quiet", 5) if number < 7 else None
        made.append(b"x" * 400, "TopicA", 0)
    made.dispatch(made.end)
    made.store.config.mkdir()
    ConfigFile(made.store.config / "topics.json").save(content_of("topics.json", 4))
    return made


def test_queues_without_a_record_from_there_on_have_a_floor(maker):
    assert floors_at(maker.store, QUEUE_FILE, SEGMENT) == {
        "start": SEGMENT,
        "floors": {"TopicA": {"1": 50}, "Quiet": {"5": 7}},
    }
    assert floors_at(maker.store, QUEUE_FILE, maker.records[20].at)["floors"] == {"Quiet": {"5": 7}}
    assert floors_at(maker.store, QUEUE_FILE, 0)["floors"] == {}


def test_a_master_takes_them_over_once(maker):
    path = maker.store.config / QUEUE_FLOORS
    ConfigFile(path).save(floors_at(maker.store, QUEUE_FILE, SEGMENT))
    assert adopt_queue_floors(maker.store) == 2
    table = read_table(maker.store)
    assert table.floors() == {(b"TopicA", 1): 50, (b"Quiet", 5): 7}
    assert set(table.topics) == {"TopicA", "TopicB"}
    assert not path.exists()
    assert adopt_queue_floors(maker.store) == 0
    assert floors_at(maker.store, QUEUE_FILE, SEGMENT)["floors"] == {"TopicA": {"1": 50}, "Quiet": {"5": 7}}


def test_greater_floors_stay(maker):
    for floor in (60, 9):
        ConfigFile(maker.store.config / QUEUE_FLOORS).save({"start": SEGMENT, "floors": {"TopicA": {"1": floor}}})
        adopt_queue_floors(maker.store)
    assert read_table(maker.store).floors() == {(b"TopicA", 1): 60}


@pytest.mark.parametrize("content", [{}, {"start": 1, "floors": {"a": 3}}, {"start": "x", "floors": {}}])
def test_what_names_no_queues_is_refused(maker, content):
    ConfigFile(maker.store.config / QUEUE_FLOORS).save(content)
    with pytest.raises(MalformedFile, match="names no queues"):
        adopt_queue_floors(maker.store)
