"""Thousands of connections, clients that never read, bodies that stand for gigabytes. Others go on as before."""

import os
import random
import resource
import socket
import struct
import threading
import time
import zlib
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Final

import pytest

from tests.processes.waiting import await_
from towline.client.consumer import Consumer
from towline.errors import DecompressedTooLarge
from towline.format.record.record import COMPRESSED, COMPRESSION_ZLIB
from towline.format.remoting.codes import RequestCode
from towline.format.remoting.command import Command, Form, encode
from towline.limits import DECOMPRESSED_SIZE_MAX, GIB, KIB, MIB
from towline.remoting.connections import PAUSE_AT, UNREAD_S
from towline.runtime.remoting_counts import Ending, Total

from .conftest import RemotingNode
from .raw import RawClient, sent

CONNECTIONS: Final = 3_000
SENDS_EACH: Final = 20
NEVER_READING: Final = 8
GROWTH_MAX: Final = 160 * MIB  # HELD_MAX, and what is on its way
P99_MAX_S: Final = 0.5  # on a machine with more to do than cores
P99_RATIO_MAX: Final = 10.0


def anonymous(pid: int) -> int:
    """Bytes of a process's memory that are no file's."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("RssAnon:"))


def p99(client: RawClient, topic: str, sends: int = 400) -> float:
    """Seconds that all but one of a hundred sends take at most, one at a time."""
    times = []
    for _ in range(sends):
        began = time.perf_counter()
        assert client.put(topic, b"timed").code == 0
        times.append(time.perf_counter() - began)
    return sorted(times)[-1 - sends // 100]


def check_unharmed(alone: float, beside: float) -> None:
    said = f"p99 alone {alone * 1e3:.1f} ms, beside them {beside * 1e3:.1f} ms"
    print(said)
    assert beside < max(P99_RATIO_MAX * alone, P99_MAX_S), said


@pytest.fixture(scope="module")
def descriptors() -> Iterator[None]:
    """As many as a flood takes."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = 2 * CONNECTIONS + 500
    if hard != resource.RLIM_INFINITY and hard < wanted:
        pytest.skip(f"this process may have {hard} descriptors; {wanted} are wanted")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, wanted), hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def frames_of(topic: str, count: int, form: Form) -> bytes:
    """Sends, as kernels take them."""
    found = []
    for number in range(count):
        fields = sent(topic, f"UNIQ_KEY\x01{number:032X}\x02", e=0)
        text = {name: str(value) for name, value in fields.items()}
        found += encode(Command(RequestCode.SEND_MESSAGE_V2, number, 0, "", text, b"x" * 100, form, 409))
    return b"".join(found)


@pytest.mark.usefixtures("descriptors")
@pytest.mark.parametrize("kind", ["silent", "half a frame", "everything at once"])
def test_thousands_of_connections_leave_others_their_latency_and_the_node_its_memory(
    node: RemotingNode, kind: str
) -> None:
    pids = node.pids()
    everything = frames_of("flood", SENDS_EACH, Form.ROCKETMQ)
    with RawClient(node.port) as honest, ExitStack() as opened:
        for topic in ("flood", "flood-beside"):
            assert honest.put(topic, b"first").code == 0
        alone, memory = p99(honest, "flood-beside"), anonymous(pids["remoting"])
        clients = [opened.enter_context(RawClient(node.port)) for _ in range(CONNECTIONS)]
        await_(lambda: node.counts.total(Total.OPEN) > CONNECTIONS, 10.0, "all are there")
        sender = threading.Thread(target=say, args=(clients, kind, everything))
        sender.start()
        beside = p99(honest, "flood-beside")
        most = anonymous(pids["remoting"])
        sender.join()
        if kind == "everything at once":
            for client in clients:
                assert {client.read().code for _ in range(SENDS_EACH)} == {0}
        most = max(most, anonymous(pids["remoting"]))
    check_unharmed(alone, beside)
    assert most - memory < GROWTH_MAX, f"{(most - memory) >> 20} MiB more"
    await_(lambda: node.counts.total(Total.OPEN) == 0, 10.0, "all have gone")
    assert node.pids() == pids


def say(clients: list[RawClient], kind: str, everything: bytes) -> None:
    for client in clients:
        if kind == "half a frame":
            client.write(struct.pack(">I", 10_000) + b"half" * 1_000)
        elif kind == "everything at once":
            client.write(everything)


