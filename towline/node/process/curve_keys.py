"""The keys of a node's TCP ports."""

from towline.link.keys import AuthorizedKeys, Key

from .context import Node


def key_ring_of(node: Node) -> AuthorizedKeys | None:
    """The keys of peers that may connect over TCP; None where every peer may. Raises BadKeys."""
    return AuthorizedKeys(node.settings.keys_dir) if node.settings.keys_dir is not None else None


def key_of(node: Node) -> Key | None:
    """The key with which this node connects to another one. Raises BadKeys."""
    keys = key_ring_of(node)
    return keys.as_client if keys is not None else None
