"""`towline dev`: a node that is there until Ctrl-C, and has left nothing then."""

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.processes.nodes import free_port
from tests.processes.waiting import await_
from towline import Consumer, Message, Producer
from towline.limits import MIB
from towline.start import home

PROGRAM = "from towline.start import main; main()"
DEADLINE_S = 60.0


@contextmanager
def running(tmp_path: Path, *words: object) -> Iterator[tuple[subprocess.Popen[str], dict[str, Any]]]:
    command = [sys.executable, "-c", PROGRAM, "dev", "--json", *map(str, words)]
    environment = os.environ | {"TMPDIR": str(tmp_path)}
    process = subprocess.Popen(command, cwd=home(), env=environment, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        yield process, json.loads(process.stdout.readline())
    finally:
        process.kill()
        process.wait()
        if process.stdout is not None:
            process.stdout.close()


def nothing_is_left(tmp_path: Path, store: str) -> bool:
    found = subprocess.run(["pgrep", "-f", store], capture_output=True, check=False)
    return not list(tmp_path.iterdir()) and found.returncode == 1


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_it_takes_and_gives_messages_until_it_is_interrupted_and_leaves_nothing(tmp_path, number):
    further = [f"--set={key}={free_port()}" for key in ("fast_listen_port", "name_server_port")]  # as beside 10911
    with running(tmp_path, "--port", free_port(), *further) as (process, facts):
        with Producer(facts["endpoint"]) as producer, Consumer(facts["endpoint"], "orders", start="first") as consumer:
            assert producer.send(Message("orders", b"hello")).acknowledged
            assert [message.body for message in consumer.poll(10_000)] == [b"hello"]
        assert sum(path.stat().st_blocks * 512 for path in Path(facts["store"]).rglob("*")) < 128 * MIB
        process.send_signal(number)
        assert process.wait(DEADLINE_S) in (0, 128 + number)
    assert nothing_is_left(tmp_path, facts["store"])


def test_its_processes_end_with_it(tmp_path):
    with running(tmp_path, "--port", free_port(), "--set", "flush_disk_type=SYNC_FLUSH") as (process, facts):
        process.kill()
        process.wait()

        def gone() -> bool:
            return subprocess.run(["pgrep", "-f", facts["store"]], capture_output=True, check=False).returncode == 1

        await_(gone, DEADLINE_S, "the end of its processes")
        shutil.rmtree(Path(facts["store"]).parent)


def test_a_setting_that_is_none_is_refused_and_nothing_stays(tmp_path, towline, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    done = towline("dev", "--set", "flush_disk_typ=x")
    assert done.status == 1
    assert "flush_disk_type" in done.err
    assert not list(tmp_path.iterdir())
