"""Drivers that are killed lose and double nothing in the topic that they write. The long run is in tests/soak."""

import random
from pathlib import Path

import pytest

from tests.processes.nodes import ending
from tests.requirements import need
from tests.spark.sessions import QUICK
from towline.limits import MIB
from towline.pipeline.session import java_missing

from .killed_drivers import Copying


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_three_killed_drivers_lose_and_double_nothing(tmp_path: Path) -> None:
    need({} if (problem := java_missing()) is None else {"java": problem})
    copying = Copying(tmp_path, 30_000, 5_000, 4 * MIB, QUICK)
    with ending(copying.node):
        copying.node.start()
        copying.run(3, random.Random(9))
        copying.check()
        copying.node.stop()
