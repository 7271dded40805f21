"""Commands are run in this process; what they print is parsed."""

import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from towline.cli.main import run

from .typist import Done, Typist

Towline = Callable[..., Done]


@pytest.fixture(autouse=True)
def _no_context(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Who runs the tests may have chosen a node."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path_factory.mktemp("config")))


@pytest.fixture
def towline(capfd: pytest.CaptureFixture[str]) -> Towline:
    def command(*arguments: object) -> Done:
        status = run([str(argument) for argument in arguments])
        out, err = capfd.readouterr()
        return Done(status, out, err)

    return command


@pytest.fixture
def typist(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Typist]:
    """Commands in shells of their own, which find neither a node nor a context."""
    runtime = tempfile.mkdtemp(prefix="tl-", dir="/dev/shm")
    monkeypatch.setenv("XDG_RUNTIME_DIR", runtime)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    made = Typist(tmp_path / "store")
    yield made
    made.stop()
    shutil.rmtree(runtime)
