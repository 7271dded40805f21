"""What only the server's own code can say of a store: a module of its own, because it needs the server's libraries."""

from towline.errors import PositionsUnusable
from towline.log.files.store_files import last_settings
from towline.node.process.context import open_node
from towline.node.store.confirmed import confirmed_of
from towline.places import Store
from towline.runtime.positions import Duty, Position, State
from towline.runtime.settings import parse_delay_levels
from towline.runtime.settings_model import DELAY_LEVELS


def bounds(store: Store, holder: int) -> tuple[int, int]:
    """From positions: (minimum, confirmed end) of the node whose supervisor, `holder`, has the store.

    Raises NodeNotRunning, PositionsUnusable for those of another start, or before recovery has ended.
    """
    node = open_node(store.root)
    positions = node.positions
    try:
        supervisor, generation = positions.duty(Duty.SUPERVISE), positions.generation
        found = positions.get(Position.LOG_MIN), confirmed_of(node)()
        if supervisor.pid != holder or supervisor.state is not State.RUNNING or positions.generation != generation:
            raise PositionsUnusable(str(positions.path), f"are not those of process {holder}, which holds the store")
        return found
    finally:
        positions.close()


def delays_ms(store: Store) -> tuple[int, ...]:
    """By level - 1, as the node's last start knew them; RocketMQ's own of a store on which none was started."""
    return parse_delay_levels(last_settings(store).get("message_delay_level", DELAY_LEVELS))
