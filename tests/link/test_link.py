"""A server and its peers in one thread: nothing waits except on a condition with a deadline."""

import errno
import json
import os
import socket as sockets
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import zmq

from towline.errors import CannotListen, LinkRefused, NoAnswer
from towline.format.wire.frames import ASK, GREETING, MAGIC, VERSION_MAX, VERSION_MIN, Kind, json_part, kind_of
from towline.limits import PARTS_MAX, SESSIONS_MAX
from towline.link import server as server_module
from towline.link.context import HEARTBEAT_MS, Context
from towline.link.dealer import Link
from towline.link.endpoints import ipc_endpoint
from towline.link.poller import Poller
from towline.link.server import Sent, Server

from .meeting import greet, receive, until

OWN = {"role": "put", "cluster": "c1", "store": "s1", "name": "broker-a"}
FACTS = {"role": "producer", "cluster": "c1", "store": "s1", "name": "p"}
DEADLINE_S = 60.0
REQUEST = [ASK.pack(Kind.ASK, 1), b"{}"]


@pytest.fixture
def server(context: Context, tmp_path: Path) -> Iterator[Server]:
    made = Server(context, [ipc_endpoint(tmp_path, "put")], own=OWN, high_water=8)
    yield made
    made.close()


@pytest.fixture
def raw(context: Context, server: Server) -> Iterator[zmq.Socket[bytes]]:
    """A peer that sends whatever it likes."""
    made = context.socket(zmq.DEALER)
    made.set(zmq.LINGER, 0)
    made.connect(server.endpoints[0])
    yield made
    made.close()


def answer_of(raw: zmq.Socket[bytes], server: Server) -> list[bytes]:
    """What a raw peer is answered."""

    def attempt() -> list[bytes] | None:
        assert server.receive() is None
        return raw.recv_multipart() if raw.poll(5) else None

    parts: list[bytes] = until(attempt, "the answer")
    return parts


def refusal_of(raw: zmq.Socket[bytes], server: Server) -> dict[str, str]:
    head, facts = answer_of(raw, server)
    assert kind_of(head) == Kind.REFUSAL
    refusal: dict[str, str] = json.loads(facts)
    return refusal


