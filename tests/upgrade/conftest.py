import pytest

from .versions import Version, older


@pytest.fixture(scope="session")
def before(request: pytest.FixtureRequest) -> Version:
    """The version before this one."""
    return older(request.config.cache.mkdir("upgrade"))
