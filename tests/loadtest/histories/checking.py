"""Porcupine, as the small program in `checker` that reads the operations of a drill."""

import json
import subprocess
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from tests.remoting.other_clients import Program, go_program
from towline.loadtest.drill.history import write_lines
from towline.loadtest.drill.operations import OPERATIONS

SOURCE: Final = Path(__file__).parent / "checker"
RUN_S: Final = 240.0
ACCEPTED, REFUSED, UNDECIDED = 0, 1, 2


@dataclass(frozen=True)
class Checked:
    status: int
    said: dict[str, Any]
    error: str

    @property
    def fault(self) -> str:
        """The only one."""
        (fault,) = self.said["faults"]
        return str(fault)


@dataclass(frozen=True)
class Checker:
    program: Program

    def check(self, operations: Path) -> Checked:
        words = [*self.program.words, str(operations)]
        done = subprocess.run(words, capture_output=True, text=True, timeout=RUN_S, check=False)
        return Checked(done.returncode, json.loads(done.stdout or "{}"), done.stderr)

    def check_lines(self, directory: Path, rows: Iterable[dict[str, Any]]) -> Checked:
        write_lines(directory / OPERATIONS, rows)
        return self.check(directory / OPERATIONS)


def checker(cache: Path) -> Checker:
    """Built at first use. Where there is no Go, or Porcupine is not to be had, the test ends."""
    return Checker(go_program(cache, SOURCE))
