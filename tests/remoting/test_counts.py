"""What the port counts, and `status` shows: connections, why they ended, requests refused, of bad clients above all."""

import errno
import json
import os
import signal
import socket
import struct
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

import towline.remoting.connections as limits
from tests.processes.waiting import await_
from towline.cli.main import run
from towline.client.producer import Producer
from towline.format.remoting.codes import RequestCode, ResponseCode
from towline.format.remoting.command import ONE_WAY
from towline.limits import MIB
from towline.remoting.connections import OUT_MAX, PAUSE_AT, SILENT_S, UNREAD_S, Connections
from towline.remoting.tls import Security
from towline.runtime.positions import Counter, Duty, Positions
from towline.runtime.remoting_counts import CODES, OUTCOMES, Ending, RemotingCounts, Total

from .conftest import RemotingNode
from .raw import RawClient


@pytest.fixture
def counts(tmp_path: Path) -> RemotingCounts:
    return RemotingCounts(Positions.create(tmp_path / "positions", 1))


@pytest.fixture
def port(counts: RemotingCounts) -> Iterator[Connections]:
    """A port on which nobody is answered."""
    made = Connections([("127.0.0.1", 0)], lambda connection, data: len(data), lambda: False, Security(), counts)
    yield made
    made.close()


Connected = Callable[[Connections, int], list[socket.socket]]


@pytest.fixture
def connected() -> Iterator[Connected]:
    """So many clients, of which all were accepted or refused. They are closed in the end."""
    with ExitStack() as clients:

        def connect(port: Connections, count: int) -> list[socket.socket]:
            address = port._listening[0].getsockname()
            made = [clients.enter_context(socket.create_connection(address)) for _ in range(count)]
            for _ in made:
                port.cycle()
            return made

        yield connect


def test_who_says_nothing_for_long_is_counted_as_silent(
    port: Connections, counts: RemotingCounts, connected: Connected
) -> None:
    clients = connected(port, 3)
    port.drop_silent(time.monotonic() + SILENT_S - 1)
    assert counts.total(Total.OPEN) == 3
    port.drop_silent(time.monotonic() + SILENT_S + 1)
    assert (counts.total(Total.OPEN), counts.endings()[Ending.SILENT][0]) == (0, 3)
    for client in clients:
        assert client.recv(1) == b""


def test_who_reads_nothing_of_what_waits_is_counted_as_unread_and_who_reads_a_little_is_not(
    port: Connections, counts: RemotingCounts, connected: Connected
) -> None:
    (reading, _) = connected(port, 2)
    for connection in port:
        port.send_parts(connection, [bytes(PAUSE_AT + 4 * MIB)])
    port.flush()
    now = time.monotonic()
    port.drop_silent(now + UNREAD_S - 1)
    assert counts.total(Total.OPEN) == 2
    reading.settimeout(10.0)
    (served,) = (each for each in port if each.peer[1] == reading.getsockname()[1])
    taken = served.taken
    while served.taken == taken:  # what it reads makes room for more, once the kernel says so
        assert reading.recv(MIB)
        port.cycle()
        port.flush()
    port.drop_silent(now + UNREAD_S + 1)
    assert (counts.total(Total.OPEN), counts.endings()[Ending.UNREAD][0]) == (1, 1)
    port.drop_silent(now + 2 * UNREAD_S)
    assert counts.total(Total.OPEN) == 1, "it has read meanwhile"


def test_more_than_may_wait_for_a_client_ends_its_connection_at_once(
    port: Connections, counts: RemotingCounts, connected: Connected
) -> None:
    connected(port, 1)
    for connection in port:
        port.send_parts(connection, [bytes(OUT_MAX + 8 * MIB)])
    port.flush()
    assert (counts.total(Total.OPEN), counts.endings()[Ending.UNREAD][0]) == (0, 1)


def test_who_comes_when_the_port_is_full_is_counted(
    monkeypatch: pytest.MonkeyPatch, counts: RemotingCounts, connected: Connected
) -> None:
    monkeypatch.setattr(limits, "CONNECTIONS_MAX", 2)
    port = Connections([("127.0.0.1", 0)], lambda connection, data: len(data), lambda: False, Security(), counts)
    clients = connected(port, 5)
    assert (counts.total(Total.ACCEPTED), counts.total(Total.OPEN)) == (2, 2)
    assert counts.endings()[Ending.FULL][0] == 3
    clients[0].close()
    port.cycle()
    assert (counts.total(Total.LEFT), counts.total(Total.OPEN)) == (1, 1)
    port.close()


def test_who_comes_while_there_is_no_descriptor_waits_costs_nothing_and_is_taken_later(
    monkeypatch: pytest.MonkeyPatch, port: Connections, counts: RemotingCounts
) -> None:
    def accept(_: socket.socket) -> tuple[socket.socket, object]:
        raise OSError(errno.EMFILE, "Too many open files")

    with monkeypatch.context() as patch, socket.create_connection(port._listening[0].getsockname()) as client:
        patch.setattr("socket.socket.accept", accept)
        assert port.cycle() == 1
        assert port.cycle() == 0, "nobody is asked again and again"
        patch.undo()
        assert (port.cycle(), counts.total(Total.ACCEPTED)) == (0, 0)
        port.drop_silent(time.monotonic())
        assert (port.cycle(), counts.total(Total.ACCEPTED)) == (1, 1)
        assert client.fileno() >= 0


