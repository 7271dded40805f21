"""The visible end of the log: what cannot be taken back (H15). Reput, reads and offsets stop there on every node."""

from collections.abc import Callable

from towline.runtime.positions import Position
from towline.runtime.settings_model import BrokerRole, FlushDiskType

from .context import Node
from .pool_state import has_pool


def written_of(node: Node) -> Position:
    """Up to where the segment files hold the log: no reader of them may pass it."""
    return Position.COMMITTED if has_pool(node) else Position.APPENDED


def confirmed_of(node: Node) -> Callable[[], int]:
    """A function that reads the confirmed end from the positions, chosen once by role, flush mode and transient pool.

    Master: the least of written, flushed under SYNC_FLUSH, replicated under SYNC_MASTER. Slave: the least of what the
    master says is confirmed, its own appended, and its own flushed under SYNC_FLUSH.
    """
    settings, positions = node.settings, node.positions
    parts = [written_of(node)]
    if settings.flush_disk_type is FlushDiskType.SYNC_FLUSH:
        parts.append(Position.FLUSHED)
    if settings.broker_role is BrokerRole.SYNC_MASTER:
        parts.append(Position.REPLICATED)
    if settings.broker_role is BrokerRole.SLAVE:
        parts.append(Position.CONFIRMED)

    def confirmed() -> int:
        return min(positions.get(part) for part in parts)

    return confirmed
