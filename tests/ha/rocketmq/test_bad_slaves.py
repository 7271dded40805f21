"""Who connects to rocketmq_ha_port and is no slave: bounded, named in the log, and in nobody's way."""

import resource
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from tests.processes.nodes import SEGMENT, TestNode, check_nothing_is_left, ending
from tests.processes.waiting import await_
from towline.limits import KIB, MIB
from towline.log.files.segment_files import segment_name
from towline.runtime.positions import Position

from .raw_slave import SIZE, WAIT_S, RawSlave, followed, log_of, port_of, put

SILENT_MS = 1_500
FLOOD = 10_000
MORE_MAX = 8 * MIB


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestNode]:
    root = tmp_path_factory.mktemp("bad") / "store"
    timing = {"ha_send_heartbeat_interval": 200, "ha_housekeeping_interval": SILENT_MS}
    made = followed(root, rocketmq_ha_from_oldest=True, **timing)
    with ending(made):
        made.start()
        put(made, 3 * SEGMENT // SIZE)
        yield made
        assert made.stop()
        check_nothing_is_left(made)


@pytest.fixture
def said(node: TestNode) -> "Said":
    return Said(node)


class Said:
    """What the node's log says from now on."""

    def __init__(self, node: TestNode) -> None:
        self._log, self._from = node.store.node_log, node.store.node_log.stat().st_size

    def await_(self, *words: str) -> None:
        def is_there() -> bool:
            text = self._log.read_bytes()[self._from :].decode()
            return any(all(word in line for word in words) for line in text.splitlines())

        await_(is_there, WAIT_S, f"the log says {words}")


@pytest.mark.parametrize(
    ("sent", "rule"),
    [
        pytest.param(b"\xff" * 8, "NO_OFFSET", id="below 0"),
        pytest.param(b"GET / HTTP/1.1\r\n\r\n", "AHEAD", id="a browser"),
        pytest.param((1 << 62).to_bytes(8, "big"), "AHEAD", id="far behind the log"),
    ],
)
def test_who_reports_what_is_no_place_of_the_log_is_cut_off(node: TestNode, sent: bytes, rule: str) -> None:
    with RawSlave(port_of(node)) as stranger:
        stranger.sock.sendall(sent)
        assert stranger.is_closed()
    await_(lambda: f"{rule}:" in node.store.node_log.read_text(), WAIT_S, "the log names the rule")
    line = next(line for line in node.store.node_log.read_text().splitlines() if f"{rule}:" in line)
    assert "127.0.0.1:" in line
    assert "Remedy:" in line


def test_a_slave_that_takes_back_what_it_reported_is_cut_off(node: TestNode, said: Said) -> None:
    with RawSlave(port_of(node)) as slave:
        slave.report(0).follow(SEGMENT)
        slave.report(5).await_closed()
    said.await_("FOREIGN", "reports 5")


@pytest.mark.parametrize("sent", [b"", b"\0\0\0"], ids=["nothing", "half a report"])
def test_who_never_reports_is_cut_off(node: TestNode, said: Said, sent: bytes) -> None:
    with RawSlave(port_of(node)) as stranger:
        stranger.sock.sendall(sent)
        assert stranger.is_closed()


def test_a_slave_that_falls_silent_is_cut_off(node: TestNode) -> None:
    with RawSlave(port_of(node)) as slave:
        slave.report(node.at(Position.APPENDED)).await_closed()
    await_(lambda: "SILENT" in node.store.node_log.read_text(), WAIT_S, "the log names the rule")


def test_a_slave_that_reports_and_reads_nothing_is_cut_off(node: TestNode, said: Said) -> None:
    with RawSlave(port_of(node), receive_buffer=4 * KIB) as slave:

        def is_cut() -> bool:
            try:
                slave.report(0)
            except ConnectionError:
                return True
            return False

        await_(is_cut, WAIT_S, "it is cut off")
    said.await_("UNREAD")


def test_a_slave_that_is_behind_the_log_s_beginning_is_refused(tmp_path: Path) -> None:
    room = {"file_reserved_bytes": 5 * SEGMENT, "clean_resource_interval": 100}
    patient = {"ha_housekeeping_interval": 10 * 60_000}  # `slow` reports once, and cleaning may take longer than 20 s
    node = followed(tmp_path / "store", rocketmq_ha_from_oldest=True, **room, **patient)
    with ending(node):
        node.start()
        put(node, 2 * SEGMENT // SIZE)
        with RawSlave(port_of(node), receive_buffer=4 * KIB) as slow:
            slow.report(0)
            slow.frame()

            def is_cleaned() -> bool:
                """The segment behind the one that it is sent is gone, however much the kernel keeps for it."""
                put(node, SEGMENT // SIZE)
                [sent] = [line.sent for line in node.positions.rocketmq_slaves() if line.connected]
                following = node.store.commitlog / segment_name(sent - sent % SEGMENT + SEGMENT)
                return node.at(Position.LOG_MIN) > sent + SEGMENT and not following.exists()

            await_(is_cleaned, 60.0, "the first segments are cleaned")
            with RawSlave(port_of(node)) as late:
                assert late.report(10).is_closed()
            assert "BEFORE" in node.store.node_log.read_text()
            slow.await_closed()
            assert slow.end % SEGMENT == 0, "it got the rest of a segment that was deleted while it read"
        assert "CLEANED" in node.store.node_log.read_text()
        assert node.stop()


def test_ten_thousand_connections_cost_little_and_disturb_no_slave(node: TestNode, said: Said) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, FLOOD + 1_000), hard))
    process = psutil.Process(node.pids()["rocketmq_ha"])
    crowd: list[socket.socket] = []
    try:
        with RawSlave(port_of(node)) as slave:
            slave.report(0).follow(node.at(Position.APPENDED))
            before = process.memory_info().rss
            slowest = 0.0
            for number in range(FLOOD):
                crowd.append(socket.create_connection(("127.0.0.1", port_of(node)), WAIT_S))
                crowd[-1].sendall(b"x" * (number % 8))
                if number % 100 == 0:
                    slave.report(slave.end)  # or it would be silent for too long
                if number % 1_000 == 0:
                    began = time.monotonic()
                    slave.follow(put(node, 10, first=number))
                    slowest = max(slowest, time.monotonic() - began)
            assert process.memory_info().rss - before < MORE_MAX
            assert process.num_fds() < 200
            assert slowest < 5.0
            assert bytes(slave.log) == log_of(node.store.root, 0, slave.end)
        said.await_("FULL")
    finally:
        for sock in crowd:
            sock.close()
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    with RawSlave(port_of(node)) as later:

        def is_served() -> bool:
            later.report(node.at(Position.APPENDED))
            return later.frame().offset == node.at(Position.APPENDED)

        await_(is_served, WAIT_S, "the next slave is served")
