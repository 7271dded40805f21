"""`towline simulate`."""

import pytest

from tests.simulation.mutants import FINDINGS
from tests.simulation.test_simulation import FOUND_BY


def test_says_how_much_was_tried_and_that_all_held(towline):
    done = towline("simulate", "--seeds", 3, "--json")
    assert done.status == 0
    assert (done.document["seeds"], done.document["broken"]) == (3, None)
    assert done.document["steps"] > 300
    assert "every invariant held" in towline("simulate", "--seeds", 1).out


def test_replays_one_seed_with_what_happens_in_it(towline):
    lines = towline("simulate", "--seed", 3, "--steps", 4).out.splitlines()
    assert len(lines) == 5
    assert "every invariant holds after each of" in lines[-1]
    trace = towline("simulate", "--seed", 3, "--json").document["trace"]
    assert {"ms", "who", "what"} == set(trace[0])


@pytest.mark.parametrize("form", [(), ("--json",)], ids=["people", "json"])
def test_fails_naming_the_seed_and_how_to_replay_it(towline, monkeypatch, form):
    FINDINGS["own_floor"](monkeypatch)
    seed = FOUND_BY["own_floor"]
    done = towline("simulate", "--first", seed, "--seeds", 1, *form)
    assert done.status == 1
    if form:
        assert (done.document["broken"]["seed"], bool(done.document["broken"]["invariant"])) == (seed, True)
    else:
        assert f"towline simulate --seed {seed}" in done.out
        assert towline("simulate", "--seed", seed).status == 1
