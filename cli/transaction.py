"""`towline transaction`: the transactions that are open on a node, and their end by hand."""

from typing import Annotated

import typer

from .lazy import group, load_module
from .options import Endpoint, Json, LocalStore

app = group("Show open transactions, commit them or roll them back.")
Named = Annotated[str, typer.Argument(help="The transaction, as `list` and str() of a Transaction name it.")]


@app.command("status")
def status(endpoint: Endpoint = None, store: LocalStore = None, as_json: Json = False) -> None:
    """Show how many transactions are open; checked, put aside and lost since the schedule process started."""
    load_module("towline.cli.transaction_work", "cli").status(endpoint, store, as_json)


@app.command("list")
def list_open(
    group: Annotated[str, typer.Option(help="Of this producer group alone.")] = "",
    endpoint: Endpoint = None,
    store: LocalStore = None,
    as_json: Json = False,
) -> None:
    """List open transactions, those first that were stored or checked longest ago."""
    load_module("towline.cli.transaction_work", "cli").list_open(group, endpoint, store, as_json)


@app.command("commit")
def commit(transaction: Named, endpoint: Endpoint = None, store: LocalStore = None, as_json: Json = False) -> None:
    """Commit a transaction: readers see its message from now on."""
    load_module("towline.cli.transaction_work", "cli").commit(transaction, endpoint, store, as_json)


@app.command("rollback")
def rollback(transaction: Named, endpoint: Endpoint = None, store: LocalStore = None, as_json: Json = False) -> None:
    """Roll a transaction back: nobody will see its message."""
    load_module("towline.cli.transaction_work", "cli").rollback(transaction, endpoint, store, as_json)
