"""The command `towline-python`: Python for Spark's workers, with pyspark's modules compiled.

Spark starts its Python workers with `pyspark.zip` and py4j's zip in front of everything else. Python compiles what it
imports from a zip anew in every process, which takes more than half a second of each worker's start. In an installed
pyspark those zips lie inside the package whose modules they repeat; of that package they are taken out of PYTHONPATH.
Zips of any other place stay: a Spark of its own comes with its own version.
"""

import os
import site
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Final

COMMAND: Final = "towline-python"  # named in pyproject.toml too
_COPIES: Final = Path("pyspark", "python", "lib")


def without_copies(entries: Iterable[str], sites: Iterable[str]) -> list[str]:
    """`entries` of a module search path but those that repeat a pyspark installed in one of the directories `sites`."""
    copies = {(Path(place) / _COPIES).resolve() for place in sites}
    return [entry for entry in entries if Path(entry).parent.resolve() not in copies]


def main() -> None:
    """Becomes Python, with the same arguments. Does not return."""
    if (path := os.environ.get("PYTHONPATH")) is not None:
        sites = [*site.getsitepackages(), *([site.getusersitepackages()] if site.ENABLE_USER_SITE else [])]
        os.environ["PYTHONPATH"] = os.pathsep.join(without_copies(path.split(os.pathsep), sites))
    os.execv(sys.executable, [sys.executable, *sys.argv[1:]])
