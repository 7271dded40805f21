"""Who writes which position: the table `Position`, the `owns` of the processes' docstrings and ARCHITECTURE.md agree.

An `owns` begins with the label of a duty and a colon; what follows up to the next label is that duty's. Words in
capitals are positions and flags.
"""

import ast
import re
from collections import defaultdict
from collections.abc import Mapping

import pytest

from tests.repo.trees import PROCESSES, ROOT, Source, sources
from towline.node.process.duties import MODULES, ONE_SHOTS
from towline.runtime.positions import Duty, Flag, Position

OWNS = re.compile(r"^owns +(.*(?:\n +.*)*)", re.MULTILINE)
LABEL = re.compile(rf"(?:^|; )({'|'.join(duty.label for duty in Duty)}): ")
CAPITALS = re.compile(r"\b[A-Z][A-Z_]+\b")
ROW = re.compile(r"^\| ([A-Z][A-Z_, ]+) \| ([^|]*) \|", re.MULTILINE)


def folder_of(module: str) -> str:
    """`towline.flush.service` -> `flush`; `towline` for what is below no folder of a process."""
    below = module.split(".")[1]
    return below if below in PROCESSES else "towline"


FOLDERS = {duty.label: folder_of(module) for duty, module in MODULES.items()} | {
    duty.label: folder_of(module) for duty, (module, _) in ONE_SHOTS.items()
}
STARTS = {Duty.AGREE.label, Duty.RECOVER.label}  # they write before there is any owner


def owned(text: str) -> dict[str, set[str]]:
    """Label of a duty -> what it owns by the docstring in `text`, in capitals."""
    found: dict[str, set[str]] = defaultdict(set)
    if match := OWNS.search(text):
        sentence = " ".join(match[1].split())
        before, *rest = LABEL.split(sentence)
        assert not before, f"{sentence!r} does not begin with the label of a duty and a colon"
        for label, owns in zip(rest[::2], rest[1::2], strict=True):
            found[label] |= set(CAPITALS.findall(owns))
    return found


def owned_by_docstrings(files: tuple[Source, ...]) -> dict[str, set[str]]:
    found: dict[str, set[str]] = defaultdict(set)
    for source in files:
        if source.path.parts[0] in PROCESSES:
            for label, names in owned(ast.get_docstring(source.tree) or "").items():
                assert label not in found, f"{source.path}: {label} owns something in another docstring too"
                assert source.path.parts[0] == FOLDERS[label], f"{source.path}: {label} stands in {FOLDERS[label]}/"
                found[label] = names
    return found


def writers(names: str) -> set[str]:
    """Labels of the duties that may write these positions."""
    return {duty.label for name in names.split(", ") for duty in Position[name].writers}


def test_every_process_says_what_it_owns():
    assert owned_by_docstrings(sources()).keys() == FOLDERS.keys() - {Duty.RECOVER.label}


def test_each_duty_owns_the_positions_that_the_table_lets_it_write():
    positions = {position.name for position in Position}
    owns = {label: names & positions for label, names in owned_by_docstrings(sources()).items()}
    may: Mapping[str, set[str]] = {
        label: {position.name for position in Position if label in writers(position.name)} for label in owns
    }
    assert owns == may


def test_what_is_owned_in_capitals_is_a_position_or_a_flag():
    known = {position.name for position in Position} | {flag.name for flag in Flag}
    named = set().union(*owned_by_docstrings(sources()).values())
    assert sorted(named - known) == []
    assert sorted({flag.name or "" for flag in Flag} - named) == []


def test_the_table_of_positions_names_their_writers():
    page = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
    table = page.partition("\n## Positions\n")[2].partition("\n## ")[0]
    rows = {names: cell.partition("(")[0] for names, cell in ROW.findall(table)}
    labels = {names: set(re.findall(r"[a-z]+", cell)) & {duty.label for duty in Duty} for names, cell in rows.items()}
    assert {names: found - STARTS for names, found in labels.items()} == {names: writers(names) for names in rows}
    assert sorted(", ".join(rows).split(", ")) == sorted(position.name for position in Position)


class TestTheCheckItself:
    def test_a_sentence_is_read_duty_by_duty(self):
        text = "A.\n\nowns     send: IN_SYNC; a file;\n         receive: WANTED\n         and LOG_MIN\nreads    FLUSHED"
        assert owned(text) == {"send": {"IN_SYNC"}, "receive": {"WANTED", "LOG_MIN"}}

    def test_without_a_label_it_is_refused(self):
        with pytest.raises(AssertionError, match="does not begin with the label"):
            owned("owns     FLUSHED; a file\nreads    nothing")

    def test_a_docstring_without_it_owns_nothing(self):
        assert owned("Replication.") == {}
