from collections.abc import Iterator
from pathlib import Path

import pytest

from .faces import Room


@pytest.fixture
def room(tmp_path: Path) -> Iterator[Room]:
    made = Room(tmp_path)
    for topic, count in made.queues.items():
        made.ends |= {(topic, queue): (10, 100) for queue in range(count)}
    yield made
    made.service.close()
