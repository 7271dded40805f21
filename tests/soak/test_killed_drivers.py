"""kill -9 of a driver of Spark, twenty times, while it copies five million messages with limits: none lost or doubled.

TOWLINE_SEED=<number> repeats a run's choices.
"""

import os
import random
import time
from pathlib import Path

import pytest

from tests.drivers.killed_drivers import Copying
from tests.processes.nodes import ending
from tests.requirements import need
from tests.spark.sessions import TEST
from towline.limits import MIB
from towline.pipeline.session import java_missing

RECORDS = 5_000_000
KILLS = 20


@pytest.mark.slow
@pytest.mark.timeout(7200)
def test_twenty_killed_drivers_lose_and_double_nothing(tmp_path: Path) -> None:
    need({} if (problem := java_missing()) is None else {"java": problem})
    seed = int(os.environ.get("TOWLINE_SEED") or random.SystemRandom().getrandbits(32))
    print(f"\nTOWLINE_SEED={seed}")
    started = time.monotonic()
    copying = Copying(tmp_path, RECORDS, 100_000, 256 * MIB, TEST)
    with ending(copying.node):
        copying.node.start()
        copying.run(KILLS, random.Random(seed))
        copying.check()
        copying.node.stop()
    print(f"{KILLS} kills, {copying.replayed} of them within a batch, in {time.monotonic() - started:.0f} s")
