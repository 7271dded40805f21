"""Commands are run in this process; what they print is parsed."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from towline.cli.main import run


@dataclass(frozen=True)
class Done:
    """What a command left behind."""

    status: int
    out: str
    err: str

    @property
    def document(self) -> Any:
        """The one JSON document on standard output."""
        assert self.out.count("\n") == 1
        return json.loads(self.out)


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
