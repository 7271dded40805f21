"""What a service manager hears, on a socket of the test's own."""

import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from towline.node.process.service_manager import ServiceManager


@pytest.fixture(params=["path", "abstract"])
def listener(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[socket.socket, str]]:
    """A socket, and its name as systemd writes it."""
    name = str(tmp_path / "notify") if request.param == "path" else f"@towline-{os.urandom(8).hex()}"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK) as made:
        made.bind("\0" + name[1:] if name.startswith("@") else name)
        yield made, name


def heard(listener: socket.socket) -> list[str]:
    found = []
    while True:
        try:
            found.append(listener.recv(4096).decode())
        except BlockingIOError:
            return found


def test_it_hears_the_life_of_a_node(listener: tuple[socket.socket, str]) -> None:
    ear, name = listener
    environment = {"NOTIFY_SOCKET": name, "WATCHDOG_USEC": "60000000", "WATCHDOG_PID": str(os.getpid()), "A": "b"}
    manager = ServiceManager(environment)
    assert environment == {"A": "b"}
    assert (manager.watchdog_s, manager.pause_s) == (60.0, 15.0)
    manager.status("compiles 1\nof 2")
    manager.status("compiles 1\nof 2")
    manager.ready("serves")
    manager.alive()
    manager.alive()  # the next is due in 15 s
    manager.stopping()
    expected = ["STATUS=compiles 1 of 2", "READY=1\nSTATUS=serves", "WATCHDOG=1", "STOPPING=1\nSTATUS=stops"]
    assert heard(ear) == expected


@pytest.mark.parametrize(
    "watch", [{}, {"WATCHDOG_USEC": "1000"} | {"WATCHDOG_PID": "1"}, {"WATCHDOG_USEC": "soon"}, {"WATCHDOG_USEC": "0"}]
)
def test_without_a_watchdog_of_its_own_it_gives_no_sign_of_life(
    listener: tuple[socket.socket, str], watch: dict[str, str]
) -> None:
    manager = ServiceManager({"NOTIFY_SOCKET": listener[1]} | watch)
    manager.alive()
    assert (manager.watchdog_s, manager.pause_s, heard(listener[0])) == (0.0, None, [])


def test_a_manager_that_is_not_there_or_does_not_listen_changes_nothing(tmp_path: Path) -> None:
    for environment in ({}, {"NOTIFY_SOCKET": str(tmp_path / "nothing")}, {"NOTIFY_SOCKET": "/" + 200 * "n"}):
        manager = ServiceManager({"WATCHDOG_USEC": "4"} | environment)
        manager.ready("serves")
        manager.alive()
        manager.stopping()
