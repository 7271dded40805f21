"""The rules a record must keep, by number: kernels return the number, people read the sentence.

A rule is named the same in a put's refusal, in recovery's verdict and in `towline inspect`.
"""

from enum import IntEnum


class Rule(IntEnum):
    """Why a record, or the request that carries it, is refused. OK is 0; the order is part of the wire protocol."""

    OK = 0
    SIZE_TOO_SMALL = 1
    SIZE_PAST_END = 2
    MAGIC = 3
    PARTS_DO_NOT_ADD_UP = 4
    BODY_TOO_LARGE = 5
    TOPIC_LENGTH = 6
    TOPIC_MISMATCH = 7
    QUEUE_ID = 8
    BODY_CRC = 9
    PROPERTIES_TOO_LARGE = 10
    PROPERTIES_FORM = 11
    STORE_HOST_FLAG = 12
    PHYSICAL_OFFSET = 13
    COUNT_MISMATCH = 14
    GROUP_SIZE = 15
    STORE_TIMESTAMP = 16
    RECORD_TOO_LARGE = 17
    TOPIC_FORM = 18
    ENDS_INSIDE = 19
    PROPERTY_CRC = 20
    PROPERTY_CRC_MISSING = 21
    PROPERTY_CRC_MISPLACED = 22
    PROPERTY_OF_THE_BROKER = 23
    PROPERTY_OF_ANOTHER_BROKER = 24
    PROPERTY_NEVER_STORED = 25
    DELAY_NOT_SERVED = 26
    TIMER_NOT_SERVED = 27
    TRANSACTION_NOT_SERVED = 28
    SYS_FLAG = 29

    @property
    def sentence(self) -> str:
        return _SENTENCES[self]


_SENTENCES = {
    Rule.OK: "the record keeps every rule",
    Rule.SIZE_TOO_SMALL: "TOTALSIZE is smaller than the smallest possible record",
    Rule.SIZE_PAST_END: "TOTALSIZE reaches past the end of the bytes that hold it",
    Rule.MAGIC: "MAGICCODE is neither DAA320A7 (V1) nor DAA320AB (V2)",
    Rule.PARTS_DO_NOT_ADD_UP: "TOTALSIZE is not the sum of the parts",
    Rule.BODY_TOO_LARGE: "the body is longer than max_message_size",
    Rule.TOPIC_LENGTH: "the topic is empty or longer than 127 bytes (%RETRY% topics: 255)",
    Rule.TOPIC_MISMATCH: "the record's topic is not the topic its group was sent for",
    Rule.QUEUE_ID: "the record's QUEUEID is not the queue its group was sent for",
    Rule.BODY_CRC: "BODYCRC differs from the CRC-32 of the body",
    Rule.PROPERTIES_TOO_LARGE: "the properties are longer than 32767 bytes",
    Rule.PROPERTIES_FORM: "the properties hold a NUL byte or do not parse as name 0x01 value 0x02",
    Rule.STORE_HOST_FLAG: "SYSFLAG's store host bit (0x20) does not fit the broker's address family",
    Rule.PHYSICAL_OFFSET: "PHYSICALOFFSET is not where the record stands",
    Rule.COUNT_MISMATCH: "the number of records is not the number the request announced",
    Rule.GROUP_SIZE: "the group's records do not end where the request announced",
    Rule.STORE_TIMESTAMP: "STORETIMESTAMP is not positive",
    Rule.RECORD_TOO_LARGE: "the record is longer than max_message_size + 65536",
    Rule.TOPIC_FORM: "the topic holds a NUL byte",
    Rule.ENDS_INSIDE: "the bytes end inside the record",
    Rule.PROPERTY_CRC: "the __CRC32# that ends the properties differs from the CRC-32 of the record before it",
    Rule.PROPERTY_CRC_MISSING: "the properties do not end with the 20 bytes of a __CRC32#, which this store wants",
    Rule.PROPERTY_CRC_MISPLACED: "a property is called __CRC32#, where this store keeps none",
    Rule.PROPERTY_OF_THE_BROKER: "REAL_TOPIC, REAL_QID, INNER_* and TIMER_OUT_MS are written by a broker alone",
    Rule.PROPERTY_OF_ANOTHER_BROKER: "CLUSTER, MSG_REGION or TRACE_ON is not what this broker would write",
    Rule.PROPERTY_NEVER_STORED: "POP_CK, MIN_OFFSET, MAX_OFFSET and __RMQ.TRANSIENT.* are never stored",
    Rule.DELAY_NOT_SERVED: "DELAY asks for a later delivery, which this node does not do",
    Rule.TIMER_NOT_SERVED: "a TIMER_ property asks for a later delivery, which this node does not do",
    Rule.TRANSACTION_NOT_SERVED: "TRAN_MSG asks for a transaction, which this node does not do",
    Rule.SYS_FLAG: "SYSFLAG has bits of a transaction (0x0C) or an inner batch (0xC0), which no client may set here",
}
assert len(_SENTENCES) == len(Rule)
