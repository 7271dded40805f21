"""Help and completion load the words of commands, and nothing of what does their work."""

import os
import resource
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
from typer.core import TyperGroup
from typer.main import get_command

from towline.cli.lazy import every_command
from towline.cli.main import COMMANDS, app
from towline.pipeline.registry import JOBS

ROUNDS = 5
CALL = "import sys; from towline.start import main; sys.argv[1:] = {arguments!r}; main()"
# Each would take longer than all of `towline --help`, or belongs to what only a call needs.
HEAVY = (
    *("pydantic", "numpy", "numba", "zmq", "rich", "orjson", "lark", "psutil", "urllib3", "lz4", "asyncio", "email"),
    *("towline.client", "towline.link", "towline.format", "towline.log", "towline.runtime", "towline.kernels"),
)
MODULES = """
import atexit, sys
atexit.register(lambda: sys.stderr.write(" ".join(sys.modules)))
"""
JOB = [("pipeline", name) for name in JOBS]  # their options stand where their work is, which needs Spark's packages
LIGHT = [path for path, _ in every_command(get_command(app)) if path not in JOB]
EVERY_HELP = """
import sys
from towline.cli.main import run
for path in {paths!r}:
    assert run([*path, "--help"]) == 0, path
"""


def cpu_s(program: str) -> float:
    """The least of several runs: user and system time of a whole process that Python starts with."""
    taken = []
    for _ in range(ROUNDS):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run([sys.executable, "-c", program], stdout=subprocess.DEVNULL, timeout=60, check=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        taken.append(after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime)
    return min(taken)


def heavy_of(program: str, **environment: str) -> list[str]:
    """What a program imports that help needs not."""
    done = subprocess.run(
        [sys.executable, "-c", MODULES + program],
        env=os.environ | environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    loaded = done.stderr.split()
    assert "typer" in loaded, done.stderr
    return [name for name in HEAVY if name in loaded]


def completed(words: str) -> list[str]:
    """What bash is offered for the last of the words."""
    done = subprocess.run(
        [sys.executable, "-c", CALL.format(arguments=[])],
        env=os.environ | completion_of(words),
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    return done.stdout.split()


def completion_of(words: str) -> dict[str, str]:
    return {"_TOWLINE_COMPLETE": "complete_bash", "COMP_WORDS": words, "COMP_CWORD": str(len(words.split(" ")) - 1)}


@pytest.mark.alone
@pytest.mark.parametrize("arguments", [["--help"], [], ["put", "--help"], ["topic", "create", "--help"]], ids=" ".join)
def test_help_takes_little_more_than_typer_itself(arguments: list[str]) -> None:
    assert cpu_s(CALL.format(arguments=arguments)) < 2 * cpu_s("import typer")


@pytest.mark.parametrize("arguments", [[], ["--help"], ["put", "--help"]], ids=" ".join)
def test_the_command_shows_help_without_what_is_heavy(arguments: Sequence[str]) -> None:
    assert heavy_of(CALL.format(arguments=arguments)) == []


def test_the_version_takes_what_has_it_and_no_more() -> None:
    of_the_package, of_the_protocol = "email", "towline.format"
    assert heavy_of(CALL.format(arguments=["--version"])) == [of_the_package, of_the_protocol]


def test_no_command_loads_what_is_heavy_for_its_help() -> None:
    assert heavy_of(EVERY_HELP.format(paths=LIGHT)) == []


@pytest.mark.parametrize(
    "arguments",
    [["master", "status"], ["slave", "status"], ["config", "get"], ["store", "mend"]],
    ids=" ".join,
)
def test_a_command_that_scans_no_log_loads_no_compiler(arguments: list[str], tmp_path: Path) -> None:
    """numba takes half a second. There is no node here: these say so behind what they import."""
    assert "numba" not in heavy_of(CALL.format(arguments=[*arguments, "--store", str(tmp_path / "none")]))


def test_what_is_heavy_is_told() -> None:
    assert heavy_of("import typer, orjson, rich") == ["rich", "orjson"]


def test_the_overview_says_of_each_command_what_it_says_of_itself() -> None:
    whole = get_command(app)
    assert isinstance(whole, TyperGroup)
    said = {path[0]: command.get_short_help_str(1000) for path, command in every_command(whole) if len(path) == 1}
    assert said == {name: summary for name, (_, summary) in COMMANDS.items()}


class TestCompletion:
    def test_offers_commands(self) -> None:
        assert completed("towline to") == ["topic", "top"]
        assert completed("towline topic de") == ["describe", "delete"]

    def test_offers_options(self) -> None:
        assert completed("towline put --key") == ["--key", "--key-separator"]

    def test_offers_jobs_of_the_pipeline(self) -> None:
        assert completed("towline pipeline re") == ["rebuild", "replay", "restore"]

    @pytest.mark.parametrize("words", ["towline ", "towline topic "])
    def test_loads_nothing_heavy_for_the_names_of_commands(self, words: str) -> None:
        assert heavy_of(CALL.format(arguments=[]), **completion_of(words)) == []
