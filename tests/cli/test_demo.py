"""`towline demo` as a person runs it: a process of its own, its own master and slave."""

import json
import os
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

from towline.start import home

COMMAND = [sys.executable, "-c", "from towline.start import main; main()", "demo"]
END_MAX_S = 60


@pytest.fixture
def temporary(tmp_path, monkeypatch):
    """Where the demo makes its temporary directory."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    return tmp_path


@pytest.fixture(autouse=True)
def runtime(monkeypatch):
    """Where its nodes have their runtime directories: ours alone, and a short path, for sockets lie below it."""
    made = Path(tempfile.mkdtemp(prefix="tl-", dir="/dev/shm"))
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(made))
    yield made
    shutil.rmtree(made)


def processes_below(directory: Path) -> list[str]:
    """Command lines of processes that work on a store below the directory."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            command = (process / "cmdline").read_bytes()
        except (FileNotFoundError, ProcessLookupError):
            continue
        if str(directory).encode() in command:
            found.append(command.replace(b"\0", b" ").decode())
    return found


def start(*arguments: str) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [*COMMAND, *arguments], cwd=home(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def finish(demo: "subprocess.Popen[str]") -> tuple[int, str, str]:
    out, err = demo.communicate(timeout=END_MAX_S)
    return demo.returncode, out, err


def test_sends_reads_back_compares_and_leaves_nothing(temporary, runtime):
    status, out, err = finish(start("--limit", "2000", "--json"))
    assert status == 0, err
    assert out.count("\n") == 1
    result = json.loads(out)
    assert (result["sent"], result["acked"], result["read_from_slave"]) == (2000, 2000, 2000)
    assert (result["doubled"], result["lost"], result["changed"], result["foreign"]) == (0, 0, 0, 0)
    assert result["commitlog_identical"] is True
    assert result["commitlog_bytes_compared"] == result["record_bytes"]
    assert result["aircraft"]["right"]
    assert result["carrier"]["right"]
    assert set(result["dispatch_lag_ms"]) == {"master", "slave"}
    assert list(temporary.iterdir()) == []
    assert list(runtime.glob("towline/*")) == []


def test_keeps_the_stores_on_request_and_ends_with_one_json_line_after_the_table(tmp_path):
    status, out, err = finish(start("--limit", "500", "--store", str(tmp_path)))
    assert status == 0, err
    *table, last = out.splitlines()
    assert json.loads(last)["ok"] is True
    assert any("acknowledged" in line for line in table)
    for role in ("master", "slave"):
        assert not (tmp_path / role / "abort").exists()
        assert list((tmp_path / role / "commitlog").iterdir())


@pytest.mark.parametrize(
    ("number", "seconds"),
    [
        pytest.param(signal.SIGINT, 0.2, id="Ctrl-C while the command loads"),
        pytest.param(signal.SIGINT, 1.5, id="Ctrl-C while the master starts"),
        pytest.param(signal.SIGINT, 2.8, id="Ctrl-C while the slave starts"),
        pytest.param(signal.SIGINT, 4.5, id="Ctrl-C while it sends"),
        pytest.param(signal.SIGTERM, 3.5, id="SIGTERM"),
    ],
)
def test_an_interrupt_at_any_moment_leaves_no_process_and_no_directory(temporary, runtime, seconds, number):
    demo = start("--json")
    ended = os.pidfd_open(demo.pid)
    select.select([ended], [], [], seconds)
    os.close(ended)
    demo.send_signal(number)
    status, out, err = finish(demo)
    assert "Traceback" not in err
    assert (status, out) == (130, "")
    assert processes_below(temporary) == []
    assert list(temporary.iterdir()) == []
    assert list(runtime.glob("towline/*")) == []


def test_a_demo_that_is_killed_leaves_no_process(temporary):
    demo = start("--json")
    deadline = time.monotonic() + END_MAX_S
    while len(processes_below(temporary)) < 4:
        assert time.monotonic() < deadline
        select.select([], [], [], 0.02)
    demo.kill()
    finish(demo)
    while processes_below(temporary):
        assert time.monotonic() < deadline
        select.select([], [], [], 0.02)
