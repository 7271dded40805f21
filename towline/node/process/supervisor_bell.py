"""The doorbell of a node's supervisor, for whoever has left it something to do in a file."""

import os

from towline.errors import PositionsUnusable
from towline.places import Store
from towline.runtime.doorbell import Ringer
from towline.runtime.positions import Duty, Positions

from .context import runtime_in_use


def ring_supervisor(store: Store) -> None:
    runtime = runtime_in_use(store.root)
    try:
        positions = Positions.open(runtime.positions, writable=False)
    except PositionsUnusable:  # it is just starting, or stopping: it looks for such files then
        return
    bell = runtime.bell(Duty.SUPERVISE.label)
    if bell.exists() and os.access(bell, os.W_OK):
        ringer = Ringer(positions, {Duty.SUPERVISE: bell})
        ringer.ring()
        ringer.close()
    positions.close()
