"""Which works are done together and in what order; a run that is broken off, or has no more time. No server."""

import json
from dataclasses import replace

import pytest

from peers import harness
from peers.harness import measure
from peers.journal import NAME
from peers.plan import QUANTILES, Durability, Kind, Work
from peers.server import Missing
from peers.works import QUICK, Comparison, Task, groups, guess_s, takes_part
from towline.errors import BenchFailed

PUT = Work(kind=Kind.PUT, body=100, seconds=0.5)
TAIL = Work(kind=Kind.TAIL, body=100, rate=10.0, seconds=0.5)
SYNC = replace(PUT, durability=Durability.SYNC)
REPLAY = Work(kind=Kind.REPLAY, body=100, count=10)


def test_works_of_one_setup_are_done_together_and_late_ones_last():
    stored = Work(kind=Kind.STORED, body=100, count=10)
    plan = Comparison(tasks=(Task(PUT, 2), Task(SYNC, 2), Task(REPLAY, 1), Task(TAIL, 1), Task(stored, 1, late=True)))
    assert plan.sittings() == [
        (0, (TAIL, PUT)),
        (0, (SYNC,)),
        (0, (REPLAY,)),
        (1, (PUT,)),
        (1, (SYNC,)),
        (0, (stored,)),
    ]


def test_the_quick_form_takes_less_than_ten_minutes():
    plan = Comparison(tasks=tuple(task for group in groups(QUICK).values() for task in group))
    taken = 0.0
    for _, works in plan.sittings():
        of_each = {system: [work for work in works if takes_part(system, work)] for system in plan.systems}
        taken += sum(guess_s(system, some) for system, some in of_each.items() if some)
    assert 60 < taken < 600


class Sat:
    """A sitting without a server: every work takes no time, or meets what the test says."""

    def __init__(self, meets):
        self.meets, self.took = meets, []

    def __call__(self, system, root):
        self.system = system
        return self

    def __enter__(self):
        return self

    def __exit__(self, *met):
        return None

    def measure(self, work):
        self.took.append((self.system, work))
        trouble = self.meets(self.system, work, len(self.took))
        if trouble:
            raise trouble
        return {"per_s": 10.0, "count": 5, "quantiles_us": [1.0] * len(QUANTILES), "by_time": [5]}


@pytest.fixture
def sat(monkeypatch):
    def install(meets=lambda system, work, number: None):
        made = Sat(meets)
        monkeypatch.setattr(harness, "Sitting", made)
        monkeypatch.setattr(harness, "Limits", lambda root, seconds: NoLimits())
        return made

    monkeypatch.setattr(harness, "versions_of", lambda systems: (dict.fromkeys(systems, "1"), {}))
    return install


class NoLimits:
    def measure(self):
        return {"copy_gb_s": 1.0}


PLAN = Comparison(systems=("towline", "nats"), tasks=(Task(PUT, 3), Task(TAIL, 3)))


def test_a_run_that_is_broken_off_goes_on_where_it_was(sat, tmp_path):
    def broken(system, work, number):
        return KeyboardInterrupt() if number == 6 else None

    first = sat(broken)
    with pytest.raises(KeyboardInterrupt):
        measure(PLAN, kept_in=tmp_path)
    kept = (tmp_path / NAME).read_text().splitlines()
    assert len(kept) == 1 + 1 + 5  # the run, limits, turns
    (tmp_path / NAME).write_text("\n".join(kept) + '\n{"torn": ')
    second = sat()
    notes = []
    found = measure(PLAN, lambda text, left_s: notes.append(text), kept_in=tmp_path, resume=True)
    assert "5 turns known" in notes[0]
    assert len(first.took) + len(second.took) == 1 + 2 * 2 * 3
    assert [len(row["systems"][system]["rounds"]) for row in found["rows"] for system in PLAN.systems] == [3] * 4
    assert not (tmp_path / NAME).exists()


def test_another_run_or_none_begins_anew(sat, tmp_path):
    (tmp_path / NAME).write_text(json.dumps({"versions": {}, "works": []}) + "\n" + json.dumps({"limits": {}}) + "\n")
    made = sat()
    measure(PLAN, kept_in=tmp_path, resume=True)
    assert len(made.took) == 2 * 2 * 3


def test_what_fails_is_asked_once_more_and_the_rest_goes_on(sat):
    def meets(system, work, number):
        return BenchFailed("silent") if (system, work) == ("nats", PUT) else None

    made = sat(meets)
    found = measure(PLAN)
    assert made.took.count(("nats", PUT)) == 2
    assert found["failed"] == {f"nats: {PUT.name}": "round 1: silent; round 2: silent"}
    assert {row["name"]: set(row["systems"]) for row in found["rows"]} == {
        PUT.name: {"towline"},
        TAIL.name: {"towline", "nats"},
    }


def test_what_cannot_be_done_is_asked_once(sat):
    made = sat(lambda system, work, number: Missing("no way") if system == "nats" else None)
    found = measure(PLAN)
    assert made.took.count(("nats", PUT)) == 1
    assert found["absent"] == {f"nats: {work.name}": "no way" for work in (PUT, TAIL)}


def test_no_turn_begins_for_which_there_is_no_time(sat):
    made = sat()
    found = measure(replace(PLAN, within_s=0.5))
    assert made.took == []
    assert len(found["skipped"]) == 3
    assert found["rows"] == []
