"""Commands are run in this process; what they print is parsed."""

import shutil
import tempfile
from base64 import b64encode
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random

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


@contextmanager
def typing(directory: Path) -> Iterator[Typist]:
    """Commands in shells of their own, which find neither a node nor a context."""
    runtime = tempfile.mkdtemp(prefix="tl-", dir="/dev/shm")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_RUNTIME_DIR", runtime)
        patch.setenv("XDG_CONFIG_HOME", str(directory / "config"))
        made = Typist(directory / "store")
        yield made
        made.stop()
    shutil.rmtree(runtime)


@pytest.fixture
def typist(tmp_path: Path) -> Iterator[Typist]:
    with typing(tmp_path) as made:
        yield made


@pytest.fixture(scope="session")
def stored(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store of two segments, to be copied: in queue 0 of `orders` a small message with the key k, then large ones."""
    directory = tmp_path_factory.mktemp("stored")
    lines = directory / "lines.txt"
    noise = Random(7)  # a client compresses what repeats itself
    lines.write_bytes(b"".join(b64encode(noise.randbytes(40_000)) + b"\n" for _ in range(30)))
    with typing(directory) as typist:
        where = f"--store {typist.store}"
        typist.works(f"towline master start {where}")
        typist.works(f"towline put orders hello --queue 0 --key k {where}")
        typist.works(f"towline put orders --lines {lines} {where}")
    return typist.store
