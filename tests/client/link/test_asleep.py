"""Who searches for a node that is down sleeps meanwhile."""

import socket
import time
from threading import Timer
from typing import Final

import pytest

from towline.client.admin import AdminClient
from towline.errors import NoAnswer
from towline.link.dealer import await_any
from towline.link.free_port import free_port

SEARCHED_MS: Final = 1_000


@pytest.mark.parametrize("nodes", [1, 3])
def test_a_search_for_nodes_that_are_down_takes_no_cpu(nodes: int) -> None:
    with AdminClient([f"tcp://127.0.0.1:{free_port()}" for _ in range(nodes)], timeout_ms=SEARCHED_MS) as admin:
        began, spent = time.monotonic(), time.thread_time()
        with pytest.raises(NoAnswer, match="nobody listens there"):
            admin.topics()
        assert time.monotonic() - began > 0.9 * SEARCHED_MS / 1000
        assert time.thread_time() - spent < 0.2 * SEARCHED_MS / 1000


def test_to_wait_for_no_link_at_all_takes_its_time() -> None:
    began = time.monotonic()
    await_any((), 50)
    assert time.monotonic() - began >= 0.05


def test_a_node_that_comes_while_it_is_searched_for_is_found_soon() -> None:
    port = free_port()
    with AdminClient(f"tcp://127.0.0.1:{port}", timeout_ms=2_000) as admin, socket.socket() as listening:
        came: list[float] = []

        def come() -> None:
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listening.bind(("127.0.0.1", port))
            listening.listen()
            listening.settimeout(2.0)
            began = time.monotonic()
            listening.accept()[0].close()
            came.append(time.monotonic() - began)

        node = Timer(0.3, come)
        node.start()
        with pytest.raises(NoAnswer):
            admin.topics()
        node.join()
    assert came[0] < 1.0
