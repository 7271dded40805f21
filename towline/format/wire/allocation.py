"""Allocation of a topic's queues to group members (RocketMQ's AllocateMessageQueueAveragely and ...ByCircle).

Every member works it out for itself from the same sorted lists, so they agree without talking to each other.
"""

from collections.abc import Sequence
from typing import Final, TypeVar

AVERAGE: Final = "average"
CIRCLE: Final = "circle"
STRATEGIES: Final = (AVERAGE, CIRCLE)

Queue = TypeVar("Queue")


def allocate(strategy: str, queues: Sequence[Queue], members: Sequence[str], member: str) -> list[Queue]:
    """The queues of `member`; none for a stranger. `queues` and `members` are sorted. Raises ValueError.

    average: neighbours, the first members get one more where they do not divide. circle: dealt one by one.
    """
    if strategy not in STRATEGIES:
        raise ValueError(f"{strategy!r} is none of {', '.join(STRATEGIES)}")
    if member not in members:
        return []
    place = members.index(member)
    if strategy == CIRCLE:
        return list(queues[place :: len(members)])
    share, more = divmod(len(queues), len(members))
    start = place * share + min(place, more)
    return list(queues[start : start + share + (place < more)])
