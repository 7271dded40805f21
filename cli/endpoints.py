"""Where the node is that a command asks: at an endpoint, in a store directory on this machine, or of a context."""

import json
import os
import time
from contextlib import closing
from pathlib import Path
from typing import Final

import typer

from towline.client.admin import AdminClient
from towline.client.link.connection import own_facts
from towline.client.link.routes import check_one_node, group_routes, is_broker
from towline.client.link.rpc import Caller
from towline.errors import InvalidEndpoint, LinkRefused, NoAnswer, NodeNotRunning
from towline.link.keys import ENVIRONMENT
from towline.places import Store

from .contexts import chosen_context

REACH_MS: Final = 1_500  # a person waits no longer to hear that nobody is there
AFTERWARDS_MS: Final = 200  # for each further group of nodes
_ROLES: Final = {"put": "producer", "serve": "consumer", "schedule": "producer"}


def endpoint_of(service: str, endpoint: str | None, store: Path | None) -> str:
    """`put`, `serve` or `schedule` of the node that was named, which answers.

    Where none was named it is that of the context. Raises InvalidEndpoint, NodeNotRunning, NoAnswer, UnknownContext;
    BadParameter for both, or none without a context.
    """
    endpoint, store = named_node(endpoint, store)
    found = service_of(service, store) if store is not None else endpoint
    assert found is not None
    _check_reach(service, found)
    return found


def named_node(endpoint: str | None, store: Path | None) -> tuple[str | None, Path | None]:
    """The endpoint, or the store on this machine, by which the node was named; where neither was, the context's.

    Raises UnknownContext; BadParameter for both, or none without a context.
    """
    if endpoint is None and store is None:
        endpoint, store = _of_context()
    if (endpoint is None) == (store is None):
        context = "`towline context add NAME --endpoint ENDPOINT`"
        raise typer.BadParameter(f"give either --endpoint or --store, or keep one by {context}")
    return endpoint, store


def ask_node(endpoint: str) -> AdminClient:
    """A client of the serve of the one node there, which answers. Raises what `endpoint_of` raises."""
    check_one_node(endpoint)
    return AdminClient(endpoint_of("serve", endpoint, None), name="towline")


def _of_context() -> tuple[str | None, Path | None]:
    """The node of the chosen context; its key file is used unless the environment names one."""
    context = chosen_context()
    if context is None:
        return None, None
    if context.keys:
        os.environ.setdefault(ENVIRONMENT, context.keys)
    return context.endpoint or None, Path(context.store) if context.store else None


def _check_reach(service: str, endpoint: str) -> None:
    """Waits for a node of any group to say something, if only a refusal: clients wait much longer, for what may come
    back. Raises NoAnswer, and what an endpoint is refused for."""
    trouble: NoAnswer | None = None
    deadline = time.monotonic() + REACH_MS / 1000
    for way in group_routes(endpoint):
        if is_broker(way):
            return
        left_ms = max(AFTERWARDS_MS, round(1000 * (deadline - time.monotonic())))
        with closing(Caller(way.endpoints, own_facts(_ROLES[service], "towline", ""))) as caller:
            try:
                caller.link(left_ms)
                return
            except LinkRefused:
                return
            except NoAnswer as error:
                trouble = trouble or error
    if trouble is not None:
        raise trouble


def service_of(service: str, store: Path) -> str:
    """The socket of that process of the node on a store of this machine. Raises NodeNotRunning, InvalidEndpoint."""
    node = Store(store.resolve()).node
    if not node.exists():
        raise NodeNotRunning(str(store))
    facts = json.loads(node.read_text(encoding="utf-8"))
    listening = facts["endpoints"].get(service)
    if not listening:
        raise InvalidEndpoint(str(store), f"a {facts['role']} has no {service} process; name the master's store")
    return str(listening[0])
