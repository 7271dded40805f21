"""CURVE keys of a node's TCP ports."""

from towline.link.keys import Key, KeyRing

from .context import Node


def key_ring_of(node: Node) -> KeyRing | None:
    """Who may come through the TCP doors; None where anybody may. Raises BadKeys."""
    return KeyRing(node.settings.keys_dir) if node.settings.keys_dir is not None else None


def key_of(node: Node) -> Key | None:
    """What this node shows at another node's door. Raises BadKeys."""
    ring = key_ring_of(node)
    return ring.as_client if ring is not None else None
