"""The CRCs of records: of bodies, and of whole records where the store's operator insists on them (spec 2.6, 2.7)."""

from collections.abc import Iterator

import numpy as np

from towline.format.record.crcs import crcs
from towline.format.record.property_crc import CRC_MASK, broken
from towline.format.record.rules import Rule

from .heads import Heads
from .quick import quick


def damaged_rows(heads: Heads, *, force_property_crc: bool = False) -> list[tuple[int, Rule]]:
    """Rows whose CRC is wrong, and the rule. The heads were read with body_crc."""
    parts = heads.parts
    kernels = quick()
    kernel = kernels.crc32_each if kernels is not None else None
    found = crcs(heads.log, parts.body_start, parts.body_size, kernel) & np.uint32(CRC_MASK)
    wrong = dict(_broken_property_crcs(heads)) if force_property_crc else {}
    wrong |= {int(row): Rule.BODY_CRC for row in np.flatnonzero(found != heads["body_crc"])}
    return sorted(wrong.items())


def _broken_property_crcs(heads: Heads) -> Iterator[tuple[int, Rule]]:
    """Rows that do not end with their own, and the rule."""
    data, starts = heads.log.data, heads.positions
    places = zip(starts.tolist(), heads.parts.properties_start.tolist(), (starts + heads.size).tolist(), strict=True)
    for row, (start, properties, end) in enumerate(places):
        rule = broken(bytes(data[start:end]), bytes(data[properties:end]))
        if rule is not Rule.OK:
            yield row, rule
