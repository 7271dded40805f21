"""The order in which a HashMap of Java iterates: a broker of RocketMQ writes properties in it."""

from collections.abc import Iterable
from typing import Final

from towline.format.java_hash import unsigned_hash

_LOAD_FACTOR: Final = 0.75  # a HashMap doubles when it holds more than this share of its buckets


def java_hash_map_order(pairs: Iterable[tuple[str, str]], capacity: int) -> list[tuple[str, str]]:
    """The pairs as a Java HashMap created with `capacity` (a power of two) iterates over them.

    RocketMQ 5 writes properties in this order with 128, RocketMQ 4 with 16. Buckets so full that Java turns them into
    trees (8 names in one of at least 64 buckets) are not modelled.
    """
    latest = dict(pairs)
    while len(latest) > _LOAD_FACTOR * capacity:
        capacity *= 2
    return sorted(latest.items(), key=lambda pair: _bucket(pair[0], capacity))


def _bucket(name: str, capacity: int) -> int:
    hashed = unsigned_hash(name)
    return (hashed ^ (hashed >> 16)) & (capacity - 1)
