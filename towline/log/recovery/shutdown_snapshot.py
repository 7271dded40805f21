"""Positions and queues as a node that stopped had published them, for the next start; `resume` checks them."""

from dataclasses import dataclass
from typing import NamedTuple


class KnownQueue(NamedTuple):
    """A queue's bounds, and the end of its newest record in the log; 0 if nothing was ever dispatched to it."""

    topic: str
    queue_id: int
    min_offset: int
    end_offset: int
    physical_end: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """Log offsets as the node that stopped had published them. `clean`: it was stopped in order, all is dispatched.

    `synced`: it was stopped in order and all that it had is on the disk, whatever holds memory; so is what is `clean`.
    `generation`: which start of the node it was. Not `indexing`: INDEXED moved, but no key got into the index.
    """

    generation: int = 0
    appended: int
    dispatched: int
    indexed: int
    indexing: bool = True
    clean: bool
    synced: bool = False
    confirmed: int = 0
    queues: tuple[KnownQueue, ...]
