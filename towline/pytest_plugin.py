"""Fixtures of pytest for programs that use Towline: a node for the whole run, a topic for each test.

    def test_an_order_is_sent(towline_node, towline_topic):
        with Producer(towline_node.endpoint) as producer: ...

A conftest.py names it: `pytest_plugins = ["towline.pytest_plugin"]`. As an entry point it would have
pytest rewrite the assertions of the whole package. The node is that of `towline dev`, so the extra `server` is needed.
"""

import json
import subprocess
import sys
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from towline.link.free_port import free_port
from towline.start import home

_PROGRAM = "from towline.start import main; main()"
_STOP_S = 30.0


@dataclass(frozen=True, slots=True)
class DevNode:
    """A node that runs for the tests alone."""

    endpoint: str
    store: Path


@pytest.fixture(scope="session")
def towline_node() -> Iterator[DevNode]:
    """A node with small files, made for this run and gone after it. The first one of an installation compiles."""
    command = [sys.executable, "-c", _PROGRAM, "dev", "--json", "--port", str(free_port())]
    process = subprocess.Popen(command, cwd=home(), stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    with process.stdout:
        try:
            said = process.stdout.readline()
            facts = json.loads(said) if said else {"error": "", "sentence": "it said nothing"}
            if "error" in facts:
                pytest.fail(f"towline dev does not start: {facts['sentence']}", pytrace=False)
            yield DevNode(facts["endpoint"], Path(facts["store"]))
        finally:
            process.terminate()
            try:
                process.wait(_STOP_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


@pytest.fixture
def towline_topic() -> str:
    """The name of a topic that no other test has."""
    return f"test-{uuid.uuid4().hex}"
