"""The package as one zip for `spark-submit --py-files`: what drivers and executors import, and nothing else."""

import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from towline.start import home

PACKAGE: Final = "towline"
JOBS: Final = "pipeline"  # inside it
FORMAT: Final = "pyspark_towline.py"  # by this name Spark finds the data source
LEFT_OUT: Final = frozenset(  # of the package: the processes of a node, the command, and what measures
    {"master", "slave", "allocate", "flush", "reput", "serve", "ha", "remoting", "cli", "loadtest"}
)
_EPOCH: Final = (1980, 1, 1, 0, 0, 0)  # the same sources give the same bytes


def ship(target: Path) -> Path:
    """Writes the zip and returns its path. Its directory has to exist."""
    root = home()
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as packed:
        for path in _sources(root):
            entry = zipfile.ZipInfo(path.relative_to(root).as_posix(), _EPOCH)
            entry.external_attr = 0o644 << 16
            entry.compress_type = zipfile.ZIP_DEFLATED
            packed.writestr(entry, path.read_bytes())
    return target


def _sources(root: Path) -> Iterator[Path]:
    """In a checkout the folder of the jobs is a link, which a search of the whole package would pass by."""
    package = root / PACKAGE
    for path in sorted(package.rglob("*.py")):
        if path.relative_to(package).parts[0] not in (*LEFT_OUT, JOBS):
            yield path
    yield from sorted((package / JOBS).rglob("*.py"))
    yield root / FORMAT
