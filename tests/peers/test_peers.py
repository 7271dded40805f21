"""The same work for Towline and for other servers: each does it whole, and what is found stands side by side."""

import socket
from dataclasses import replace

import numpy as np
import pytest

from peers.harness import measure
from peers.plan import QUANTILES, Answer, Durability, Kind, Replica, Work
from peers.remotings import OPAQUE, answers_of
from peers.stream_client import CHUNK, StreamClient, Wire, frames_of
from peers.towlines import requests_of
from peers.works import Comparison, Task
from towline.errors import BenchFailed
from towline.format.remoting.command import ANSWER, Command, Form, encode
from towline.format.wire.frames import decode_put

SECONDS = 0.2
COUNT = CHUNK * 20
WORKS = (
    Work(kind=Kind.TAIL, body=100, rate=500.0, seconds=SECONDS),
    Work(kind=Kind.STORED, body=100, count=COUNT, durability=Durability.SYNC),
)
OF_PYTHON = (
    Work(kind=Kind.SEND, body=100, seconds=SECONDS),
    Work(kind=Kind.SEND_ASYNC, body=100, seconds=SECONDS),
    Work(kind=Kind.SEND_BODIES, body=100, seconds=SECONDS),
    Work(kind=Kind.OBJECTS, body=100, count=COUNT),
)
SYSTEMS = ("towline", "nats", "redis")
ANSWERS = ((0, ""), (2, "[OVERLOAD]SYSTEM_BUSY"))


@pytest.fixture
def temporary(tmp_path_factory, monkeypatch):
    """A short name: sockets are made below it."""
    made = tmp_path_factory.mktemp("p")
    monkeypatch.setattr("tempfile.tempdir", str(made))
    return made


def test_every_system_that_is_installed_does_all_the_work(temporary):
    notes: list[str] = []
    kept: list[int] = []
    plan = Comparison(systems=SYSTEMS, tasks=tuple(Task(work, 1) for work in WORKS), limit_s=0.02)
    found = measure(plan, lambda text, left_s: notes.append(text), lambda result: kept.append(len(result["goals"])))
    assert len(kept) == len(WORKS)
    assert "towline" in found["versions"]
    assert found["failed"] == {}
    for row, work in zip(found["rows"], WORKS, strict=True):
        expected = set(found["versions"]) - {name.split(":")[0] for name in found["absent"] if work.name in name}
        assert set(row["systems"]) == expected, row["name"]
        for system, figures in row["systems"].items():
            assert figures["per_s"] > 0, (system, row["name"])
            assert figures["quantiles_us"] == sorted(figures["quantiles_us"])
            assert len(figures["quantiles_us"]) == len(QUANTILES)
        assert ("per_s_of_best" in row["systems"]["towline"]) == (len(expected) > 1)
    for figures in found["rows"][-1]["systems"].values():
        assert figures["lost"] == 0
        assert 0 < figures["first_ack_s"] < 60
        assert figures["memory_mb"] > 1
        assert 0.5 < figures["disk_per_byte"] < 100  # a store of so little has its fixed parts too
    assert all(value > 0 for value in found["limits"].values())
    assert list(temporary.iterdir()) == []
    assert len(notes) > len(WORKS)


def test_what_python_code_gets_is_measured(temporary):
    found = measure(Comparison(systems=SYSTEMS, tasks=tuple(Task(work, 1) for work in OF_PYTHON), limit_s=0.02))
    assert found["failed"] == {}
    for row, work in zip(found["rows"], OF_PYTHON, strict=True):
        alone = work.kind is Kind.SEND_BODIES
        assert set(row["systems"]) == ({"towline"} if alone else set(found["versions"])), row["name"]
        counts = [figures["count"] for figures in row["systems"].values()]
        assert set(counts) == {COUNT} if work.count else min(counts) > 0


def test_the_port_for_rocketmqs_clients_is_put_to_and_holds_idle_connections_as_others_do(temporary):
    put, single = Work(kind=Kind.PUT, body=100, seconds=SECONDS), Work(kind=Kind.SINGLE, body=100, seconds=SECONDS)
    idle = Work(kind=Kind.IDLE, body=0, clients=2, count=100, seconds=SECONDS)
    works = (put, replace(put, clients=2), single, idle)
    systems = ("towline-remoting", "nats", "redis")
    found = measure(Comparison(systems=systems, tasks=tuple(Task(work, 1) for work in works), limit_s=0.02))
    assert found["failed"] == {}
    for row, work in zip(found["rows"], works, strict=True):
        assert set(row["systems"]) == set(found["versions"]), row["name"]
        for system, figures in row["systems"].items():
            assert figures["count"] == (work.count or pytest.approx(figures["per_s"] * SECONDS, rel=0.9)), system
    for figures in found["rows"][-1]["systems"].values():
        assert figures["idle_mb"] > 1
        assert 0 <= figures["idle_cpu_percent"] < 100
    assert list(temporary.iterdir()) == []


