"""What tests of the source share."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from .stores import MadeStore
from .streams import stop_readers


@pytest.fixture(autouse=True)
def _stopped() -> Iterator[None]:
    """No stream of a test outlives it."""
    yield
    stop_readers()


@pytest.fixture
def made(tmp_path: Path) -> MadeStore:
    """A stopped store with 600 messages, which a test may change."""
    return MadeStore(tmp_path / "store").whole()
