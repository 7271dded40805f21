"""A sender whose flow is limited sends a slave no more in a second than the settings allow."""

import time

import pytest

from tests.processes.nodes import TestNode, ending, free_port
from tests.processes.waiting import await_
from tests.processes.wire import WireClient, records_of
from towline.node.process.settings_changes import change_settings
from towline.runtime.positions import Position

RATE = 1_000_000
BYTES = 3_000_000
APPEARS_S = 30.0


@pytest.fixture
def pair(tmp_path):
    port = free_port()
    limited = {"ha_flow_control_enable": True, "max_ha_transfer_byte_in_second": RATE}
    master = TestNode("master", tmp_path / "master", ha_listen_port=port, **limited)
    slave = TestNode("slave", tmp_path / "slave", ha_master_address=f"127.0.0.1:{port}")
    with ending(master, slave):
        yield master, slave


def test_a_slave_that_catches_up_is_sent_the_log_at_the_rate_that_was_set(pair):
    master, slave = pair
    master.start()
    client = WireClient(master.endpoint)
    client.create_topic("orders", 1)
    while master.at(Position.APPENDED) < BYTES:
        client.put(records_of(b"orders", 100, size=2000))
    client.close()
    began = time.monotonic()
    slave.start()
    end = master.at(Position.APPENDED)
    await_(lambda: slave.at(Position.APPENDED) == end, APPEARS_S, "it has caught up")
    took = time.monotonic() - began
    assert end / took < 1.2 * RATE  # a portion goes at once


def test_a_slave_that_is_connected_is_held_to_a_rate_that_is_set_while_it_runs(tmp_path):
    port = free_port()
    master = TestNode("master", tmp_path / "master", ha_listen_port=port, flush_disk_type="ASYNC_FLUSH")
    slave = TestNode("slave", tmp_path / "slave", ha_master_address=f"127.0.0.1:{port}")
    with ending(master, slave):
        master.start()
        slave.start()
        await_(lambda: any(line.connected for line in master.positions.slaves()), APPEARS_S, "it is connected")
        limit = {"ha_flow_control_enable": True, "max_ha_transfer_byte_in_second": RATE}
        change_settings(master.store.root, limit, keep=False)
        client = WireClient(master.endpoint)
        client.create_topic("orders", 1)
        began = time.monotonic()
        while master.at(Position.APPENDED) < BYTES:
            client.put(records_of(b"orders", 100, size=2000))
        client.close()
        end = master.at(Position.APPENDED)
        await_(lambda: slave.at(Position.APPENDED) == end, APPEARS_S, "it has what was put")
        assert end / (time.monotonic() - began) < 1.2 * RATE
