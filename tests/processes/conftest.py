"""A running master and slave for the tests of a module, and a look at the end whether anything of them is left."""

from collections.abc import Iterator

import pytest

from .arming import Arming
from .nodes import POOLED, Pair, check_nothing_is_left, ending
from .wire import WireClient


@pytest.fixture(autouse=True)
def _closing() -> Iterator[None]:
    """Of the clients of a test those that it left open because it failed."""
    before = WireClient.opened.copy()
    yield
    for client in WireClient.opened - before:
        client.close()


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    """Started once per module; at its end both stop cleanly and leave nothing behind."""
    yield from _running(Pair(tmp_path_factory.mktemp("pair")))


@pytest.fixture(scope="module")
def arming(tmp_path_factory: pytest.TempPathFactory) -> Arming:
    """For pairs that are started with it."""
    return Arming(tmp_path_factory.mktemp("arming"))


@pytest.fixture(scope="module")
def pooled_pair(tmp_path_factory: pytest.TempPathFactory, arming: Arming) -> Iterator[Pair]:
    """The same with the master's transient pool on: PUT_OK means in its shared memory, and in its slave's log.

    Its processes look for failpoints.
    """
    with pytest.MonkeyPatch.context() as patch:
        arming.announce(patch)
        yield from _running(Pair(tmp_path_factory.mktemp("pooled"), **POOLED))


def _running(made: Pair) -> Iterator[Pair]:
    with ending(*made.nodes):
        made.start()
        yield made
        assert made.stop() == (True, True)
        check_nothing_is_left(*made.nodes)
