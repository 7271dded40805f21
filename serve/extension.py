"""Extension units of queue entries: the real hash of a tag, and the bitmap of filters (spec 3.5)."""

import numpy as np

from towline.filter.subscriptions import FilterData
from towline.format.files.consume_queue_ext import are_addresses
from towline.kernels.scan.units import rule_out
from towline.log.queues.consume_queue_ext import ConsumeQueueExtFiles, Units

from .selection import Entries, Integers, Mask


class Extension:
    """Reads the units to which entries of a queue point in place of a tag's hash."""

    def __init__(self, files: ConsumeQueueExtFiles) -> None:
        self._files = files

    def units(self, topic: str, queue_id: int, entries: Entries, bitmap_size: int) -> Units:
        """One row per entry; `found` is false where an entry points to none."""
        codes = entries["tags_code"].astype(np.int64)
        rows = are_addresses(codes)
        if rows.all():
            return self._files.read(topic, queue_id, codes, bitmap_size)
        count = len(codes)
        made = Units(
            found=np.zeros(count, dtype=np.bool_),
            tags_codes=codes.copy(),
            store_timestamps=np.zeros(count, dtype=np.int64),
            mapped=np.zeros(count, dtype=np.bool_),
            bitmaps=np.zeros((count, bitmap_size), dtype=np.uint8),
        )
        if rows.any():
            units = self._files.read(topic, queue_id, codes[rows], bitmap_size)
            made.found[rows], made.mapped[rows] = units.found, units.mapped
            made.tags_codes[rows], made.store_timestamps[rows] = units.tags_codes, units.store_timestamps
            made.bitmaps[rows] = units.bitmaps
        return made

    def ruled_out(self, topic: str, queue_id: int, entries: Entries, data: FilterData) -> Mask:
        """The entries whose bitmap says that they do not match, and speaks: it was stored after the birth."""
        codes = entries["tags_code"].astype(np.int64)
        have = are_addresses(codes)
        asked = codes if have.all() else codes[have]
        size, bits = data.bit_count // 8, np.array(data.bit_positions, dtype=np.int64)
        out = np.zeros(len(asked), dtype=np.uint8)
        for rows, units, places in self._files.spans(topic, queue_id, asked, size):
            some = np.zeros(len(places), dtype=np.uint8)
            rule_out(units, places, size, data.born_time, bits, some)
            out[rows] = some
        found = np.zeros(len(codes), dtype=np.bool_)
        found[have] = out.view(np.bool_)
        return found

    def tags_codes(self, topic: str, queue_id: int, entries: Entries) -> Integers:
        """The real hashes of tags, wherever they stand."""
        return self.units(topic, queue_id, entries, 0).tags_codes