class TestGreeting:
    def test_a_greeted_peer_asks_and_is_answered(self, context: Context, server: Server) -> None:
        link = Link(context, server.endpoints[0], FACTS)
        welcome = greet(link, server)
        assert welcome == OWN
        assert link.send([*REQUEST, b"x" * 100_000])
        request = receive(server)
        assert request.session.facts == FACTS
        assert isinstance(request.parts[0], bytes)
        assert [bytes(part) for part in request.parts] == [*REQUEST, b"x" * 100_000]
        assert server.send(request.peer, [b"head", memoryview(b"y" * 100_000)], copy=False) is Sent.SENT
        answer = until(link.receive, "the answer")
        assert [bytes(part) for part in answer] == [b"head", b"y" * 100_000]
        link.close()

    def test_the_server_adds_facts_to_its_welcome_and_may_refuse(self, context: Context, tmp_path: Path) -> None:
        def greet_only_producers(facts: dict[str, Any]) -> dict[str, Any]:
            if facts["role"] != "producer":
                raise LinkRefused("ROLE", f"you are {facts['role']} and this process takes producers")
            return {"now": 17}

        server = Server(context, [ipc_endpoint(tmp_path, "put")], own=OWN, greet=greet_only_producers)
        first, second = (
            Link(context, server.endpoints[0], {**FACTS, "role": role}) for role in ("producer", "consumer")
        )
        assert greet(first, server) == {**OWN, "now": 17}
        with pytest.raises(LinkRefused, match="you are consumer and this process takes producers"):
            greet(second, server)
        for item in (first, second, server):
            item.close()

    @pytest.mark.parametrize(
        ("facts", "code", "values"),
        [
            ({**FACTS, "cluster": "c2"}, "CLUSTER", ("'c2'", "'c1'")),
            ({**FACTS, "store": "s9"}, "STORE", ("'s9'", "'s1'")),
        ],
        ids=["cluster", "store"],
    )
    def test_another_cluster_or_store_is_refused_naming_both(
        self, context: Context, server: Server, facts: dict[str, str], code: str, values: tuple[str, str]
    ) -> None:
        link = Link(context, server.endpoints[0], facts)
        with pytest.raises(LinkRefused) as refused:
            greet(link, server)
        assert refused.value.code == code
        assert all(value in str(refused.value) for value in values)
        assert link.lost
        link.close()

    def test_a_fact_that_one_side_leaves_out_is_not_compared(self, context: Context, server: Server) -> None:
        link = Link(context, server.endpoints[0], {"role": "admin", "store": ""})
        assert greet(link, server)["store"] == "s1"
        link.close()

    @pytest.mark.parametrize(
        ("head", "code", "values"),
        [
            (GREETING.pack(Kind.GREETING, 0x12345678, 1, 1), "MAGIC", ("12345678", f"{MAGIC:08X}")),
            (
                GREETING.pack(Kind.GREETING, MAGIC, VERSION_MAX + 1, VERSION_MAX + 4),
                "VERSION",
                (f"{VERSION_MAX + 1} to {VERSION_MAX + 4}", f"{VERSION_MIN} to {VERSION_MAX}"),
            ),
            (GREETING.pack(Kind.GREETING, MAGIC, 0, 0), "VERSION", ("0 to 0", f"{VERSION_MIN} to {VERSION_MAX}")),
        ],
        ids=["magic", "newer", "older"],
    )
    def test_another_magic_or_version_is_refused_naming_both(
        self, server: Server, raw: zmq.Socket[bytes], head: bytes, code: str, values: tuple[str, str]
    ) -> None:
        raw.send_multipart([head, json_part(FACTS)])
        refusal = refusal_of(raw, server)
        assert refusal["code"] == code
        assert all(value in refusal["sentence"] for value in values)
        assert not server.sessions

    @pytest.mark.parametrize(
        "parts",
        [
            [bytes([Kind.GREETING])],
            [GREETING.pack(Kind.GREETING, MAGIC, 1, 1)],
            [GREETING.pack(Kind.GREETING, MAGIC, 1, 1), b"{"],
            [GREETING.pack(Kind.GREETING, MAGIC, 1, 1), b"[]"],
            [GREETING.pack(Kind.GREETING, MAGIC, 1, 1), b"\xff" * 20],
            [GREETING.pack(Kind.GREETING, MAGIC, 1, 1), b" " * 100_000],
        ],
        ids=["short head", "no facts", "half of JSON", "no object", "not UTF-8", "too large"],
    )
    def test_a_greeting_that_cannot_be_read_is_refused(
        self, server: Server, raw: zmq.Socket[bytes], parts: list[bytes]
    ) -> None:
        raw.send_multipart(parts)
        assert refusal_of(raw, server)["code"] == "MALFORMED"

    @pytest.mark.parametrize("parts", [REQUEST, [b""], [b"\xff" * 50]], ids=["request", "empty", "random"])
    def test_who_does_not_greet_first_is_told_so(
        self, server: Server, raw: zmq.Socket[bytes], parts: list[bytes]
    ) -> None:
        raw.send_multipart(parts)
        assert refusal_of(raw, server)["code"] == "NOT_GREETED"

    def test_a_peer_that_the_server_forgot_finds_its_link_lost(self, context: Context, server: Server) -> None:
        link = Link(context, server.endpoints[0], FACTS)
        greet(link, server)
        server.evict(next(iter(server.sessions)))
        assert link.send(REQUEST)

        def lost() -> bool:
            assert server.receive() is None
            assert link.receive() is None
            return link.lost

        until(lost, "the loss")
        link.close()

    def test_the_peer_that_was_silent_for_longest_is_forgotten_first(
        self, context: Context, server: Server, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        assert SESSIONS_MAX > 2
        monkeypatch.setattr(server_module, "SESSIONS_MAX", 2)
        links = [Link(context, server.endpoints[0], {**FACTS, "name": name}) for name in ("a", "b", "c")]
        for link in links[:2]:
            greet(link, server)
        assert links[0].send(REQUEST)
        receive(server)
        greet(links[2], server)
        assert [session.facts["name"] for session in server.sessions.values()] == ["a", "c"]
        for link in links:
            link.close()


class TestFlood:
    def test_a_message_of_too_many_parts_costs_its_sender_the_connection(
        self, context: Context, server: Server, raw: zmq.Socket[bytes]
    ) -> None:
        link = Link(context, server.endpoints[0], FACTS)
        greet(link, server)
        monitor = raw.get_monitor_socket(int(zmq.EVENT_DISCONNECTED))
        raw.send_multipart([b"part"] * 5_000)

        def cut() -> bool:
            assert server.receive() is None
            return bool(monitor.poll(0))

        until(cut, "the end of the connection")
        raw.disable_monitor()
        monitor.close(linger=0)
        assert link.send(REQUEST)
        assert receive(server).session.facts == FACTS
        assert not link.lost
        link.close()

    def test_parts_up_to_the_limit_pass(self, context: Context, server: Server) -> None:
        link = Link(context, server.endpoints[0], FACTS)
        greet(link, server)
        assert link.send([REQUEST[0], *[b"part"] * (PARTS_MAX - 1)])
        assert len(receive(server).parts) == PARTS_MAX
        assert link.send([REQUEST[0], *[b"part"] * PARTS_MAX])
        until(lambda: server.receive() is None and link.lost, "the loss")
        assert not server.sessions
        link.close()

    def test_a_frame_above_the_limit_costs_its_sender_the_connection(self, context: Context, tmp_path: Path) -> None:
        server = Server(context, [ipc_endpoint(tmp_path, "put")], own=OWN, frame_size_max=1_000)
        link = Link(context, server.endpoints[0], FACTS)
        greet(link, server)
        assert link.send([REQUEST[0], bytes(1_001)])
        until(lambda: server.receive() is None and link.lost, "the loss")
        link.close()
        server.close()

    def test_a_dropped_request_cuts_its_peer(self, context: Context, server: Server) -> None:
        link = Link(context, server.endpoints[0], FACTS)
        greet(link, server)
        assert link.send(REQUEST)
        server.drop(receive(server))
        until(lambda: link.lost, "the loss")
        assert not server.sessions
        link.close()


def reading_nothing(context: Context, server: Server, monkeypatch: pytest.MonkeyPatch) -> Link:
    """A link at which ZeroMQ stops reading after a few messages, as none of ours does."""
    with monkeypatch.context() as patch:
        patch.setattr("towline.link.context.RECEIVED_MAX", 8)
        patch.setattr("towline.link.context.HEARTBEAT_MS", 0)
        return Link(context, server.endpoints[0], FACTS)


class TestSending:
    def test_an_answer_to_a_full_peer_pauses_and_to_a_gone_peer_says_so(
        self, context: Context, server: Server, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        link = reading_nothing(context, server, monkeypatch)
        greet(link, server)
        peer = next(iter(server.sessions))
        until(lambda: server.send(peer, [b"x" * 60_000]) is Sent.PAUSED, "the pause")
        link.close()
        until(lambda: server.receive() is None and server.send(peer, [b"x"]) is Sent.GONE, "the end")
        assert peer not in server.sessions

    def test_a_peer_nobody_heard_of_is_gone(self, server: Server) -> None:
        assert server.send(b"nobody", [b"x"]) is Sent.GONE

    def test_a_link_whose_server_went_away_is_lost_and_sends_nothing(self, context: Context, server: Server) -> None:
        link = Link(context, server.endpoints[0], FACTS)
        greet(link, server)
        assert not link.lost
        server.close()
        until(lambda: link.lost, "the loss")
        assert not link.send(REQUEST)
        link.close()

    def test_a_peer_is_cut_by_name_and_only_on_the_connection_it_greeted_on(
        self, context: Context, server: Server
    ) -> None:
        first, second = (Link(context, server.endpoints[0], FACTS) for _ in range(2))
        greet(first, server)
        (peer,) = server.sessions
        greet(second, server)
        server.cut(peer)
        until(lambda: server.receive() is None and first.lost, "the loss")
        assert not second.lost
        (session,) = server.sessions.values()
        assert session.connection is not None
        session.connection.inode = 0  # that descriptor is another socket's by now
        server.cut(session.peer)
        assert not server.sessions
        assert second.send(REQUEST)
        until(lambda: server.receive() is None and second.receive() is None and second.lost, "it has to greet again")
        second.close()
        first.close()


IDLE_SERVER = """
import sys
from pathlib import Path
from towline.link.context import new_context
from towline.link.endpoints import ipc_endpoint
from towline.link.context import HEARTBEAT_MS
from towline.link.poller import Poller
from towline.link.server import Server

server = Server(new_context(), [ipc_endpoint(Path(sys.argv[1]), "idle")], own={}, high_water=8)
print(flush=True)
sys.stdin.readline()
count = 0
while Poller(server).poll(500):
    server.receive()
    count += 1
print(count, flush=True)
"""


def test_a_peer_that_dies_with_many_requests_unread_does_not_end_the_server(context: Context, tmp_path: Path) -> None:
    """libzmq would abort it at the next heartbeat."""
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    child = subprocess.Popen([sys.executable, "-c", IDLE_SERVER, str(tmp_path)], **pipes)
    try:
        assert child.stdout is not None
        assert child.stdout.readline() == b"\n"
        flood = context.socket(zmq.DEALER)
        flood.connect(ipc_endpoint(tmp_path, "idle"))
        for _ in range(100):
            flood.send_multipart(REQUEST)
        flood.close(linger=10_000)
        with pytest.raises(subprocess.TimeoutExpired):
            child.wait(2.5 * HEARTBEAT_MS / 1000)
        told, _ = child.communicate(b"\n", timeout=DEADLINE_S)
        assert int(told) > 0
        assert child.returncode == 0
    finally:
        child.kill()
        child.communicate()


class TestConnecting:
    def test_nobody_there_is_no_answer(self, context: Context, tmp_path: Path) -> None:
        link = Link(context, ipc_endpoint(tmp_path, "nobody"), FACTS)
        with pytest.raises(NoAnswer, match=r"nobody\.sock within 500 ms: nobody listens there"):
            link.greet(500)
        link.close()

    def test_a_host_that_drops_packets_is_not_called_deserted(self, context: Context) -> None:
        with sockets.create_server(("127.0.0.1", 0), backlog=0) as listener:
            address = listener.getsockname()
            with sockets.create_connection(address):  # it fills the queue: the kernel drops whatever comes next
                link = Link(context, f"tcp://127.0.0.1:{address[1]}", FACTS)
                with pytest.raises(NoAnswer, match="packets are lost on the way"):
                    link.greet(100)
                assert not link.refused
                link.close()

    def test_one_that_accepts_and_says_nothing_is_said_to(self, context: Context) -> None:
        with sockets.create_server(("127.0.0.1", 0)) as listener:
            link = Link(context, f"tcp://127.0.0.1:{listener.getsockname()[1]}", FACTS)
            with pytest.raises(NoAnswer, match="whoever listens there says nothing"):
                link.greet(100)
            link.close()

    def test_a_server_of_another_kind_is_no_answer(self, context: Context) -> None:
        with sockets.create_server(("127.0.0.1", 0)) as listener:
            link = Link(context, f"tcp://127.0.0.1:{listener.getsockname()[1]}", FACTS)
            connection, _ = listener.accept()
            with connection:
                connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n" + bytes(64))
                with pytest.raises(NoAnswer):
                    link.greet(50)
            link.close()

    def test_a_server_that_comes_later_is_found(self, context: Context, tmp_path: Path) -> None:
        endpoint = ipc_endpoint(tmp_path, "put")
        link = Link(context, endpoint, FACTS)
        with pytest.raises(NoAnswer):
            link.greet(1)
        server = Server(context, [endpoint], own=OWN)
        assert greet(link, server) == OWN
        link.close()
        server.close()

    def test_the_socket_file_of_a_dead_server_is_replaced(self, context: Context, tmp_path: Path) -> None:
        with sockets.socket(sockets.AF_UNIX) as dead:
            dead.bind(str(tmp_path / "put.sock"))
        server = Server(context, [ipc_endpoint(tmp_path, "put")], own=OWN)
        link = Link(context, server.endpoints[0], FACTS)
        assert greet(link, server) == OWN
        link.close()
        server.close()

    def test_port_0_is_replaced_by_the_port_the_kernel_chose(self, context: Context) -> None:
        server = Server(context, ["tcp://127.0.0.1:0"], own=OWN)
        link = Link(context, server.endpoints[0], FACTS)
        assert not server.endpoints[0].endswith(":0")
        assert greet(link, server) == OWN
        link.close()
        server.close()

    def test_an_address_that_is_taken_is_refused_by_name(self, context: Context, server: Server) -> None:
        taken = Server(context, ["tcp://127.0.0.1:0"], own=OWN)
        with pytest.raises(CannotListen) as refused:
            Server(context, taken.endpoints, own=OWN)
        assert (refused.value.endpoint, refused.value.number) == (taken.endpoints[0], errno.EADDRINUSE)
        taken.close()

    def test_a_file_in_a_sockets_place_is_kept_and_refused_by_name(self, context: Context, tmp_path: Path) -> None:
        file = tmp_path / "put.sock"
        file.write_text("somebody's")
        with pytest.raises(CannotListen, match=str(file)):
            Server(context, [ipc_endpoint(tmp_path, "put")], own=OWN)
        assert file.read_text() == "somebody's"


class TestPoller:
    def test_it_wakes_for_a_server_a_link_and_a_doorbell_and_otherwise_waits(
        self, context: Context, server: Server
    ) -> None:
        link = Link(context, server.endpoints[0], FACTS)
        greet(link, server)
        poller = Poller(server, link)
        until(lambda: server.receive() is None and link.receive() is None and not poller.poll(0), "the calm")
        began = time.monotonic()
        assert not poller.poll(30)
        assert time.monotonic() - began >= 0.029
        near, far = sockets.socketpair()
        poller.add(near.fileno())
        assert link.send(REQUEST)
        assert poller.poll(5_000)
        assert poller.ready(server)
        assert not poller.ready(near.fileno())
        server.send(receive(server).peer, [b"answer"])
        until(lambda: poller.poll(0) and poller.ready(link), "the answer")
        assert link.receive() == [b"answer"]
        far.send(b"!")
        assert poller.poll(5_000)
        assert poller.ready(near.fileno())
        near.recv(1)

        poller.remove(near.fileno())
        far.send(b"!")
        assert not poller.poll(0)
        near.close()
        far.close()
        link.close()


@pytest.mark.parametrize(
    ("endpoint", "bounded"),
    [pytest.param("tcp://127.0.0.1:0", True, id="loopback"), pytest.param("tcp://0.0.0.0:0", False, id="a network")],
)
def test_what_is_on_its_way_within_the_machine_is_bounded(context, tmp_path, endpoint, bounded):
    """Linux tells twice what was asked for, and gives no more than wmem_max."""
    asked = min(server_module.LOOPBACK_SEND_BUFFER, int(Path("/proc/sys/net/core/wmem_max").read_text()))
    server = Server(context, [endpoint, ipc_endpoint(tmp_path, "put")], own=OWN)
    link = Link(context, server.endpoints[0].replace("0.0.0.0", "127.0.0.1"), FACTS)
    try:
        greet(link, server)
        assert link.send(REQUEST)
        descriptor = int(receive(server).frame.get(zmq.SRCFD))
        with sockets.socket(fileno=os.dup(descriptor)) as connection:
            size = connection.getsockopt(sockets.SOL_SOCKET, sockets.SO_SNDBUF)
    finally:
        link.close()
        server.close()
    assert (size == 2 * asked) is bounded


def test_a_server_is_looked_at_where_a_poll_found_it_readable_and_where_there_was_no_poll(server, raw, tmp_path):
    read, write = os.pipe2(os.O_NONBLOCK)
    poller = Poller(server, read)
    try:
        assert not poller.was_silent(server), "nobody has polled"
        assert not poller.poll(0)
        assert poller.was_silent(server)
        assert not poller.was_silent(server), "it is told once"
        os.write(write, b"x")
        assert poller.poll(0)
        assert poller.was_silent(server), "another source was readable"
        assert poller.poll(0)
        assert not poller.was_silent()
        raw.send_multipart(REQUEST)
        until(lambda: poller.poll(100) and poller.ready(server), "the message")
        assert not poller.was_silent(server)
        assert server.receive() is None
    finally:
        os.close(read)
        os.close(write)
