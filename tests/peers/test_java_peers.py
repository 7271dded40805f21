"""RocketMQ and Kafka beside Towline: real servers and their own clients do every kind of work, and leave nothing."""

import shutil
import subprocess
import sys
from dataclasses import dataclass
from itertools import pairwise

import psutil
import pytest

from peers import java_peer, kafka, rocketmq
from peers.client_process import Client
from peers.harness import measure
from peers.jars import JavaMissing, class_path
from peers.plan import JAVA, QUANTILES, Durability, Kind, Setup, Work
from peers.server import Process, free_port
from peers.systems import SYSTEMS, Server, System
from peers.usage import cpu_s, memory_of
from peers.works import JAVAS, Comparison, Task
from tests.processes.waiting import Watch, await_
from tests.requirements import need
from towline.errors import BenchFailed
from towline.start import home

SECONDS = 0.2
DELAY_MS = 8
RATE = 400.0
FILLED = 100  # more than one batch, less than two
GONE_S = 30.0


@pytest.fixture(params=[rocketmq, kafka], ids=lambda system: system.SYSTEM)
def system(request) -> System:
    missing = {} if shutil.which("strace") else {"strace": "strace is not installed"}
    try:
        request.param.version()
    except JavaMissing as error:
        missing[error.name] = str(error)
    need(missing)
    return request.param


@dataclass
class Subject:
    """A running server, and how many messages are in its topic."""

    system: System
    server: Server
    stored: int = 0
    client: Client | None = None

    def do(self, kind: Kind, **more: float) -> dict:
        """By the one client that does all of it."""
        self.client = self.client or Client(self.system.client())
        self.client.prepare(self.server.address, Work(kind=kind, body=100, **({"seconds": SECONDS} | more)))
        self.client.await_ready()
        self.client.go()
        return self._checked(kind, self.client.answer())

    def first_after_kill(self) -> dict:
        with Client(self.system.client()) as client:
            client.prepare(self.server.address, Work(kind=Kind.FIRST, body=100))
            client.await_ready()
            self.server.kill()
            self.server.again()
            client.go()
            return self._checked(Kind.FIRST, client.answer())

    def end(self) -> None:
        if self.client:
            self.client.end()
        self.server.end()

    def _checked(self, kind: Kind, found: dict) -> dict:
        assert found["seconds"] > 0
        if kind not in (Kind.FIRST, Kind.REPLAY):
            assert sum(found["by_time"]) == found["count"]
            assert len(found["quantiles_us"]) == len(QUANTILES)
            assert all(low <= high for low, high in pairwise(found["quantiles_us"]))
        self.stored += found["count"] if kind not in (Kind.FIRST, Kind.REPLAY) else 0
        return found


@pytest.fixture
def tested(system, tmp_path):
    """Its syncs are slow, and each put waits for one."""
    directory = tmp_path / "server"
    directory.mkdir()
    server = system.start(directory, Setup(durability=Durability.SYNC, sync_delay_ms=DELAY_MS))
    subject = Subject(system, server)
    try:
        yield subject
    finally:
        subject.end()
    assert not directory.exists()


def test_a_server_does_every_kind_of_work_and_leaves_nothing(tested, tmp_path):
    single = tested.do(Kind.SINGLE)
    assert single["quantiles_us"][0] >= DELAY_MS * 1000, "a put was acknowledged before its sync"
    assert tested.do(Kind.FILL, count=FILLED)["count"] == FILLED
    assert tested.do(Kind.PUT)["count"] > 0
    assert tested.do(Kind.RATE, rate=RATE)["count"] == RATE * SECONDS
    assert tested.do(Kind.TAIL, rate=RATE)["count"] == RATE * SECONDS
    pids = tested.server.pids()
    assert sum(cpu_s(pids).values()) > 0
    assert memory_of(pids, tmp_path).own > 10_000_000
    assert tested.server.disk_bytes() > 100 * tested.stored
    assert tested.do(Kind.FIRST)["count"] == 1
    assert tested.do(Kind.REPLAY, count=tested.stored)["count"] == tested.stored
    tested.end()
    assert [each for each in psutil.process_iter(["name", "cmdline"]) if str(tmp_path) in _line(each)] == []


