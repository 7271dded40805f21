"""`python -m towline.kernels.jit.beside PID`: compiles one half of a node's kernels into the cache for process PID.

That process compiles the other half meanwhile, and takes this one from the cache: on two CPUs a first start compiles
for half as long. Nothing depends on it: what is not in the cache when PID wants it, PID compiles itself.
"""

import os
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from typing import Final

from towline.parent import die_with_parent

HERE: Final = ("remoting.puts", "scan.dispatch", "put.restore", "scan.index", "scan.queues", "scan.queue_files")
THERE: Final = ("put.append", "put.socket_rows", "put.put_ring", "remoting.turns")


def begin() -> subprocess.Popen[bytes] | None:
    """A process that compiles `HERE`; None on one CPU. Its caller compiles `THERE`, then waits for it."""
    if len(os.sched_getaffinity(0)) < 2:
        return None
    command = [sys.executable, "-m", "towline.kernels.jit.beside", str(os.getpid())]
    home = Path(__file__).parents[3]  # where `-m` finds the package
    return subprocess.Popen(
        command, cwd=home, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )


def _compile() -> None:
    for name in HERE:
        import_module(f"towline.kernels.{name}")


if __name__ == "__main__":
    die_with_parent(int(sys.argv[1]))  # a compilation takes many seconds: a node that is killed leaves no orphan
    _compile()
