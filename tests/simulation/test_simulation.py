"""Groups of simulated nodes: nothing that is promised breaks, and what once broke a promise is found."""

import os

import pytest

from towline.simulation.history import RULES
from towline.simulation.plan import ALL_BYTES, plan_of
from towline.simulation.run import Outcome, run_seed, run_seeds

from . import mutants

ALL = {**mutants.FINDINGS, **mutants.MORE, **mutants.SEQUENCES}
# A seed that finds each, and those of which `make soak` has to find one that does.
FOUND_BY = {
    "shown_tail": 118,
    "own_floor": 31,
    "kept_member": 121,
    "forgotten": 454,
    "unsynced": 549,
    "promised_floor": 9659,
    "members_alone": 503265,
    "shown_later": 505281,
    "unrecovered": 6,
    "stored_again": 3,
    "any_number": 134,
    "whole": 49,
    "undoubted": 6,
    "renumbered": 42,
}
WITHIN = {name: range(1000) for name in ALL}
WITHIN |= {  # the rare ones
    "promised_floor": range(10_000),
    "members_alone": range(503_000, 504_000),
    "shown_later": range(505_000, 506_000),
}
BREAKS = {
    "shown_tail": {"visible"},
    "own_floor": {"acknowledged", "visible"},
    "kept_member": {"acknowledged", "visible"},
    "forgotten": {"cut", "acknowledged", "visible"},
    "unsynced": {"acknowledged"},
    "promised_floor": {"acknowledged"},
    "members_alone": {"acknowledged"},
    "shown_later": {"visible"},
    "unrecovered": {"once", "order"},
    "stored_again": {"once"},
    "any_number": {"once", "order"},
    "whole": {"once", "order"},
    "undoubted": {"place"},
    "renumbered": {"once"},
}


def broken(outcomes: "list[Outcome]") -> list[str]:
    return [f"seed {one.seed}: {RULES[one.rule]}: {one.what}" for one in outcomes if not one.held]


def trace_of(seed: int) -> tuple[Outcome, list[tuple[int, str, str]]]:
    lines: list[tuple[int, str, str]] = []
    outcome = run_seed(seed, lambda *line: lines.append(line))
    return outcome, lines


def test_no_invariant_breaks_in_two_hundred_histories() -> None:
    outcomes = list(run_seeds(0, 200))
    assert broken(outcomes) == []
    assert sum(one.acknowledged for one in outcomes) > 200 * 20, "clients are served meanwhile"
    assert sum(one.epochs for one in outcomes) > 200 * 2, "masters change"
    assert sum(one.cuts for one in outcomes) > 5, "logs part, and are cut"
    assert sum(one.repeats for one in outcomes) > 30, "batches of idempotent producers come again, and are known"


@pytest.mark.slow
def test_no_invariant_breaks_in_ten_thousand_histories() -> None:
    assert broken(list(run_seeds(0, 10_000))) == []


def test_a_seed_has_the_same_history_each_time() -> None:
    assert trace_of(3) == trace_of(3)
    assert trace_of(3)[1] != trace_of(4)[1]


def test_a_history_that_somebody_watches_is_the_same() -> None:
    assert trace_of(5)[0] == run_seed(5)


def test_the_seeds_differ_in_what_the_settings_promise() -> None:
    plans = [plan_of(seed) for seed in range(200)]
    drawn = {(plan.nodes, plan.role, plan.flush, plan.etcd, plan.floors[0][0], plan.floors[1][0]) for plan in plans}
    assert len(drawn) > 20
    assert {plan.set_back for plan in plans} == {True, False}
    assert {plan.sequences.producers for plan in plans} == {0, 1, 2}
    assert {plan.sequences.recovered_bytes for plan in plans} >= {0, ALL_BYTES}, "put reads its log, or forgets it"


@pytest.mark.parametrize("name", ALL)
def test_a_defect_that_is_put_back_is_found(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert run_seed(FOUND_BY[name]).held, "without it the seed is sound"
    ALL[name](monkeypatch)
    assert run_seed(FOUND_BY[name]).rule in BREAKS[name]


@pytest.mark.slow
@pytest.mark.parametrize("name", ALL)
def test_a_defect_that_is_put_back_is_found_within_so_many_seeds(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    ALL[name](monkeypatch)
    seeds = WITHIN[name]
    outcomes = run_seeds(seeds.start, len(seeds), len(os.sched_getaffinity(0)))
    found = next((one for one in outcomes if not one.held), None)
    assert found is not None
    assert found.rule in BREAKS[name]
