"""The client alone, installed in an environment of its own: no numba, no Spark, no locust."""

import os
import re
import shutil
import subprocess
import sys
import venv
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SERVER_ONLY = ("numba", "llvmlite", "psutil", "javaproperties", "pyspark", "locust", "pandas", "peers")
PROGRAM = """
import importlib.util, sys
from cli.main import run
from towline.client.admin import AdminClient
from towline.client.consumer import Consumer
from towline.client.message import Message
from towline.client.producer import Producer
from towline.errors import TowlineError
print([name for name in sys.argv[1:] if importlib.util.find_spec(name)])
try:
    Producer("nonsense")
except TowlineError as error:
    print(type(error).__name__)
print(run(["bench", "peers"]))
"""


def pinned() -> list[str]:
    """The versions of requirements.lock, without their hashes: pip takes those as constraints."""
    lock = (ROOT / "requirements.lock").read_text(encoding="utf-8")
    return re.findall(r"^[a-z0-9_.-]+==[^\s\\]+(?: ; [^\\\n]+)?", lock, re.MULTILINE)


def source_tree(target: Path) -> Path:
    """A copy of what is packaged, so that building leaves nothing in the checkout."""
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, target / name)
    for package in sorted({path.parts[0] for path in (p.relative_to(ROOT) for p in ROOT.glob("*/__init__.py"))}):
        shutil.copytree(ROOT / package, target / package, ignore=shutil.ignore_patterns("__pycache__"))
    return target


@pytest.mark.timeout(240)
def test_the_client_installs_and_imports_without_what_only_a_server_needs(tmp_path):
    home, tree, constraints = tmp_path / "venv", tmp_path / "tree", tmp_path / "constraints.txt"
    tree.mkdir()
    constraints.write_text("\n".join(pinned()))
    venv.create(home, with_pip=True)
    python = home / "bin" / "python"
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    installed = subprocess.run(
        [python, "-m", "pip", "install", "--quiet", "--constraint", constraints, source_tree(tree)],
        env=environment,
        capture_output=True,
        text=True,
    )
    if installed.returncode and re.search(r"connection|resolve|timed out|No matching distribution", installed.stderr):
        pytest.skip(f"no package index can be reached: {installed.stderr.strip().splitlines()[-1]}")
    assert installed.returncode == 0, installed.stderr
    said = subprocess.run(
        [python, "-c", PROGRAM, *SERVER_ONLY], env=environment, cwd=tmp_path, capture_output=True, text=True
    )
    assert said.returncode == 0, said.stderr
    assert said.stdout.split("\n")[:3] == ["[]", "InvalidEndpoint", "1"]
    assert "clone Towline's repository, run `make .venv/ready` there" in said.stderr
    assert sys.prefix != str(home)
