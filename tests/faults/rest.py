"""A plugin of pytest for `make soak`: what a whole run of the fault matrix has done is not done again."""

from typing import Final

import pytest

from .plan import Tests
from .rows import ROWS

NAMES: Final = tuple(step.name for row in ROWS for step in row.steps if isinstance(step, Tests))


def is_of_the_matrix(test: str) -> bool:
    return any(test == name or test.startswith((f"{name}[", f"{name}::")) for name in NAMES)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    done = [item for item in items if is_of_the_matrix(item.nodeid)]
    config.hook.pytest_deselected(items=done)
    items[:] = [item for item in items if not is_of_the_matrix(item.nodeid)]
