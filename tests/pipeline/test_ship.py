"""The zip for executors: the package without the processes and the command, and the jobs."""

import subprocess
import sys
import zipfile

import pytest

from towline.pipeline.ship import LEFT_OUT, ship


@pytest.fixture(scope="module")
def shipped(tmp_path_factory):
    return ship(tmp_path_factory.mktemp("zip") / "towline.zip")


def test_it_holds_the_package_the_jobs_and_the_format(shipped):
    names = zipfile.ZipFile(shipped).namelist()
    assert len(names) == len(set(names))
    below = {name.split("/")[1] for name in names if name.startswith("towline/")}
    assert {"__init__.py", "spark", "client", "pipeline", "kernels"} <= below
    assert not below & LEFT_OUT
    assert all(name.endswith(".py") for name in names)
    assert {name.split("/")[0] for name in names} == {"towline", "pyspark_towline.py"}


def test_the_same_sources_are_the_same_bytes(shipped, tmp_path):
    assert ship(tmp_path / "again.zip").read_bytes() == shipped.read_bytes()


def test_jobs_are_imported_from_it(shipped, tmp_path):
    program = "import towline.pipeline.arguments as found; print(found.__file__)"
    command = [sys.executable, "-P", "-c", f"import sys; sys.path.insert(0, sys.argv[1]); {program}", str(shipped)]
    said = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert said.stdout.startswith(str(shipped)), said.stderr
