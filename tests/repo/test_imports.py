"""Imports point one way, and each foreign library has one wrapper."""

import ast
from collections.abc import Iterator

import pytest

from .import_rules import LAYERS, PARTS, WRAPPERS, check, edges, place_of
from .trees import FOLDERS, ROOT, Broken, Source, sources, told


def test_the_repository_keeps_the_rules_of_imports():
    broken = [each for source in sources() for each in check(source)]
    assert not broken, told(broken)


def test_every_package_has_a_layer():
    places = {place_of(source.module) for source in sources() if not source.is_test}
    assert places <= LAYERS.keys()


def test_layers_make_no_circle():
    done: set[str] = set()
    while left := LAYERS.keys() - done:
        ready = {place for place in left if not (LAYERS[place] & LAYERS.keys()) - done}
        assert ready, f"these places import each other: {sorted(left)}"
        done |= ready


def test_parts_of_a_package_import_what_stands_below_them():
    broken = {f"{package}: {a} imports {b}" for package, a, b in arrows() if is_upward(package, a, b)}
    assert not broken, "\n".join(sorted(broken))


def test_parts_of_a_package_make_no_circle():
    packages: dict[str, dict[str, set[str]]] = {}
    for package, a, b in arrows():
        packages.setdefault(package, {}).setdefault(a, set()).add(b)
    for package, parts in packages.items():
        done: set[str] = set()
        while left := parts.keys() - done:
            ready = {part for part in left if not (parts[part] & parts.keys()) - done}
            assert ready, f"in {package} these import each other: {sorted(left)}"
            done |= ready


def test_a_part_that_has_a_rank_exists():
    modules = {source.module for source in sources()}
    named = [f"{package}.{part}" for package in PARTS for part in ranks(package)]
    assert not set(named) - modules


def test_an_upward_arrow_is_seen():
    assert is_upward("towline.log", "files", "queues")
    assert is_upward("towline.master", "put", "schedule")
    assert not is_upward("towline.log", "queues", "files")
    assert list(steps("towline.log.files.x", "towline.log.queues.y")) == [("towline.log", "files", "queues")]


def arrows() -> Iterator[tuple[str, str, str]]:
    """(package, part, part that it imports), of all packages outside the tests."""
    modules = {source.module for source in sources()}
    for source in sources():
        for edge in () if source.is_test else edges(source):
            for name in edge.names or ("",):
                whole = f"{edge.module}.{name}"
                yield from steps(source.module, whole if whole in modules else edge.module)


def steps(here: str, there: str) -> Iterator[tuple[str, str, str]]:
    """In the package where the ways to both modules part."""
    ours, theirs = here.split("."), there.split(".")
    same = next((n for n, (a, b) in enumerate(zip(ours, theirs, strict=False)) if a != b), None)
    if same:
        yield ".".join(ours[:same]), ours[same], theirs[same]


def ranks(package: str) -> dict[str, int]:
    return {part: rank for rank, row in enumerate(PARTS.get(package, ())) for part in row}


def is_upward(package: str, a: str, b: str) -> bool:
    rank = ranks(package)
    return a in rank and b in rank and rank[b] >= rank[a]


def test_a_client_needs_no_library_of_the_server():
    server = {"numba", "llvmlite", "pydantic", "pydantic_core", "psutil", "javaproperties", "pyspark", "locust"}
    reached = {"towline.client", *LAYERS["towline.client"]}
    assert not {library for library in server for wrapper in WRAPPERS[library] if place_of(wrapper) in reached}
    assert not reached & {"towline.kernels", "towline.log", "towline.runtime", "towline.node"}


def test_process_folders_lie_at_the_top():
    assert all((ROOT / folder / "__init__.py").is_file() for folder in FOLDERS)
    linked = {path.name for path in (ROOT / "towline").iterdir() if path.is_symlink()}
    assert linked == set(FOLDERS)
    assert all((ROOT / "towline" / folder).samefile(ROOT / folder) for folder in FOLDERS)


def test_no_text_names_a_module_of_theirs_without_towline():
    """Where the root of the repository is on the path it would be another module of the same file."""
    broken = [each for source in sources() for each in bare_names(source)]
    assert not broken, told(broken)


def test_a_bare_name_in_a_text_is_seen():
    source = Source.of(
        "tests/x.py", 'patch("flush.policy.GroupCommit")\npatch(f"reput.service.{name}")\nreach("reput.before_ends")'
    )
    assert [each.line for each in bare_names(source)] == [1, 2]


