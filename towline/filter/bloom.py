"""The bitmap of a record: which SQL92 subscriptions it may match (spec 7.3, RocketMQ's BloomFilter)."""

import math
from collections.abc import Iterable
from typing import Final

import mmh3
import numpy as np
from numpy.typing import NDArray

from towline.format.java_hash import signed_32

BYTE: Final = 8
Rows = NDArray[np.uint8]


class Bloom:
    """A Bloom filter of `m` bits, `k` of them for each subscription; bit p is byte p // 8, mask 1 << p % 8.

    `n` subscriptions are expected (`expect_consumer_num_use_filter`), `error` percent of wrong answers are accepted
    (`max_error_rate_of_bloom_filter`).
    """

    def __init__(self, n: int = 32, error: int = 20) -> None:
        assert n >= 1
        assert 1 <= error < 100
        rate = error / 100
        self.k = math.ceil(math.log(rate) / math.log(0.5))
        bits = math.ceil(n * (math.log(1 / rate) / math.log(2)) * (math.log(math.e) / math.log(2)))
        self.size = -(-bits // BYTE)  # bytes of a bitmap
        self.m = self.size * BYTE

    def positions(self, group: str, topic: str) -> tuple[int, ...]:
        """The k bits of the subscription of `group` to `topic`; two of them may be the same."""
        hashed = hash64(f"{group}#{topic}")
        low, high = signed_32(hashed), signed_32(hashed >> 32)
        found = []
        for i in range(1, self.k + 1):
            combined = signed_32(low + i * high)
            found.append((~combined if combined < 0 else combined) % self.m)
        return tuple(found)

    def rows(self, count: int) -> Rows:
        """`count` empty bitmaps, one in each row."""
        return np.zeros((count, self.size), np.uint8)


def hash64(text: str) -> int:
    """The first 64 bits, signed, of the text's murmur3_x64_128 with seed 0."""
    first, _ = mmh3.hash64(text.encode("utf-8", "replace"), seed=0, x64arch=True, signed=True)
    return first


def mark(rows: Rows, hits: NDArray[np.bool_], positions: Iterable[int]) -> None:
    """Sets the bits at `positions` in the rows where `hits` is true."""
    for position in positions:
        rows[:, position // BYTE] |= hits.view(np.uint8) << (position % BYTE)
