"""strace on processes that run: what they call, and calls that fail as a broken disk has them fail."""

import contextlib
import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

strace = pytest.mark.skipif(
    shutil.which("strace") is None, reason="strace is not installed (Debian: apt-get install strace)"
)


@contextlib.contextmanager
def traced(arguments: list[str], pids: list[int]) -> Iterator[None]:
    """strace on running processes; inside the block it is attached."""
    command = ["strace", "-f", *arguments, *(word for pid in pids for word in ("-p", str(pid)))]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    try:
        assert process.stderr is not None
        attached = 0
        while attached < len(pids):
            line = process.stderr.readline()
            assert line, "strace ended before it was attached"
            attached += "attached" in line
        yield
    finally:
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=30)


def failing(call: str, path: Path, when: str = "1+") -> list[str]:
    """For `traced`: these calls of it on `path` end with EIO (`when` as strace counts, of each thread)."""
    return ["-e", f"trace={call}", "-e", f"inject={call}:error=EIO:when={when}", "-P", str(path), "-o", "/dev/null"]
