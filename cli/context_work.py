"""Does the work of `towline context`."""

from dataclasses import asdict
from pathlib import Path

import typer
from rich.console import Console

from towline.client.link.routes import group_routes
from towline.link.keys import read_key

from .contexts import ENVIRONMENT, Context, Contexts
from .output import add_row, show, table


def add(name: str, endpoint: str | None, store: Path | None, keys: Path | None, as_json: bool) -> None:
    if (endpoint is None) == (store is None):
        raise typer.BadParameter("give either --endpoint or --store")
    if endpoint is not None:
        group_routes(endpoint)
    if keys is not None:
        read_key(keys)
    contexts = Contexts.read()
    contexts.named[name] = Context(endpoint or "", str(store.resolve()) if store else "", _absolute(keys))
    contexts.current = name
    contexts.save()
    _show_current(contexts, as_json)


def use(name: str, as_json: bool) -> None:
    contexts = Contexts.read()
    contexts.get(name)
    contexts.current = name
    contexts.save()
    _show_current(contexts, as_json)


def list_all(as_json: bool) -> None:
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


def remove(name: str, as_json: bool) -> None:
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
