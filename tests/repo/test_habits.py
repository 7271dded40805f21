"""Habits that cost somebody a night, each with what to write in its place."""

import ast
import re
from collections.abc import Iterator

import pytest

from .trees import Broken, Source, sources, texts, told

# Split, so that this file does not break its own rules.
UNFINISHED = re.compile(r"\b(TO" + r"DO|FIX" + r"ME|XX" + r"X)\b")
MACHINE_PATH = re.compile(r"(?<![\w.])/(wor" + r"k|roo" + r"t)/")


def check(source: Source) -> list[Broken]:
    """Every habit that the syntax tree shows."""
    slept = _sleeps(source) if source.is_test else ()
    printed = () if source.is_test or source.path.parts[0] == "cli" else _prints(source)
    packed = () if source.is_test else _packs_into(source)
    return sorted([*slept, *printed, *packed, *_swallows(source)])


def check_text(path: str, text: str) -> list[Broken]:
    """Every habit that the plain text shows."""
    broken = []
    for number, line in enumerate(text.splitlines(), 1):
        if found := UNFINISHED.search(line):
            broken.append(Broken(path, number, f"{found[0]} is left", "do it, or take it out"))
        if found := MACHINE_PATH.search(line):
            broken.append(
                Broken(path, number, f"{found[0]} is a path of one machine", "make it relative or a parameter")
            )
    return broken


def _calls(source: Source) -> Iterator[tuple[ast.Call, str]]:
    """Calls with the called name: `time.sleep` -> "time.sleep", `sleep` -> "sleep"."""
    for node in ast.walk(source.tree):
        if isinstance(node, ast.Call):
            yield node, ast.unparse(node.func)


def _sleeps(source: Source) -> Iterator[Broken]:
    instead = "wait for a condition with a deadline, or hand the clock in"
    for call, name in _calls(source):
        if name in ("time.sleep", "sleep", "asyncio.sleep"):
            yield source.broken(call, "a test sleeps", instead)
    for node in ast.walk(source.tree):
        if isinstance(node, ast.ImportFrom) and node.module == "time" and "sleep" in {each.name for each in node.names}:
            yield source.broken(node, "a test imports sleep", instead)


def _prints(source: Source) -> Iterator[Broken]:
    for call, name in _calls(source):
        if name in ("print", "pprint", "pprint.pprint"):
            yield source.broken(call, "prints", "log it, or return it to the cli")


def _packs_into(source: Source) -> Iterator[Broken]:
    for call, name in _calls(source):
        if name.split(".")[-1] == "pack_into":
            instead = "store through a cast view; pack_into clears its target first, and others see the hole"
            yield source.broken(call, "uses pack_into", instead)


def _swallows(source: Source) -> Iterator[Broken]:
    for node in ast.walk(source.tree):
        if isinstance(node, ast.ExceptHandler) and node.type is None:
            yield source.broken(node, "a bare except", "name the errors that are expected")
        elif isinstance(node, ast.ExceptHandler) and _takes_all(node.type) and all(map(_does_nothing, node.body)):
            yield source.broken(node, "swallows every error", "name the errors that are expected, or log it and go on")
    for call, name in _calls(source):
        if name in ("contextlib.suppress", "suppress") and any(map(_takes_all, call.args)):
            yield source.broken(call, "swallows every error", "name the errors that are expected")


def _takes_all(kind: ast.expr | None) -> bool:
    kinds = kind.elts if isinstance(kind, ast.Tuple) else [kind]
    return any(isinstance(each, ast.Name) and each.id in ("Exception", "BaseException") for each in kinds)


def _does_nothing(statement: ast.stmt) -> bool:
    idle = isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)
    return idle or isinstance(statement, ast.Pass | ast.Continue)


def test_the_code_has_good_habits():
    broken = [each for source in sources() for each in check(source)]
    assert not broken, told(broken)


def test_nothing_is_left_to_do_and_no_path_of_one_machine_is_written_down():
    broken = [each for path, text in texts() for each in check_text(path, text)]
    assert not broken, told(broken)


PLANTED = [
    ("tests/x.py", "import time\ntime.sleep(1)", "a test sleeps"),
    ("tests/x.py", "from time import sleep", "a test imports sleep"),
    ("flush/x.py", "import time\ntime.sleep(1)", ""),
    ("flush/x.py", "try:\n    f()\nexcept:\n    raise", "a bare except"),
    ("flush/x.py", "try:\n    f()\nexcept Exception:\n    pass", "swallows every error"),
    ("flush/x.py", "try:\n    f()\nexcept (ValueError, BaseException):\n    ...", "swallows every error"),
    ("flush/x.py", "import contextlib\nwith contextlib.suppress(Exception):\n    f()", "swallows every error"),
    (
        "flush/x.py",
        "for a in b:\n    try:\n        f()\n    except Exception:\n        continue",
        "swallows every error",
    ),
    ("flush/x.py", "try:\n    f()\nexcept Exception:\n    log()", ""),
    ("flush/x.py", "try:\n    f()\nexcept ValueError:\n    pass", ""),
    ("flush/x.py", "print('x')", "prints"),
    ("cli/x.py", "print('x')", ""),
    ("flush/x.py", "import struct\nstruct.pack_into('<Q', m, 0, 1)", "uses pack_into"),
    ("flush/x.py", "LAYOUT.struct.pack_into(m, 0, 1)", "uses pack_into"),
    ("tests/x.py", "import struct\nstruct.pack_into('<Q', m, 0, 1)", ""),
]


@pytest.mark.parametrize(("path", "text", "what"), PLANTED, ids=[f"{path}: {text}"[:70] for path, text, _ in PLANTED])
def test_a_planted_bad_habit_is_found_and_a_good_one_is_not(path, text, what):
    broken = told(check(Source.of(path, text)))
    assert (what in broken) if what else (broken == ""), broken


@pytest.mark.parametrize(
    ("line", "what"),
    [
        ("# TO" + "DO later", "is left"),
        ("# FIX" + "ME", "is left"),
        ("see /wor" + "k/main", "is a path of one machine"),
        ("see '/roo" + "t/x'", "is a path of one machine"),
        ("the framework/library of https://example.org/a/work/b", ""),
        ("mastodon and todos", ""),
    ],
)
def test_a_planted_line_is_found_and_a_clean_one_is_not(line, what):
    broken = told(check_text("docs/x.md", f"first\n{line}\n"))
    assert broken.startswith("docs/x.md:2:") and what in broken if what else broken == ""
