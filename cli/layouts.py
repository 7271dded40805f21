"""Every layout of bytes on disk and on the wire, for `towline inspect layout`."""

from dataclasses import dataclass
from typing import Final

from towline.format.files import checkpoint, consume_queue, durable, durable_slots, index_file
from towline.format.layout import Layout
from towline.format.record import blank, message_id, record
from towline.format.wire import frames


@dataclass(frozen=True, slots=True)
class Described:
    """A layout with its name, and the sizes that follow from it."""

    name: str
    layout: Layout
    sizes: dict[str, int]


_BOTH_IPV6: Final = record.BORN_HOST_IPV6 | record.STORE_HOST_IPV6

ON_DISK: Final = (
    Described(
        "record",
        record.LAYOUT,
        {
            "head": record.LAYOUT.size,
            "head with one IPv6 host": record.layout_of(record.BORN_HOST_IPV6).size,
            "head with two IPv6 hosts": record.layout_of(_BOTH_IPV6).size,
            "smallest record": record.SIZE_MIN,
        },
    ),
    Described("blank", blank.LAYOUT, {"blank": blank.SIZE}),
    Described(
        "consume queue entry",
        consume_queue.LAYOUT,
        {"entry": consume_queue.SIZE, "file": consume_queue.SIZE * consume_queue.ENTRIES_PER_FILE},
    ),
    Described("index header", index_file.LAYOUT, {"header": index_file.HEADER_SIZE, "slot": index_file.SLOT_SIZE}),
    Described(
        "index entry",
        index_file.ENTRY_LAYOUT,
        {
            "entry": index_file.ENTRY_SIZE,
            "file": index_file.file_size(index_file.SLOTS_DEFAULT, index_file.INDEXES_DEFAULT),
        },
    ),
    Described("checkpoint", checkpoint.LAYOUT, {"fields": checkpoint.LAYOUT.size, "file": checkpoint.SIZE}),
    Described("checkpoint check", checkpoint.CHECK_LAYOUT, {"check": checkpoint.CHECK_LAYOUT.size}),
    Described("durable", durable.LAYOUT, {"state": durable.SIZE}),
    Described("durable slot", durable_slots.LAYOUT, {"slot": durable_slots.SLOT_SIZE, "file": durable_slots.SIZE}),
    Described("unique key", message_id.LAYOUT, {"packed": message_id.LAYOUT.size}),
)
ON_THE_WIRE: Final = tuple(
    Described(f"frame {name}", layout, {"head": layout.size}) for name, layout in frames.LAYOUTS.items()
)
EVERY: Final = ON_DISK + ON_THE_WIRE
