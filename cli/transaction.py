"""`towline transaction`: the transactions that are open on a node, and their end by hand."""

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from towline.client.admin import AdminClient
from towline.client.transaction import Transaction, TransactionProducer
from towline.format.wire.status import PutStatus

from .endpoints import Endpoint, LocalStore, endpoint_of
from .output import Json, add_row, show, table

app = typer.Typer(help="Show open transactions, commit them or roll them back.", no_args_is_help=True)
Named = Annotated[str, typer.Argument(help="The transaction, as `list` and str() of a Transaction name it.")]
SERVICE = "schedule"


@app.command("status")
def status(endpoint: Endpoint = None, store: LocalStore = None, as_json: Json = False) -> None:
    """Show how many transactions are open; checked, put aside and lost since the schedule process started."""
    with _admin(endpoint, store) as admin:
        facts = admin.transaction_status()

    def render(console: Console) -> None:
        counts = ", ".join(f"{facts[name]:,} {name.replace('_', ' ')}" for name in ("checked", "put_aside", "lost"))
        console.print(f"{facts['open']:,} open; {counts}; {facts['watching']} producers wait for checks")

    show(facts, as_json, render)


@app.command("list")
def list_open(
    group: Annotated[str, typer.Option(help="Of this producer group alone.")] = "",
    endpoint: Endpoint = None,
    store: LocalStore = None,
    as_json: Json = False,
) -> None:
    """List open transactions, those first that were stored or checked longest ago."""
    with _admin(endpoint, store) as admin:
        found = admin.open_transactions(group)

    def render(console: Console) -> None:
        made = table("transaction", "topic", "#queue", "#checks", "stored")
        for row in found:
            add_row(made, row["transaction"], row["topic"], row["queue"], row["checks"], row["stored_ms"])
        console.print(made)

    show({"transactions": found}, as_json, render)


@app.command("commit")
def commit(transaction: Named, endpoint: Endpoint = None, store: LocalStore = None, as_json: Json = False) -> None:
    """Commit a transaction: readers see its message from now on."""
    named = Transaction.read(transaction)
    with _producer(named, endpoint, store) as producer:
        _show_end(named, producer.commit(named), "committed", as_json)


@app.command("rollback")
def rollback(transaction: Named, endpoint: Endpoint = None, store: LocalStore = None, as_json: Json = False) -> None:
    """Roll a transaction back: nobody will see its message."""
    named = Transaction.read(transaction)
    with _producer(named, endpoint, store) as producer:
        _show_end(named, producer.rollback(named), "rolled back", as_json)


def _show_end(named: Transaction, status: PutStatus, outcome: str, as_json: bool) -> None:
    result = {"transaction": str(named), "outcome": outcome, "status": status.name}
    show(result, as_json, lambda console: console.print(f"{named} is {outcome}: {status.name}", markup=False))


def _admin(endpoint: str | None, store: Path | None) -> AdminClient:
    return AdminClient(endpoint_of(SERVICE, endpoint, store), name="towline transaction")


def _producer(named: Transaction, endpoint: str | None, store: Path | None) -> TransactionProducer:
    """Nothing is put, so the one endpoint is enough."""
    found = endpoint_of(SERVICE, endpoint, store)
    return TransactionProducer(found, named.group, schedule=found)
