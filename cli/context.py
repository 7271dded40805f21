"""`towline context`: names for nodes, so that --endpoint or --store need not be typed each time."""

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from towline.client.link.routes import group_routes
from towline.link.keys import read_key

from .contexts import ENVIRONMENT, Context, Contexts
from .output import Json, add_row, show, table

app = typer.Typer(help="Name nodes once, for all commands that ask a node.", no_args_is_help=True)

Name = Annotated[str, typer.Argument(metavar="NAME", help="The context.")]


@app.command("add")
def add(
    name: Name,
    endpoint: Annotated[str | None, typer.Option("--endpoint", help="As commands take it; cluster:PATH too.")] = None,
    store: Annotated[Path | None, typer.Option("--store", file_okay=False, help="Store directory of a node.")] = None,
    keys: Annotated[
        Path | None, typer.Option("--keys", dir_okay=False, help="Key file for nodes that want one (TOWLINE_KEYS).")
    ] = None,
    as_json: Json = False,
) -> None:
    """Make a context, or replace the one of this name, and use it from now on."""
    if (endpoint is None) == (store is None):
        raise typer.BadParameter("name the node by --endpoint or by --store, one of them")
    if endpoint is not None:
        group_routes(endpoint)
    if keys is not None:
        read_key(keys)
    contexts = Contexts.read()
    contexts.named[name] = Context(endpoint or "", str(store.resolve()) if store else "", _absolute(keys))
    contexts.current = name
    contexts.save()
    _show_current(contexts, as_json)


@app.command("use")
def use(name: Name, as_json: Json = False) -> None:
    """Use a context from now on."""
    contexts = Contexts.read()
    contexts.get(name)
    contexts.current = name
    contexts.save()
    _show_current(contexts, as_json)


@app.command("list")
def list_all(as_json: Json = False) -> None:
    """List the contexts, and which one is used."""
    contexts = Contexts.read()
    rows = [
        {"name": name, **asdict(each), "used": name == contexts.chosen} for name, each in sorted(contexts.named.items())
    ]

    def render(console: Console) -> None:
        made = table("", "name", "node", "keys")
        for row in rows:
            add_row(made, "*" if row["used"] else "", row["name"], row["endpoint"] or row["store"], row["keys"])
        console.print(made)

    show({"contexts": rows, "file": str(contexts.path)}, as_json, render)


@app.command("remove")
def remove(name: Name, as_json: Json = False) -> None:
    """Forget a context; where it was used, none is from now on."""
    contexts = Contexts.read()
    contexts.get(name)
    del contexts.named[name]
    if contexts.current == name:
        contexts.current = ""
    contexts.save()
    show({"removed": name}, as_json, lambda console: console.print(f"{name} is forgotten", markup=False))


def _absolute(keys: Path | None) -> str:
    return str(keys.resolve()) if keys is not None else ""


def _show_current(contexts: Contexts, as_json: bool) -> None:
    current = contexts.named[contexts.current]
    where = current.endpoint or current.store
    text = f"commands that name no node ask {where} ({contexts.current}); {ENVIRONMENT} names another context"
    facts = {"current": contexts.current, "endpoint": current.endpoint, "store": current.store, "keys": current.keys}
    show(facts, as_json, lambda console: console.print(text, markup=False, soft_wrap=True))
