"""What a red run needs to become green, and what can never make it so."""

import json

import pytest

from .verdict import FLAKY_MAX, Run, judge


def run(status=0, *, ended=True, collected=None, **outcomes):
    """A run of these tests: outcome of each, by name."""
    made = Run("the run", status)
    made.take({"collected": list(outcomes) if collected is None else collected})
    for test, outcome in outcomes.items():
        made.take(report(test, outcome))
    if ended:
        made.take({"ended": True})
    return made


def report(test, outcome, phase="call"):
    return {"test": test, "phase": phase, "outcome": outcome, "said": "E", "at": 0.0, "load": 1.0, "took": 0.1}


def test_what_passed_is_counted_over_all_runs():
    verdict = judge([run(a="passed", b="skipped"), run(c="passed")], None)
    assert (verdict.closing, verdict.skipped) == ("2 passed, 0 failed", 1)


def test_what_passes_the_second_time_is_flaky_and_passed():
    verdict = judge([run(1, a="passed", b="failed")], run(b="passed"))
    assert ([each.test for each in verdict.flaky], verdict.closing) == (["b"], "2 passed, 0 failed")


def test_what_fails_twice_is_red():
    verdict = judge([run(1, a="failed", b="failed")], run(1, a="failed", b="passed"))
    assert (verdict.red, verdict.closing) == (["a failed twice"], "1 passed, 1 failed")


def test_what_is_skipped_the_second_time_has_not_passed():
    assert judge([run(1, a="failed")], run(a="skipped")).red == ["a failed twice"]


def test_what_is_not_found_the_second_time_has_not_passed():
    assert "a failed twice" in judge([run(1, a="failed")], run(5)).red


def test_what_passes_and_fails_in_its_teardown_failed():
    first = run(1, a="passed")
    first.take(report("a", "failed", "teardown"))
    assert judge([first], run(1, a="failed")).closing == "0 passed, 1 failed"
    assert judge([first], run(a="passed")).closing == "1 passed, 0 failed"


@pytest.mark.parametrize(("count", "failed"), [(FLAKY_MAX, 0), (FLAKY_MAX + 1, FLAKY_MAX + 1)])
def test_so_many_flaky_tests_are_suffered_and_not_one_more(count, failed):
    names = [f"t{number}" for number in range(count)]
    verdict = judge([run(1, **dict.fromkeys(names, "failed"))], run(**dict.fromkeys(names, "passed")))
    assert verdict.failed == failed


@pytest.mark.parametrize(
    ("first", "why"),
    [
        (run(5, ended=True), "found no test"),
        (run(2, a="passed"), "was interrupted"),
        (run(3, a="passed"), "met an error of its own"),
        (run(4), "was called with what it does not know"),
        (run(1, a="passed"), "no test of it failed"),
        (run(1, ended=False, a="passed"), "did not come to its end"),
        (run(0, ended=False, a="passed"), "did not come to its end"),
        (run(-9, ended=False, a="passed"), "did not come to its end (status -9)"),
        (run(0, collected=["a", "b"], a="passed"), "never told what came of 1 tests, as of b"),
    ],
    ids=lambda value: value if isinstance(value, str) else f"status {value.status}",
)
def test_a_run_that_did_not_do_its_work_is_red_without_a_failed_test(first, why):
    verdict = judge([first, run(b="passed")], None)
    assert verdict.failed == 1
    assert why in verdict.red[0]


def test_causes_are_counted_the_most_frequent_first():
    first = run(1, **dict.fromkeys("abc", "failed"))
    for test, said in {"d": "x\nE   OSError: full\nE   two\nat 3", "e": "E   OSError: full", "f": "crashed"}.items():
        first.take(report(test, "failed") | {"said": said})
    assert judge([first], None).causes == [("E", 3), ("OSError: full", 2), ("crashed", 1)]


def test_a_file_that_cannot_be_collected_is_red():
    broken = run(1, a="passed")
    broken.take({"broken": "test_x.py", "said": "E   SyntaxError"})
    assert judge([broken], None).red == ["test_x.py cannot be collected: E   SyntaxError"]


def test_a_second_run_that_breaks_off_heals_only_what_it_told():
    again = run(1, ended=False, collected=["a", "b"], a="passed")
    verdict = judge([run(1, a="failed", b="failed")], again)
    assert "b failed twice" in verdict.red
    assert not any("a failed" in line for line in verdict.red)
    assert verdict.failed == 3  # b, that it is unheard of, and that the run broke off


def test_what_was_left_out_is_red():
    assert judge([run(a="passed")], None, left_out=["the other"]).red == ["the other was left out"]


def test_notes_are_read_as_far_as_they_were_written(tmp_path):
    notes = tmp_path / "notes.jsonl"
    assert Run.read("x", 4, notes).collected == []
    notes.write_text("".join(json.dumps(line) + "\n" for line in [{"collected": ["a"]}, report("a", "passed")]))
    read = Run.read("x", 0, notes)
    assert (read.green, read.ended) == ({"a"}, False)
