"""Which processes of a status stand still, and what is said of them."""

from typing import Any

import psutil
import pytest

from towline.node.report.processes import GONE, STILL_MS, standing_still


def process(**more: Any) -> dict[str, Any]:
    moving = {"duty": "flush", "pid": 7, "state": "RUNNING", "process": "sleeping", "beat_age_ms": 500, "turn_ms": 0}
    return moving | more


@pytest.mark.parametrize(
    "moves",
    [
        pytest.param({}, id="one at rest"),
        pytest.param({"beat_age_ms": STILL_MS - 1, "state": "SYNCING"}, id="one in a sync"),
        pytest.param({"beat_age_ms": 10**9, "state": "STOPPED", "process": GONE}, id="one that ended in order"),
    ],
)
def test_what_moves_or_has_ended_is_not_named(moves: dict[str, Any]):
    assert standing_still([process(**moves)]) == []


@pytest.mark.parametrize(
    ("stands", "why"),
    [
        ({"state": "SYNCING"}, "in a sync of the disk"),
        ({"state": "KERNEL"}, "in an append or another long call"),
        ({"state": "RECOVERING"}, "it recovers the store"),
        ({"state": "STARTING"}, "it is starting"),
        ({"state": "RUNNING"}, "in a turn of its work"),
        ({"state": "STOPPING"}, "it is stopping"),
        ({"state": GONE, "process": GONE}, "it is gone, and not started again yet"),
        ({"process": psutil.STATUS_STOPPED}, "it was stopped by a signal; `kill -CONT 7` lets it go on"),
        ({"beat_age_ms": 1, "turn_ms": 2_500, "state": "SYNCING"}, "in a sync of the disk"),
    ],
)
def test_what_does_no_turn_is_named_with_its_call(stands: dict[str, Any], why: str):
    (found,) = standing_still([process(duty="put"), process(**{"beat_age_ms": 2_500} | stands)])
    assert (found["duty"], found["pid"], found["still_ms"]) == ("flush", 7, 2_500)
    assert found["sentence"] == f"flush (process 7) has done no turn for 2.5 s: {why}"


@pytest.mark.parametrize(("process", "said"), [("stopped", "it was stopped by a signal"), (GONE, "is gone")])
def test_a_zygote_that_cannot_fork_is_named_too(process: str, said: str):
    zygote = {"duty": "zygote", "pid": 8, "state": "RUNNING"}
    assert standing_still([zygote | {"process": "sleeping"}]) == []
    (found,) = standing_still([zygote | {"process": process}])
    assert said in found["sentence"]
