"""`towline topic`: the topics of a node."""

from typing import Annotated, Any

import typer
from rich.console import Console

from towline.client.admin import AdminClient
from towline.errors import UnknownTopic

from .endpoints import Endpoint, LocalStore, endpoint_of
from .output import Json, add_row, show, table

app = typer.Typer(help="List, describe and create topics.", no_args_is_help=True)


@app.command("list")
def list_topics(endpoint: Endpoint = None, store: LocalStore = None, as_json: Json = False) -> None:
    """List the topics of a node."""
    with AdminClient(endpoint_of("serve", endpoint, store), name="towline topic") as admin:
        topics = admin.topics()

    def render(console: Console) -> None:
        made = table("topic", "#write queues", "#read queues", "may")
        for row in topics:
            add_row(made, row["topic"], row["write_queues"], row["read_queues"], _permissions(row["perm"]))
        console.print(made)

    show({"topics": topics}, as_json, render)


@app.command("describe")
def describe(
    topic: Annotated[str, typer.Argument(help="Topic.")],
    endpoint: Endpoint = None,
    store: LocalStore = None,
    as_json: Json = False,
) -> None:
    """Show a topic's queues and how many messages each holds."""
    with AdminClient(endpoint_of("serve", endpoint, store), name="towline topic") as admin:
        facts: dict[str, Any] = next((row for row in admin.topics() if row["topic"] == topic), {})
        if not facts:
            raise UnknownTopic(topic)
        bounds = admin.bounds(topic)
    queues = [
        {"queue_id": queue_id, "min_offset": low, "max_offset": high, "messages": high - low}
        for queue_id, (low, high) in sorted(bounds.items())
    ]

    def render(console: Console) -> None:
        console.print(f"{topic}, may {_permissions(facts['perm'])}", markup=False)
        made = table("#queue", "#min", "#max", "#messages")
        for row in queues:
            add_row(made, *row.values())
        console.print(made)

    total = sum(row["messages"] for row in queues)
    show(facts | {"messages": total, "queues": queues}, as_json, render)


@app.command("create")
def create(
    topic: Annotated[str, typer.Argument(help="Name: letters, digits, %, |, _ and -.")],
    queues: Annotated[int, typer.Option(min=1, help="Queues to write to and read from.")] = 4,
    endpoint: Endpoint = None,
    store: LocalStore = None,
    as_json: Json = False,
) -> None:
    """Create a topic on a master; its slaves follow."""
    with AdminClient(endpoint_of("put", endpoint, store), name="towline topic") as admin:
        facts = admin.create_topic(topic, queues)
    text = f"{topic} has {facts['write_queues']} queues"
    show(facts, as_json, lambda console: console.print(text, markup=False))


def _permissions(perm: int) -> str:
    return " and ".join(name for bit, name in ((4, "read"), (2, "write")) if perm & bit) or "nothing"
