"""CalcBitMap: which SQL92 subscriptions each record matches, as bits of its extension unit (spec 7.3)."""

from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt

from towline.errors import MalformedFile
from towline.filter.bloom import Bloom
from towline.filter.subscriptions import FILE, FilterTable, read
from towline.log.commitlog.dispatch import Batch
from towline.log.files.config_file import ConfigFile
from towline.node.process.context import Node
from towline.runtime.positions import Position

_LENGTH: Final = 2  # bytes of the length in front of the properties


class CalcBitMap:
    """Evaluates the subscriptions of config/consumerFilter.json, in the version that the last `refresh` read."""

    name = "bitmaps"

    def __init__(self, node: Node) -> None:
        settings = node.settings
        self._node = node
        self._bloom = Bloom(settings.expect_consumer_num_use_filter, settings.max_error_rate_of_bloom_filter)
        self._path: Path = node.store.config / FILE
        self._file = ConfigFile(self._path)
        self._seen: tuple[int, int, int] | None = None
        self._said = False
        self._table = FilterTable(self._bloom)
        self._confirmed = node.writer(Position.FILTERS)

    def refresh(self) -> None:
        """Reads the file again if it changed, and publishes the fingerprint of the version used from here on.

        It is called before the confirmed end is read: a subscriber that then sees the fingerprint knows that every
        record stored from now on is evaluated for it.
        """
        seen = self._stamp()
        if seen == self._seen and self._said:
            return
        if seen != self._seen:
            try:
                content = self._file.load()
                self._table = read(content or {}, self._bloom, str(self._path))
            except MalformedFile as error:
                self._node.log.error("subscriptions stay as they are: %s", error)
            self._seen = seen
        self._confirmed.replace(self._table.fingerprint)
        self._said = True

    def put(self, batch: Batch) -> None:
        """Computes bitmaps for records of topics with a subscription."""
        batch.bitmaps = batch.filtered = None
        if not len(batch.rows) or not len(self._table):
            return
        _, firsts, of = np.unique(batch.rows["queue_index"], return_index=True, return_inverse=True)
        names, topic_of = np.unique([self._topic(batch, int(row)) for row in firsts], return_inverse=True)
        topics = topic_of[of]
        order = np.argsort(topics, kind="stable")
        bounds = np.searchsorted(topics, np.arange(len(names) + 1), sorter=order).tolist()
        for name, start, end in zip(names.tolist(), bounds, bounds[1:], strict=False):
            rows = order[start:end]
            filters = self._table.of_topic(name)
            found = self._table.bitmaps(name, _properties(batch, rows)) if filters else None
            if found is None:
                continue
            if batch.bitmaps is None or batch.filtered is None:
                batch.bitmaps = self._bloom.rows(len(batch.rows))
                batch.filtered = np.zeros(len(batch.rows), dtype=np.bool_)
            batch.filtered[rows] = True
            batch.bitmaps[rows] = found

    def _topic(self, batch: Batch, row: int) -> str:
        start, length = int(batch.rows[row]["topic_start"]), int(batch.rows[row]["topic_length"])
        return batch.log[start : start + length].tobytes().decode("utf-8", "replace")

    def _stamp(self) -> tuple[int, int, int] | None:
        try:
            found = self._path.stat()
        except FileNotFoundError:
            return None
        return found.st_ino, found.st_mtime_ns, found.st_size


def _properties(batch: Batch, rows: npt.NDArray[np.int64]) -> list[bytes]:
    found = batch.rows[rows]
    starts = found["topic_start"] + found["topic_length"] + _LENGTH
    ends = found["phy"] - batch.base + found["size"]
    log = batch.log.data
    return [bytes(log[start:end]) for start, end in zip(starts.tolist(), ends.tolist(), strict=True)]
