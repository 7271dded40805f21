"""Reads a page as somebody would who types its blocks one after the other, and compares what is printed.

Where they are typed is a `Place`: the checkout that the tests run in, or an environment that has the wheel alone.
"""

import contextlib
import doctest
import io
import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import ClassVar, Final

import pytest

from tests.processes.nodes import free_port, processes_of
from tests.repo.trees import ROOT
from tests.spark.class_archive import JAVA_OPTIONS, java_options
from tests.spark.pages import Block
from tests.spark.sessions import QUICK
from towline.cli.main import run as towline
from towline.errors import NodeNotRunning
from towline.node.supervise.launch import stop_node

PORTS: Final = {
    "10911": "listen_port",
    "10912": "ha_listen_port",
}
SMALL: Final = {"MAPPED_FILE_SIZE_COMMIT_LOG": "16777216", "MAX_HASH_SLOT_NUM": "1000", "MAX_INDEX_NUM": "10000"}
STARTS: Final = ("towline master start ", "towline cluster up ")  # nodes outlive the command
UNTIL_CTRL_C: Final = ("towline dev",)
INSTALLS: Final = "pip install "
MAKE: Final = "make "
COMMAND_S: Final = 300
ALIKE: Final = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE


class Place(ABC):
    """A directory where Python and the shell run, with ports that are free."""

    left_out: ClassVar[tuple[str, ...]] = ()  # beginnings of commands that another place is for

    def __init__(self, directory: Path, environment: Mapping[str, str]) -> None:
        self.directory = directory
        self.ports = {port: str(free_port()) for port in PORTS}
        settings = {"spark.ui.enabled": "false"} | {key: value for key, value in QUICK.items() if key != JAVA_OPTIONS}
        java = " ".join([java_options(), *(f"-D{key}={value}" for key, value in settings.items())])
        self._environment = {**environment, "JDK_JAVA_OPTIONS": java}
        self._given = {f"TOWLINE_{key.upper()}": self.ports[port] for port, key in PORTS.items()}
        self._small = {f"TOWLINE_{key}": value for key, value in SMALL.items()}

    @abstractmethod
    def python(self, code: str, page: Path) -> str:
        """What it printed. All blocks of a page share their names."""

    def shell(self, command: str) -> str:
        """What it printed. It must end with status 0; what runs until Ctrl-C is given that once it has printed."""
        environment = self.environment_of(command)
        if command.startswith(UNTIL_CTRL_C):
            return self._interrupted(command, environment)
        done = subprocess.run(
            ["bash", "-ec", command],
            cwd=self.directory,
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=COMMAND_S,
        )
        assert done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"
        return done.stdout

    def environment_of(self, command: str) -> dict[str, str]:
        """A cluster's ports stand in its file."""
        return self._environment | (self._small if "cluster" in command else self._given)

    def _interrupted(self, command: str, environment: Mapping[str, str]) -> str:
        words = ["bash", "-ec", f"exec {command}"]
        with subprocess.Popen(words, cwd=self.directory, env=environment, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            said = process.stdout.readline()
            process.send_signal(signal.SIGINT)
            said += process.stdout.read()
            assert process.wait(COMMAND_S) == 0, said
        return said


class Checkout(Place):
    """This process: `towline` runs in it, where it is loaded and a session is."""

    left_out = (INSTALLS,)

    def __init__(self, directory: Path, **names: object) -> None:
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        super().__init__(directory, os.environ | {"PATH": path})
        self._names = {"__name__": "__docs__"} | names

    def python(self, code: str, page: Path) -> str:
        said = io.StringIO()
        with contextlib.redirect_stdout(said):
            exec(compile(code, str(page), "exec"), self._names)
        return said.getvalue()

    def shell(self, command: str) -> str:
        """`make` only says what it would do: this test is part of that."""
        if command.startswith("towline ") and not command.startswith((*STARTS, *UNTIL_CTRL_C)):
            said = io.StringIO()
            with contextlib.redirect_stdout(said):
                assert towline(shlex.split(command, comments=True)[1:]) == 0, command
            return said.getvalue()
        if command.startswith(MAKE):
            command = f"cd {ROOT} && make --dry-run {command.removeprefix(MAKE)}"
        return super().shell(command)


PROGRAM: Final = """
import contextlib, io, json, os, sys, traceback
answers = os.fdopen(os.dup(1), "w")
os.dup2(2, 1)
names = {"__name__": "__docs__"}
for line in sys.stdin:
    code, page = json.loads(line)
    said, error = io.StringIO(), ""
    try:
        with contextlib.redirect_stdout(said):
            exec(compile(code, page, "exec"), names)
    except BaseException:
        error = traceback.format_exc()
    print(json.dumps([said.getvalue(), error]), file=answers, flush=True)
"""


class Installed(Place):
    """A virtual environment with the wheel: nothing of the checkout is in reach."""

    left_out = (MAKE,)

    def __init__(self, directory: Path, programs: Path, variables: Mapping[str, str]) -> None:
        """`variables` are what its processes see of the environment of this one."""
        path = os.pathsep.join([str(programs), *_without_checkout(os.environ["PATH"])])
        super().__init__(directory, {**variables, "PATH": path, "XDG_RUNTIME_DIR": os.environ["XDG_RUNTIME_DIR"]})
        self._program = [str(programs / "python"), "-c", PROGRAM]
        self._process: subprocess.Popen[str] | None = None

    def python(self, code: str, page: Path) -> str:
        if self._process is None:
            self._process = subprocess.Popen(
                self._program,
                cwd=self.directory,
                env=self._environment,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps([code, str(page)]) + "\n")
        self._process.stdin.flush()
        said, error = json.loads(self._process.stdout.readline())
        assert not error, f"{code}\n{error}"
        return str(said)

    def close(self) -> None:
        if self._process is not None:
            with self._process:
                self._process.kill()


def _without_checkout(path: str) -> list[str]:
    return [part for part in path.split(os.pathsep) if part != str(Path(sys.executable).parent)]


def read(place: Place, page: Path, blocks: Sequence[Block], store: str) -> None:
    """Types every block. `store` is what the page calls the directory that it works in."""
    checker = doctest.OutputChecker()
    for block in blocks:
        said = typed(place, page, block, store)
        if block.output is not None and not block.code.startswith(place.left_out):
            expected = block.output.replace(store, str(place.directory))
            told = f"the block at line {block.line} of {page.name} printed\n{said}\nand the page says\n{expected}"
            assert block.code.startswith(MAKE) or checker.check_output(expected, said, ALIKE), told


def typed(place: Place, page: Path, block: Block, store: str) -> str:
    """What one block printed."""
    code = block.code.replace(store, str(place.directory))
    for port, free in place.ports.items():
        code = code.replace(f":{port}", f":{free}")
    if block.kind == "python":
        return place.python("\n" * (block.line - 1) + code, page)
    commands = [command for command in code.replace("\\\n", " ").splitlines() if command]
    return "".join(place.shell(command) for command in commands if not command.startswith(place.left_out))


@contextlib.contextmanager
def cleared(directory: Path) -> Iterator[Path]:
    """Where a page is read. What it started is ended, however far it came."""
    with pytest.MonkeyPatch.context() as patch:
        runtime = Path(tempfile.mkdtemp(prefix="tl-", dir="/dev/shm"))  # a short path, for sockets lie below it
        patch.setenv("XDG_RUNTIME_DIR", str(runtime))
        patch.chdir(directory)
        try:
            yield directory
        finally:
            for store in (directory, directory / "store"):
                with contextlib.suppress(NodeNotRunning):
                    stop_node(store)
            for pid, _ in processes_of(directory):
                os.kill(pid, signal.SIGKILL)
            shutil.rmtree(runtime)
