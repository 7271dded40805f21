"""The confirmed end of the log, which no failover takes back (H15). Reput, reads and offsets stop there."""

from collections.abc import Callable

from towline.node.process.context import Node
from towline.runtime.positions import Position, Positions
from towline.runtime.settings import Settings
from towline.runtime.settings_model import BrokerRole, FlushDiskType

from .pool_state import has_pool


def written_of(node: Node) -> Position:
    """Up to where the segment files hold the log: no reader of them may pass it."""
    return _written(node.positions)


def confirmed_parts(settings: Settings, positions: Positions) -> list[Position]:
    """Positions of which the least is the confirmed end, by role, flush mode and transient pool.

    Master: written, flushed under SYNC_FLUSH, replicated under SYNC_MASTER. Slave: what the master says is confirmed,
    its own appended, and its own flushed under SYNC_FLUSH.
    """
    parts = [_written(positions)]
    if settings.flush_disk_type is FlushDiskType.SYNC_FLUSH:
        parts.append(Position.FLUSHED)
    if settings.broker_role is BrokerRole.SYNC_MASTER:
        parts.append(Position.REPLICATED)
    if settings.broker_role is BrokerRole.SLAVE:
        parts.append(Position.CONFIRMED)
    return parts


def confirmed_of(node: Node) -> Callable[[], int]:
    """A function that reads the confirmed end from the positions, chosen once."""
    positions, parts = node.positions, confirmed_parts(node.settings, node.positions)

    def confirmed() -> int:
        return min(positions.get(part) for part in parts)

    return confirmed


def may_confirm(settings: Settings, positions: Positions) -> int:
    """Up to where the node has confirmed its log, or may yet though nobody follows it any more: a promotion has to hold
    that. An ASYNC_MASTER shows readers all that it has once its own disk has it, after it has promised too."""
    if settings.broker_role is BrokerRole.ASYNC_MASTER:
        return positions.get(Position.APPENDED)
    return min(positions.get(part) for part in confirmed_parts(settings, positions))


def _written(positions: Positions) -> Position:
    return Position.COMMITTED if has_pool(positions) else Position.APPENDED
