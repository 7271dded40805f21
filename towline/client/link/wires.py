"""The link to an endpoint: to a node, over its remoting port or a local socket, or to a broker of RocketMQ."""

from collections.abc import Mapping
from importlib import import_module
from typing import Any, Final

from towline.client.rocketmq.endpoint import PREFIX
from towline.link import dealer
from towline.link.context import Context
from towline.link.endpoints import TLS, parse
from towline.link.keys import Key
from towline.link.tcp_link import TcpLink
from towline.link.wire import Link

_BROKERS: Final = "towline.client.rocketmq.link"  # loaded when there are some


def link_to(context: Context, endpoint: str, facts: Mapping[str, Any], key: Key | None) -> Link:
    """Begins to connect; a `key` is for nodes over TCP. Raises InvalidEndpoint."""
    if endpoint.startswith(PREFIX):
        broker: Link = import_module(_BROKERS).BrokerLink(endpoint, facts)
        return broker
    if parse(endpoint).scheme in ("tcp", TLS):
        return TcpLink(endpoint, facts, key=key)
    return dealer.Link(context, endpoint, facts)
