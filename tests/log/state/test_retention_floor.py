"""From where on the log holds what is to be delivered, as told by the offsets that were written."""

import numpy as np
import pytest

from tests.master.schedule.delaying import made
from tests.serve.building import NOON
from towline.errors import MalformedFile
from towline.format.record.forms import delayed, half, timed
from towline.log.files.config_file import ConfigFile
from towline.log.state.floors import undelivered_from


@pytest.fixture
def store(tmp_path):
    built = made(tmp_path, orders=1)
    yield built
    built.close()


def first(store, levels=2):
    def bounds(topic, queue_id):
        place = store.ends.find(topic, queue_id)
        return (0, 0) if place < 0 else store.ends.bounds(place)

    return undelivered_from(store.store, store.queues, bounds, levels)


def say(store, name, content):
    ConfigFile(store.store.config / name).save(content)


def test_it_is_the_first_of_what_no_offset_counts_as_through(store):
    assert first(store) is None
    starts = []
    for number, form in enumerate(
        [half("orders", 0, "g"), timed("orders", 0, NOON), delayed("orders", 0, 1), delayed("orders", 0, 2)]
    ):
        starts.append(store.end)
        store.put(form, f"k{number}")
    store.dispatch()
    assert first(store) == starts[0]
    say(store, "consumerOffset.json", {"offsetTable": {"RMQ_SYS_TRANS_HALF_TOPIC@CID_RMQ_SYS_TRANS": {"0": 1}}})
    assert first(store) == starts[1]
    say(store, "timerOffset.json", {"from": 1})
    assert first(store) == starts[2]
    say(store, "delayOffset.json", {"offsetTable": {"1": 1}})
    assert first(store) == starts[3]
    say(store, "delayOffset.json", {"offsetTable": {"1": 1, "2": 1}})
    assert first(store) is None


def test_a_level_that_the_settings_have_no_more_holds_what_waits_in_it(store):
    assert first(store, levels=1) is None
    store.put(delayed("orders", 0, 2), "k")
    store.dispatch()
    assert first(store, levels=1) == 0


def test_what_left_the_log_and_the_fillers_of_a_queue_count_not(store):
    for number in range(3):
        last = store.end
        store.put(timed("orders", 0, NOON), f"k{number}")
    store.dispatch()
    store.ends.move_min(store.ends.find(b"rmq_sys_wheel_timer", 0), 2)
    assert first(store) == last
    filler = np.frombuffer(store.queues.read("rmq_sys_wheel_timer", 0, 0, 1).tobytes(), dtype=np.uint8).copy()
    assert filler.size == 20


def test_offsets_that_cannot_be_read_are_said(store):
    (store.store.config / "timerOffset.json").write_text("{")
    with pytest.raises(MalformedFile, match="timerOffset"):
        first(store)
