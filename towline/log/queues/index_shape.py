"""How many slots and entries the index files of a store have: no index file holds these numbers."""

from dataclasses import dataclass

from towline.format.files import index_file
from towline.log.files.last_settings import last_settings
from towline.places import Store


@dataclass(frozen=True, slots=True)
class IndexShape:
    """The numbers of slots and entries, which no index file holds."""

    slots: int
    indexes: int

    @classmethod
    def of(cls, store: Store) -> "IndexShape":
        """From the settings of the node that last ran on the store, else the defaults."""
        known = last_settings(store)
        slots = int(known.get("max_hash_slot_num", index_file.SLOTS_DEFAULT))
        return cls(slots, int(known.get("max_index_num", index_file.INDEXES_DEFAULT)))
