"""RocketMQ's own mqadmin, in one JVM for many commands."""

import re
import subprocess
import threading
from itertools import takewhile
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final, Self

import pytest

from .java_clients import classes_of

VERSION: Final = "5.5.0"
SOURCES: Final = Path(__file__).parent / "java" / "tools"
COMMAND_S: Final = 60.0
PROGRAM_S: Final = 240.0
ENDED: Final = "--- ended"
# What differs from one broker, and one run, to the next. Widths of columns do too.
MASKS: Final = (
    (re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(,\d+)?"), "TIME"),
    (re.compile(r"127\.0\.0\.1:\d+"), "ADDRESS"),
    (re.compile(r"\b[0-9A-F]{32,56}\b"), "ID"),
    (re.compile(r"\b\d{13}@"), "MS@"),
    (re.compile(r"\b\d{13}/"), "MS/"),
    (re.compile(r"\b[\w.:]+@\d+#\d+"), "CLIENT"),
    (re.compile(r"\bV\d_\d_\d\b"), "VERSION"),
    (re.compile(r"(TPS: +)\d+\.\d+"), r"\1RATE"),
    (re.compile(r"\b(rt=|Avg RT: )\d+(\.\d+)?"), r"\1MS"),
    (re.compile(r"(name server\[ADDRESS\] OK, )\d+"), r"\1COUNT"),
    (re.compile(r"[ \t]+"), " "),
)
BODY: Final = re.compile(r"^Message Body Path:\s+(\S+)")
# Where in mqadmin's own code an error was found, and where its page of advice is.
UNTOLD: Final = re.compile(r"\s*(at |\.\.\. \d+ more|For more information|See http)|\s*$")


class Mqadmin:
    """Runs commands against a name server at `host:port`."""

    def __init__(self, address: str, config: pytest.Config) -> None:
        self._address = address
        words = program("Admin", config)
        self._home = TemporaryDirectory()
        self._process = subprocess.Popen(
            ["java", f"-Duser.home={self._home.name}", *words],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            cwd=self._home.name,  # some commands write files there
        )
        self.run("topicRoute", "-t", "nowhere")  # the first one is slow, and may run into a time-out

    def run(self, command: str, *words: str) -> list[str]:
        """The lines that a command prints, masked."""
        process = self._process
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write("\t".join((command, "-n", self._address, *words)) + "\n")
        process.stdin.flush()
        late = threading.Timer(COMMAND_S, process.kill)
        late.start()
        try:
            lines = list(takewhile(lambda line: line != f"{ENDED}\n", process.stdout))
        finally:
            late.cancel()
        assert process.poll() is None, f"mqadmin {command} did not end"
        for found in map(BODY.search, lines):  # it writes each body that it shows, always into the same directory
            if found is not None:
                Path(found[1]).unlink(missing_ok=True)
        return [masked(line) for line in lines if not UNTOLD.match(line)]

    def close(self) -> None:
        self._process.kill()
        self._process.communicate()
        self._home.cleanup()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def run_tool(name: str, config: pytest.Config, *words: str, version: str = VERSION) -> list[str]:
    """The lines that one of the programs prints."""
    command = program(name, config, version)
    with TemporaryDirectory() as home:
        line = ["java", f"-Duser.home={home}", *command, *words]
        done = subprocess.run(line, capture_output=True, text=True, timeout=PROGRAM_S, check=False)
    assert done.returncode == 0, f"{done.stdout}{done.stderr}"
    return done.stdout.splitlines()


def program(name: str, config: pytest.Config, version: str = VERSION) -> list[str]:
    """Java's flags for one of the programs in java/tools, and its class. Each is compiled alone: not every one is for
    every version."""
    classes = classes_of("rocketmq-tools", version, [SOURCES / f"{name}.java"], config)
    flags = ["-Drocketmq.client.logLevel=ERROR", "-Drocketmq.client.rebalance.waitInterval=1000"]
    return [*flags, "-cp", classes, f"towline.remoting.{name}"]


def masked(line: str) -> str:
    for pattern, name in MASKS:
        line = pattern.sub(name, line)
    return line.strip()
