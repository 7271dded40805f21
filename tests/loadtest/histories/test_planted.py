"""Porcupine accepts operations that may be, and refuses each planted violation with its operations named."""

from itertools import count
from typing import Any

import pytest

from towline.loadtest.drill.operations import OPERATIONS, in_places

from .checking import ACCEPTED, REFUSED, UNDECIDED

LIST, REGISTER = "list t/0", "register r/0"


class Story:
    """Operations one after the other, each of which takes ten microseconds, unless it is told otherwise."""

    def __init__(self) -> None:
        self.rows: list[dict[str, Any]] = []
        self._time = count(0, 20)

    def _add(
        self, who: str, of: str, f: str, given: dict[str, Any], found: dict[str, Any] | None, took: int = 10
    ) -> None:
        call, known = next(self._time), found is not None
        given = {"object": of, "f": f, **given}
        end = call + took if known else None
        row = {"ClientId": 0, "Input": given, "Call": call, "Output": found, "Return": end, "Metadata": who}
        self.rows.append(row)

    def append(self, value: str, at: int | None, *, copies: int = 1, took: int = 10) -> "Story":
        """`at` None: nobody knows what became of it."""
        found = None if at is None else {"at": at}
        self._add("producer 0", LIST, "append", {"value": value, "copies": copies}, found, took)
        return self

    def reads(self, *values: str, start: int = 0, whole: bool = False, who: str = "reader 0") -> "Story":
        self._add(who, LIST, "read", {}, {"from": start, "values": list(values), "whole": whole})
        return self

    def ends(self, *values: str, who: str = "node 1") -> "Story":
        return self.reads(*values, whole=True, who=who)

    def write(self, value: str, *, known: bool = True) -> "Story":
        self._add("keeper 0", REGISTER, "write", {"value": value}, {} if known else None)
        return self

    def sees(self, value: str, *, took: int = 10) -> "Story":
        self._add("keeper 1", REGISTER, "read", {}, {"value": value}, took)
        return self


def appended(*values: str) -> Story:
    story = Story()
    for at, value in enumerate(values):
        story.append(value, at)
    return story


@pytest.mark.parametrize(
    "story",
    [
        appended("a", "b", "c").reads("a", "b").reads("c", start=2).ends("a", "b", "c"),
        appended("a", "b").reads("a").ends("a", "b", who="node 1").ends("a", "b", who="node 2"),
        Story().append("a", 1, took=50).append("b", 0, took=10).ends("b", "a"),
        Story().append("a", None).append("b", 0).ends("b"),
        Story().append("a", None).append("b", 1).reads("a", "b").ends("a", "b"),
        Story().append("a", None).append("b", 0).append("c", 2).ends("b", "a", "c"),
        Story().append("a", 1, copies=2, took=50).append("b", 2).ends("a", "a", "b"),
        Story().append("a", None, copies=2).append("b", 1).ends("a", "b", "a"),
        Story().sees("").write("1").sees("1").write("2").sees("2"),
        Story().write("1").write("2", known=False).sees("1").sees("2").sees("2"),
        Story().write("1").sees("1", took=50).write("2"),
    ],
    ids=[
        "a reader that is behind",
        "two nodes",
        "appends at the same time",
        "one without an outcome is nowhere",
        "one without an outcome is there",
        "one without an outcome is there late",
        "one that was sent twice is there twice",
        "one that was sent twice without an outcome",
        "a register",
        "a write without an outcome takes place late",
        "a read beside a write",
    ],
)
def test_what_may_be_is_accepted(porcupine, tmp_path, story):
    checked = porcupine.check_lines(tmp_path, story.rows)
    assert (checked.status, checked.said["faults"]) == (ACCEPTED, []), checked


