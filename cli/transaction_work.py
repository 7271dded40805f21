"""Does the work of `towline transaction`."""

from pathlib import Path

from rich.console import Console

from towline.client.admin import AdminClient
from towline.client.transaction import Transaction, TransactionProducer
from towline.format.wire.status import PutStatus

from .endpoints import endpoint_of
from .output import add_row, show, table

SERVICE = "schedule"


def status(endpoint: str | None, store: Path | None, as_json: bool) -> None:
    with _admin(endpoint, store) as admin:
        facts = admin.transaction_status()

    def render(console: Console) -> None:
        counts = ", ".join(f"{facts[name]:,} {name.replace('_', ' ')}" for name in ("checked", "put_aside", "lost"))
        console.print(f"{facts['open']:,} open; {counts}; {facts['watching']} producers wait for checks")

    show(facts, as_json, render)


def list_open(group: str, endpoint: str | None, store: Path | None, as_json: bool) -> None:
    with _admin(endpoint, store) as admin:
        found = admin.open_transactions(group)

    def render(console: Console) -> None:
        made = table("transaction", "topic", "#queue", "#checks", "stored")
        for row in found:
            add_row(made, row["transaction"], row["topic"], row["queue"], row["checks"], row["stored_ms"])
        console.print(made)

    show({"transactions": found}, as_json, render)


def commit(transaction: str, endpoint: str | None, store: Path | None, as_json: bool) -> None:
    named = Transaction.read(transaction)
    with _producer(named, endpoint, store) as producer:
        _show_end(named, producer.commit(named), "committed", as_json)


def rollback(transaction: str, endpoint: str | None, store: Path | None, as_json: bool) -> None:
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
