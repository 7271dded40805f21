"""Options by which client commands name their node: an endpoint, or a store directory on this machine."""

import json
from pathlib import Path
from typing import Annotated

import typer

from towline.errors import InvalidEndpoint, NodeNotRunning
from towline.places import Store

Endpoint = Annotated[
    str | None,
    typer.Option(
        "--endpoint",
        help="Address of the node: its listen_port, as tcp://HOST:PORT or tls://HOST:PORT?ca=FILE; or of the process "
        "that answers (put_port for puts, serve_port for reads, schedule_port for transactions), also as ipc:///PATH; "
        "those of several nodes with commas; for put, get and group also cluster:PATH of a cluster file.",
    ),
]
LocalStore = Annotated[
    Path | None, typer.Option("--store", file_okay=False, help="Store directory of a node that runs on this machine.")
]


def endpoint_of(service: str, endpoint: str | None, store: Path | None) -> str:
    """`put`, `serve` or `schedule` of the node that was named.

    Raises InvalidEndpoint, NodeNotRunning; BadParameter for none or both.
    """
    if (endpoint is None) == (store is None):
        raise typer.BadParameter("name the node by --endpoint or by --store, one of them")
    if endpoint is not None:
        return endpoint
    assert store is not None
    node = Store(store.resolve()).node
    if not node.exists():
        raise NodeNotRunning(str(store))
    facts = json.loads(node.read_text(encoding="utf-8"))
    listening = facts["endpoints"].get(service)
    if not listening:
        raise InvalidEndpoint(str(store), f"a {facts['role']} has no {service} process; name the master's store")
    return str(listening[0])
