"""An executor has numpy, pyarrow and our package as a zip: nothing else may be needed."""

import subprocess
import sys
import zipfile
from pathlib import Path

import towline

from .logs import message, segment

_SCRIPT = """
import sys
sys.path.insert(0, sys.argv[1])
for name in ("numba", "llvmlite", "lz4", "backports", "pydantic", "psutil", "pyspark", "lark", "zmq"):
    sys.modules[name] = None  # an import of it fails
import numpy as np
from towline.arrow.boundaries import boundaries
from towline.arrow.columns import COLUMNS
from towline.arrow.decode import batches
from towline.arrow.selection import Selection
assert ".zip" in sys.modules["towline.arrow.decode"].__file__
log = np.frombuffer(open(sys.argv[2], "rb").read(), np.uint8)
made = list(batches(log, 1 << 30, 0, len(log), COLUMNS, Selection(tags="red"), check_crcs=True))
print(len(boundaries(log, 1 << 30, 0, len(log)).positions), sum(batch.num_rows for batch in made))
"""


def test_a_segment_is_read_from_a_zip_without_the_libraries_of_a_server(tmp_path: Path) -> None:
    package = Path(towline.__file__).parent
    with zipfile.ZipFile(tmp_path / "towline.zip", "w") as zipped:
        for path in package.rglob("*.py"):
            zipped.write(path, path.relative_to(package.parent))
    log = tmp_path / "segment"
    log.write_bytes(segment(map(message, range(20)), 16 * 1024))
    done = subprocess.run(
        [sys.executable, "-P", "-c", _SCRIPT, str(tmp_path / "towline.zip"), str(log)],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        check=False,
    )
    assert done.stderr == ""
    assert done.stdout.split() == ["20", "20"]
