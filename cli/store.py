"""`towline store`: what an operator does to a store on which no node runs. The work is in `store_work`."""

from typing import Annotated

import typer

from .output import Json, StoreDir, door

app = typer.Typer(help="Look after a store on which no node runs.", no_args_is_help=True)


@app.callback()
def store() -> None:
    """Look after a store on which no node runs."""


@app.command("mend")
def mend(
    store: StoreDir,
    yes: Annotated[bool, typer.Option("--yes", help="Do it; without this only what would be done is told.")] = False,
    as_json: Json = False,
) -> None:
    """After a failed sync: write everything behind the last durable offset anew, sync it, and take the flag off."""
    door("cli.store_work", "server").mend_store(store, yes, as_json)
