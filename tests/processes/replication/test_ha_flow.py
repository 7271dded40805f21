"""A sender whose flow is limited sends a slave no more in a second than the settings allow."""

import time

import pytest

from tests.processes.nodes import TestNode, ended, free_port
from tests.processes.waiting import await_
from tests.processes.wire import WireClient, records_of
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
    ending = ended(master, slave)
    next(ending)
    yield master, slave
    next(ending, None)


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
