"""`towline store`: what an operator does to the files of a store. The work is in modules of their own."""

from pathlib import Path
from typing import Annotated

import typer

from .output import Json, StoreDir, door

app = typer.Typer(help="Look after the files of a store.", no_args_is_help=True)

Yes = Annotated[bool, typer.Option("--yes", help="Do it; without this only what would be done is told.")]
Config = Annotated[
    Path | None,
    typer.Option(
        "--config",
        help="TOML file of settings, or a real broker.conf, for a store on which no node of ours ever ran.",
        exists=True,
        dir_okay=False,
    ),
]


@app.callback()
def store() -> None:
    """Look after the files of a store."""


@app.command("mend")
def mend(store: StoreDir, yes: Yes = False, as_json: Json = False) -> None:
    """After a failed sync: write everything behind the last durable offset anew, sync it, and take the flag off."""
    door("cli.store_work", "server").mend_store(store, yes, as_json)


@app.command("verify")
def verify(store: StoreDir, config: Config = None, as_json: Json = False) -> int:
    """Read every file and tell what is wrong. Status 0: sound; 1: a start or a repair heals it; 2: damage."""
    return int(door("cli.store_verify", "server").verify_store(store, config, as_json))


@app.command("clean")
def clean(store: StoreDir, as_json: Json = False) -> None:
    """On a running node: delete segments older than file_reserved_time now, whatever the hour."""
    door("cli.store_clean", "server").clean_store(store, as_json)


@app.command("repair")
def repair(
    store: StoreDir,
    yes: Yes = False,
    skip: Annotated[
        list[int] | None,
        typer.Option("--skip", metavar="OFFSET", min=0, help="Step over the damage that begins there; repeatable."),
    ] = None,
    config: Config = None,
    as_json: Json = False,
) -> int:
    """Heal what verify finds. Nothing is deleted: what is replaced or cut off is kept in diverged/."""
    return int(door("cli.store_repair", "server").repair_store(store, config, skip or [], yes, as_json))
