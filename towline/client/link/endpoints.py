"""The endpoints of a client: those of one node or of several, which of them fits, and a node's other services."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import PurePosixPath
from typing import Any, Final, TypeAlias

from towline.client.rocketmq.endpoint import PREFIX, RocketmqEndpoint
from towline.errors import InvalidEndpoint
from towline.link.endpoints import TLS, ipc_endpoint, parse
from towline.link.tls import check

Endpoints: TypeAlias = str | Sequence[str]
Fit: TypeAlias = Callable[[Mapping[str, Any]], str]

MASTER: Final = "master"
REMOTING: Final = "remoting"  # the service of clients


def several(given: Endpoints) -> tuple[str, ...]:
    """The endpoints of a text with commas, or of a sequence, each once and in order. Raises InvalidEndpoint."""
    if isinstance(given, str) and given.startswith(PREFIX):
        RocketmqEndpoint.read(given)
        return (given,)
    texts = given.split(",") if isinstance(given, str) else given
    parsed = [parse(text) for text in texts]
    found = tuple(dict.fromkeys(map(str, parsed)))
    if not found:
        raise InvalidEndpoint("", "no endpoint is given")
    for each in parsed:
        check(each)
    return found


def is_tls(endpoint: str) -> bool:
    """Whether what is sent there is hidden, and the other side shows a certificate."""
    return endpoint.startswith(f"{TLS}://")


def anybody(_: Mapping[str, Any]) -> str:
    """A fit that every node passes."""
    return ""


def masters(welcome: Mapping[str, Any]) -> str:
    """A fit for masters: why this node is not the one, "" for a master and for a node that states no role."""
    role = welcome.get("broker_role", MASTER)
    return "" if role == MASTER else f"it is a {role}"


def masters_like(endpoint: str, facts: Mapping[str, Any]) -> tuple[str, ...]:
    """The master's endpoints that a node names, as who came to `endpoint` connects to them. Bad ones are skipped."""
    named = facts.get("master")
    texts = named.get(REMOTING, []) if isinstance(named, dict) else []
    came = parse(endpoint) if endpoint else None
    found = []
    for text in texts if isinstance(texts, list) else []:
        try:
            master = parse(str(text))
        except InvalidEndpoint:
            continue
        if came is not None and came.scheme in ("tcp", TLS):
            master = replace(master, scheme=came.scheme, options=came.options)
        found.append(str(master))
    return tuple(found)


def neighbour(endpoint: str, service: str) -> str:
    """The endpoint of another service of the same node: the socket beside it; over TCP one port has all of them.

    Raises InvalidEndpoint.
    """
    known = parse(endpoint)
    return ipc_endpoint(str(PurePosixPath(known.path).parent), service) if known.scheme == "ipc" else endpoint
