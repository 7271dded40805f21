"""A sound store for whoever damages one: made once for a file of tests, copied for each."""

from pathlib import Path

import pytest

from .sound import copy_of, sound_store
from .stores import StoreMaker


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> StoreMaker:
    return sound_store(tmp_path_factory.mktemp("sound"))


@pytest.fixture
def maker(original: StoreMaker, tmp_path: Path) -> StoreMaker:
    return copy_of(original, tmp_path / "store")
