"""`towline bench peers` as a person runs it: a result, pictures; after Ctrl-C nothing is left."""

import json
import os
import signal
import subprocess
import sys
import tempfile
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from peers.pictures import BARS, LATENCY, OVER_TIME, PAGE
from tests.processes.waiting import Watch, await_
from towline.cli import bench_peers
from towline.cli.main import run

COMMAND = [sys.executable, "-c", "import sys; from towline.start import main; sys.exit(main())", "bench", "peers"]
GONE_S = 60.0


@pytest.fixture
def places():
    """What is made lies below `temp`, and what is kept in `out`. Sockets lie there too: the paths are short."""
    with tempfile.TemporaryDirectory(prefix="tl-") as root:
        made = {name: Path(root) / name for name in ("temp", "run", "out")}
        for name in ("temp", "run"):
            made[name].mkdir(mode=0o700)
        yield made


def environment(places):
    return os.environ | {"TMPDIR": str(places["temp"]), "XDG_RUNTIME_DIR": str(places["run"])}


def left(directory: Path) -> list[Path]:
    return [path for path in directory.rglob("*") if not path.is_dir()]


def test_a_run_says_one_json_document_and_keeps_it_with_pictures(places):
    wanted = ["--systems", "towline,redis", "--works", "tail", "--seconds", "0.1", "--json"]
    done = subprocess.run(
        [*COMMAND, *wanted, "--output", str(places["out"])], env=environment(places), capture_output=True, check=False
    )
    assert done.returncode == 0, done.stderr.decode()
    result = json.loads(done.stdout)
    assert result["failed"] == {}
    assert len(result["rows"]) == 1
    assert set(result["rows"][0]["systems"]) == set(result["versions"])
    assert "towline" in result["versions"]
    assert json.loads((places["out"] / "peers.json").read_text()) == result
    assert {path.name for path in places["out"].iterdir()} == {"peers.json", BARS, LATENCY, OVER_TIME, PAGE}
    assert left(places["temp"]) == left(places["run"]) == []


def test_a_name_that_is_not_known_is_told():
    done = subprocess.run([*COMMAND, "--works", "put,nobody"], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "'nobody' is none of the works" in done.stderr


def test_an_installation_without_the_repository_names_it(tmp_path, monkeypatch, capfd):
    monkeypatch.setattr(bench_peers, "home", lambda: tmp_path)
    assert run(["bench", "peers", "--json"]) == 1
    said = capfd.readouterr()
    assert json.loads(said.out)["error"] == "RepositoryOnly"
    assert "run `make .venv/ready` there, then `.venv/bin/towline bench peers`" in said.err


def test_ctrl_c_leaves_no_process_and_no_file(places):
    running = subprocess.Popen(
        [*COMMAND, "--systems", "towline,redis", "--works", "tail", "--seconds", "60", "--output", str(places["out"])],
        env=environment(places),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    )
    try:
        root = psutil.Process(running.pid)
        await_(lambda: len(clients(root)) == 2, GONE_S, "one that puts and one that listens")
        watch = Watch([running.pid, *(each.pid for each in root.children(recursive=True))])
        running.send_signal(signal.SIGINT)
        _, said = running.communicate(timeout=GONE_S)
    finally:
        running.kill()
        running.communicate()
    watch.await_gone(GONE_S)
    assert running.returncode == 130, said.decode()
    assert b"Traceback" not in said
    assert left(places["temp"]) == left(places["run"]) == []
    assert not places["out"].exists()


def clients(root: psutil.Process) -> list[psutil.Process]:
    """Client processes below it."""
    found = []
    for child in root.children(recursive=True):
        with suppress(psutil.NoSuchProcess):  # it went while we looked
            found += [child] if "peers.client" in child.cmdline() else []
    return found
