"""Whether the log is appended to a transient pool. Apart from what makes one: readers do without its kernels."""

from enum import IntEnum

from towline.runtime.positions import Position, Positions


class PoolState(IntEnum):
    """The value of TRANSIENT_POOL: what this start of the node decided."""

    OFF = 0
    ON = 1
    SLAVE = 2
    NO_SHARED_MEMORY = 3
    TOO_LITTLE_MEMORY = 4
    NOT_LOCKABLE = 5
    NOT_RECORDED = 6


def has_pool(positions: Positions) -> bool:
    return positions.get(Position.TRANSIENT_POOL) == PoolState.ON
