"""Compares what a benchmark reached with its goals."""

from collections.abc import Collection, Mapping
from typing import Any


def goal_rows(
    goals: Mapping[str, float], at_most: Collection[str], reached: Mapping[str, float]
) -> list[dict[str, Any]]:
    """A row for each of `goals`, which are lower bounds except those `at_most`."""
    return [
        {
            "goal": goal,
            "bound": bound,
            "reached": reached[goal],
            "met": reached[goal] <= bound if goal in at_most else reached[goal] >= bound,
        }
        for goal, bound in goals.items()
    ]
