"""A running master and slave for the tests of a module, and a look at the end whether anything of them is left."""

from collections.abc import Iterator

import pytest

from .nodes import Pair, check_nothing_is_left, ended


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    """Started once per module; at its end both stop cleanly and leave nothing behind."""
    made = Pair(tmp_path_factory.mktemp("pair"))
    cleaning = ended(*made.nodes)
    next(cleaning)
    try:
        made.start()
        yield made
        assert made.stop() == (True, True)
        check_nothing_is_left(*made.nodes)
    finally:
        next(cleaning, None)
