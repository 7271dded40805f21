"""What is installed is what is declared: pins, lock, packages, and what a client needs."""

import re
import sys
import tomllib
from fnmatch import fnmatchcase
from functools import cache
from typing import Any

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from .import_rules import LAYERS, OPTIONAL, edges, place_of
from .trees import IN_REPOSITORY_ONLY, PACKAGES, ROOT, Broken, Source, sources, told

# import name -> distribution that brings it, where they differ.
DISTRIBUTIONS = {
    "zmq": "pyzmq",
    "yaml": "pyyaml",
    "opentelemetry": "opentelemetry-api",
    "pydantic_core": "pydantic",
    "llvmlite": "numba",
    "packaging": "pytest",
    "py4j": "pyspark",
    "nats": "nats-py",
    "xdist": "pytest-xdist",
    "backports": "backports-zstd",
    "compression": "backports-zstd",  # Python's own from 3.14 on
}
CLIENT = {"towline.client", "towline.start", "towline.places", *LAYERS["towline.client"]}


@cache
def project() -> dict[str, Any]:
    return tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


def declared(*extras: str) -> dict[str, Requirement]:
    """Distribution -> requirement: what every installation has, plus the extras and those that they name."""
    table = project()["project"]
    lines, waiting, seen = list(table["dependencies"]), list(extras), set[str]()
    while waiting:
        extra = waiting.pop()
        if extra in seen:
            continue
        seen.add(extra)
        for line in table["optional-dependencies"][extra]:
            if (wanted := Requirement(line)).name == table["name"]:
                waiting += wanted.extras
            else:
                lines.append(line)
    return {canonicalize_name(Requirement(line).name): Requirement(line) for line in lines}


def every_extra() -> tuple[str, ...]:
    return tuple(project()["project"]["optional-dependencies"])


def locked_extras() -> list[str]:
    """The extras that `make lock` asks for."""
    return re.findall(r"--extra (\w+)", (ROOT / "Makefile").read_text(encoding="utf-8"))


@cache
def lock() -> dict[str, tuple[str, int]]:
    """Distribution -> (version, number of hashes)."""
    found: dict[str, tuple[str, int]] = {}
    name = ""
    for line in (ROOT / "requirements.lock").read_text(encoding="utf-8").splitlines():
        if pinned := re.match(r"([\w.-]+)==([^ ;\\]+)", line):
            name = canonicalize_name(pinned[1])
            found[name] = (pinned[2], 0)
        elif "--hash=" in line:
            found[name] = (found[name][0], found[name][1] + 1)
    return found


def packages() -> list[str]:
    return [name for name in PACKAGES if (ROOT / name / "__init__.py").is_file()]


def foreign(source: Source, *, optional: bool = False) -> list[tuple[Any, str]]:
    """(node, distribution) of every import not ours or Python's; those behind an optional wrapper if asked."""
    found = []
    for edge in edges(source):
        library = edge.module.split(".")[0]
        if edge.relative or library in (*PACKAGES, "tests") or library in sys.stdlib_module_names:
            continue
        if optional or (source.module, library) not in OPTIONAL:
            found.append((edge.node, canonicalize_name(DISTRIBUTIONS.get(library, library))))
    return found


def undeclared(source: Source) -> list[Broken]:
    """Imports of libraries that the installation which runs this file does not ask for."""
    if source.is_test:
        extras, where = every_extra(), "the extra dev"
    elif place_of(source.module) in CLIENT:
        extras, where = (), "[project] dependencies"
    else:
        extras, where = tuple(extra for extra in every_extra() if extra != "dev"), "an extra of its own"
    known = declared(*extras)
    return [
        source.broken(node, f"imports {name}, which is not declared", f"add it to {where} in pyproject.toml")
        for node, name in foreign(source)
        if name not in known
    ]


def test_every_dependency_has_an_oldest_and_a_newest_release():
    bounded = re.compile(r"(~=|==)\d[\d.]*|<\d[\d.]*,>=\d[\d.]*")
    loose = [str(each) for each in declared(*every_extra()).values() if not bounded.fullmatch(str(each.specifier))]
    assert not loose, f"pyproject.toml: pin these with ~=, == or >= and <: {loose}"


def test_the_lock_holds_every_direct_dependency_at_a_version_that_is_allowed():
    wrong = [
        f"{name}: {lock().get(name, ('missing',))[0]} in the lock, {requirement.specifier or 'any'} in pyproject.toml"
        for name, requirement in declared(*locked_extras()).items()
        if name not in lock() or not requirement.specifier.contains(lock()[name][0])
    ]
    assert not wrong, f"requirements.lock: run `make lock`: {wrong}"


