"""The `towline` command. Each command stands in its own module; those that need more than a client load it late."""

import sys
from collections.abc import Sequence
from typing import Annotated

import typer

from towline.errors import TowlineError

from . import (
    bench,
    cluster,
    config,
    context,
    demo,
    dev,
    doctor,
    drill,
    get,
    group,
    inspect,
    keys,
    loadtest,
    nodes,
    pipeline,
    put,
    query,
    settings,
    stats,
    store,
    topic,
    transaction,
    version,
)
from .output import FAILED, MISUSED, show_error, show_towline_error

app = typer.Typer(
    name="towline",
    help="A message store in RocketMQ's file format, with a master and slaves, for Python and Spark people.",
    no_args_is_help=True,
    rich_markup_mode=None,
)


def _show_version(wanted: bool) -> None:
    if wanted:
        version.version()
        raise typer.Exit


@app.callback()
def towline(
    _: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    pass


app.command("demo")(demo.demo)
app.command("dev")(dev.dev)
app.command("doctor")(doctor.doctor)
app.add_typer(nodes.master, name="master")
app.add_typer(nodes.slave, name="slave")
app.add_typer(cluster.app, name="cluster")
app.command("promote")(nodes.promote)
app.add_typer(context.app, name="context")
app.add_typer(config.app, name="config")
app.command("put")(put.put)
app.command("cancel")(put.cancel)
app.command("get")(get.get)
app.command("query")(query.query)
app.add_typer(topic.app, name="topic")
app.add_typer(group.app, name="group")
app.add_typer(transaction.app, name="transaction")
app.add_typer(keys.app, name="keys")
app.command("stats")(stats.stats)
app.add_typer(inspect.app, name="inspect")
app.add_typer(bench.app, name="bench")
app.add_typer(drill.app, name="drill")
app.command("loadtest")(loadtest.loadtest)
app.add_typer(pipeline.app, name="pipeline")
app.add_typer(settings.app, name="settings")
app.add_typer(store.app, name="store")
app.command("version")(version.version)


def run(arguments: Sequence[str]) -> int:
    """The exit status: 0, 1 for a refusal or failure, 2 for a command that was called wrongly, 130 after Ctrl-C."""
    as_json = "--json" in arguments
    try:
        status = app(list(arguments), prog_name="towline", standalone_mode=False)
    except typer.TyperException as error:
        where = getattr(error, "ctx", None)
        if where and error.format_message() == where.get_help():  # nothing was asked for
            sys.stdout.write(where.get_help() + "\n")
            return 0
        asked = f"{where.command_path} --help" if where else "towline --help"
        said = " ".join(error.format_message().split()).rstrip(".")  # typer lists choices in lines of their own
        show_error(type(error).__name__, said, f"see `{asked}`", as_json)
        return MISUSED
    except TowlineError as error:
        show_towline_error(error, as_json)
        return FAILED
    except OSError as error:
        show_error(type(error).__name__, str(error), "look at the path and its permissions", as_json)
        return FAILED
    return status if isinstance(status, int) else 0


def main() -> None:
    sys.exit(run(sys.argv[1:]))