@pytest.mark.parametrize("asked", ["routes", "pulls"])
def test_clients_that_never_read_are_closed_and_cost_others_nothing(node: RemotingNode, asked: str) -> None:
    """Nothing more is taken from who is behind: so what they ask for costs nobody anything until they are closed."""
    pids, before = node.pids(), node.ended(Ending.UNREAD)
    with RawClient(node.port) as honest:
        for _ in range(8):
            assert honest.put("unread", bytes(MIB // 4), e=0).code == 0
        assert honest.put("unread-beside", b"first").code == 0
        await_(lambda: honest.pull("g", "unread", 0, 7).code == 0, 10.0, "they can be read")
        alone, memory = p99(honest, "unread-beside"), anonymous(pids["remoting"])
        data = b"".join(bytes(part) for part in encode(request_for(asked)))
        data *= 256 * KIB // len(data)
        clients = [socket.create_connection(("127.0.0.1", node.port)) for _ in range(NEVER_READING)]
        said = [send_what_is_taken(client, data) for client in clients]
        beside = p99(honest, "unread-beside")
        most = anonymous(pids["remoting"])
        assert min(said) > 0
        if asked == "routes":  # the others would only take as long
            await_(lambda: node.ended(Ending.UNREAD) == before + NEVER_READING, 4 * UNREAD_S, "they are closed")
    for client in clients:
        client.close()
    check_unharmed(alone, beside)
    assert most - memory < NEVER_READING * (PAUSE_AT + 4 * MIB), f"{(most - memory) >> 20} MiB more"
    assert node.pids() == pids


def request_for(asked: str) -> Command:
    """One whose answer is as long as it, or as half a MiB."""
    if asked == "routes":
        return Command(RequestCode.GET_ROUTEINFO_BY_TOPIC, 1, 0, "", {"topic": "x" * 10_000})
    fields = {"consumerGroup": "g", "topic": "unread", "queueId": 0, "queueOffset": 0, "maxMsgNums": 32, "sysFlag": 4,
              "commitOffset": 0, "suspendTimeoutMillis": 0, "subscription": "*", "subVersion": 1}  # fmt: skip
    return Command(RequestCode.PULL_MESSAGE, 1, 0, "", {name: str(value) for name, value in fields.items()})


def send_what_is_taken(client: socket.socket, data: bytes) -> int:
    """Sends this again and again, until it is not taken for a while; bytes."""
    client.settimeout(0.3)
    size = 0
    with suppress(TimeoutError):
        while True:
            size += client.send(data)
    return size


def test_a_client_that_reads_late_is_answered_all_the_same(node: RemotingNode) -> None:
    """What it had asked for is taken when it has read what was before it."""
    with RawClient(node.port) as client:
        for number in range(8):
            assert client.put("late", bytes([number]) * (MIB // 4), e=0).code == 0
        await_(lambda: client.pull("g", "late", 0, 7).code == 0, 10.0, "they can be read")
        for _ in range(400):
            client.send(RequestCode.PULL_MESSAGE, request_for("pulls").fields | {"topic": "late"})
        await_(lambda: node.counts.total(Total.HELD) > PAUSE_AT, 10.0, "it is behind")
        answers = [client.read() for _ in range(400)]
    assert {answer.code for answer in answers} == {0}
    assert all(len(answer.body) > MIB // 4 for answer in answers)


# --- bodies that stand for gigabytes


def bomb(size: int) -> bytes:
    """A zlib stream of so many zeros, a multiple of 64 MiB: one part of it over and over."""
    part_size = 64 * MIB
    assert size % part_size == 0
    stream = zlib.compressobj(9, zlib.DEFLATED, -zlib.MAX_WBITS)
    part = stream.compress(bytes(part_size)) + stream.flush(zlib.Z_FULL_FLUSH)
    end = zlib.compressobj(9, zlib.DEFLATED, -zlib.MAX_WBITS).flush()
    check = (size % 65_521) << 16 | 1
    return b"\x78\xda" + part * (size // part_size) + end + check.to_bytes(4, "big")


def test_the_bomb_of_these_tests_is_sound() -> None:
    assert zlib.decompress(bomb(128 * MIB)) == bytes(128 * MIB)


@pytest.mark.parametrize("form", Form)
@pytest.mark.parametrize("plain", [True, False], ids=["by kernels", "by the interpreter"])
def test_a_body_that_stands_for_gigabytes_goes_through_as_it_is_and_consumers_refuse_it(
    node: RemotingNode, form: Form, plain: bool
) -> None:
    size = 3 * GIB
    body, flags = bomb(size), COMPRESSED | COMPRESSION_ZLIB
    topic, pids = f"bombs-{form.name}-{plain}", node.pids()
    key = f"UNIQ_KEY\x01{random.Random(topic).randbytes(16).hex().upper()}\x02" if plain else "TAGS\x01A"
    with RawClient(node.port, form) as client:
        assert client.put(topic, b"first", key, e=0).code == 0
        before = {name: anonymous(pids[name]) for name in ("remoting", "put", "serve", "reput")}
        assert client.put(topic, body, key, e=0, f=flags).code == 0
        assert client.put(topic, b"last", key, e=0).code == 0
        await_(lambda: client.pull("g", topic, 0, 2).code == 0, 10.0, "all can be read")
        assert body in bytes(client.pull("g", topic, 0, 1).body), "as it was sent"
    own = anonymous(os.getpid())
    for endpoint in (node.address, f"rocketmq://127.0.0.1:{node.port}"):
        with Consumer(endpoint, topic, start="first") as consumer:
            found = []
            while len(found) < 3:
                found += consumer.poll(5_000)
            assert [found[0].body, found[2].body] == [b"first", b"last"]
            with pytest.raises(DecompressedTooLarge, match=str(DECOMPRESSED_SIZE_MAX)):
                _ = found[1].body
    grown = {name: anonymous(pids[name]) - size_before for name, size_before in before.items()}
    assert max(grown.values()) < 64 * MIB, grown
    assert anonymous(os.getpid()) - own < 3 * DECOMPRESSED_SIZE_MAX + 64 * MIB
    assert node.pids() == pids
