"""kill -9 at random points of a mixed load: nothing that was acknowledged is lost, whatever recovery cuts has a reason.

TOWLINE_SEED=<number> repeats a run's choices; the moment of a kill within the load is the machine's, of course.
"""

import os
import random
import time

import pytest

from tests.faults.noting import note
from tests.processes.nodes import ended

from .crash import Soak


@pytest.mark.parametrize(
    "kills", [pytest.param(20, id="20 kills"), pytest.param(200, id="200 kills", marks=pytest.mark.slow)]
)
@pytest.mark.timeout(1800)
def test_nothing_acknowledged_is_lost_and_every_cut_has_a_reason(tmp_path, kills):
    seed = int(os.environ.get("TOWLINE_SEED") or random.SystemRandom().getrandbits(32))
    print(f"\nTOWLINE_SEED={seed}")
    soak = Soak(tmp_path, seed)
    ending = ended(*soak.nodes)
    next(ending)
    started = time.monotonic()
    try:
        for number in range(kills):
            soak.round(number)
        print(soak.finish(), f"in {time.monotonic() - started:.0f} s")
        ledger = soak.ledger
        note(kills, acknowledged=len(ledger.acked), doubled=ledger.doubles, outage_s=soak.slowest_s, seed=seed)
    finally:
        print(*soak.verdicts, sep="\n")
        next(ending, None)
