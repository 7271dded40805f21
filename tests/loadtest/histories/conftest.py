import pytest

from .checking import Checker, checker


@pytest.fixture(scope="session")
def porcupine(request: pytest.FixtureRequest) -> Checker:
    return checker(request.config.cache.mkdir("histories"))
