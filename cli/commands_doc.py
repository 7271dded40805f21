"""docs/commands.md, made from the commands themselves: `python -m towline.cli.commands_doc docs/commands.md`."""

import sys
import textwrap
from pathlib import Path
from typing import Any, Final

import typer
from typer.core import TyperGroup
from typer.main import get_command

from .lazy import Command, every_command
from .main import app

HEAD: Final = """\
# Commands

Made from the commands by `python -m towline.cli.commands_doc docs/commands.md`; a test keeps it true. `--help` behind
any of them says the same.

`--json` goes with every command: one document on standard output, errors too. An error is a sentence on standard error
that says what to do. The exit status is 0; 1 for a refusal or a failure; 2 for a command that was called wrongly; 3
where a drill was not possible on this machine; and after a signal 128 and its number, so 130 after Ctrl-C. Where a
command means something else by it, it says so.

A command that asks a node takes `--endpoint` or `--store`, or that of the context (`towline context`; the variable
`TOWLINE_CONTEXT` names one for a shell). `towline --install-completion` teaches a shell the commands,
`towline --show-completion` prints what it would be taught, and `towline --version` prints the version.
"""
WIDTH: Final = 120
_COMMON: Final = ("--help", "--json")  # said once, at the beginning


def render() -> str:
    """The whole page."""
    whole = get_command(app)
    assert isinstance(whole, TyperGroup)
    return "\n".join([HEAD, *(_section(path, command) for path, command in every_command(whole))])


def _section(path: tuple[str, ...], command: Command) -> str:
    context = typer.Context(command)
    arguments = (
        [] if isinstance(command, TyperGroup) else command.collect_usage_pieces(context)[1:]
    )  # without [OPTIONS]
    title = " ".join(["towline", *path, *arguments])
    rows = (
        "" if isinstance(command, TyperGroup) else "".join(_row(each, context) for each in command.get_params(context))
    )
    table = f"\n| | |\n|---|---|\n{rows}" if rows else ""
    return f"#{'#' * len(path)} {title}\n\n{_paragraphs(command.help or '')}\n{table}"


def _paragraphs(text: str) -> str:
    return "\n\n".join(textwrap.fill(each, WIDTH, break_long_words=False) for each in text.split("\n\n"))


def _row(parameter: Any, context: typer.Context) -> str:
    """What --help says of an argument or option."""
    record = parameter.get_help_record(context)
    if record is None or set(parameter.opts) & set(_COMMON):
        return ""
    shown, meaning = (" ".join(each.split()).replace("|", r"\|") for each in record)
    return f"| `{shown}` | {meaning} |\n"


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(render(), encoding="utf-8")
