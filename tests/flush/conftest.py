"""What most tests of the folder use."""

from collections.abc import Iterator

import pytest

from tests.closing import closed_afterwards


@pytest.fixture
def closed() -> Iterator[None]:
    """Nobody leaves files open. (test_promises looks after its own: its processes die.)"""
    yield from closed_afterwards()
