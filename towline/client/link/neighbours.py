"""The other services of a node, found from the one a client was told of."""

from collections.abc import Mapping
from pathlib import PurePosixPath
from typing import Any

from towline.client.errors import NoNeighbour
from towline.link.endpoints import ipc_endpoint, parse, tcp_endpoint


def neighbour(endpoint: str, service: str, welcome: Mapping[str, Any]) -> str:
    """Where the node behind `endpoint` (of put) serves `service`: the socket beside it, or the port its welcome names.

    Raises NoNeighbour when it has no TCP port, InvalidEndpoint.
    """
    known = parse(endpoint)
    if known.scheme == "ipc":
        return ipc_endpoint(str(PurePosixPath(known.path).parent), service)
    port = int(welcome.get(f"{service}_port", 0))
    if not port:
        raise NoNeighbour(endpoint, service)
    return tcp_endpoint(known.host, port)
