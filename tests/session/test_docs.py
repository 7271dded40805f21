"""Every block of README and of the page "Towline and Spark" runs and prints what the page says."""

import contextlib
import doctest
import io
import os
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.processes.nodes import free_port, processes_of
from tests.repo.trees import ROOT
from tests.spark.class_archive import JAVA_OPTIONS, java_options
from tests.spark.pages import PAGE, README, Block, blocks
from tests.spark.sessions import QUICK
from towline.cli.main import run as towline
from towline.errors import NodeNotRunning
from towline.node.supervise.launch import stop_node

PORTS = {
    "10911": "listen_port",
    "10912": "ha_listen_port",
}
STORES = {PAGE: "/tmp/shop", README: "/tmp/m"}  # what a page calls the directory that it works in
DRAWING_ENDS = "\n## Start\n"
TOWLINE = "towline "
STARTS = ("towline master start ", "towline cluster up ")  # nodes outlive the command
MAKE = "make "
SMALL = {"MAPPED_FILE_SIZE_COMMIT_LOG": "16777216", "MAX_HASH_SLOT_NUM": "1000", "MAX_INDEX_NUM": "10000"}
COMMAND_S = 150
ALIKE = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE


class Runner:
    """Runs blocks in one namespace and one directory, as somebody would who types them one after the other."""

    def __init__(self, page: Path, directory: Path, **names: object) -> None:
        self._page, self._names = page, {"__name__": "__docs__"} | names
        self._ports = {port: str(free_port()) for port in PORTS}
        given = {f"TOWLINE_{key.upper()}": self._ports[port] for port, key in PORTS.items()}
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        settings = {"spark.ui.enabled": "false"} | {key: value for key, value in QUICK.items() if key != JAVA_OPTIONS}
        java = " ".join([java_options(), *(f"-D{key}={value}" for key, value in settings.items())])
        self._environment = os.environ | {"PATH": path, "JDK_JAVA_OPTIONS": java}
        self._small = {f"TOWLINE_{key}": value for key, value in SMALL.items()}
        self._given = given  # a cluster's ports stand in its file
        self._directory = directory

    def run(self, block: Block) -> str:
        """What it printed."""
        code = block.code
        for port, ours in self._ports.items():
            code = code.replace(f":{port}", f":{ours}")
        code = code.replace(STORES[self._page], str(self._directory))
        if block.kind == "python":
            said = io.StringIO()
            with contextlib.redirect_stdout(said):
                exec(compile("\n" * (block.line - 1) + code, str(self._page), "exec"), self._names)
            return said.getvalue()
        return "".join(self._shell(command) for command in code.replace("\\\n", " ").splitlines() if command)

    def _shell(self, command: str) -> str:
        """`towline` runs in this process, where it is loaded and a session is. `make` only says what it would do: this
        test is part of that. Everything else runs as it stands."""
        if command.startswith(TOWLINE) and not command.startswith(STARTS):
            said = io.StringIO()
            with contextlib.redirect_stdout(said):
                assert towline(shlex.split(command)[1:]) == 0, command
            return said.getvalue()
        making = command.startswith(MAKE)
        given = self._small if "cluster" in command else self._given
        done = subprocess.run(
            ["bash", "-ec", command.replace(MAKE, "make --dry-run ") if making else command],
            cwd=ROOT if making else self._directory,
            env=self._environment | given,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=COMMAND_S,
        )
        assert done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"
        return done.stdout


@pytest.fixture
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Where the page is read. What it started is ended, however far it came."""
    runtime = Path(tempfile.mkdtemp(prefix="tl-", dir="/dev/shm"))  # a short path, for sockets lie below it
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(runtime))
    monkeypatch.chdir(tmp_path)
    yield tmp_path
    for store in {tmp_path, tmp_path / "store"}:
        with contextlib.suppress(NodeNotRunning):
            stop_node(store)
    for pid, _ in processes_of(tmp_path):
        os.kill(pid, signal.SIGKILL)
    shutil.rmtree(runtime)


def _read(page: Path, runner: Runner, found: list[Block], directory: Path) -> None:
    checker = doctest.OutputChecker()
    for block in found:
        said = runner.run(block)
        if block.output is not None and not block.code.startswith(MAKE):
            expected = block.output.replace(STORES[page], str(directory))
            told = f"the block at line {block.line} of {page.name} printed\n{said}\nand the page says\n{expected}"
            assert checker.check_output(expected, said, ALIKE), told


@pytest.mark.timeout(600)
def test_every_block_about_spark_runs_and_prints_what_the_page_says(spark, directory):
    _read(PAGE, Runner(PAGE, directory), blocks(PAGE.read_text(encoding="utf-8")), directory)


@pytest.mark.timeout(600)
def test_every_block_of_readme_runs(spark, directory):
    """What the demo prints is compared where it runs."""
    (directory / ".venv").symlink_to(sys.prefix)
    text = README.read_text(encoding="utf-8")
    drawing, _, rest = text.partition(DRAWING_ENDS)
    found = blocks("\n" * (drawing.count("\n") + 2) + rest)
    assert [block.code for block in found if block.code.startswith(MAKE)] == ["make demo\n", "make test\n"]
    _read(README, Runner(README, directory, spark=spark), found, directory)
    assert not processes_of(directory), "README stops what it starts"
