"""The client alone, installed in an environment of its own: no numba, no Spark, no locust."""

import os
import re
import shutil
import subprocess
import venv
from pathlib import Path

import pytest

import towline

ROOT = Path(__file__).parents[2]
NOT_A_CLIENTS = (
    "typer",
    "rich",
    "lark",
    "mmh3",
    "numba",
    "llvmlite",
    "psutil",
    "pydantic",
    "javaproperties",
    "pyspark",
    "locust",
    "pandas",
    "peers",
)
PROGRAM = """
import importlib.util, sys
import towline
from towline import *
print([name for name in sys.argv[1:] if importlib.util.find_spec(name)])
try:
    Producer("nonsense")
except TowlineError as error:
    print(type(error).__name__, towline.__version__)
"""


def pinned() -> list[str]:
    """The versions of requirements.lock, without their hashes: pip takes those as constraints."""
    lock = (ROOT / "requirements.lock").read_text(encoding="utf-8")
    return re.findall(r"^[a-z0-9_.-]+==[^\s\\]+(?: ; [^\\\n]+)?", lock, re.MULTILINE)


def source_tree(target: Path) -> Path:
    """A copy of what is packaged, so that building leaves nothing in the checkout."""
    for name in ("pyproject.toml", "README.md", "LICENSE", "pyspark_towline.py"):
        shutil.copy(ROOT / name, target / name)
    for package in sorted({path.parts[0] for path in (p.relative_to(ROOT) for p in ROOT.glob("*/__init__.py"))}):
        shutil.copytree(ROOT / package, target / package, symlinks=True, ignore=shutil.ignore_patterns("__pycache__"))
    return target


class Environment:
    """A virtual environment with what pip installs there of a copy of the sources."""

    def __init__(self, home: Path) -> None:
        self._bin, self._tree, self._constraints = home / "venv" / "bin", home / "tree", home / "constraints.txt"
        self._home = home
        self._tree.mkdir()
        self._constraints.write_text("\n".join(pinned()))
        source_tree(self._tree)
        venv.create(home / "venv", with_pip=True)
        self._environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}

    def install(self, extras: str = "") -> None:
        """Skips the test where no package index can be reached."""
        done = self.run("python", "-m", "pip", "install", "-q", "-c", self._constraints, f"{self._tree}{extras}")
        if done.returncode and re.search(r"connection|resolve|timed out|No matching distribution", done.stderr):
            pytest.skip(f"no package index can be reached: {done.stderr.strip().splitlines()[-1]}")
        assert done.returncode == 0, done.stderr

    def run(self, program: str, *words: object) -> subprocess.CompletedProcess[str]:
        command = [self._bin / program, *map(str, words)]
        return subprocess.run(command, env=self._environment, cwd=self._home, capture_output=True, text=True)

    def names(self) -> set[str]:
        """What Towline brought to site-packages, at its top."""
        [record] = (self._bin.parent / "lib").glob("python3*/site-packages/towline-*.dist-info/RECORD")
        return {line.partition(",")[0].partition("/")[0] for line in record.read_text().splitlines()}


@pytest.mark.timeout(240)
def test_a_client_is_installed_alone_and_the_command_says_what_it_needs(tmp_path):
    environment = Environment(tmp_path)
    environment.install()
    said = environment.run("python", "-c", PROGRAM, *NOT_A_CLIENTS)
    assert said.returncode == 0, said.stderr
    assert said.stdout.splitlines() == ["[]", f"InvalidEndpoint {towline.__version__}"]
    assert {name for name in environment.names() if name != ".."} == {
        "towline",
        "pyspark_towline.py",
        f"towline-{towline.__version__}.dist-info",
        "__pycache__",
    }
    refused = environment.run("towline", "version")
    assert (refused.returncode, refused.stdout) == (1, "")
    assert "pip install 'towline[cli]'" in refused.stderr
    environment.install("[cli]")
    assert towline.__version__ in environment.run("towline", "version").stdout
    said = environment.run("towline", "bench", "peers")
    assert said.returncode == 1
    assert "clone Towline's repository, run `make .venv/ready` there" in said.stderr
