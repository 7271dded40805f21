"""The property CRC: one over the whole record, as the last of its properties (spec 2.7; RocketMQ 5.2 and later).

    `__CRC32#` 0x01, ten digits, 0x02: 20 bytes, counted in PROPLEN and TOTALSIZE

The CRC is taken of everything before these bytes, with the fields that put stamps, without its top bit. Its decimal
digits stand least significant first, filled up with zeros behind. A sender leaves zeros, which put writes over.

It is compared only where the operator insists on it (`force_verify_prop_crc`), as in RocketMQ: then every record must
end with its own. Elsewhere it is a property like any other. Clients of RocketMQ copy the properties of a message that
they send on, and a broker stores a batch as it comes, so the digits may be another record's; nothing in a record or
beside the log separates those from damage. `broken` is the rule, the kernels' `broken_property_crc` the same one.
"""

import zlib
from typing import Final

from .properties import CRC32, NAME_END, PAIR_END
from .rules import Rule

DIGITS: Final = 10
HEAD: Final = f"{CRC32}{NAME_END}".encode()
TAIL: Final = PAIR_END.encode()
SIZE: Final = len(HEAD) + DIGITS + len(TAIL)
PLACEHOLDER: Final = HEAD + b"0" * DIGITS + TAIL
CRC_MASK: Final = 0x7FFF_FFFF
assert SIZE == 20


def separated(properties: bytes) -> bytes:
    """Encoded properties with a separator behind them, so that others can follow; none behind nothing."""
    return properties if not properties or properties.endswith(TAIL) else properties + TAIL


def appended(properties: bytes) -> bytes:
    """Encoded properties with a placeholder behind them."""
    return separated(properties) + PLACEHOLDER


def ends_with(properties: bytes) -> bool:
    """Whether the last 20 bytes are a property CRC by their form, whatever its digits."""
    last = properties[-SIZE:]
    alone = len(properties) == SIZE or properties.endswith(TAIL, 0, -SIZE)
    return alone and last.startswith(HEAD) and last.endswith(TAIL)


def encode(crc: int) -> bytes:
    """The 20 bytes for a CRC of 31 bits."""
    return HEAD + str(crc)[::-1].ljust(DIGITS, "0").encode() + TAIL


def filled(record: bytes) -> bytes:
    """A record whose last 20 bytes are a property CRC, with the digits that fit its other bytes."""
    return record[:-SIZE] + encode(zlib.crc32(record[:-SIZE]) & CRC_MASK)


def broken(record: bytes, properties: bytes) -> Rule:
    """What a record breaks for who insists: it does not end with a property CRC, or with another record's."""
    if not ends_with(properties):
        return Rule.PROPERTY_CRC_MISSING
    return Rule.OK if filled(record) == record else Rule.PROPERTY_CRC
