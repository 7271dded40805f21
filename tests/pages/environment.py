"""A virtual environment of its own, into which pip installs the wheel that is built of a copy of the sources."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.repo.trees import ROOT

UNREACHABLE = re.compile(r"[Cc]onnection|resolve|timed out|No matching distribution")


def pinned() -> list[str]:
    """The versions of requirements.lock, without their hashes: pip takes those as constraints."""
    lock = (ROOT / "requirements.lock").read_text(encoding="utf-8")
    return re.findall(r"^[a-z0-9_.-]+==[^\s\\]+(?: ; [^\\\n]+)?", lock, re.MULTILINE)


def source_tree(target: Path) -> Path:
    """A copy of what is packaged, so that building leaves nothing in the checkout."""
    target.mkdir()
    for name in ("pyproject.toml", "README.md", "LICENSE", "pyspark_towline.py"):
        shutil.copy(ROOT / name, target / name)
    for package in sorted({path.parts[0] for path in (p.relative_to(ROOT) for p in ROOT.glob("*/__init__.py"))}):
        shutil.copytree(ROOT / package, target / package, symlinks=True, ignore=shutil.ignore_patterns("__pycache__"))
    return target


class Environment:
    """Below `home`: `dist` with the wheel, and `venv`, which is empty at first. Nothing of the checkout is in reach."""

    def __init__(self, home: Path, python: Path | None = None) -> None:
        """Of `python`, or of the one that runs this."""
        self.home, self.programs = home, home / "venv" / "bin"
        home.mkdir(exist_ok=True)
        subprocess.run([python or sys.executable, "-m", "venv", home / "venv"], check=True, capture_output=True)
        constraints = home / "constraints.txt"
        constraints.write_text("\n".join(pinned()))
        known = {key: value for key, value in os.environ.items() if key not in ("PYTHONPATH", "VIRTUAL_ENV")}
        self.variables = known | {"PIP_CONSTRAINT": str(constraints)}
        self.dist = home / "dist"
        self._pip("wheel", "--no-deps", "-w", self.dist, source_tree(home / "tree"))

    def install(self, extras: str = "") -> None:
        self._pip("install", "--find-links", self.dist, f"towline{extras}")

    def _pip(self, *words: object) -> None:
        """Skips the test where no package index can be reached."""
        done = self.run("python", "-m", "pip", *words, "-q")
        skip_unreachable(done.stderr if done.returncode else "")
        assert done.returncode == 0, done.stderr

    def run(self, program: str, *words: object) -> subprocess.CompletedProcess[str]:
        command = [self.programs / program, *map(str, words)]
        return subprocess.run(command, env=self.variables, cwd=self.home, capture_output=True, text=True)

    def names(self) -> set[str]:
        """What Towline brought to site-packages, at its top."""
        [record] = self.packages.glob("towline-*.dist-info/RECORD")
        return {line.partition(",")[0].partition("/")[0] for line in record.read_text().splitlines()}

    @property
    def packages(self) -> Path:
        [found] = (self.programs.parent / "lib").glob("python3*/site-packages")
        return found


def skip_unreachable(error: str) -> None:
    """`error` is what pip said, if it failed."""
    if UNREACHABLE.search(error):
        pytest.skip(f"no package index can be reached: {error.strip().splitlines()[-1]}")
