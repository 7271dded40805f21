"""The supervisor's end of its zygote."""

import os
import signal
import subprocess
import sys
import threading
import time

import psutil
import pytest

from towline.errors import StartFailed
from towline.node.process.zygote_client import ZygoteClient

NOBODY = "nonsense"  # no duty has this label


@pytest.fixture
def zygote(tmp_path):
    """Not spawned yet: a zygote writes to the standard error it finds, which a fixture would have from its set-up."""
    made = ZygoteClient(tmp_path, None, [])
    yield made
    made.end()


def test_a_child_that_ends_by_a_surprise_says_why_and_the_zygote_goes_on(zygote, capfd):
    zygote.spawn()
    zygote.await_ready()
    for _ in range(2):
        pid = zygote.fork(NOBODY)
        assert zygote.await_exit(NOBODY, pid, 10) == 1
    assert zygote.exit_status is None
    said = capfd.readouterr().err
    assert said.count("ends by an error that nobody expected") == 2
    assert said.count("StopIteration") == 2


def test_a_killed_zygote_is_noticed_at_once_and_another_takes_its_place(zygote):
    zygote.spawn()
    zygote.await_ready()
    first = zygote.pid
    os.kill(first, signal.SIGKILL)
    with pytest.raises(StartFailed, match="the zygote exited with -9"):
        zygote.fork(NOBODY)
    assert zygote.exit_status == -signal.SIGKILL
    zygote.discard()
    zygote.spawn()
    zygote.await_ready()
    assert zygote.pid != first
    assert zygote.await_exit(NOBODY, zygote.fork(NOBODY), 10) == 1


def test_a_zygote_that_loads_still_does_not_hold_up_the_end(zygote, monkeypatch):
    monkeypatch.setattr("towline.node.process.zygote_client.END_MAX_S", 60.0)
    zygote.spawn()
    process = zygote._process
    started = time.monotonic()
    zygote.end()
    assert time.monotonic() - started < 30
    assert process.returncode == -signal.SIGKILL
    assert not psutil.pid_exists(process.pid)
    zygote.end()


def test_a_wake_ends_a_listen_early(zygote):
    zygote.spawn()
    zygote.await_ready()
    timer = threading.Timer(0.05, zygote.wake)
    timer.start()
    started = time.monotonic()
    assert zygote.listen(10_000) == []
    assert time.monotonic() - started < 5
    timer.join()


COMPILING = """
import json, socket, sys, threading
control = socket.socket(fileno=int(sys.argv[1]))
for done in range(6):
    threading.Event().wait(0.4)
    control.sendall(json.dumps({"compiling": done, "of": 5}).encode() + b"\\n")
control.sendall(b'{"ready": 1}\\n')
control.recv(1)
"""


@pytest.fixture
def compiles(monkeypatch):
    """A zygote that has to compile for longer than one that is ready may take."""
    popen = subprocess.Popen
    monkeypatch.setattr(
        "towline.node.process.zygote_client.subprocess.Popen",
        lambda command, **more: popen([sys.executable, "-c", COMPILING, command[3]], **more),
    )
    monkeypatch.setattr("towline.node.process.zygote_client.READY_MAX_S", 1.5)


def test_a_zygote_that_compiles_may_take_its_time_and_says_how_far_it_is(tmp_path, compiles):
    said = []
    zygote = ZygoteClient(tmp_path, None, [], lambda *place: said.append(place))
    zygote.spawn()
    try:
        zygote.await_ready()
    finally:
        zygote.end()
    assert said == [(done, 5) for done in range(6)]


def test_a_zygote_that_stops_to_compile_is_not_waited_for_for_ever(tmp_path, compiles, monkeypatch):
    monkeypatch.setattr("towline.node.process.zygote_client.COMPILE_MAX_S", 0.1)
    zygote = ZygoteClient(tmp_path, None, [])
    zygote.spawn()
    try:
        with pytest.raises(StartFailed, match="no answer within 0 s"):
            zygote.await_ready()
    finally:
        zygote.end()
