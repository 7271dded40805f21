"""A slave by RocketMQ's protocol follows a node: what it is sent, from where, and how far."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.typist import Typist
from tests.metrics.scraping import value, values
from tests.processes.groups import Group
from tests.processes.nodes import POOLED, SEGMENT, TestNode, check_nothing_is_left, ending, free_port
from tests.processes.stopping import stopped
from tests.processes.waiting import await_
from towline.client.message import Message
from towline.client.producer import Producer
from towline.limits import KIB, MIB
from towline.node.process.settings_changes import change_settings
from towline.node.report.status import read_status
from towline.runtime.positions import Duty, Position

from .raw_slave import SIZE, WAIT_S, RawSlave, body, client_port, followed, log_of, port_of, put

HEARTBEAT_MS = 200
COUNT = 3 * SEGMENT // SIZE  # messages that fill more than three segments


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestNode]:
    root = tmp_path_factory.mktemp("handed") / "store"
    made = followed(root, ha_send_heartbeat_interval=HEARTBEAT_MS, metrics_port=free_port())
    with ending(made):
        made.start()
        put(made, COUNT)
        yield made
        assert made.stop()
        check_nothing_is_left(made)


@pytest.fixture
def slave(node: TestNode) -> Iterator[RawSlave]:
    with RawSlave(port_of(node)) as made:
        yield made


@pytest.fixture
def whole(node: TestNode) -> Iterator[None]:
    change_settings(node.store.root, {"rocketmq_ha_from_oldest": True}, keep=False)
    yield
    change_settings(node.store.root, {"rocketmq_ha_from_oldest": False}, keep=False)


class TestWhatASlaveIsSent:
    def test_an_empty_one_begins_with_the_last_segment(self, node: TestNode, slave: RawSlave) -> None:
        end = node.at(Position.APPENDED)
        slave.report(0).follow(end)
        assert slave.start == end - end % SEGMENT
        assert bytes(slave.log) == log_of(node.store.root, slave.start, end)

    def test_or_with_the_oldest_where_the_settings_say_so(self, node: TestNode, slave: RawSlave, whole: None) -> None:
        end = node.at(Position.APPENDED)
        frames = slave.report(0).follow(end)
        assert slave.start == 0
        assert bytes(slave.log) == log_of(node.store.root, 0, end)
        assert max(len(frame.body) for frame in frames) == 128 * KIB
        for frame in frames:
            assert (frame.offset + max(0, len(frame.body) - 1)) // SEGMENT == frame.offset // SEGMENT, "two segments"

    def test_one_goes_on_where_its_log_ends_also_within_a_record(self, node: TestNode, slave: RawSlave) -> None:
        end, start = node.at(Position.APPENDED), SEGMENT + 12_345
        slave.report(start).follow(end)
        assert slave.start == start
        assert bytes(slave.log) == log_of(node.store.root, start, end)

    def test_what_is_put_comes_at_once(self, node: TestNode, slave: RawSlave) -> None:
        before = node.at(Position.APPENDED)
        slave.report(before)
        end = put(node, 10)
        slave.follow(end)
        assert bytes(slave.log) == log_of(node.store.root, before, end)

    def test_what_is_not_on_the_disk_yet_is_not_handed_on(self, node: TestNode, slave: RawSlave) -> None:
        """It is acknowledged, and readers see it; but a power cut may take it back."""
        end = put(node, 1)
        slave.report(end)
        with stopped(node.pids()["flush"]), Producer(node.endpoint) as producer:
            assert producer.send(Message("handed", body(1))).acknowledged
            assert [slave.frame() for _ in range(3)] == [(end, b"")] * 3
        slave.follow(node.at(Position.APPENDED))
        assert bytes(slave.log) == log_of(node.store.root, end, node.at(Position.APPENDED))

    def test_nothing_comes_before_its_first_report(self, node: TestNode, slave: RawSlave) -> None:
        put(node, 1)
        slave.sock.settimeout(3 * HEARTBEAT_MS / 1_000)
        with pytest.raises(TimeoutError):
            slave.frame()

    def test_heartbeats_say_where_the_next_bytes_begin(self, node: TestNode, slave: RawSlave) -> None:
        end = node.at(Position.APPENDED)
        slave.report(end)
        assert [slave.frame() for _ in range(3)] == [(end, b"")] * 3

    def test_a_report_may_come_byte_by_byte(self, node: TestNode, slave: RawSlave) -> None:
        end = node.at(Position.APPENDED)
        for byte in end.to_bytes(8, "big"):
            slave.sock.sendall(bytes([byte]))
        assert slave.frame() == (end, b"")


class TestSeveral:
    def test_one_that_reads_nothing_keeps_nobody_waiting(self, node: TestNode, whole: None) -> None:
        end = node.at(Position.APPENDED)
        with RawSlave(port_of(node), receive_buffer=4 * KIB) as slow, RawSlave(port_of(node)) as quick:
            slow.report(0)
            slow.frame()
            quick.report(0).follow(end)
            quick.follow(put(node, 100))
            slow.follow(node.at(Position.APPENDED))  # late, but whole
            assert slow.log == quick.log

    def test_so_many_follow_at_once_and_the_next_is_told_in_the_log(self, node: TestNode) -> None:
        end = node.at(Position.APPENDED)
        slaves = [RawSlave(port_of(node)).report(end) for _ in range(16)]
        for slave in slaves:
            slave.frame()
        with RawSlave(port_of(node)) as another:
            assert another.report(end).is_closed()
        assert "FULL" in node.store.node_log.read_text()
        slaves.pop().close()
        await_(lambda: len(read_status(node.store.root)["rocketmq_slaves"]) == 15, WAIT_S, "one has left")
        with RawSlave(port_of(node)) as another:
            assert another.report(end).frame().offset == end
        for slave in slaves:
            slave.close()


class TestWhatIsTold:
    def test_status_names_who_follows_and_its_lag(self, node: TestNode, slave: RawSlave) -> None:
        end = node.at(Position.APPENDED)
        slave.report(end).frame()
        new = put(node, 10)
        while slave.end < new:
            slave.frame()
        rows = {row["address"]: row for row in read_status(node.store.root)["rocketmq_slaves"]}
        assert rows[slave.address] == {"address": slave.address, "sent": new, "reported": end, "behind": new - end}
        assert value(node, "towline_rocketmq_slaves") == len(rows)
        lags = values(node, "towline_rocketmq_slave_behind_bytes", "address")
        assert lags[slave.address] == new - end
        shown = Typist(node.store.root).shown(f"towline master status --store {node.store.root}")
        assert f"slave of RocketMQ at {slave.address}: " in shown
        slave.report(new)

        def is_level() -> bool:
            rows = read_status(node.store.root)["rocketmq_slaves"]
            return any(row["address"] == slave.address and not row["behind"] for row in rows)

        await_(is_level, WAIT_S, "status shows that it has all")

    def test_it_is_in_no_set(self, node: TestNode, slave: RawSlave) -> None:
        slave.report(node.at(Position.APPENDED)).frame()
        status = read_status(node.store.root)
        assert status["slaves"] == []
        assert status["in_sync"]["members"] == [0]


def test_the_flow_to_a_slave_is_limited_while_the_settings_say_so(node: TestNode, slave: RawSlave, whole: None) -> None:
    end = node.at(Position.APPENDED)
    limit = {"ha_flow_control_enable": True, "max_ha_transfer_byte_in_second": MIB}
    change_settings(node.store.root, limit, keep=False)
    try:
        slave.report(0)
        slave.frame()
        clock = node.positions.duty(Duty.ROCKETMQ_HA)
        began_ns = clock.beat_ns
        slave.follow(2 * MIB)
        assert clock.beat_ns - began_ns > 1_000_000_000  # 2 MiB, of which a tenth of a second's came at once
    finally:
        change_settings(node.store.root, {"ha_flow_control_enable": False}, keep=False)
    slave.follow(end)


def test_a_killed_process_comes_back_and_its_slave_goes_on(node: TestNode) -> None:
    before, end = node.pids(), node.at(Position.APPENDED)
    with RawSlave(port_of(node)) as slave:
        slave.report(end).frame()
        os.kill(before["rocketmq_ha"], signal.SIGKILL)
        assert slave.is_closed()
    node.await_restarted("rocketmq_ha", before)
    assert read_status(node.store.root)["rocketmq_slaves"] == []
    with RawSlave(port_of(node)) as again:
        again.report(end).follow(put(node, 5))
        assert bytes(again.log) == log_of(node.store.root, end, node.at(Position.APPENDED))


def test_what_is_still_in_the_transient_pool_is_not_handed_on(tmp_path: Path) -> None:
    node = followed(tmp_path / "store", rocketmq_ha_from_oldest=True, **POOLED)
    with ending(node):
        node.start()
        with RawSlave(port_of(node)) as slave:
            slave.report(0)
            with stopped(node.pids()["flush"]), Producer(node.endpoint) as producer:
                producer.send_batch(Message("handed", body(number)) for number in range(100))
                committed = node.at(Position.COMMITTED)
                assert committed < node.at(Position.APPENDED)
                slave.follow(committed)
                assert slave.end == committed
            slave.follow(node.at(Position.APPENDED))
            assert bytes(slave.log) == log_of(node.store.root, 0, slave.end)
        assert node.stop()


def test_a_stop_hands_on_what_was_put_last(tmp_path: Path) -> None:
    node = followed(tmp_path / "store")
    with ending(node):
        node.start()
        end = put(node, COUNT // 3)
        with RawSlave(port_of(node)) as slave:
            slave.report(0)
            slave.frame()
            os.kill(node.pid, signal.SIGTERM)
            with pytest.raises(ConnectionError):
                slave.follow(1 << 40)
            assert slave.end == end
        assert node.stop()


@pytest.fixture
def group(tmp_path: Path) -> Iterator[Group]:
    made = Group(tmp_path, 2, ha_send_heartbeat_interval=HEARTBEAT_MS, slave_timeout=20_000)
    for node in made.nodes:
        node.flags += ["--set", f"listen_port={client_port()}", "--set", f"rocketmq_ha_port={free_port()}"]
    with ending(*made.nodes):
        made.start()
        yield made


class TestASyncMaster:
    def test_hands_on_what_its_own_slave_has_confirmed_and_no_more(self, group: Group) -> None:
        master, own = group.nodes
        end = put(master, 100)
        with RawSlave(port_of(master)) as slave, Producer(master.endpoint) as producer:
            slave.report(0).follow(end)
            with stopped(own.pids()["receive"]):
                sent = [producer.send_async(Message("handed", body(number))) for number in range(50)]
                await_(lambda: master.at(Position.APPENDED) > end, WAIT_S, "they are stored")
                assert [slave.frame() for _ in range(3)] == [(end, b"")] * 3
            assert all(each.result().acknowledged for each in sent)
            slave.follow(master.at(Position.APPENDED))
            assert bytes(slave.log) == log_of(master.store.root, 0, master.at(Position.APPENDED))

    def test_counts_no_slave_of_rocketmq(self, group: Group) -> None:
        master, own = group.nodes
        end = put(master, 1)
        with RawSlave(port_of(master)) as slave, Producer(master.endpoint, delivery_timeout_ms=2_000) as producer:
            slave.report(0).follow(end)
            with stopped(own.pids()["receive"]):
                assert not producer.send(Message("handed", b"alone")).acknowledged
            assert read_status(master.store.root)["in_sync"]["members"] == [0, 1]

    def test_and_after_a_failover_the_next_master_goes_on_with_it(self, group: Group) -> None:
        end = put(group.nodes[0], 1_000)
        with RawSlave(port_of(group.nodes[0])) as slave:
            slave.report(0).follow(end)
            log = bytes(slave.log)
            group.nodes[0].kill_all(seed=3)
        group.promote(1)
        master = group.nodes[1]
        group.nodes[0].start()
        group.await_in_sync(1, 2)
        with RawSlave(port_of(master)) as slave:
            slave.report(end).follow(put(master, 100))
            log += bytes(slave.log)
        assert log == log_of(master.store.root, 0, len(log))
