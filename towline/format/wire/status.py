"""Statuses of puts and gets: small numbers on the wire, names for people (spec 5.1, 10.1).

The first names are RocketMQ's, in the order of its 5.x enums; Towline's own follow them. The order is part of the wire
protocol: new names go to the end.
"""

from enum import IntEnum


class Named(IntEnum):
    """A number that is shown by its name."""

    def __str__(self) -> str:
        return self.name

    def __format__(self, spec: str) -> str:
        return format(self.name, spec)


class PutStatus(Named):
    """The answer to one put request. "Acknowledged" means PUT_OK and nothing else."""

    PUT_OK = 0
    FLUSH_DISK_TIMEOUT = 1
    FLUSH_SLAVE_TIMEOUT = 2
    SLAVE_NOT_AVAILABLE = 3
    SERVICE_NOT_AVAILABLE = 4
    CREATE_MAPPED_FILE_FAILED = 5
    MESSAGE_ILLEGAL = 6
    PROPERTIES_SIZE_EXCEEDED = 7
    OS_PAGE_CACHE_BUSY = 8
    UNKNOWN_ERROR = 9
    IN_SYNC_REPLICAS_NOT_ENOUGH = 10
    PUT_TO_REMOTE_BROKER_FAIL = 11
    LMQ_CONSUME_QUEUE_NUM_EXCEEDED = 12
    WHEEL_TIMER_FLOW_CONTROL = 13
    WHEEL_TIMER_MSG_ILLEGAL = 14
    WHEEL_TIMER_NOT_ENABLE = 15
    SYSTEM_BUSY = 16
    EXPIRED = 17
    TOPIC_NOT_EXIST = 18
    UNKNOWN_QUEUE = 19
    NO_PERMISSION = 20
    DISK_FULL = 21
    NOT_GREETED = 22
    NOT_MASTER = 23
    OUT_OF_ORDER_SEQUENCE = 24
    PRODUCER_FENCED = 25
    UNKNOWN_PRODUCER = 26

    @property
    def stored(self) -> bool:
        """The records are in the log. Only PUT_OK promises that they stay there."""
        return self in _STORED

    @property
    def acknowledged(self) -> bool:
        """The records are kept as the flush and replication modes promise."""
        return self is PutStatus.PUT_OK

    @property
    def retryable(self) -> bool:
        """Nothing was stored, and the same request may pass a moment later."""
        return self in _RETRYABLE


_STORED = frozenset(
    {
        PutStatus.PUT_OK,
        PutStatus.FLUSH_DISK_TIMEOUT,
        PutStatus.FLUSH_SLAVE_TIMEOUT,
        PutStatus.SLAVE_NOT_AVAILABLE,
    }
)
_RETRYABLE = frozenset(
    {
        PutStatus.SERVICE_NOT_AVAILABLE,
        PutStatus.CREATE_MAPPED_FILE_FAILED,
        PutStatus.OS_PAGE_CACHE_BUSY,
        PutStatus.IN_SYNC_REPLICAS_NOT_ENOUGH,
        PutStatus.WHEEL_TIMER_FLOW_CONTROL,
        PutStatus.SYSTEM_BUSY,
        PutStatus.EXPIRED,
        PutStatus.DISK_FULL,
        PutStatus.NOT_GREETED,
        PutStatus.NOT_MASTER,
    }
)


class GetStatus(Named):
    """The answer to one pull from a queue."""

    FOUND = 0
    NO_MATCHED_MESSAGE = 1
    MESSAGE_WAS_REMOVING = 2
    OFFSET_FOUND_NULL = 3
    OFFSET_OVERFLOW_BADLY = 4
    OFFSET_OVERFLOW_ONE = 5
    OFFSET_TOO_SMALL = 6
    NO_MATCHED_LOGIC_QUEUE = 7
    NO_MESSAGE_IN_QUEUE = 8
    OFFSET_RESET = 9
    REFUSED = 10  # Towline's own: the pull's filter is not taken; the next part says why
