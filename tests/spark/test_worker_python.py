"""Spark's workers import pyspark where it is compiled, and everything else as before."""

import os
import subprocess
import sysconfig
from pathlib import Path

import pyspark
import pytest

from towline.pipeline.session import worker_python
from towline.spark_python import COMMAND, without_copies

PACKAGE = Path(pyspark.__file__).parent
COPIES = sorted(map(str, (PACKAGE / "python" / "lib").glob("*.zip")))


def run(code: str, *path: str) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(path)}
    return subprocess.run([worker_python(), "-c", code, "one", "two"], env=environment, capture_output=True, text=True)


def test_it_is_installed_and_taken():
    assert worker_python() == str(Path(sysconfig.get_path("scripts")) / COMMAND)
    assert len(COPIES) == 2, "pyspark's zip and py4j's"


def test_pyspark_comes_from_where_it_is_installed(tmp_path):
    """As Spark gives the path: the zips, its jar, and all of it again."""
    code = "import os, pyspark, py4j, sys; print(pyspark.__file__, py4j.__file__, os.environ['PYTHONPATH'], *sys.argv)"
    done = run(code, *COPIES, str(tmp_path), *COPIES, "/there")
    spark, py4j, path, *arguments = done.stdout.split()
    assert (Path(spark).parent, Path(py4j).parents[1]) == (PACKAGE, PACKAGE.parent)
    assert path.split(os.pathsep) == [str(tmp_path), "/there"]
    assert arguments == ["-c", "one", "two"]


def test_the_process_is_python_itself():
    """Spark kills a worker by the number that it was given, and reads how it ended."""
    done = run("import os, sys; print(os.getppid()); sys.exit(7)")
    assert (done.returncode, int(done.stdout)) == (7, os.getpid())


@pytest.mark.parametrize("entry", ["/opt/spark/python/lib/pyspark.zip", "", "lib", str(PACKAGE), str(PACKAGE / "jars")])
def test_what_is_no_copy_of_the_installed_stays(entry):
    """A Spark of its own has its own pyspark, which its JVM expects."""
    assert without_copies([entry, COPIES[0]], [str(PACKAGE.parent)]) == [entry]
    assert without_copies([entry], [str(PACKAGE.parent / "elsewhere")]) == [entry]


def test_a_copy_is_known_by_another_name_of_its_directory(tmp_path):
    (tmp_path / "site").symlink_to(PACKAGE.parent)
    entry = str(tmp_path / "site" / "pyspark" / "python" / "lib" / "pyspark.zip")
    assert without_copies([entry], [str(PACKAGE.parent)]) == []
