"""The `towline` command: what there is, each with the module that has it and what an overview says of it."""

import sys
from collections.abc import Sequence
from functools import partial
from typing import Annotated, Any, Final

import typer

from towline.errors import PositionsUnusable, TowlineError

from .lazy import Command, Group, Pending, command_of, group, load_module

# name -> module and what it has there, summary; in the order in which they are shown
COMMANDS: Final = {
    "demo": (
        "demo:demo",
        "Start a master and a slave, send 336,776 flights, read all of them back from the slave, and compare.",
    ),
    "dev": (
        "dev:dev",
        "Run a throw-away node until Ctrl-C: small files, in a directory of its own that goes with it.",
    ),
    "doctor": ("doctor:doctor", "Look at limits, memory, disk, clock and ports of this machine."),
    "debug": ("debug:app", "Collect what a bug report needs."),
    "master": ("nodes:master", "Start, stop and inspect a master."),
    "slave": ("nodes:slave", "Start, stop and inspect a slave."),
    "cluster": ("cluster:app", "Start, inspect and change a cluster that a file describes."),
    "promote": ("nodes:promote", "Make the running node on a store directory the master."),
    "context": ("context:app", "Name nodes once, for all commands that ask a node."),
    "config": ("config:app", "Show and change the settings of a running node."),
    "put": ("put:put", "Send one message, or every line of a file, and wait for the acknowledgements."),
    "cancel": ("put:cancel", "Take back a message that waits for its time, at least 50 ms before that."),
    "get": ("get:get", "Read messages of one queue or of all queues of a topic."),
    "query": ("query:query", "Look messages up."),
    "topic": ("topic:app", "List, describe, create, change and delete topics."),
    "group": ("group:app", "List, describe, configure and delete consumer groups, set their offsets."),
    "transaction": ("transaction:app", "Show open transactions, commit them or roll them back."),
    "keys": ("keys:app", "Make, list, change and revoke the keys of a cluster's ports."),
    "stats": ("stats:stats", "Show how much a node takes and serves, how long puts take, and why puts were refused."),
    "top": ("top:top", "Watch nodes: what they take and serve, who is behind, what they cost, what is wrong."),
    "web": (
        "web:web",
        "Serve a live page of a cluster until Ctrl-C: nodes, topics, groups, messages, segments, refusals, reports.",
    ),
    "inspect": ("inspect:app", "Show what the files of a store hold."),
    "bench": ("bench:app", "Measure Towline on this machine."),
    "drill": ("drill:app", "Break a cluster on purpose, and prove that nothing is lost."),
    "simulate": (
        "simulate:simulate",
        "Run groups of simulated nodes through faults, one history a seed, and look for a broken promise.",
    ),
    "loadtest": ("loadtest:loadtest", "Put a running node or cluster under the load of Locust's users."),
    "pipeline": ("pipeline:app", "Jobs on Spark over a store: run `towline pipeline NAME --help` for one."),
    "settings": ("settings:app", "Show the settings of a node."),
    "store": ("store:app", "Look after the files of a store."),
    "kafka": ("kafka:app", "Move topics between Kafka's log directories and a store, without a broker."),
    "version": (
        "version:version",
        "Print the version of Towline, of its wire protocol, and of the Python that runs it.",
    ),
}


def _load(name: str) -> Command:
    module, _, what = COMMANDS[name][0].partition(":")
    return command_of(name, getattr(load_module(f"towline.cli.{module}", "cli"), what))


class Commands(Group):
    pending = tuple(Pending(name, summary, partial(_load, name)) for name, (_, summary) in COMMANDS.items())


app = group(
    "A message store in RocketMQ's file format, with a master and slaves, for Python and Spark people.", Commands
)


def _show_version(wanted: bool) -> None:
    if wanted:
        sys.stdout.write(load_module("towline.cli.versions", "cli").sentence() + "\n")
        raise typer.Exit


@app.callback()
def towline(
    _: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    pass


def run(arguments: Sequence[str]) -> int:
    """The exit status: 0, 1 for a refusal or failure, 2 for a command that was called wrongly, 130 after Ctrl-C."""
    try:
        status = app(list(arguments), prog_name="towline", standalone_mode=False)
    except (typer.TyperException, TowlineError, OSError) as error:
        return _refused(error, arguments)
    return status if isinstance(status, int) else 0


def _refused(error: Exception, arguments: Sequence[str]) -> int:
    as_json = "--json" in arguments
    where: Any = getattr(error, "ctx", None)
    if isinstance(error, typer.TyperException) and where and error.format_message() == where.get_help():
        sys.stdout.write(where.get_help() + "\n")  # nothing was asked for
        return 0
    output = load_module("towline.cli.output", "cli")
    if isinstance(error, typer.TyperException):
        asked = f"{where.command_path} --help" if where else "towline --help"
        said = " ".join(error.format_message().split()).rstrip(".")  # typer lists choices in lines of their own
        if "`" in said:
            said = load_module("towline.cli.remedies", "cli").completed(said, arguments)
        output.show_error(type(error).__name__, said, f"see `{asked}`", as_json)
        return int(output.MISUSED)
    if isinstance(error, TowlineError):
        in_memory = isinstance(error, PositionsUnusable)  # its file belongs to the store all the same
        place = "" if in_memory else str(getattr(error, "path", ""))
        completed = load_module("towline.cli.remedies", "cli").completed
        said, remedy = (completed(text, arguments, place) for text in (error.describe(), output.remedy_of(error)))
        output.show_error(type(error).__name__, said, remedy, as_json)
    else:
        output.show_error(type(error).__name__, str(error), "look at the path and its permissions", as_json)
    return int(output.FAILED)


def main() -> None:
    sys.exit(run(sys.argv[1:]))
