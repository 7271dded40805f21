"""`towline web` as a process of its own, and what it tells a program that asks it."""

import json
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlencode

from towline.start import home

TOWLINE = (sys.executable, "-c", "from towline.start import main; main()")
ENDS_S = 20.0


class Served:
    """The process, and the address it printed."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        assert process.stdout is not None
        line = process.stdout.readline()
        assert line, process.communicate(timeout=ENDS_S)
        self.url: str = json.loads(line)["url"]

    def ask(self, path: str, **given: object) -> tuple[int, Any]:
        """Status and document of an answer."""
        try:
            with urllib.request.urlopen(f"{self.url}api/{path}?{urlencode(given)}", timeout=20) as answer:
                return answer.status, json.load(answer)
        except urllib.error.HTTPError as refused:
            with refused:
                return refused.code, json.load(refused)

    def end(self) -> int:
        """By Ctrl-C; the exit status."""
        self.process.send_signal(signal.SIGINT)
        self.process.communicate(timeout=ENDS_S)
        return self.process.returncode


@contextmanager
def served(*words: str) -> Iterator[Served]:
    """A page at a port that is free."""
    command = [*TOWLINE, "web", "--port", "0", "--json", *words]
    with subprocess.Popen(command, cwd=home(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            yield Served(process)
        finally:
            process.kill()
