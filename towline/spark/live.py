"""What a running node says of its log and queues, read from its positions: nothing is asked, nothing opened anew.

A module of its own, because positions and settings need the server's libraries.
"""

from collections.abc import Callable
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from towline.errors import NodeNotRunning, PositionsUnusable
from towline.log.files.store_files import last_settings
from towline.node.process.context import open_node
from towline.node.store.confirmed import confirmed_of
from towline.places import Store
from towline.runtime.positions import Duty, Position, State
from towline.runtime.settings import parse_delay_levels
from towline.runtime.settings_model import DELAY_LEVELS


class LiveNode:
    """A node whose recovery has ended. `wants` chooses queues by topic and queue id."""

    def __init__(self, root: Path, wants: Callable[[str, int], bool]) -> None:
        """Raises NodeNotRunning, PositionsUnusable."""
        node = open_node(root)
        self._positions = node.positions
        self._supervisor = self._positions.duty(Duty.SUPERVISE)
        self._generation = self._positions.generation
        self._wants = wants
        self._keys: list[tuple[str, int]] = []
        self._places: NDArray[np.int64] = np.empty(0, dtype=np.int64)
        self._seen = 0
        try:
            self._ends = node.queue_ends()
        except PositionsUnusable:
            self._positions.close()
            raise
        if not self.is_current:
            self.close()
            raise NodeNotRunning(str(root))

    @property
    def is_current(self) -> bool:
        """False once another start of the node has begun, or this one is ending."""
        return self._positions.generation == self._generation != 0 and self._supervisor.state is State.RUNNING

    def bounds(self) -> tuple[int, int]:
        """(minimum, where reput has come): the end of a record, and never past what is confirmed."""
        return self._positions.get(Position.LOG_MIN), self._positions.get(Position.DISPATCHED)

    @property
    def is_settled(self) -> bool:
        """Whether reput has come to the log's end, as it has not for a while after a start."""
        return self._positions.get(Position.DISPATCHED) >= self._positions.get(Position.APPENDED)

    def queues(self) -> dict[tuple[str, int], tuple[int, int]]:
        """(min, max) of every queue that is wanted."""
        low, high, _ = self._ends.columns()
        for place in range(self._seen, len(high)):
            end = self._ends.read(place)
            topic = end.topic.decode("utf-8", "replace")
            if self._wants(topic, end.queue_id):
                self._keys.append((topic, end.queue_id))
                self._places = np.append(self._places, place)
        self._seen = len(high)
        pairs = zip(low[self._places].tolist(), high[self._places].tolist(), strict=True)
        return dict(zip(self._keys, pairs, strict=True))

    def close(self) -> None:
        self._ends.close()
        self._positions.close()


def open_live(root: Path, wants: Callable[[str, int], bool]) -> LiveNode | None:
    """None when no node has come far enough."""
    try:
        return LiveNode(root, wants)
    except (NodeNotRunning, PositionsUnusable):
        return None


def bounds(store: Store, holder: int) -> tuple[int, int] | None:
    """(minimum, confirmed end) from the positions of the node whose supervisor, `holder`, has the store.

    None where that process is no node, or one that has not come far enough: its positions are those of another start.
    """
    try:
        node = open_node(store.root)
    except (NodeNotRunning, PositionsUnusable):
        return None
    positions = node.positions
    try:
        supervisor, generation = positions.duty(Duty.SUPERVISE), positions.generation
        found = positions.get(Position.LOG_MIN), confirmed_of(node)()
        runs = supervisor.pid == holder and supervisor.state is State.RUNNING and positions.generation == generation
        return found if runs else None
    finally:
        positions.close()


def delays_ms(store: Store) -> tuple[int, ...]:
    """By level - 1, as the node's last start knew them; RocketMQ's own of a store on which none was started."""
    return parse_delay_levels(last_settings(store).get("message_delay_level", DELAY_LEVELS))
