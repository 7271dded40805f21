"""Imports point one way, and each foreign library has one door."""

import pytest

from tests.repo.import_rules import DOORS, LAYERS, check, place_of
from tests.repo.trees import PACKAGES, PROCESSES, ROOT, Source, sources, told


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


def test_a_client_needs_no_library_of_the_server():
    server = {"numba", "llvmlite", "pydantic", "pydantic_core", "psutil", "javaproperties", "pyspark", "locust"}
    reached = {"towline.client", *LAYERS["towline.client"]}
    assert not {library for library in server for door in DOORS[library] if place_of(door) in reached}
    assert not reached & {"towline.kernels", "towline.log", "towline.runtime", "towline.node"}


def test_process_folders_lie_at_the_top():
    assert all((ROOT / process / "__init__.py").is_file() for process in PROCESSES)
    assert set(PROCESSES) < set(PACKAGES)


PLANTED = [
    ("flush/service.py", "from towline.log.commit_log import CommitLogReader", ""),
    ("flush/service.py", "from .policy import GroupCommit", ""),
    ("flush/service.py", "import numpy as np\nimport os\nfrom typing import Any", ""),
    ("cli/main.py", "import typer\nfrom towline.client.producer import Producer", ""),
    ("towline/start.py", "import towline\nfrom towline.errors import ShadowedPackage", ""),
    ("tests/log/test_x.py", "import mmap\nfrom flush.policy import GroupCommit\nimport zmq", ""),
    ("flush/service.py", "import ha.send", "a process imports another process"),
    ("flush/service.py", "from ha.send import Sender", "a process imports another process"),
    ("flush/service.py", "from cli.main import app", "flush imports cli, which stands above it"),
    ("towline/node/piece.py", "from flush.service import FlushAgent", "towline.node imports flush, which stands above"),
    ("cli/main.py", "from flush.service import FlushAgent", "cli imports flush"),
    ("towline/log/x.py", "from towline.runtime.positions import Position", "towline.log imports towline.runtime"),
    ("towline/runtime/x.py", "from towline.log.mapped_file import MappedFile", "towline.runtime imports towline.log"),
    ("towline/link/x.py", "from towline.runtime.clock import Clock", "towline.link imports towline.runtime"),
    ("towline/format/x.py", "from towline.kernels.crc import crc32", "towline.format imports towline.kernels"),
    ("towline/client/x.py", "from towline import runtime", "towline.client imports towline.runtime"),
    ("towline/client/x.py", "import towline.kernels.scan", "towline.client imports towline.kernels"),
    ("towline/errors.py", "from towline.limits import PAGE", "towline.errors imports towline.limits"),
    ("towline/novelty/x.py", "import json", "towline.novelty has no layer"),
    ("flush/service.py", "import zmq", "its door is towline.link"),
    ("towline/log/x.py", "import mmap", "its door is towline.log.mapped_file"),
    ("master/put.py", "from numba import njit", "its door is towline.kernels"),
    ("towline/kernels/x.py", "import zmq.utils", "imports zmq"),
    ("towline/node/x.py", "import typer", "its door is cli"),
    ("towline/link/x.py", "from pydantic import BaseModel", "imports pydantic"),
    ("cli/x.py", "import pandas", "its door is nobody"),
    ("towline/format/x.py", "import os", "a pure module imports os"),
    ("flush/policy.py", "from time import monotonic", "a pure module imports time"),
    ("flush/x.py", "def f():\n    import json", "imports json inside a function"),
    ("tests/log/test_x.py", "def f():\n    from .x import y", "imports x inside a function"),
    ("flush/x.py", "class C:\n    async def f(self):\n        if self:\n            import json", "inside a function"),
    ("towline/log/x.py", "from ..format.record import SIZE", "two dots"),
    ("towline/log/__init__.py", "from .commit_log import CommitLog", "__init__.py imports towline.log.commit_log"),
    ("towline/__init__.py", "from towline.client.producer import Producer", "__init__.py imports towline.client"),
    ("towline/log/x.py", "from .commit_log import _walk", "imports _walk of towline.log.commit_log"),
    ("tests/log/test_x.py", "from towline.log.commit_log import _walk", "imports _walk"),
    ("towline/log/x.py", "from towline.log.commit_log import walk", "write `from .commit_log import ...`"),
]


@pytest.mark.parametrize(("path", "text", "what"), PLANTED, ids=[f"{path}: {text}"[:70] for path, text, _ in PLANTED])
def test_a_planted_violation_is_found_and_a_clean_file_is_not(path, text, what):
    broken = told(check(Source.of(path, text)))
    assert (what in broken) if what else (broken == ""), broken


def test_a_violation_names_file_line_and_replacement():
    (broken,) = check(Source.of("flush/x.py", "import json\nimport zmq\n"))
    assert str(broken) == "flush/x.py:2: imports zmq; its door is towline.link, loadtest.bench, loadtest.peers"
