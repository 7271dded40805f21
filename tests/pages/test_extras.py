"""Without an extra, what needs it is refused with the line that installs it, where only the wheel is: it is typed."""

import ast
import os
import re
from typing import Final

import pytest

from tests.cli.test_remedies_of_packages import loaded_by_commands
from tests.pages.environment import Environment, skip_unreachable
from tests.repo.trees import sources

pytestmark = pytest.mark.timeout(900)

LACKS: Final = "is not installed"
LINE: Final = re.compile(r"pip install 'towline\[[\w,]+\]'")
TRACING: Final = (
    "from towline import Producer, TowlineError\n"
    "try:\n    Producer('tcp://127.0.0.1:1', tracing=True).close()\n"
    "except TowlineError as error:\n    raise SystemExit(str(error))\n"
)
STATS: Final = "pipeline stats --store store"
# Extra -> words of `towline`, or a program, and what is said, or done, when nothing of it is missing. In the order in
# which they are installed here, into one environment: a command that needs two extras comes behind the first.
USES: Final = {
    "cli": ("--version", r"^towline \d"),
    "server": ("master status --store none", "no node is running on "),
    "demo": ("demo --no-spark --limit 1 --store /dev/null/none", "Not a directory"),
    "drill": ("drill kill-slave --cluster none.toml", r"none\.toml"),
    "loadtest": (f"loadtest --put {(at := 'tcp://127.0.0.1:1')} --serve {at} --time 1", "no answer|Connection refused"),
    "tracing": (TRACING, "^$"),
    "kafka": ("kafka import none --store new", "none is no log directory"),
    "spark": (STATS, "messages|no Java"),
    "delta": ("pipeline archive --store store --out archive --table delta", "0 segments archived|no Java"),
    "connect": (f"{STATS} --master sc://127.0.0.1:1", "Connection refused|no Java"),
}


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory) -> Environment:
    """The wheel and what it always brings. pip finds the wheel again by the name that a remedy has."""
    made = Environment(tmp_path_factory.mktemp("bare"))
    known = os.environ.get("PIP_FIND_LINKS", "")
    made.variables["PIP_FIND_LINKS"] = f"{known} {made.dist}".strip()
    made.install()
    (made.home / "store" / "commitlog").mkdir(parents=True)
    return made


def said_by(environment: Environment, use: str) -> str:
    """What a use of an extra prints, all of it; a Python program has several lines."""
    words = ("python", "-c", use) if "\n" in use else ("towline", *use.split())
    done = environment.run(*words)
    assert "Traceback" not in done.stderr, done
    return done.stdout + done.stderr


@pytest.mark.slow
def test_what_lacks_an_extra_runs_when_the_line_of_its_refusal_was_typed(bare: Environment) -> None:
    path = f"{bare.programs}:{os.environ['PATH']}"
    bare.variables["PATH"] = path
    for extra, (use, then) in USES.items():
        lacking = said_by(bare, use)
        assert LACKS in lacking, (extra, lacking)
        [line] = set(LINE.findall(lacking))
        assert f"'towline[{extra}]'" == line.removeprefix("pip install "), lacking
        typed = bare.run("/bin/sh", "-c", f"{line} -q")
        skip_unreachable(typed.stderr if typed.returncode else "")
        assert typed.returncode == 0, typed.stderr
        there = said_by(bare, use)
        assert LACKS not in there, (extra, there)
        assert re.search(then, there, re.MULTILINE), (extra, there)


def test_every_extra_that_a_refusal_names_is_typed() -> None:
    named = {extra for extras in loaded_by_commands().values() for extra in extras}
    for source in sources():
        for node in ast.walk(source.tree):
            match node:
                case ast.Call(ast.Name("MissingPackage"), [_, ast.Constant(str(extra))]) if not source.is_test:
                    named.add(extra)
    assert named - {"web"} == USES.keys()
