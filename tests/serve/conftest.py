"""Stores to serve from, and what every test of the folder does."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.closing import closed_afterwards

from .building import SEGMENT, Built

Build = Callable[..., Built]


@pytest.fixture(autouse=True)
def closed() -> Iterator[None]:
    """Nobody leaves files open."""
    yield from closed_afterwards()


@pytest.fixture
def build(tmp_path: Path) -> Iterator[Build]:
    """Makes stores, each with the settings it is given."""
    made: list[Built] = []

    def new(*, base: int = 0, segment: int = SEGMENT, **settings: Any) -> Built:
        made.append(Built(tmp_path / str(len(made)), settings, base, segment))
        return made[-1]

    yield new
    for built in made:
        built.close()
