"""A process that may open no more files while connections come (F25): clients go on, and nothing acknowledged is lost.

Behind a socket of the runtime directory, which is for the node's own user, ZeroMQ ends a process that cannot take a
connection: its supervisor starts it again. Behind the port for slaves it serves who is there, and takes others when it
can; while they wait, ZeroMQ takes a CPU. Behind the port for clients are only as many as it has descriptors for.
"""

import resource
import socket
import zlib
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import pytest

from tests.faults.noting import note
from tests.processes.load import Load
from tests.processes.nodes import TestNode, check_nothing_is_left, ended, free_port
from tests.processes.stored import Stored, check_load
from tests.processes.waiting import await_
from towline.client.message import Message
from towline.client.producer import Producer
from towline.runtime.positions import Position

KNOCKS = 200
SPARE = 4  # descriptors that a process may still open
COUNT = 3000
HELD = 500
RATE = 400  # so that the load is under way for some seconds yet when the fault comes


@pytest.fixture
def node(tmp_path: Path) -> Iterator[TestNode]:
    ports = {"listen_port": free_port(), "ha_listen_port": free_port()}
    made = TestNode("master", tmp_path / "store", shared_memory_puts=False, **ports)
    ending = ended(made)
    next(ending)
    made.start()
    yield made
    next(ending, None)


@contextmanager
def no_descriptors_left(pid: int) -> Iterator[None]:
    """A handful aside."""
    before = resource.prlimit(pid, resource.RLIMIT_NOFILE)
    most = max(int(path.name) for path in Path(f"/proc/{pid}/fd").iterdir()) + 1 + SPARE
    resource.prlimit(pid, resource.RLIMIT_NOFILE, (most, before[1]))
    try:
        yield
    finally:
        with suppress(ProcessLookupError):
            resource.prlimit(pid, resource.RLIMIT_NOFILE, before)


def knock(stack: ExitStack, place: Path | int) -> None:
    """Connections of who says nothing, to a socket or a TCP port, as many as its queue takes."""
    kind, where = (socket.AF_INET, ("127.0.0.1", place)) if isinstance(place, int) else (socket.AF_UNIX, str(place))
    for _ in range(KNOCKS):
        connection = stack.enter_context(socket.socket(kind, socket.SOCK_STREAM | socket.SOCK_NONBLOCK))
        connection.connect_ex(where)


def port_of(node: TestNode, name: str) -> int:
    return next(int(flag.partition("=")[2]) for flag in reversed(node.flags) if flag.startswith(f"{name}="))


@contextmanager
def loaded(node: TestNode, label: str) -> Iterator[Load]:
    """A load over all of it; then everything is where it belongs."""
    load = Load(node.endpoint, f"without-{label}", zlib.crc32(label.encode()), count=COUNT, rate=RATE)
    load.hold(HELD)
    load.start()
    load.await_acked(HELD)
    yield load
    load.await_acked(COUNT - HELD)
    load.finish()
    end = node.at(Position.APPENDED)
    await_(lambda: node.at(Position.DISPATCHED) == end, 60.0, "everything is dispatched")
    assert len(load.acked) == COUNT
    stored = Stored(node.store, end)
    doubled = check_load(stored, load)
    stored.check_queues()
    stored.close()
    assert node.stop()
    check_nothing_is_left(node)
    note(1, acknowledged=COUNT, doubled=doubled, seed=load.seed)


def is_under_way(load: Load) -> bool:
    """Of what is not held some is still to be acknowledged."""
    return len(load.acked) < COUNT - HELD


def test_behind_the_port_for_slaves_it_serves_who_is_there_and_takes_others_when_it_can(node: TestNode) -> None:
    pids, label, place = node.pids(), "send", port_of(node, "ha_listen_port")
    with ExitStack() as stack:
        there = stack.enter_context(Producer(f"tcp://127.0.0.1:{port_of(node, 'listen_port')}"))
        assert there.send(Message("there", b"before")).acknowledged
        load = stack.enter_context(loaded(node, label))
        with no_descriptors_left(pids[label]), ExitStack() as knocking:
            knock(knocking, place)
            assert there.send(Message("there", b"meanwhile")).acknowledged
            assert is_under_way(load)
            load.await_acked(COUNT - HELD)
        with Producer(f"tcp://127.0.0.1:{port_of(node, 'listen_port')}") as late:
            assert late.send(Message("there", b"after")).acknowledged
        with socket.create_connection(("127.0.0.1", port_of(node, "ha_listen_port")), 10.0) as peer:
            assert peer.recv(1), "a peer is greeted"
        assert node.pids() == pids, "nothing died and nothing was restarted"


@pytest.mark.parametrize("label", ["put", "serve"])
def test_behind_a_local_socket_it_ends_and_is_started_again_and_clients_go_on(node: TestNode, label: str) -> None:
    pids = node.pids()
    with loaded(node, label) as load, no_descriptors_left(pids[label]), ExitStack() as knocking:
        knock(knocking, node.runtime / f"{label}.sock")
        assert is_under_way(load)
        node.await_restarted(label, pids)
