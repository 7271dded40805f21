"""Files of agents are closed after each test: hundreds of them would pass what select can watch."""

from collections.abc import Iterator

import pytest

from tests.reput.test_reput import STARTED


@pytest.fixture(autouse=True)
def _files_are_closed() -> Iterator[None]:
    yield
    while STARTED:
        agent = STARTED.pop()
        if hasattr(agent, "_dispatchers"):
            agent.on_close()
