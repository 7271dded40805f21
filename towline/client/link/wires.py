"""The link to an endpoint: to a node, or to a broker of RocketMQ."""

from collections.abc import Mapping
from typing import Any

from towline.client.rocketmq.endpoint import PREFIX
from towline.client.rocketmq.link import BrokerLink
from towline.link import dealer
from towline.link.context import Context
from towline.link.keys import Key
from towline.link.wire import Link


def link_to(context: Context, endpoint: str, facts: Mapping[str, Any], key: Key | None) -> Link:
    """Begins to connect; a `key` is for nodes. Raises InvalidEndpoint."""
    if endpoint.startswith(PREFIX):
        return BrokerLink(endpoint, facts)
    return dealer.Link(context, endpoint, facts, key=key)