def test_a_refused_send_is_no_answer(pair):
    near, far = pair
    good, busy = (encode(Command(code, OPAQUE, ANSWER, remark, form=Form.ROCKETMQ))[0] for code, remark in ANSWERS)
    far.sendall(good + good)
    work = Work(kind=Kind.RATE, body=1, rate=1000.0, seconds=0.002)
    assert StreamClient(near, answers_of((b"x",))).run(work, at_once).count == 2
    far.sendall(busy)
    with pytest.raises(BenchFailed, match="refuses"):
        StreamClient(near, answers_of((b"x",))).run(work, at_once)


@pytest.fixture
def pair():
    """Two ends of a connection on which each send is read by itself."""
    near, far = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    yield near, far
    near.close()
    far.close()


def at_once() -> None:
    return


def test_marks_that_are_torn_between_two_readings_are_counted_once(pair):
    near, far = pair
    for chunk in (b"a", b"ba", b"b..a", b"bab"):
        far.send(chunk)
    work = Work(kind=Kind.RATE, body=1, rate=1000.0, seconds=0.004)
    found = StreamClient(near, Wire((b"x",), b"ab", b"no")).run(work, at_once)
    assert found.count == 4


def test_a_refusal_and_a_closed_connection_end_the_work(pair):
    near, far = pair
    far.sendall(b"..no room..")
    work = Work(kind=Kind.SINGLE, body=1, seconds=1.0)
    with pytest.raises(BenchFailed, match="refuses: b'no room"):
        StreamClient(near, Wire((b"x",), b"ab", b"no")).run(work, at_once)


def test_work_goes_to_a_client_process_unchanged():
    slow = Work(kind=Kind.PUT, body=1024, sync_delay_ms=5, queues=100, replica=Replica.IN_SYNC)
    for work in (*WORKS, slow):
        assert Work.read(work.to_json()) == work
    assert slow.name == "put 1 KiB, 1 client, async, +5 ms per sync, 100 queues, 1 in-sync replica"


@pytest.mark.parametrize(
    ("body", "window", "together"), [(100, 1024, 256), (1024, 1024, 128), (16384, 1024, 8), (1, 1, 1)]
)
def test_a_request_is_a_quarter_of_the_window_and_of_bounded_size(body, window, together):
    work = Work(kind=Kind.PUT, body=body, window=window)
    assert work.together == work.to_json()["together"] == together
    assert Work(kind=Kind.SINGLE, body=body, window=window).together == 1


@pytest.mark.parametrize("queues", [1, 3, 100])
def test_messages_go_round_the_queues(queues):
    work = Work(kind=Kind.PUT, body=10, queues=queues)
    frames = frames_of(work, lambda queue, body: b"%d" % queue)
    assert len(frames) % CHUNK == 0
    assert [int(frame) for frame in frames] == [number % queues for number in range(len(frames))]
    window = 16
    requests = requests_of(work, CHUNK, window)  # CHUNK messages in each
    assert len(requests) >= 2 * window
    asked = [decode_put(head, CHUNK)[3] for head, _ in requests]
    for number, (groups, (_, records)) in enumerate(zip(asked, requests, strict=True)):
        there = sorted(group.queue_id for group in groups for _ in range(group.count))
        assert there == sorted((number * CHUNK + place) % queues for place in range(CHUNK))
        assert len({group.queue_id for group in groups}) == len(groups)  # a node refuses two groups for one queue
        assert sum(group.size for group in groups) == len(memoryview(records))


def test_latencies_and_throughput_over_time_are_of_all_messages():
    us, done_s = np.arange(1.0, 101.0), np.linspace(0.0, 0.35, 100)
    found = Answer.of(100, 0.35, us, done_s)
    assert sum(found.by_time) == 100
    assert len(found.by_time) == 4
    assert found.quantiles_us[0] == 1.0
    assert found.quantiles_us[-1] == 100.0