def test_connections_of_a_process_that_was_killed_are_counted_by_the_next(counts: RemotingCounts) -> None:
    counts.set(Total.OPEN, 7)
    counts.set(Total.HELD, 1_000)
    counts.begin()
    assert counts.endings()[Ending.RESTART][0] == 7
    assert (counts.total(Total.OPEN), counts.total(Total.HELD)) == (0, 0)


def test_every_code_that_is_no_outcome_has_a_place_of_its_own(counts: RemotingCounts) -> None:
    for number, code in enumerate(ResponseCode):
        for _ in range(number):
            counts.refused(code)
    counts.refused(99)
    found = {code: count for code, (count, _) in counts.refusals().items()}
    assert found == {None: 1} | {code: number for number, code in enumerate(ResponseCode) if code not in OUTCOMES}
    assert list(found) == list(CODES)
    assert not any(count for count, _ in counts.endings().values())


def test_requests_that_are_refused_are_counted_by_code_also_where_nobody_waits_for_an_answer(
    node: RemotingNode, client: RawClient
) -> None:
    before = {code: node.refused(code) for code in CODES}
    line = node.positions.duty(Duty.REMOTING)
    assert client.ask(999).code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED
    assert client.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": "nowhere"}).code == ResponseCode.TOPIC_NOT_EXIST
    assert client.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, {}).code == ResponseCode.SYSTEM_ERROR
    client.send(999, flag=ONE_WAY)
    assert client.put("counted", b"x").code == 0
    assert client.put("counted", b"x", queue=0, e=99).code == ResponseCode.INVALID_PARAMETER
    after = {code: node.refused(code) for code in CODES}
    assert {code: after[code] - before[code] for code in CODES if after[code] != before[code]} == {
        ResponseCode.REQUEST_CODE_NOT_SUPPORTED: 2,
        ResponseCode.TOPIC_NOT_EXIST: 1,
        ResponseCode.SYSTEM_ERROR: 1,
        ResponseCode.INVALID_PARAMETER: 1,
    }
    assert line.counter(Counter.REFUSED) == sum(after.values())


def test_a_send_that_put_refuses_is_counted(node: RemotingNode, client: RawClient) -> None:
    key = "UNIQ_KEY\x01" + "A" * 32 + "\x02"
    assert client.put("plainly", b"x", key).code == 0
    before = node.refused(ResponseCode.MESSAGE_ILLEGAL)
    assert client.put("plainly", bytes(5 << 20), key).code == ResponseCode.MESSAGE_ILLEGAL
    assert node.refused(ResponseCode.MESSAGE_ILLEGAL) == before + 1


def test_status_shows_who_is_there_who_was_sent_away_and_what_was_refused(
    node: RemotingNode, client: RawClient, capsys: pytest.CaptureFixture[str]
) -> None:
    assert client.ask(999).code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED
    assert client.put("shown", b"x").code == 0
    with RawClient(node.port) as bad:
        bad.write(struct.pack(">I", 0))
        assert bad.is_closed()
    with Producer(node.address) as producer, RawClient(node.port) as half:
        producer.make_topic("shown-too")
        half.write(struct.pack(">I", 1_000) + b"half")
        await_(lambda: node.counts.total(Total.HELD) == 8, 10.0, "its half is held")
        assert run(["master", "status", "--store", str(node.store.root), "--json"]) == 0
        said = json.loads(capsys.readouterr().out)["remoting"]
        assert run(["master", "status", "--store", str(node.store.root)]) == 0
        text = " ".join(capsys.readouterr().out.split())
    assert (said["own_clients"], said["held"]) == (1, 8)
    assert said["open"] >= 3
    assert said["accepted"] == said["open"] + said["left"] + said["ended"]["total"]
    assert said["ended"]["leading"] == "malformed"
    assert said["ended"]["causes"][0] == {
        "cause": "malformed",
        "count": node.ended(Ending.MALFORMED),
        "last_ms_ago": said["ended"]["causes"][0]["last_ms_ago"],
        "remedy": Ending.MALFORMED.remedy,
    }
    codes = {row["name"]: (row["code"], row["count"]) for row in said["refused"]["codes"]}
    assert codes["REQUEST_CODE_NOT_SUPPORTED"] == (3, node.refused(ResponseCode.REQUEST_CODE_NOT_SUPPORTED))
    assert said["refused"]["total"] == sum(row["count"] for row in said["refused"]["codes"]) + said["refused"]["own"]
    assert f"{said['open']} connections, 1 of them Towline's own" in text
    assert f"ended mostly by malformed ({node.ended(Ending.MALFORMED)} of" in text
    assert f"REQUEST_CODE_NOT_SUPPORTED (3) {codes['REQUEST_CODE_NOT_SUPPORTED'][1]}" in text


def test_connections_that_a_kill_of_the_process_ended_are_counted(node: RemotingNode, client: RawClient) -> None:
    assert client.put("killed", b"x").code == 0
    before, pids, open_ = node.ended(Ending.RESTART), node.pids(), node.counts.total(Total.OPEN)
    os.kill(pids["remoting"], signal.SIGKILL)
    node.await_restarted("remoting", pids)
    assert open_ >= 1
    assert node.ended(Ending.RESTART) == before + open_
    with RawClient(node.port) as again:
        assert again.put("killed", b"y").code == 0
        assert node.counts.total(Total.OPEN) == 1
