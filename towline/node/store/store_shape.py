"""File sizes of a store: as the node that last ran on it had them, as a configuration says, or as the files show."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from towline.format.files import index_file
from towline.log.errors import NoStoreHere
from towline.log.files.store_files import last_settings
from towline.log.recovery.recovery import RecoverySettings
from towline.places import Store
from towline.runtime.settings import Settings, parse_delay_levels, read_settings
from towline.runtime.settings_model import BrokerRole

_NAME_DIGITS: Final = 20


def shape_of(store: Store, config: Path | None) -> tuple[RecoverySettings, tuple[int, ...]]:
    """Settings of recovery and the delay levels in ms.

    Raises NoStoreHere, and BadSetting for a configuration that is wrong.
    """
    known = known_settings(store, config)
    index = known["message_index_enable"]
    settings = RecoverySettings(
        segment_size=known["mapped_file_size_commit_log"],
        queue_file_size=known["mapped_file_size_consume_queue"],
        index_slots=known["max_hash_slot_num"] if index else None,
        index_indexes=known["max_index_num"],
        force_property_crc=known["force_verify_prop_crc"],
    )
    return settings, parse_delay_levels(known["message_delay_level"])


@dataclass(frozen=True, slots=True)
class UnitShape:
    """How reput writes ConsumeQueueExt units: bytes of a file; the Bloom filter of their bitmaps, if any."""

    file_size: int
    bloom: tuple[int, int] | None


def units_of(store: Store, config: Path | None) -> UnitShape | None:
    """None where queues are to have no units. Raises what `shape_of` does."""
    known = known_settings(store, config)
    if not known["enable_consume_queue_ext"]:
        return None
    mapped = known["enable_calc_filter_bit_map"] and known["broker_role"] != BrokerRole.SLAVE.value
    bloom = known["expect_consumer_num_use_filter"], known["max_error_rate_of_bloom_filter"]
    return UnitShape(known["mapped_file_size_consume_queue_ext"], bloom if mapped else None)


def known_settings(store: Store, config: Path | None, *, new: bool = False) -> dict[str, Any]:
    """By name, as JSON has them; of a `new` store those that its first start will have.

    Raises NoStoreHere, and BadSetting for a configuration that is wrong.
    """
    if not new and not store.commitlog.is_dir():
        raise NoStoreHere(str(store.root))
    known: dict[str, Any] = json.loads(Settings.model_validate({}).to_json())
    if config is not None:
        known |= json.loads(read_settings(config, {}, {}).to_json())
    elif last := last_settings(store):
        known |= last
    else:
        known |= _by_files(store)
    return known


def _by_files(store: Store) -> dict[str, Any]:
    """What the sizes of the files say; of an index only whether it has the default numbers, of units no bitmaps."""
    found: dict[str, Any] = {}
    if size := _first_size(store.consumequeue_ext, "*/*/*"):
        found |= {"enable_consume_queue_ext": True, "mapped_file_size_consume_queue_ext": size}
    if size := _first_size(store.commitlog, "*"):
        found["mapped_file_size_commit_log"] = size
    if size := _first_size(store.consumequeue, "*/*/*"):
        found["mapped_file_size_consume_queue"] = size
    files = sorted(path for path in store.index.glob("*") if path.name.isdecimal()) if store.index.is_dir() else []
    default = index_file.file_size(index_file.SLOTS_DEFAULT, index_file.INDEXES_DEFAULT)
    found["message_index_enable"] = all(path.stat().st_size == default for path in files)
    return found


def _first_size(directory: Path, pattern: str) -> int:
    """Bytes of the first file that has a segment's name and any bytes; 0 without one."""
    for path in sorted(directory.glob(pattern)) if directory.is_dir() else ():
        if path.is_file() and path.name.isdecimal() and len(path.name) == _NAME_DIGITS and path.stat().st_size:
            return path.stat().st_size
    return 0
