"""Store times never go back, though the clock did: a node begins with the time of its newest record."""

import shutil
import struct

import pytest

from tests.processes.nodes import TestNode, ending
from tests.processes.stored import Stored
from tests.processes.waiting import await_
from tests.processes.wire import WireClient, records_of
from towline.format.record.record import LAYOUT, layout_of
from towline.format.wire.status import PutStatus
from towline.log.commitlog.commit_log import store_time
from towline.log.files.segment_files import segment_name
from towline.runtime.positions import Position

TOPIC = b"orders"
HOUR_MS = 3_600_000


def put(node, times):
    client = WireClient(node.endpoint)
    client.create_topic(TOPIC.decode(), 1)
    statuses = {client.put(records_of(TOPIC, 1)).status for _ in range(times)}
    client.close()
    assert statuses == {PutStatus.PUT_OK}
    end = node.at(Position.APPENDED)
    await_(lambda: node.at(Position.DISPATCHED) == end, 60.0, "it is in its queue")


def times(node):
    """Store times of all messages in their order, and where the newest record begins."""
    stored = Stored(node.store, node.at(Position.APPENDED))
    places = [int(entry["physical_offset"]) for entry in stored.entries(TOPIC.decode(), 0)]
    found = [store_time(stored.log, place) for place in places]
    stored.close()
    return found, places[-1]


def store_later(node, place, time):
    """The record that begins there was stored at `time`, as by a clock that was right then, or fast."""
    with (node.store.commitlog / segment_name(0)).open("r+b") as file:
        file.seek(place + LAYOUT.offset["sys_flag"])
        (sys_flag,) = struct.unpack(">I", file.read(4))
        file.seek(place + layout_of(sys_flag).offset["store_timestamp"])
        file.write(struct.pack(">q", time))


@pytest.mark.parametrize("ends", ["stop", "kill", "power cut"])
def test_what_is_stored_after_the_clock_went_back_is_no_older_than_what_was_stored_before(tmp_path, ends):
    node = TestNode("master", tmp_path / "master", ha_listen_port=0)
    with ending(node):
        node.start()
        put(node, 2)
        found, newest = times(node)
        ahead = found[-1] + HOUR_MS
        if ends == "stop":
            assert node.stop()
        else:
            node.kill_all(seed=1)
        if ends == "power cut":
            shutil.rmtree(node.runtime)
        store_later(node, newest, ahead)
        node.start()
        assert node.at(Position.STORE_TIMESTAMP) == ahead
        put(node, 3)  # the first one into a queue goes another way than those that follow
        assert times(node)[0] == [found[0], *[ahead] * 4]
        assert node.at(Position.STORE_TIMESTAMP) == ahead
