"""The list of mutants fits the code, and a run of it tells a dead mutant from a living one."""

import ast
import re
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Final

import pytest

from tests.gate.verdict import Run
from tests.mutants.__main__ import Results
from tests.mutants.catalogue import LISTS, ROOT, DoesNotApply, Mutant, every_mutant
from tests.mutants.copying import Copy, Told
from tests.mutants.judging import ATTEMPTS, Outcome, State, judge
from tests.requirements import need

MUTANTS: Final = every_mutant()
QUICK: Final = (
    "flush/a-byte-is-too-little-for-a-group-commit",
    "replication/the-wrong-common-point",
    "consumers/a-pop-passes-what-is-out",
)
# A place to plant others: its tests need a second or two, and no kernel.
EPOCHS: Final = Mutant(
    name="planted/x",
    breaks="Nothing.",
    rule="H18",
    file="towline/format/files/epochs.py",
    old="return number // NODES",
    new="return number // NODES",
    tests=("tests/format/files/test_epochs.py",),
)


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Copy:
    if not (shutil.which("git") and (ROOT / ".git").exists()):
        need({"git": "no checkout of git"})
    made = Copy(ROOT, tmp_path_factory.mktemp("mutants"))
    made.check()
    return made


class TestTheList:
    def test_names_each_mutant_once(self):
        names = [mutant.name for mutant in MUTANTS]
        assert sorted(set(names)) == sorted(names)

    def test_has_some_in_each_of_its_files(self):
        assert {mutant.area for mutant in MUTANTS} == {path.stem for path in LISTS.iterdir()}

    @pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
    def test_applies_to_the_code_as_it_is_and_changes_what_it_means(self, mutant: Mutant):
        assert mutant.changes((ROOT / mutant.file).read_text(encoding="utf-8")), f"{mutant.name} changes nothing"

    def test_names_tests_that_are_there(self):
        named = {test for mutant in MUTANTS for test in mutant.tests}
        assert not sorted(test for test in named if not exists(*test.partition("::")[::2]))

    def test_says_what_each_breaks_and_where_that_is_promised(self):
        rules = set(re.findall(r"^## (H\d+): ", (ROOT / "docs/hazards.md").read_text(encoding="utf-8"), re.MULTILINE))
        rules |= {path.name[:4] for path in (ROOT / "docs/decisions").glob("[0-9]*.md")}
        assert not sorted(mutant.name for mutant in MUTANTS if mutant.rule not in rules)
        assert not sorted(mutant.name for mutant in MUTANTS if not mutant.breaks.endswith("."))


def exists(path: str, name: str) -> bool:
    """Of a file of tests, or a class or a test in it."""
    if not (ROOT / path).is_file():
        return False
    tree: ast.AST = ast.parse((ROOT / path).read_text(encoding="utf-8"))
    for part in filter(None, name.split("::")):
        named = [node for node in ast.iter_child_nodes(tree) if getattr(node, "name", None) == part]
        if not named:
            return False
        tree = named[0]
    return True


@pytest.mark.parametrize("text", ["", "return number // NODES\n" * 2], ids=["gone", "there twice"])
def test_a_mutant_whose_text_is_not_there_once_does_not_apply(text: str):
    with pytest.raises(DoesNotApply, match=r"planted/x: its text stands \d times in .*epochs.py"):
        EPOCHS.apply(text)


@pytest.mark.parametrize("name", QUICK)
def test_a_mutant_of_the_list_is_killed_by_a_test_of_its_area(copy: Copy, name: str):
    (mutant,) = [each for each in MUTANTS if each.name == name]
    outcome = judge(copy, mutant, {})
    assert (outcome.state, outcome.by.partition("::")[0]) == (State.KILLED, mutant.tests[0])


class TestAPlantedOne:
    def test_that_no_test_sees_has_survived(self, copy: Copy):
        outcome = judge(copy, replace(EPOCHS, new="return int(number) // NODES"), {})
        assert outcome.state is State.SURVIVED, outcome.by

    def test_whose_text_has_gone_is_told_by_its_name(self, copy: Copy):
        outcome = judge(copy, replace(EPOCHS, old="what never stood there"), {})
        assert (outcome.state, outcome.by.split(":")[0]) == (State.STALE, "planted/x")

    def test_that_never_ends_is_ended_and_leaves_nothing_behind(self, copy: Copy):
        endless = replace(EPOCHS, new="\n    while True:\n        pass")
        with copy.mutated(endless):
            told = copy.run(endless.tests, 6.0)
        assert told.over

    def test_leaves_the_file_as_it_was_with_its_time(self, copy: Copy):
        path = copy.root / EPOCHS.file
        before, text = path.stat().st_mtime_ns, path.read_bytes()
        times = []
        for _ in range(2):
            with copy.mutated(replace(EPOCHS, new="return 0")):
                times.append(path.stat().st_mtime)
                assert path.read_bytes() != text
        assert (path.stat().st_mtime_ns, path.read_bytes()) == (before, text)
        assert len({before / 1e9, *times}) == 3, "what Python compiled of one of these texts is believed of another"


class Said:
    """Stands for a copy whose runs say these things, one after the other."""

    def __init__(self, *runs: Run) -> None:
        self._runs = list(runs)

    @contextmanager
    def mutated(self, mutant: Mutant) -> Iterator[None]:
        yield

    def run(self, tests: Sequence[str], limit_s: float) -> Told:
        return Told(self._runs.pop(0), over=False)


def said(status: int = 0, **outcomes: str) -> Run:
    made = Run("the run", status, collected=list(outcomes), ended=True)
    for test, outcome in outcomes.items():
        made.take({"test": test, "phase": "call", "outcome": outcome, "said": "E", "at": 0.0, "load": 1.0, "took": 0.1})
    return made


class TestARun:
    def test_that_fails_a_test_twice_has_killed(self):
        outcome = judge(Said(said(1, a="failed"), said(1, a="failed")), EPOCHS, {})
        assert (outcome.state, outcome.by) == (State.KILLED, "a")

    def test_that_fails_a_test_in_every_other_run_has_not(self):
        outcome = judge(Said(*[said(1, a="failed"), said(a="passed")] * ATTEMPTS), EPOCHS, {})
        assert (outcome.state, outcome.by) == (State.UNSTEADY, "a failed, and passed when it ran again")

    def test_that_collects_nothing_has_not(self):
        run = said(2)
        run.take({"broken": "tests/x.py", "said": "SyntaxError"})
        assert judge(Said(run), EPOCHS, {}).state is State.BROKEN

    def test_whose_tests_were_all_skipped_has_not(self):
        outcome = judge(Said(said(a="skipped")), EPOCHS, {})
        assert (outcome.state, outcome.by) == (State.BROKEN, "none of its 1 tests ran, all were skipped")


def test_results_go_on_where_they_were_broken_off_as_long_as_the_code_is_the_same(tmp_path: Path):
    path = tmp_path / "mutants.json"
    made = Results(path, "a", fresh=False)
    made.add(EPOCHS, Outcome(State.KILLED, "a test", 1.0))
    assert Results(path, "a", fresh=False).is_killed(EPOCHS)
    assert not Results(path, "a", fresh=True).is_killed(EPOCHS)
    assert not Results(path, "b", fresh=False).is_killed(EPOCHS)


def test_what_has_survived_is_tried_again(tmp_path: Path):
    path = tmp_path / "mutants.json"
    Results(path, "a", fresh=False).add(EPOCHS, Outcome(State.SURVIVED, "3 tests passed", 1.0))
    assert not Results(path, "a", fresh=False).is_killed(EPOCHS)
