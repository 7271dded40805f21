"""Parses the arguments of a job without typer: for `python -m towline.pipeline` and spark-submit."""

import argparse
import json
import sys
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, Final

from towline.errors import TowlineError

from . import registry
from .errors import IllegalOption
from .options import OptionFacts, facts_of
from .running import execute

FAILED: Final = 1
_COMMON: Final = ("job", "master", "conf", "report")


def parser_of(name: str) -> argparse.ArgumentParser:
    """Every option of the job, and those that all jobs have. Raises UnknownJob."""
    made = argparse.ArgumentParser(prog=f"pipeline {name}", description=registry.JOBS[name].summary)
    for facts in facts_of(registry.load(name).options):
        _add(made, facts)
    made.add_argument("--master", help="Spark's master URL; of spark-submit, or all cores of this machine.")
    made.add_argument("--conf", action="append", default=[], metavar="KEY=VALUE", help="A setting of Spark; repeat it.")
    made.add_argument("--report", type=Path, metavar="FILE", help="Write an HTML report there, too.")
    return made


def main(arguments: Sequence[str]) -> int:
    """The result as one JSON document on standard output; an error there too, and as a sentence on standard error."""
    listed = ", ".join(registry.JOBS)
    if not arguments or arguments[0] in ("-h", "--help"):
        sys.stderr.write(f"usage: pipeline NAME [OPTIONS]; NAME is one of {listed}\n")
        return 0 if arguments else 2
    name = arguments[0]
    try:
        registry.load(name)
        asked = vars(parser_of(name).parse_args(arguments[1:]))
        common = {key: asked.pop(key) for key in _COMMON if key in asked}
        outcome = execute(name, asked, **common)
    except TowlineError as error:
        sys.stderr.write(f"towline: {error}\n")
        failure = {"error": type(error).__name__, "sentence": error.describe(), "remedy": error.advice}
        sys.stdout.write(json.dumps(failure) + "\n")
        return FAILED
    except ModuleNotFoundError as error:
        sys.stderr.write(f"towline: the package {error.name} is not installed: pip install 'towline[spark]'\n")
        return FAILED
    sys.stdout.write(json.dumps(outcome.document(), default=_plain) + "\n")
    sys.stdout.flush()
    return outcome.result.status


def _add(made: argparse.ArgumentParser, facts: OptionFacts) -> None:
    dest, more = facts.name, f" Default: {facts.default}." if facts.default not in (None, ()) else ""
    text = (facts.help + ("" if facts.required else more)).replace("%", "%%")
    if facts.type is bool:
        made.add_argument(facts.flag, dest=dest, action=argparse.BooleanOptionalAction, default=None, help=text)
        return
    made.add_argument(
        facts.flag,
        dest=dest,
        type=facts.type,
        required=facts.required,
        action="append" if facts.many else "store",
        choices=facts.choices or None,
        metavar=facts.metavar,
        help=text,
    )


def _plain(value: Any) -> Any:
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, bytes):
        return value.decode("utf-8", "backslashreplace")
    if isinstance(value, Path):
        return str(value)
    raise IllegalOption("json", f"{type(value).__name__} is not for JSON")
