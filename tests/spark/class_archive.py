"""Class data of Spark's JVM in a file, with which it starts in half the time.

`make test` has it made where there is none (`python -m tests.spark.class_archive`), by a few tests that load what the
others do. It stays beside the packages of the environment, belongs to one Java and one set of jars, and has 200 MB.
"""

import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

import pyspark

JAVA_OPTIONS: Final = "spark.driver.extraJavaOptions"
JAVA: Final = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"  # what lives for seconds needs no better code
MAKE: Final = "MAKE_CLASS_DATA"  # is set for the run of tests/session that leaves it
LOADING: Final = (
    "test_archive.py",
    "test_lookup.py",
    "test_rebuild.py::test_what_the_benchmark_shuffles_are_the_same_files",
    "test_streams.py::test_a_replayed_batch_adds_nothing_to_a_topic",
    "test_streams.py::test_available_now_keeps_to_the_limit_and_the_checkpoint_to_what_was_read",
)
_SILENT: Final = "-Xlog:cds=off -Xlog:cds+dynamic=off"


def java_options() -> str:
    """For a JVM of the tests: quick to start, with the archive where there is one."""
    path = _path()
    return f"{JAVA} -XX:SharedArchiveFile={path} {_SILENT}" if path is not None and path.is_file() else JAVA


class Making:
    """An archive that is made where there is none: `options` are for the JVM, and `keep` is called after its end."""

    def __init__(self) -> None:
        self._path = _path()
        self._new: Path | None = None
        if self._path is not None and not self._path.is_file() and os.access(self._path.parent, os.W_OK):
            self._new = self._path.with_suffix(f".{os.getpid()}")

    @property
    def options(self) -> str:
        return java_options() if self._new is None else f"{JAVA} -XX:ArchiveClassesAtExit={self._new} {_SILENT}"

    def keep(self, jvm: "subprocess.Popen[bytes]") -> None:
        """Of a JVM that was killed it may be a part."""
        if self._new is not None and self._new.is_file():
            if jvm.returncode == 0:
                assert self._path is not None
                self._new.replace(self._path)
            else:
                self._new.unlink()


def make() -> None:
    """Where there is Java, and no archive yet. A test that fails will fail again, where it is counted."""
    if (path := _path()) is None or path.is_file():
        return
    tests = [str(Path(__file__).parents[1] / "session" / test) for test in LOADING]
    print("class data of the JVM that tests start: about a minute, once")
    done = subprocess.run([sys.executable, "-m", "pytest", "-q", *tests], env=os.environ | {MAKE: "1"}, check=False)
    if done.returncode != 0:
        print("there is none now, and tests take longer")


def _path() -> Path | None:
    """None where no Java is found, or where Java's options cannot name the place."""
    home = os.environ.get("JAVA_HOME")
    java = shutil.which("java", path=str(Path(home) / "bin") if home else None)
    if java is None or " " in sys.prefix:
        return None
    real = Path(java).resolve()
    named = f"{real} {real.stat().st_mtime_ns} {pyspark.__version__} {JAVA}"
    return Path(sys.prefix) / f"spark-classes-{hashlib.blake2b(named.encode(), digest_size=8).hexdigest()}.jsa"


if __name__ == "__main__":
    make()