@pytest.mark.slow
def test_what_was_acknowledged_is_there_after_a_kill(tested):
    tested.do(Kind.FILL, count=FILLED)
    watch = Watch(tested.server.pids())
    assert tested.first_after_kill()["count"] == 1
    watch.await_gone(GONE_S)
    assert tested.do(Kind.REPLAY, count=tested.stored)["count"] == tested.stored
    with pytest.raises(BenchFailed, match="stored is not for a Java client"):
        tested.do(Kind.STORED)


@pytest.mark.parametrize("systems", [JAVAS[:1], pytest.param(JAVAS, marks=pytest.mark.slow)], ids=["here", "beside"])
def test_rocketmqs_java_clients_do_the_same_work_here_and_at_its_own_broker(systems, tmp_path, monkeypatch):
    try:
        rocketmq.version()
    except JavaMissing as error:
        need({error.name: str(error)})
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    works = [Work(kind=kind, body=100, seconds=SECONDS, window=100) for kind in JAVA[:3]]
    works.append(Work(kind=Kind.JAVA_PUSH, body=100, count=1000))
    plan = Comparison(systems=systems, tasks=tuple(Task(work, 1) for work in works), limit_s=0.02)
    found = measure(plan)
    assert found["failed"] == {}
    for row, work in zip(found["rows"], works, strict=True):
        assert set(row["systems"]) == set(systems)
        for figures in row["systems"].values():
            if work.kind is not Kind.JAVA_PUSH:  # what is read comes as it was pulled
                assert figures["count"] % work.together == 0
            assert figures["count"] >= work.count
    assert list(tmp_path.iterdir()) == []


def _line(process: psutil.Process) -> str:
    return " ".join(process.info["cmdline"] or [])


def test_both_are_among_the_systems():
    assert SYSTEMS["rocketmq"] is rocketmq
    assert SYSTEMS["kafka"] is kafka


@pytest.mark.parametrize(("program", "name"), [("java", "java"), ("javac", "java"), ("mvn", "maven")])
def test_what_is_missing_is_named(program, name, tmp_path, monkeypatch):
    monkeypatch.setattr(shutil, "which", lambda word: None if word == program else f"/usr/bin/{word}")
    with pytest.raises(JavaMissing, match=f"{program} is not installed: install a JDK") as met:
        class_path(java_peer.POM, ["-P", "kafka"], [], tmp_path)
    assert met.value.name == name


LISTENING = """
import socket, sys, time
with socket.socket() as server:
    server.bind(("127.0.0.1", int(sys.argv[1])))
    server.listen()
    while True:
        server.accept()[0].close()
"""
STARTING = """
import sys
from pathlib import Path
from peers.server import Process
server = Process([sys.executable, sys.argv[1], sys.argv[2]], Path(sys.argv[3]), int(sys.argv[2]))
print(*server.pids(), flush=True)
sys.stdin.read()
"""


@pytest.fixture
def listening(tmp_path):
    program = tmp_path / "listening.py"
    program.write_text(LISTENING)
    return program


def test_a_server_dies_with_whoever_started_it(listening, tmp_path):
    command = [sys.executable, "-c", STARTING, str(listening), str(free_port()), str(tmp_path)]
    with subprocess.Popen(command, cwd=home(), stdin=subprocess.PIPE, stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        watch = Watch(map(int, parent.stdout.readline().split()))
        parent.kill()
    watch.await_gone(GONE_S)


def test_a_server_that_was_killed_starts_again_on_its_files(listening, tmp_path):
    directory = tmp_path / "server"
    directory.mkdir()
    server = Process(
        [sys.executable, str(listening), str(free_port())], directory, int(free_port()), ready=lambda: True
    )
    try:
        first = server.pids()
        (directory / "kept").write_bytes(b"x" * 5000)
        assert server.disk_bytes() >= 5000
        server.kill()
        server.again()
        assert (directory / "kept").exists()
        assert server.pids() != first
        await_(lambda: psutil.pid_exists(server.pids()[0]), GONE_S, "it runs")
    finally:
        server.end()
    assert not directory.exists()


def test_a_server_that_does_not_start_says_why(tmp_path):
    directory = tmp_path / "server"
    directory.mkdir()
    with pytest.raises(BenchFailed, match="server did not start: no luck"):
        Process([sys.executable, "-c", "raise SystemExit('no luck')"], directory, free_port())
    assert not directory.exists()
