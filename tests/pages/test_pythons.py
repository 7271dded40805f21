"""README's first steps and the page about asyncio under other Pythons: a node of each, its command and its clients.

What Python means to take away is an error there.
"""

import shutil
import subprocess
from pathlib import Path
from typing import Final

import pytest

from tests.pages.environment import Environment
from tests.pages.reading import INSTALLS, Installed, cleared, read
from tests.processes.nodes import processes_of
from tests.repo.trees import ROOT
from tests.requirements import need
from tests.spark.pages import README, blocks, blocks_of_readme

pytestmark = pytest.mark.timeout(600)

VERSIONS: Final = ("3.12", "3.13", "3.14")
ASYNCIO: Final = ROOT / "docs" / "asyncio.md"


def interpreter(version: str) -> Path:
    """Skips the test where there is none that runs: pyenv has programs for versions that are not chosen."""
    found = shutil.which(name := f"python{version}")
    if found is None or subprocess.run([found, "-c", ""], capture_output=True).returncode:
        need({name: f"no {name} is on PATH"})
    return Path(str(found))


@pytest.mark.parametrize("version", VERSIONS)
def test_readmes_first_steps_run_under_another_python(version: str, tmp_path: Path) -> None:
    environment = Environment(tmp_path / "home", interpreter(version))
    environment.install("[server]")
    first = [block for block in blocks_of_readme() if not block.code.startswith((INSTALLS, "make "))][:2]
    assert [block.kind for block in first] == ["sh", "python"], "a node with its command, and a program"
    with cleared(tmp_path) as directory:
        strict = environment.variables | {"PYTHONWARNINGS": "error::DeprecationWarning"}
        place = Installed(directory, environment.programs, strict)
        try:
            assert place.shell("python --version").startswith(f"Python {version}.")
            read(place, README, first, "/tmp/m")
            read(place, ASYNCIO, blocks(ASYNCIO.read_text(encoding="utf-8")), "/tmp/m")
            place.shell(f"towline master stop --store {directory}")
        finally:
            place.close()
        assert not processes_of(directory)
