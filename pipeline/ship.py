"""The package as one zip for `spark-submit --py-files`: what drivers and executors import, and nothing else."""

import zipfile
from pathlib import Path
from typing import Final

from towline.start import home

PACKAGES: Final = ("towline", "pipeline")
PARTS: Final = (*PACKAGES, "pyspark_towline.py")
_EPOCH: Final = (1980, 1, 1, 0, 0, 0)  # the same sources give the same bytes


def ship(target: Path) -> Path:
    """Writes the zip and returns its path. Its directory has to exist."""
    root = home()
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as packed:
        for part in PARTS:
            below = root / part
            for path in [below] if below.is_file() else sorted(below.rglob("*.py")):
                entry = zipfile.ZipInfo(path.relative_to(root).as_posix(), _EPOCH)
                entry.external_attr = 0o644 << 16
                entry.compress_type = zipfile.ZIP_DEFLATED
                packed.writestr(entry, path.read_bytes())
    return target
