"""The endpoints of a client: those of one node or of several, which of them fits, and a node's other services."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import PurePosixPath
from typing import Any, Final, TypeAlias

from towline.client.errors import NoNeighbour
from towline.client.rocketmq.endpoint import PREFIX, RocketmqEndpoint
from towline.errors import InvalidEndpoint
from towline.link.endpoints import ROCKETMQ, TLS, ipc_endpoint, parse
from towline.link.tls import check

Endpoints: TypeAlias = str | Sequence[str]
Fit: TypeAlias = Callable[[Mapping[str, Any]], str]

MASTER: Final = "master"


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


def named_masters(facts: Mapping[str, Any], service: str) -> tuple[str, ...]:
    """The master's endpoints of `service` that a node names. Invalid endpoints are skipped."""
    named = facts.get("master")
    texts = named.get(service, []) if isinstance(named, dict) else []
    found = []
    for text in texts if isinstance(texts, list) else []:
        try:
            found.append(str(parse(str(text))))
        except InvalidEndpoint:
            continue
    return tuple(found)


def ports_like(endpoint: str, facts: Mapping[str, Any]) -> tuple[str, ...]:
    """The master's remoting ports that a node names, as who came by another one connects to them."""
    came = parse(endpoint)
    found = map(parse, named_masters(facts, "remoting"))
    return tuple(str(replace(each, scheme=came.scheme, options=came.options)) for each in found)


def neighbour(endpoint: str, service: str, welcome: Mapping[str, Any]) -> str:
    """The endpoint of `service` of the node whose put is at `endpoint`: the socket beside it, or a port of its welcome.

    Raises NoNeighbour when it has no TCP port, InvalidEndpoint.
    """
    known = parse(endpoint)
    if known.scheme == ROCKETMQ:
        return endpoint  # a broker is all of them
    if known.scheme == "ipc":
        return ipc_endpoint(str(PurePosixPath(known.path).parent), service)
    port = int(welcome.get(f"{service}_port", 0))
    if not port:
        raise NoNeighbour(endpoint, service)
    return str(replace(known, port=port))
