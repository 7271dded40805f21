"""What every test of the folder does."""

from collections.abc import Iterator

import pytest

from tests.closing import closed_afterwards


@pytest.fixture(autouse=True)
def closed() -> Iterator[None]:
    """Nobody leaves files open."""
    yield from closed_afterwards()