def bare_names(source: Source) -> list[Broken]:
    found = []
    for node in ast.walk(source.tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            folder, _, rest = node.value.partition(".")
            module = ROOT / folder / rest.partition(".")[0]
            if folder in FOLDERS and rest[:1].islower() and (module.is_dir() or module.with_suffix(".py").is_file()):
                found.append(source.broken(node, f"{node.value!r} names a module", f"write towline.{node.value}"))
    return found


PLANTED = [
    ("flush/service.py", "from towline.log.commitlog.commit_log import CommitLogReader", ""),
    ("flush/service.py", "from .policy import GroupCommit", ""),
    ("flush/service.py", "import numpy as np\nimport os\nfrom typing import Any", ""),
    ("cli/main.py", "import typer\nfrom towline.client.producer import Producer", ""),
    ("towline/start.py", "import towline\nfrom towline.errors import TowlineError", ""),
    ("tests/log/test_x.py", "import mmap\nfrom towline.flush.policy import GroupCommit\nimport zmq", ""),
    ("flush/service.py", "import towline.ha.send", "a process imports another process"),
    ("flush/service.py", "from towline.ha.send import Sender", "a process imports another process"),
    (
        "flush/service.py",
        "from towline.cli.main import app",
        "towline.flush imports towline.cli, which stands above it",
    ),
    (
        "towline/node/process/worker.py",
        "from towline.flush.service import FlushAgent",
        "towline.node imports towline.flush, which stands above",
    ),
    ("cli/main.py", "from towline.flush.service import FlushAgent", "towline.cli imports towline.flush"),
    ("towline/log/x.py", "from towline.runtime.positions import Position", "towline.log imports towline.runtime"),
    (
        "towline/runtime/x.py",
        "from towline.log.files.mapped_file import MappedFile",
        "towline.runtime imports towline.log",
    ),
    ("towline/link/x.py", "from towline.runtime.locks import StoreLock", "towline.link imports towline.runtime"),
    ("towline/format/x.py", "from towline.kernels.base.crc import crc32", "towline.format imports towline.kernels"),
    ("towline/client/x.py", "from towline import runtime", "towline.client imports towline.runtime"),
    ("towline/client/x.py", "import towline.kernels.scan.scan", "towline.client imports towline.kernels"),
    ("towline/errors.py", "from towline.limits import PAGE", "towline.errors imports towline.limits"),
    ("towline/novelty/x.py", "import json", "towline.novelty has no layer"),
    ("flush/service.py", "import zmq", "its wrapper is towline.link"),
    ("towline/log/x.py", "import mmap", "its wrapper is towline.log.files.mapped_file"),
    ("master/put/service.py", "from numba import njit", "its wrapper is towline.kernels"),
    ("towline/kernels/x.py", "import zmq.utils", "imports zmq"),
    ("towline/node/x.py", "import typer", "its wrapper is towline.cli"),
    ("towline/link/x.py", "from pydantic import BaseModel", "imports pydantic"),
    ("cli/x.py", "import pandas", "its wrapper is nobody"),
    ("towline/format/x.py", "import os", "a pure module imports os"),
    ("flush/policy.py", "from time import monotonic", "a pure module imports time"),
    ("flush/x.py", "def f():\n    import json", "imports json inside a function"),
    ("tests/log/test_x.py", "def f():\n    from .x import y", "imports x inside a function"),
    ("flush/x.py", "class C:\n    async def f(self):\n        if self:\n            import json", "inside a function"),
    ("towline/log/x.py", "from ..format.record import SIZE", "two dots"),
    (
        "towline/log/commitlog/__init__.py",
        "from .commit_log import CommitLog",
        "__init__.py imports towline.log.commitlog.commit_log",
    ),
    ("towline/__init__.py", "from towline.client.producer import Producer", "__init__.py imports towline.client"),
    ("towline/aio/__init__.py", "from towline.client.message import Message", "__init__.py imports towline.client"),
    (
        "towline/log/commitlog/x.py",
        "from .commit_log import _walk",
        "imports _walk of towline.log.commitlog.commit_log",
    ),
    ("tests/log/test_x.py", "from towline.log.commitlog.commit_log import _walk", "imports _walk"),
    (
        "towline/log/commitlog/x.py",
        "from towline.log.commitlog.commit_log import walk",
        "write `from .commit_log import ...`",
    ),
]


@pytest.mark.parametrize(("path", "text", "what"), PLANTED, ids=[f"{path}: {text}"[:70] for path, text, _ in PLANTED])
def test_a_planted_violation_is_found_and_a_clean_file_is_not(path, text, what):
    broken = told(check(Source.of(path, text)))
    assert (what in broken) if what else (broken == ""), broken


def test_a_violation_names_file_line_and_replacement():
    (broken,) = check(Source.of("flush/x.py", "import json\nimport zmq\n"))
    assert str(broken) == "flush/x.py:2: imports zmq; its wrapper is towline.link, towline.loadtest.bench, peers"
