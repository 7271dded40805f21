"""A package that is missing comes with the extra that the error names: then nothing is missing any more."""

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from importlib.metadata import PackageNotFoundError, packages_distributions, requires

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.repo.test_packaging import declared
from tests.repo.trees import ROOT, sources

INSTALL = re.compile(r"pip install 'towline\[([\w,]+)\]'")
# As where these packages are not installed.
WITHOUT = """
import sys
from importlib.machinery import PathFinder

def find(name, *more, find=PathFinder.find_spec):
    return None if name.partition(".")[0] in HIDDEN else find(name, *more)

HIDDEN = set(sys.argv.pop(1).split(","))
PathFinder.find_spec = find
"""
COMMAND = f"{WITHOUT}\nfrom towline.start import main; main()"
LOAD = f"{WITHOUT}\nfrom importlib import import_module\nfor name in sys.argv[1:]: import_module(name)"
# Modules that are loaded otherwise than by `load_module` with two words, and what they are said to need.
OTHERS = {
    "towline.cli.main": ("cli",),  # towline/start.py
    "towline.pipeline.session": ("spark",),
    "towline.spark.live": ("server", "spark"),
}


@cache
def brought(*extras: str) -> frozenset[str]:
    """Every distribution that comes with Towline and these extras, as far as it is installed here."""
    found: set[str] = set()
    waiting = [(name, frozenset(wanted.extras)) for name, wanted in declared(*extras).items()]
    while waiting:
        name, of = waiting.pop()
        found.add(name)
        waiting += [each for each in needed(name, of) if each[0] not in found]
    return frozenset(found)


def needed(name: str, extras: frozenset[str]) -> Iterator[tuple[str, frozenset[str]]]:
    try:
        lines = requires(name) or []
    except PackageNotFoundError:
        return
    for wanted in map(Requirement, lines):
        if wanted.marker is None or any(wanted.marker.evaluate({"extra": extra}) for extra in extras | {""}):
            yield canonicalize_name(wanted.name), frozenset(wanted.extras)


def hidden(*extras: str) -> str:
    """Top-level modules that neither Towline nor these extras bring."""
    there = brought(*extras) | {"towline"}
    modules = packages_distributions().items()
    return ",".join(name for name, by in modules if not there & {canonicalize_name(each) for each in by})


def run(script: str, lacking: str, *words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", script, lacking, *words]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=200)


def loaded_by_commands() -> dict[str, tuple[str, ...]]:
    """Module -> the extra that is named where it cannot be loaded."""
    found: dict[str, tuple[str, ...]] = {}
    for source in sources():
        for node in ast.walk(source.tree):
            match node:
                case ast.Call(ast.Name("load_module"), [ast.Constant(str(module)), ast.Constant(str(extra))]):
                    found[module] = tuple(extra.split(","))
                case ast.Call(ast.Name("_measured"), [ast.Constant(str(name)), _, _, _, ast.Constant(str(extra))]):
                    found[f"towline.loadtest.bench.{name}"] = tuple(extra.split(","))
                case ast.Call(ast.Name("_measured"), [ast.Constant(str(name)), *_]):
                    found[f"towline.loadtest.bench.{name}"] = ("server",)
    return found


def modules_of(extras: tuple[str, ...]) -> list[str]:
    return [module for module, named in (OTHERS | loaded_by_commands()).items() if named == extras]


@pytest.mark.parametrize("extras", sorted({*OTHERS.values(), *loaded_by_commands().values()}), ids="+".join)
def test_what_a_command_loads_comes_with_the_extra_that_it_would_name(extras: tuple[str, ...]) -> None:
    modules = modules_of(extras)
    assert modules
    done = run(LOAD, hidden(*extras), *modules)
    assert done.returncode == 0, (modules, done.stderr)


@pytest.mark.parametrize(
    ("given", "command"),
    [
        ((), ["--version"]),
        (("cli",), ["doctor"]),
        (("cli",), ["master", "status", "--store", "none"]),
        (("cli",), ["keys", "new", "app", "--dir", "/dev/null/ring", "--role", "producer"]),
        (("cli",), ["store", "verify", "--store", "none"]),
        (("cli",), ["loadtest", "--put", "tcp://127.0.0.1:1", "--serve", "tcp://127.0.0.1:1", "--time", "1"]),
        (("server",), ["demo", "--no-spark", "--limit", "1"]),
    ],
    ids=lambda value: " ".join(value) or "nothing",
)
def test_a_command_that_lacks_a_package_lacks_none_with_the_extra_it_names(
    given: tuple[str, ...], command: list[str]
) -> None:
    lacking = run(COMMAND, hidden(*given), *command)
    assert lacking.returncode == 1
    [extras] = INSTALL.findall(lacking.stderr)
    again = run(COMMAND, hidden(*given, *extras.split(",")), *command)
    assert "is not installed" not in again.stderr + again.stdout, again
    assert "Traceback" not in again.stderr, again
