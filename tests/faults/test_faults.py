"""The fault matrix: every row has its drivers, a run counts what they say, and the page is what the result gives."""

import json
import os
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from tests.gate.verdict import Run
from tests.repo.test_rulebook import names_of
from tests.requirements import need
from towline.loadtest.drill.run import DRILLS

from .noting import VARIABLE, note
from .page import PAGE, page
from .plan import ROOT, WANTED, Drilled, Row, Tests
from .rest import is_of_the_matrix
from .results import RECORDED, WHOLE, Outcome, Results, commit_of, merged, outcomes_of, reached
from .rows import ROWS
from .running import Runner, take, take_drill

SAMPLE = Row("F1", "kill", "how", (Tests("tests/x.py::test_y"),), "kills")
MACHINE = {"cpus": 2, "cpu": "one", "memory_gb": 4.0, "kernel": "6"}
DRILL = Drilled("kill-slave", short=2, whole=20)
RESULT = {
    "drill": "kill-slave",
    "passed": True,
    "acknowledged": 50,
    "lost": 0,
    "doubled": 1,
    "without_service_s": 2.5,
    "seed": 7,
    "events": [{}, {}],
    "faults": [],
}


def cases_of(row: Row) -> list[Tests]:
    return [step for step in row.steps if isinstance(step, Tests)]


class TestTheMatrix:
    def test_has_thirty_rows(self):
        assert [row.name for row in ROWS] == [f"F{number}" for number in range(1, 31)]

    def test_runs_each_row_or_says_why_not(self):
        assert all(row.steps or row.lacks for row in ROWS)

    @pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
    def test_names_tests_and_drills_that_exist(self, row: Row):
        for tests in cases_of(row):
            path, _, name = tests.name.partition("::")
            names = names_of(path)
            assert names, path
            assert not name or any(each == name or each.startswith(f"{name}::") for each in names), tests.name
        drills = [step.words.split()[0] for step in row.steps if isinstance(step, Drilled)]
        assert not set(drills) - DRILLS.keys()

    def test_injects_something_of_each_row_in_a_short_run_too(self):
        short = {row.name for row in ROWS for tests in cases_of(row) if tests.words(whole=False)}
        short |= {row.name for row in ROWS for step in row.steps if isinstance(step, Drilled) and step.short}
        assert short == {row.name for row in ROWS if row.steps}

    def test_counts_what_a_whole_run_wants(self):
        assert {row.counts for row in ROWS} >= WANTED.keys()

    def test_is_wanted_as_often_as_its_rounds_add_up_to(self):
        rounds = dict.fromkeys(WANTED, 0)
        for row in ROWS:
            if row.counts in rounds:
                rounds[row.counts] += sum(step.whole for step in row.steps if isinstance(step, Drilled))
        assert rounds["partitions"] >= WANTED["partitions"]


def picks(only: str, test: str) -> bool:
    """As pytest's -k does: words are parts of a name."""
    words = [part.split(" and ") for part in only.split(" or ")]
    return any(all((word.removeprefix("not ") in test) != word.startswith("not ") for word in each) for each in words)


@pytest.mark.slow
def test_every_choice_among_the_cases_of_a_test_picks_some():
    chosen = [tests for row in ROWS for tests in cases_of(row) if tests.only]
    command = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-m", "not slow"]
    command += dict.fromkeys(tests.name.partition("::")[0] for tests in chosen)
    cases = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.splitlines()
    assert len(cases) > len(chosen)
    lacking = [each for each in chosen if not any(c.startswith(each.name) and picks(each.only, c) for c in cases)]
    assert not lacking


