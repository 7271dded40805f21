"""Every block of the page "Towline and Spark" runs and prints what the page says."""

import contextlib
import doctest
import io
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from cli.main import run as towline
from tests.processes.nodes import free_port
from tests.spark.class_archive import JAVA_OPTIONS, java_options
from tests.spark.pages import PAGE, TEXT, Block, blocks
from tests.spark.sessions import QUICK
from towline.errors import NodeNotRunning
from towline.node.supervise.launch import stop_node

PORTS = {"10911": "listen_port", "10921": "serve_port", "10912": "ha_listen_port", "10922": "schedule_port"}
SHOP = "/tmp/shop"
TOWLINE = "towline "
STARTED = "towline master start "  # it outlives the command
COMMAND_S = 150
ALIKE = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE


class Runner:
    """Runs blocks in one namespace and one directory, as somebody would who types them one after the other."""

    def __init__(self, directory: Path) -> None:
        self._names: dict[str, object] = {"__name__": "__docs__"}
        self._ports = {port: str(free_port()) for port in PORTS}
        given = {f"TOWLINE_{key.upper()}": self._ports[port] for port, key in PORTS.items()}
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        settings = {"spark.ui.enabled": "false"} | {key: value for key, value in QUICK.items() if key != JAVA_OPTIONS}
        java = " ".join([java_options(), *(f"-D{key}={value}" for key, value in settings.items())])
        self._environment = os.environ | given | {"PATH": path, "JDK_JAVA_OPTIONS": java}
        self._directory = directory

    def run(self, block: Block) -> str:
        """What it printed."""
        code = block.code
        for port, ours in self._ports.items():
            code = code.replace(f":{port}", f":{ours}")
        code = code.replace(SHOP, str(self._directory))
        if block.kind == "python":
            said = io.StringIO()
            with contextlib.redirect_stdout(said):
                exec(compile("\n" * (block.line - 1) + code, str(PAGE), "exec"), self._names)
            return said.getvalue()
        return "".join(self._shell(command) for command in code.replace("\\\n", " ").splitlines() if command)

    def _shell(self, command: str) -> str:
        """`towline` runs in this process, where it is loaded and a session is; everything else as it stands."""
        if command.startswith(TOWLINE) and not command.startswith(STARTED):
            said = io.StringIO()
            with contextlib.redirect_stdout(said):
                assert towline(shlex.split(command)[1:]) == 0, command
            return said.getvalue()
        done = subprocess.run(
            ["bash", "-ec", command],
            cwd=self._directory,
            env=self._environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=COMMAND_S,
        )
        assert done.returncode == 0, f"{command}: {done.stderr}"
        return done.stdout


@pytest.fixture
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Where the page is read. What it started is ended, however far it came."""
    runtime = Path(tempfile.mkdtemp(prefix="tl-", dir="/dev/shm"))  # a short path, for sockets lie below it
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(runtime))
    monkeypatch.chdir(tmp_path)
    yield tmp_path
    with contextlib.suppress(NodeNotRunning):
        stop_node(tmp_path / "store")
    shutil.rmtree(runtime)


@pytest.mark.timeout(600)
def test_every_block_runs_and_prints_what_the_page_says(spark, directory):
    runner, checker = Runner(directory), doctest.OutputChecker()
    for block in blocks(TEXT):
        said = runner.run(block)
        if block.output is not None:
            expected = block.output.replace(SHOP, str(directory))
            told = f"the block at line {block.line} of {PAGE.name} printed\n{said}\nand the page says\n{expected}"
            assert checker.check_output(expected, said, ALIKE), told
