"""Filter bitmaps, read a bit at a time."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from towline.filter.bloom import BYTE, Rows


def may_match(rows: Rows, positions: Sequence[int]) -> NDArray[np.bool_]:
    """For each row whether all bits at `positions` are set; where one is not, the subscription does not match."""
    found = np.ones(len(rows), np.bool_)
    for position in positions:
        found &= (rows[:, position // BYTE] >> (position % BYTE) & 1).view(np.bool_)
    return found
