from collections.abc import Iterator
from pathlib import Path

import pytest

from .standin import Standin


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Standin]:
    """A running node with the topic `t` of four queues and `one` of one."""
    made = Standin(tmp_path, {"t": 4, "one": 1})
    made.start()
    yield made
    made.stop()
