"""Slaves that join a master: in the middle of its log, and several of one broker name."""

from dataclasses import replace

import pytest

from tests.processes.nodes import POOLED, SEGMENT, TestNode, check_nothing_is_left, ended, free_port
from tests.processes.waiting import await_
from tests.processes.wire import WireClient, records_of
from towline.format.wire.status import PutStatus
from towline.log.state.durable_file import DurableFile
from towline.runtime.positions import Position

TOPIC = b"orders"


@pytest.fixture(params=[{}, POOLED], ids=["files", "transient pool"])
def nodes(request, tmp_path):
    port = free_port()
    given = {"ha_listen_port": port, "broker_role": "SYNC_MASTER"} | request.param
    master = TestNode("master", tmp_path / "master", **given)
    slaves = [
        TestNode("slave", tmp_path / f"slave{number}", ha_master_address=f"127.0.0.1:{port}", broker_id=number)
        for number in (1, 2)
    ]
    ending = ended(master, *slaves)
    next(ending)
    yield master, *slaves
    next(ending, None)


def put(node, count):
    client = WireClient(node.endpoint)
    client.create_topic(TOPIC.decode(), 4)
    statuses = {client.put(records_of(TOPIC, 400, size=2000)).status for _ in range(count)}
    client.close()
    return statuses


def level(master, *slaves):
    end = master.at(Position.APPENDED)
    parts = (Position.APPENDED, Position.FLUSHED, Position.DISPATCHED)
    return all(node.at(part) == end for node in (master, *slaves) for part in parts)


def test_an_empty_slave_joins_a_log_whose_first_segment_has_gone(nodes):
    master, slave, _ = nodes
    master.start("--set", "slave_timeout=50")
    put(master, 12)
    master.stop()
    durable = DurableFile(master.store.root)
    durable.save(replace(durable.load(), log_min=SEGMENT))  # as cleaning does before it deletes
    durable.close()
    (master.store.commitlog / f"{0:020d}").unlink()
    master.start()
    assert master.at(Position.LOG_MIN) == SEGMENT
    slave.start()
    await_(lambda: level(master, slave), 60.0, "the slave holds and has dispatched what is left of the log")
    assert slave.at(Position.LOG_MIN) == SEGMENT
    assert put(master, 1) == {PutStatus.PUT_OK}
    await_(lambda: level(master, slave), 60.0, "the slave follows")
    slave.kill_all(seed=1)
    slave.start()
    assert (slave.at(Position.LOG_MIN), slave.at(Position.APPENDED)) == (SEGMENT, master.at(Position.APPENDED))
    assert (slave.stop(), master.stop()) == (True, True)
    check_nothing_is_left(master, slave)


def test_two_slaves_of_one_broker_name_follow_side_by_side(nodes):
    for node in nodes:
        node.start()
    master = nodes[0]
    await_(lambda: sum(slave.connected for slave in master.positions.slaves()) == 2, 60.0, "both are linked")
    assert put(master, 3) == {PutStatus.PUT_OK}
    await_(lambda: level(*nodes), 60.0, "both hold everything")
    assert sum(slave.connected for slave in master.positions.slaves()) == 2
    assert "left at" not in master.store.node_log.read_text()
