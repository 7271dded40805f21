"""The record of a control batch, which brokers write: its key says what ends or begins.

    at  len  field
     0  2  version  of the key: 0
     2  2  type     0 abort, 1 commit; more in the log of KRaft's metadata

The value of an abort and of a commit:

    at  len  field
     0  2  version           0
     2  4  coordinator_epoch of the transaction coordinator that ended it
"""

from enum import IntEnum
from typing import Final

from towline.format.layout import Field, Layout
from towline.kafka.errors import MalformedBytes, Rule

KEY: Final = Layout(
    Field("version", "h", "of the key: 0"),
    Field("type", "h", "0 abort, 1 commit; more in the log of KRaft's metadata"),
)
VALUE: Final = Layout(
    Field("version", "h", "0"),
    Field("coordinator_epoch", "i", "of the transaction coordinator that ended it"),
)


class ControlType(IntEnum):
    """What a control record says."""

    ABORT = 0
    COMMIT = 1
    LEADER_CHANGE = 2
    SNAPSHOT_HEADER = 3
    SNAPSHOT_FOOTER = 4
    KRAFT_VERSION = 5
    KRAFT_VOTERS = 6
    UNKNOWN = -1


ENDS: Final = (ControlType.ABORT, ControlType.COMMIT)  # of a transaction


def encode(kind: ControlType, coordinator_epoch: int) -> tuple[bytes, bytes]:
    """Key and value of the end of a transaction."""
    return KEY.pack(0, kind), VALUE.pack(0, coordinator_epoch)


def decode_key(key: bytes | None) -> ControlType:
    """Raises MalformedBytes where it is too short. A type that is not known is UNKNOWN, as readers of Kafka have it."""
    if key is None or len(key) < KEY.size:
        raise MalformedBytes(Rule.RECORDS, 0, f"the key of a control record has {KEY.size} bytes")
    _, kind = KEY.unpack_from(key)
    return ControlType(kind) if kind in ControlType._value2member_map_ else ControlType.UNKNOWN


def decode_value(value: bytes | None) -> int:
    """The epoch of the coordinator. Raises MalformedBytes where it is too short."""
    if value is None or len(value) < VALUE.size:
        raise MalformedBytes(Rule.RECORDS, 0, f"the end of a transaction has a value of {VALUE.size} bytes")
    return int(VALUE.unpack_from(value)[1])
