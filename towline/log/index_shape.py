"""How many slots and entries the index files of a store have: no index file holds these numbers."""

import json
from dataclasses import dataclass
from typing import Any

from towline.format import index_file
from towline.places import Store


@dataclass(frozen=True, slots=True)
class IndexShape:
    """The numbers of slots and entries, which no index file holds."""

    slots: int
    indexes: int

    @classmethod
    def of(cls, store: Store) -> "IndexShape":
        """From the settings of the node that last ran on the store, else the defaults."""
        known: dict[str, Any] = {}
        if store.settings.exists():
            known = json.loads(store.settings.read_text(encoding="utf-8"))
        slots = int(known.get("max_hash_slot_num", index_file.SLOTS_DEFAULT))
        return cls(slots, int(known.get("max_index_num", index_file.INDEXES_DEFAULT)))
