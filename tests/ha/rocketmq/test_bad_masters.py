"""A RocketMQ master of which nothing is believed: what it sends that cannot be is refused by name, once a minute, and
nothing of it is stored; what it is that cannot be followed, too."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.processes.nodes import SEGMENT, TestNode, check_nothing_is_left, ending
from tests.processes.waiting import await_
from towline.client.message import Message
from towline.client.producer import Producer
from towline.format.remoting.codes import RequestCode, ResponseCode
from towline.limits import KIB, MIB
from towline.node.roles.role_commands import read_json_file
from towline.runtime.positions import Position

from .raw_master import RawConnection, RawMaster
from .raw_slave import WAIT_S, log_of

SILENT_MS = 1_500
COUNT = 2 * SEGMENT // KIB
START = SEGMENT // 2  # what a node has of the log before a case, about


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """Two segments and a bit of messages, as a master wrote them."""
    node = TestNode("master", tmp_path_factory.mktemp("wrote") / "store", flush_disk_type="ASYNC_FLUSH")
    with ending(node):
        node.start()
        with Producer(node.endpoint) as producer:
            sent = producer.send_batch(Message("handed", b"%08d" % number + bytes(KIB)) for number in range(COUNT))
        assert all(result.acknowledged for result in sent)
        end = node.at(Position.APPENDED)
        assert node.stop()
        return log_of(node.store.root, 0, end)


@pytest.fixture(scope="module")
def master(log: bytes) -> Iterator[RawMaster]:
    with RawMaster(log) as made:
        yield made


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory, master: RawMaster) -> Iterator[TestNode]:
    """One that has the beginning of the log."""
    root = tmp_path_factory.mktemp("follows") / "store"
    made = TestNode("slave", root, ha_housekeeping_interval=SILENT_MS, **master.settings)
    with ending(made):
        made.start()
        with master.slave() as slave:
            first = slave.report()
            assert first == size_at(master.log, 0), "the first message came by the broker's port"
            slave.send(first, START)
            slave.await_report(whole_before(master.log, START))
        yield made
        assert made.stop()
        check_nothing_is_left(made)


def size_at(log: bytes, at: int) -> int:
    return int.from_bytes(log[at : at + 4], "big")


def whole_before(log: bytes, end: int) -> int:
    """The end of the last message that ends before `end`, in the first segment."""
    at = 0
    while at + size_at(log, at) <= end:
        at += size_at(log, at)
    return at


def await_why(node: TestNode, rule: str) -> str:
    """Why the node follows nobody, as `towline slave status` says it, when it is by this rule; the remedy too."""

    def why() -> str:
        link = read_json_file(node.store.link)
        return str(link["why"]) if link is not None and f"{rule}: " in str(link["why"]) else ""

    found = await_(why, WAIT_S, f"the node names {rule}")
    assert "Remedy: " in found
    return found


def logged(node: TestNode, rule: str) -> list[str]:
    return [line for line in node.store.node_log.read_text().splitlines() if f" {rule}: " in line]


Send = Callable[[RawConnection, int], None]


def _over_the_border(slave: RawConnection, end: int) -> None:
    slave.frame(end, size=SEGMENT - end % SEGMENT + 1)


def _fallen_back(slave: RawConnection, end: int) -> None:
    slave.frame(0, bytes(100))


def _garbage(slave: RawConnection, end: int) -> None:
    slave.frame(end, b"\xa5" * 4_000)


def _flipped(slave: RawConnection, end: int) -> None:
    damaged = bytearray(slave.log[end : end + size_at(slave.log, end)])
    damaged[-200] ^= 1
    slave.frame(end, bytes(damaged))


def _http(slave: RawConnection, end: int) -> None:
    slave.sock.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")


@pytest.mark.parametrize(
    ("rule", "send"),
    [
        pytest.param("BORDER", _over_the_border, id="a frame over the segment's end"),
        pytest.param("OFFSET", _fallen_back, id="a frame of what was sent"),
        pytest.param("RECORD", _flipped, id="a flipped bit"),
        pytest.param("SIZE", _http, id="a web server"),
    ],
)
def test_what_no_master_sends_ends_the_link_and_is_not_stored(
    node: TestNode, master: RawMaster, rule: str, send: Send
) -> None:
    end = node.at(Position.APPENDED)
    with master.slave() as slave:
        assert slave.report() == end
        send(slave, end)
        slave.await_closed()
    await_why(node, rule)
    assert logged(node, rule)
    assert node.at(Position.APPENDED) == end
    assert log_of(node.store.root, 0, end) == master.log[:end]
    assert not any(log_of(node.store.root, end, end + MIB)), "bytes behind the log's end"


def test_a_rule_that_goes_on_being_broken_is_said_once_a_minute(node: TestNode, master: RawMaster) -> None:
    for _ in range(2):
        with master.slave() as slave:
            end = slave.report()
            _garbage(slave, end)
            slave.await_closed()
    (line,) = logged(node, "RECORD")
    assert "Remedy: " in line


def test_a_master_that_falls_silent_is_left_by_name(node: TestNode, master: RawMaster) -> None:
    with master.slave() as slave:
        slave.report()
        slave.await_closed()
    await_why(node, "SILENT")


def test_a_master_that_closes_in_the_middle_of_a_frame_is_named_and_followed_again(
    node: TestNode, master: RawMaster
) -> None:
    with master.slave() as slave:
        end = slave.report()
        slave.frame(end, master.log[end : end + 1_500], size=20_000)
    assert "in the middle of a frame" in await_why(node, "CLOSED")
    with master.slave() as slave:
        again = slave.report()
        assert again == end + size_at(master.log, end), "whole messages stay, the beginning of one does not"
        slave.send(again, again + 100_000)
        slave.await_report(whole_before(master.log, again + 100_000))


@pytest.mark.parametrize(
    ("rule", "change"),
    [
        pytest.param("NAME", {"brokerName": "another"}, id="another name"),
        pytest.param("NOT_MASTER", {"brokerRole": "SLAVE", "brokerId": "1"}, id="a slave"),
        pytest.param("CONTROLLER", {"enableControllerMode": "true"}, id="under a controller"),
        pytest.param("SEGMENT_SIZE", {"mappedFileSizeCommitLog": "1073741824"}, id="other segments"),
        pytest.param("LEVELS", {"messageDelayLevel": "1s 2s"}, id="other delays"),
    ],
)
def test_a_master_of_other_settings_is_not_followed(
    node: TestNode, master: RawMaster, rule: str, change: dict[str, str]
) -> None:
    before = dict(master.config)
    master.config |= change
    try:
        line = await_why(node, rule)
        assert next(iter(change.values())) in line or rule == "CONTROLLER"
    finally:
        master.config = before


def test_a_master_that_has_cleaned_what_comes_next_is_left_by_name(node: TestNode, master: RawMaster) -> None:
    """It goes on with heartbeats, and would for ever."""
    first = master.first
    with master.slave() as slave:
        end = slave.report()
        master.first = 2 * SEGMENT
        try:
            slave.beat_until_closed(end)
            await_why(node, "BEFORE")
        finally:
            master.first = first


def test_a_broker_that_is_too_busy_to_look_is_not_taken_for_another_one(node: TestNode, master: RawMaster) -> None:
    """The remedy of TAIL is to clear the store."""
    master.codes[RequestCode.VIEW_MESSAGE_BY_ID] = ResponseCode.SYSTEM_BUSY
    try:
        await_why(node, "REFUSED")
    finally:
        master.codes.clear()


@pytest.mark.parametrize("rule", ["BEFORE", "AHEAD", "TAIL", "REFUSED"])
def test_a_master_whose_log_is_another_one_is_not_followed(node: TestNode, master: RawMaster, rule: str) -> None:
    end = node.at(Position.APPENDED)
    held, first = master.held, master.first
    wrong: dict[str, Any] = {
        "BEFORE": lambda: setattr(master, "first", 2 * SEGMENT),
        "AHEAD": lambda: setattr(master, "held", end - 1),
        "TAIL": lambda: master.answers.update({RequestCode.VIEW_MESSAGE_BY_ID: lambda _: master.log[:100]}),
        "REFUSED": lambda: master.answers.update({RequestCode.GET_BROKER_RUNTIME_INFO: {"table": {}}}),
    }
    wrong[rule]()
    try:
        await_why(node, rule)
    finally:
        master.first, master.held = first, held
        for code in (RequestCode.VIEW_MESSAGE_BY_ID, RequestCode.GET_BROKER_RUNTIME_INFO):
            master.answers.pop(code, None)
    assert node.at(Position.APPENDED) == end


def test_after_all_that_the_log_becomes_the_masters(node: TestNode, master: RawMaster) -> None:
    with master.slave() as slave:
        start = slave.report()
        slave.send(start, master.end)
        slave.await_report(master.end)
        assert log_of(node.store.root, 0, master.end) == master.log
        await_(lambda: node.at(Position.DISPATCHED) == master.end, WAIT_S, "all is in queues")