def test_the_lock_covers_what_make_demo_and_make_test_need():
    assert {"server", "demo", "dev"} <= set(locked_extras())


def test_every_entry_of_the_lock_has_a_hash():
    bare = [name for name, (_, hashes) in lock().items() if not hashes]
    assert lock()
    assert not bare, f"requirements.lock: run `make lock`, which asks for hashes: {bare}"


@pytest.mark.parametrize("package", packages())
def test_a_package_folder_is_installed_and_type_checked(package):
    include = project()["tool"]["setuptools"]["packages"]["find"]["include"]
    patterns = set() if package in IN_REPOSITORY_ONLY else {package, f"{package}.*"}
    assert patterns <= set(include), f'pyproject.toml: add "{package}", "{package}.*" to packages.find'
    assert package in project()["tool"]["mypy"]["packages"], f'pyproject.toml: add "{package}" to [tool.mypy] packages'


def test_no_package_is_listed_that_does_not_exist():
    include = project()["tool"]["setuptools"]["packages"]["find"]["include"]
    checked = set(project()["tool"]["mypy"]["packages"])
    assert checked == set(packages())
    listed = {pattern.removesuffix(".*") for pattern in include}
    assert listed == set(packages()) - set(IN_REPOSITORY_ONLY)


def test_the_wheel_contains_every_package_but_those_of_the_repository_alone():
    include = project()["tool"]["setuptools"]["packages"]["find"]["include"]
    folders = {source.package for source in sources() if source.path.name == "__init__.py" and not source.is_test}
    own = {package for package in folders if package.split(".")[0] in IN_REPOSITORY_ONLY}
    assert own
    assert {folder for folder in folders if any(fnmatchcase(folder, pattern) for pattern in include)} == folders - own


def test_the_wheel_has_every_file_of_the_live_page():
    patterns = project()["tool"]["setuptools"]["package-data"]["towline.web"]
    files = [f"static/{path.name}" for path in (ROOT / "towline" / "web" / "static").iterdir()]
    left_out = [name for name in files if not any(fnmatchcase(name, pattern) for pattern in patterns)]
    assert files
    assert not left_out, f"pyproject.toml: add {left_out} to package-data of towline.web"


def test_every_folder_with_python_files_in_it_is_a_package():
    folders = {source.path.parent for source in sources() if not source.is_test and source.path.parent.name}
    bare = sorted(str(folder) for folder in folders if not (ROOT / folder / "__init__.py").is_file())
    assert not bare, f"add an __init__.py to {bare}"


def test_files_that_pyproject_names_exist():
    named = [project()["project"]["readme"], *project()["project"]["license-files"], "towline/py.typed"]
    missing = [name for name in named if not (ROOT / name).is_file()]
    assert not missing, f"pyproject.toml names {missing}: write them"


def test_what_is_imported_is_declared_and_a_client_gets_by_on_the_dependencies_alone():
    broken = [each for source in sources() for each in undeclared(source)]
    assert not broken, told(broken)


@pytest.mark.parametrize(
    ("extra", "brings"),
    [("demo", "server"), ("drill", "server"), ("pytest", "server"), ("loadtest", "cli"), ("web", "cli")],
)
def test_an_extra_brings_what_its_command_needs(extra, brings):
    assert declared(brings).keys() < declared(extra).keys()


def test_what_is_declared_for_the_server_is_imported():
    imported = {name for source in sources() if not source.is_test for _, name in foreign(source, optional=True)}
    idle = declared("server").keys() - imported
    assert not idle, f"pyproject.toml: nothing imports {sorted(idle)}; drop them"


@pytest.mark.parametrize(
    ("path", "text", "what"),
    [
        (
            "towline/client/x.py",
            "import numba",
            "imports numba, which is not declared; add it to [project] dependencies",
        ),
        ("towline/client/x.py", "import numpy, zmq", ""),
        ("towline/kernels/x.py", "import numba", ""),
        ("flush/x.py", "import requests", "imports requests"),
        ("flush/x.py", "import hypothesis", "imports hypothesis"),
        ("tests/x.py", "import pytest", ""),
    ],
)
def test_a_planted_import_is_found_and_a_declared_one_is_not(path, text, what):
    broken = told(undeclared(Source.of(path, text)))
    assert (what in broken) if what else (broken == ""), broken
