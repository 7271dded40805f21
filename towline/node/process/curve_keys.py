"""The key ring of a node's doors."""

from towline.link.keys import AuthorizedKeys, Key

from .context import Node


def ring_of(node: Node) -> AuthorizedKeys | None:
    """Who may come through the TCP doors; None where anybody may. Raises BadKeys."""
    return AuthorizedKeys(node.settings.keys_dir) if node.settings.keys_dir is not None else None


def key_of(node: Node) -> Key | None:
    """What this node shows at another node's door. Raises BadKeys."""
    ring = ring_of(node)
    return ring.as_client if ring is not None else None