class TestWhatTestsNote:
    def test_is_a_line_of_the_file_that_is_asked_for(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
        monkeypatch.setenv(VARIABLE, str(tmp_path / "noted"))
        note(3, acknowledged=10, doubled=1, seed=4)
        (line,) = (tmp_path / "noted").read_text().splitlines()
        facts = json.loads(line)
        assert facts["test"].endswith("TestWhatTestsNote::test_is_a_line_of_the_file_that_is_asked_for")
        assert [facts[name] for name in ("injected", "acknowledged", "lost", "doubled", "seed")] == [3, 10, 0, 1, 4]
        assert facts["outage_s"] is None

    def test_is_nothing_where_nobody_asks(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
        monkeypatch.delenv(VARIABLE, raising=False)
        monkeypatch.chdir(tmp_path)
        note(1)
        assert not list(tmp_path.iterdir())


def said(status: int = 0, **outcomes: str) -> Run:
    made = Run("the run", status, collected=list(outcomes), ended=True)
    for test, outcome in outcomes.items():
        facts = {
            "test": test,
            "phase": "call",
            "outcome": outcome,
            "said": "E why",
            "at": 0.0,
            "load": 1.0,
            "took": 0.1,
        }
        made.take(facts)
    return made


class TestAnOutcome:
    def test_adds_what_was_noted_and_counts_a_silent_case_as_one_fault(self):
        outcome = Outcome("F1")
        noted = {"test": "a", "injected": 20, "acknowledged": 100, "lost": 0, "outage_s": 1.5, "seed": 3}
        take(outcome, said(a="passed", b="passed"), [noted, noted | {"outage_s": 0.5}])
        assert (outcome.injected, outcome.acknowledged, outcome.lost, outcome.passed) == (41, 200, 0, 2)
        assert (outcome.outage_s, outcome.seeds, outcome.doubled) == (1.5, [3, 3], None)
        assert outcome.verdict == "passed"

    def test_of_which_a_test_failed_has_failed(self):
        outcome = Outcome("F1")
        take(outcome, said(1, a="passed", b="failed"), [])
        assert (outcome.injected, outcome.verdict, outcome.failed) == (1, "failed", ["b: why"])

    @pytest.mark.parametrize(("more", "verdict"), [({}, "not run"), ({"b": "passed"}, "in part")])
    def test_that_this_machine_cannot_have_is_no_success(self, more: dict[str, str], verdict: str):
        outcome = Outcome("F1")
        take(outcome, said(a="skipped", **more), [])
        assert (outcome.verdict, outcome.missing, outcome.failed) == (verdict, ["E why"], [])

    def test_without_a_test_has_failed(self):
        outcome = Outcome("F1")
        take(outcome, Run("the run", pytest.ExitCode.NO_TESTS_COLLECTED, ended=True), [])
        assert (outcome.verdict, outcome.failed) == ("failed", ["the run found no test"])


class TestADrill:
    def test_is_counted_by_its_result(self):
        outcome = Outcome("F14")
        take_drill(outcome, DRILL, 0, [RESULT], "")
        assert (outcome.injected, outcome.acknowledged, outcome.doubled, outcome.wrong_bytes) == (2, 50, 1, 0)
        assert (outcome.outage_s, outcome.seeds, outcome.verdict) == (2.5, [7], "passed")

    def test_that_did_not_pass_says_what_was_wrong_and_nothing_of_bytes(self):
        outcome = Outcome("F14")
        take_drill(outcome, DRILL, 1, [RESULT | {"passed": False, "lost": 2, "faults": ["2 lost"]}], "")
        assert (outcome.lost, outcome.wrong_bytes) == (2, None)
        assert outcome.failed == ["towline drill kill-slave: 2 lost"]

    def test_that_is_not_possible_was_not_run(self):
        outcome = Outcome("F14")
        take_drill(outcome, DRILL, 2, [{"error": "DrillImpossible", "sentence": "it needs root", "remedy": "sudo"}], "")
        assert (outcome.verdict, outcome.missing) == ("not run", ["towline drill kill-slave: it needs root"])

    def test_that_says_nothing_has_failed(self):
        outcome = Outcome("F14")
        take_drill(outcome, DRILL, 3, [], "a\nSegmentation fault\n")
        assert outcome.failed == ["towline drill kill-slave: no result, status 3: Segmentation fault"]


def test_a_row_runs_its_tests_and_is_told_what_they_note(tmp_path: Path):
    """A real run, of a quick test."""
    steps = (Tests("tests/log/recovery/test_torn_pages.py::test_one_sector_is_missing", only="longer"),)
    outcome = Runner(tmp_path, whole=False).run(replace(SAMPLE, name="a-test", steps=steps))
    log = ROOT / "build/faults/a-test.log"
    said = log.read_text()
    log.unlink()
    assert (outcome.failed, outcome.passed, outcome.verdict) == ([], 1, "passed"), said
    assert outcome.injected > 10
    assert not list(tmp_path.glob("*f")), "its files have gone"


def test_a_commit_is_named_where_there_is_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    if shutil.which("git") is None:
        need({"git": "no git"})
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    assert commit_of(tmp_path) == ""
    git = ["git", "-C", str(tmp_path)]
    author = ["-c", "user.name=a", "-c", "user.email=a@b.c"]
    subprocess.run([*git, "init", "-q"], check=True)
    subprocess.run([*git, *author, "commit", "-q", "--allow-empty", "-m", "first"], check=True)
    name = subprocess.run([*git, "log", "-1", "--format=%H"], check=True, capture_output=True, text=True).stdout
    assert len(commit_of(tmp_path)) >= 7
    assert name.startswith(commit_of(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path))
    assert commit_of(tmp_path) == ""


def test_a_row_without_a_driver_is_not_run_and_says_why(tmp_path: Path):
    outcome = Runner(tmp_path, whole=False).run(replace(SAMPLE, steps=(), lacks="nobody can"))
    assert outcome.commit == commit_of(ROOT)
    assert (outcome.verdict, outcome.missing) == ("not run", ["nobody can"])


class TestResults:
    def test_go_on_where_they_were_broken_off_each_form_by_itself(self, tmp_path: Path):
        made = Results(tmp_path, "short")
        made.add(Outcome("F2", passed=1), MACHINE)
        made.add(Outcome("F10", passed=1, failed=["x"]), MACHINE)
        made.add(Outcome("F1", passed=1), MACHINE)
        again = Results(tmp_path, "short")
        assert [row["row"] for row in again.known["rows"]] == ["F1", "F2", "F10"]
        assert [again.has_passed(name) for name in ("F1", "F2", "F10", "F3")] == [True, True, False, False]
        assert not Results(tmp_path, "whole").has_passed("F1")
        anew = Results(tmp_path, "short", ["F1", "F10"])
        assert [anew.has_passed(name) for name in ("F1", "F2")] == [False, True], "the others stay"

    def test_of_runs_beside_each_other_are_kept_together(self, tmp_path: Path):
        one, other = Results(tmp_path, "whole"), Results(tmp_path, "whole")
        one.add(Outcome("F1", passed=1), MACHINE)
        other.add(Outcome("F2", passed=1), MACHINE)
        one.add(Outcome("F3", passed=1), MACHINE)
        assert [row["row"] for row in Results(tmp_path, "whole").known["rows"]] == ["F1", "F2", "F3"]

    def test_of_a_file_that_names_no_commits_are_read(self, tmp_path: Path):
        made = Results(tmp_path, "short")
        made.add(Outcome("F1", passed=1), MACHINE)
        path = tmp_path / "short.json"
        path.write_text(path.read_text().replace(',\n   "commit": ""', ""))
        assert "commit" not in path.read_text()
        assert Results(tmp_path, "short").has_passed("F1")
        assert outcomes_of(json.loads(path.read_text()))["F1"].commit == ""

    def test_say_how_many_were_injected_of_what_is_wanted(self):
        outcomes = {"F1": Outcome("F1", injected=30), "F7": Outcome("F7", injected=4)}
        found = reached(ROWS, outcomes)
        assert (found["kills"], found["power cuts"], found["failovers"]) == (30, 4, 0)

    def test_of_a_whole_run_stay_in_the_record_when_a_short_one_follows(self):
        before = {"faults": "short", "machine": MACHINE, "rows": [vars(Outcome(f"F{number}")) for number in (1, 2, 10)]}
        whole = {"machine": MACHINE, "rows": [vars(Outcome("F2", injected=9, form=WHOLE))]}
        record = merged(before, whole)
        assert (record["faults"], [row["row"] for row in record["rows"]]) == ("whole in part", ["F1", "F2", "F10"])
        assert merged(record, before) == record
        again = {"machine": {}, "rows": [vars(Outcome("F2", failed=["x"], form=WHOLE)), vars(Outcome("F1", passed=1))]}
        found = outcomes_of(merged(record, again))
        assert (found["F2"].verdict, found["F1"].passed) == ("failed", 1)


class TestThePage:
    def shown(self, *outcomes: Outcome) -> str:
        rows = [vars(outcome) for outcome in outcomes]
        return page({"faults": "short", "machine": MACHINE, "rows": rows}, [SAMPLE])

    def test_is_what_the_result_file_gives(self):
        document = json.loads(RECORDED.read_text(encoding="utf-8"))
        again = "run `python -m tests.faults --record`"
        assert PAGE.read_text(encoding="utf-8") == page(document, ROWS), again
        assert not outcomes_of(document).keys() - {row.name for row in ROWS}

    def test_shows_the_counts_of_a_row(self):
        text = self.shown(
            Outcome("F1", injected=1234, acknowledged=5, lost=0, given_up=3, passed=1, seeds=[1, 2, 3, 4])
        )
        assert "| F1 | kill | 1,234 kills | 5 | 0 (3) | - | - | - | 1, 2, 3 and 1 more | passed (short) |" in text
        assert "| kills | 1,000 | 1,234 |" in text
        assert "is no whole run. 1 of 1 rows passed" in text

    @pytest.mark.parametrize(
        ("commits", "named"),
        [
            ([""], "1 of 1 rows passed; "),
            (["abc1234"], "1 of 1 rows passed (of commit abc1234); "),
            (["abc1234", "abc1234", "def5678"], "3 of 1 rows passed (of commits abc1234, def5678); "),
            (["abc1234", ""], "2 of 1 rows passed (of commit abc1234, 1 do not say of which); "),
        ],
        ids=["none", "one", "two", "not of all"],
    )
    def test_names_the_commits_of_its_rows(self, commits: list[str], named: str):
        outcomes = [Outcome(f"F{number}", passed=1, commit=commit) for number, commit in enumerate(commits, 1)]
        assert named in self.shown(*outcomes)

    def test_says_which_rows_are_of_a_whole_run(self):
        text = self.shown(Outcome("F1", passed=1, form=WHOLE), Outcome("F2", passed=1))
        assert "Of a whole run: F1; the other rows are of a short one, which shows that each runs. 2 of 1" in text
        assert "A whole run. 1 of 1" in self.shown(Outcome("F1", passed=1, form=WHOLE))
        assert "| - | passed |" in text

    def test_says_what_was_not_run_and_what_failed(self):
        assert "**not run**: not part of this run" in self.shown()
        assert "- F1, not run: `no etcd`" in self.shown(Outcome("F1", missing=["no etcd"]))
        text = self.shown(Outcome("F1", passed=1, failed=[f"{ROOT}/x.py: `lost` 1"]))
        assert "**failed**: see below" in text
        assert "- F1, failed: `x.py: 'lost' 1`" in text


def test_the_rest_of_the_slow_tests_is_what_no_row_names():
    assert is_of_the_matrix("tests/soak/test_crash.py::test_nothing_acknowledged_is_lost_and_every_cut_has_a_reason[x]")
    assert is_of_the_matrix("tests/remoting/test_floods.py::test_any")
    assert not is_of_the_matrix("tests/soak/test_round_trips.py::test_no_single_round_trip_takes_a_second[3]")


def test_a_word_that_is_no_row_is_refused():
    command = [sys.executable, "-m", "tests.faults", "--rows", "F1,F99"]
    done = subprocess.run(command, cwd=ROOT, env=os.environ, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (1, "no row has this name: F99; rows are F1 to F30\n")