@pytest.mark.parametrize(
    ("story", "named"),
    [
        (
            appended("a", "b", "c").ends("a", "b"),
            ["read of 2 from 0 by node 1", "it ends at 2 where c stands", "append c at 2 by producer 0"],
        ),
        (
            appended("a", "b", "c").ends("a", "c"),
            ["at 1 it has c where b stands", "append b at 1 by producer 0", "append c at 2 by producer 0"],
        ),
        (
            appended("a", "b").ends("a", "b", "a"),
            ["read of 3 from 0 by node 1", "at 2 it has a where the list ends at 2", "append a at 0 by producer 0"],
        ),
        (
            Story().append("a", None, copies=2).append("b", 1).ends("a", "b", "a", "a"),
            ["at 3 it has a where the list ends at 3", "append a at 0 by producer 0", "append a at 2 by producer 0"],
        ),
        (
            appended("a", "b", "c").reads("a", "c", "b"),
            ["read of 3 from 0 by reader 0", "at 1 it has c where b stands"],
        ),
        (Story().append("a", 1).append("b", 0), ["append a at 1", "it got offset 1 where the list has 0 values"]),
        (Story().append("a", 0).append("b", 0), ["append b at 0", "it got offset 0 where the list has 1 values"]),
        (appended("a", "b", "c").reads("a", "", "c"), ["at 1 it has nothing where b stands"]),
        (
            appended("a").reads("a").reads("x", start=1),
            ["read of 1 from 1 by reader 0", "at 1 it has x where the list ends at 1", "x was brought by nobody"],
        ),
        (
            Story().reads("a").append("a", 0).ends("a"),
            ["read of 1 from 0 by reader 0, called at 0.000000 s", "at 0 it has a where the list ends at 0"],
        ),
        (
            appended("a", "b").ends("a", "b", who="node 1").ends("a", who="node 2"),
            ["read of 1 from 0 by node 2", "it ends at 1 where b stands"],
        ),
        (
            Story().write("1").write("2").sees("1"),
            ["read of 1 by keeper 1", "it has 1 where the register holds 2", "write 1 by keeper 0", "write 2 by"],
        ),
        (
            Story().write("1").write("2", known=False).sees("2").sees("1"),
            ["read of 1 by keeper 1, called at 0.000060 s", "it has 1 where the register holds 2"],
        ),
        (
            Story().write("1").sees("x"),
            ["read of x by keeper 1", "it has x where the register holds 1", "x was brought by nobody"],
        ),
        (Story().write("1").sees(""), ["read of nothing by keeper 1", "it has nothing where the register holds 1"]),
    ],
    ids=[
        "the last acknowledged append is lost",
        "an acknowledged append is lost",
        "an append that was sent once is there twice",
        "an append that was sent twice is there three times",
        "a reader sees another order",
        "offsets in another order than the appends",
        "two appends at one offset",
        "a reader skips one",
        "a reader sees what nobody appended",
        "a reader sees what is appended later",
        "a node lacks what another has",
        "a stale read",
        "a read that goes back",
        "a read of what nobody wrote",
        "a register that has lost its value",
    ],
)
def test_a_planted_violation_is_refused_with_its_operations_named(porcupine, tmp_path, story, named):
    checked = porcupine.check_lines(tmp_path, story.rows)
    assert checked.status == REFUSED, checked
    of = story.rows[0]["Input"]["object"]
    assert checked.fault.startswith(f"{of}: no order explains it behind ")
    assert [words for words in named if words not in checked.fault] == [], checked.fault


def test_each_list_and_register_is_judged_by_itself(porcupine, tmp_path):
    checked = porcupine.check_lines(tmp_path, [*appended("a").ends().rows, *Story().write("1").sees("2").rows])
    assert checked.status == REFUSED
    assert [fault.split(":")[0] for fault in checked.said["faults"]] == [LIST, REGISTER]
    assert (checked.said["operations"], checked.said["lists"], checked.said["registers"]) == (4, 1, 1)


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ('{"Input": {"object": "list t/0", "f": "append"}, "Call": ', "line 1 is no operation"),
        ('{"Input": {"object": "bag t/0", "f": "append"}, "Call": 0}', "is no operation that has a model"),
        ('{"Input": {"object": "list t/0", "f": "append"}, "Call": 0, "Return": 1}', "it has one of Output and Return"),
        ('{"Input": {"object": "list t/0", "f": "read"}, "Call": 0}', "a read without an outcome says nothing"),
    ],
    ids=["cut off", "of no model", "half an outcome", "a read without one"],
)
def test_a_file_that_holds_anything_else_is_refused(porcupine, tmp_path, line, said):
    (tmp_path / OPERATIONS).write_text(line)
    checked = porcupine.check(tmp_path / OPERATIONS)
    assert (checked.status, checked.said) == (UNDECIDED, {})
    assert said in checked.error


def test_values_stand_at_their_offsets():
    assert in_places(2, [(2, "a"), (3, "b")]) == ["a", "b"]
    assert in_places(2, [(3, "b"), (5, "c"), (5, "d")]) == ["", "b", "", "c+d"]
    assert in_places(2, []) == []
