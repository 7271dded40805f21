"""Random faults on one cluster for half an hour: nothing acknowledged is lost, and no process uses more and more.

TOWLINE_SEED=<number> repeats a run's choices; the moments within the load are the machine's, of course.
"""

import os
import random
import tempfile
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Final

import pytest

from tests.faults.noting import note_drill
from towline.loadtest.drill import run
from towline.loadtest.drill.drill import Drill
from towline.loadtest.drill.ground import Shape

from .growth import DESCRIPTORS, FILES, MEMORY, MORE_MAX, Growth

RATE: Final = 500
FAULT_S: Final = 1.5  # of a pause, of a cut
LOOKS_MIN: Final = 3
PARTED: Final = "partition"  # the drill whose nodes can be parted
FAULTS: Final = (
    *[("kill-process", label) for label in ("put", "flush", "send", "receive", "reput", "allocate", "serve")],
    ("kill-slave", "put"),
    ("pause-slave", "put"),
    ("kill-master", "put"),
    (PARTED, "auto"),
    (PARTED, "auto"),
)


def faults_for(minutes: float, growth: Growth) -> Callable[[Drill], None]:
    """A drill: one after the other, each of which ends when all is as before; then what the nodes use is looked at."""
    scenarios = dict(run.DRILLS)

    def random_faults(drill: Drill) -> None:
        until = drill.watch.now() + 60 * minutes
        while drill.watch.now() < until or len(growth.looks) < LOOKS_MIN:
            name, target = drill.draw.choice(FAULTS)
            scenarios[name](replace(drill, target=target))
            growth.look(drill.ground)

    return random_faults


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("minutes", [1, 30], ids=["1 minute", "30 minutes"])
def test_random_faults_lose_nothing_and_nothing_grows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, minutes: int
) -> None:
    seed = int(os.environ.get("TOWLINE_SEED") or random.SystemRandom().getrandbits(32))
    print(f"\nTOWLINE_SEED={seed}")
    growth = Growth()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(run, "DRILLS", {PARTED: faults_for(minutes, growth)})
    plan = run.DrillPlan(PARTED, seconds=FAULT_S, rate=RATE, shape=Shape(), seed=seed)
    result = run.run_drill(plan, tmp_path / "kept", print, nullcontext)
    note_drill(minutes, result)
    print(f"{len(result['events'])} faults, {result['acknowledged']} acknowledged; {growth.thirds()}")
    assert result["passed"], result["faults"]
    assert not growth.grown()


def test_what_grows_is_told_and_what_changes_a_little_is_not() -> None:
    growth = Growth()
    for look in range(30):
        label = "put"
        growth.looks.append(
            {(MEMORY, label): 80.0 + look % 3, (DESCRIPTORS, label): 20.0 + 2 * look, (FILES, "0"): 9.0}
        )
    assert growth.grown() == [f"{DESCRIPTORS} of put: 49, later 69"]
    assert MORE_MAX[DESCRIPTORS] < 20
