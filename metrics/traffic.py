"""Messages and bytes by topic, summed from a table of statistics that has a row for each queue."""

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import numpy as np
import numpy.typing as npt

from towline.errors import PositionsUnusable
from towline.runtime.store_stats import StoreStats

Numbers = tuple[int, int]  # messages, bytes of their records


class Traffic:
    """One table: what came in, or what went out. Names are read once, since a place keeps its queue."""

    def __init__(self, path: Path, generation: int) -> None:
        self._path, self._generation = path, generation
        self._stats: StoreStats | None = None
        self._topics: dict[str, int] = {}
        self._topic_of: list[int] = []  # by the place of a queue

    @property
    def stats(self) -> StoreStats | None:
        """None until its process has begun in this generation of the node."""
        if self._stats is None:
            with suppress(PositionsUnusable):
                found = StoreStats.open(self._path)
                if found.generation == self._generation:
                    self._stats = found
                else:
                    found.close()
        return self._stats

    def by_topic(self) -> Iterator[tuple[str, Numbers]]:
        """Topics in the order of their first message, so that those with series of their own keep them."""
        if self.stats is None:
            return
        table = self.stats.table()
        for row in self.stats.rows(len(self._topic_of)):
            if len(self._topic_of) == len(table):
                break  # it came after the table was read
            name = row.topic.decode("utf-8", "replace")
            self._topic_of.append(self._topics.setdefault(name, len(self._topics)))
        sums: npt.NDArray[np.int64] = np.zeros((len(self._topics), 2), np.int64)
        np.add.at(sums, np.array(self._topic_of, np.intp), table[:, :2])
        for name, (messages, size) in zip(self._topics, sums.tolist(), strict=True):
            yield name, (messages, size)

    def close(self) -> None:
        if self._stats is not None:
            self._stats.close()
