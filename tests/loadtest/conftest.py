"""Where drills make their clusters, and what they leave."""

import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from tests.processes.nodes import processes_of
from tests.processes.waiting import await_

GONE_S: Final = 20.0


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Where drills make their clusters; at the end nothing is left there, in memory, or running."""
    directory = tmp_path / "t"
    directory.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(directory))
    yield directory
    await_(lambda: not processes_of(directory), GONE_S, "every process of the drill is gone")
    assert not list(directory.iterdir())
    assert not [thread.name for thread in threading.enumerate() if thread.name.startswith("drill")]
