"""What can be wrong with a Kafka log directory: each finding names a file, a byte and a rule."""

from enum import StrEnum

from towline.errors import Remedy, TowlineError


class Rule(StrEnum):
    """What bytes of a log directory can break."""

    TORN_BATCH = "the last batch goes beyond the end of the file"
    BATCH_SIZE = "a batch names a size that none has"
    MAGIC = "a batch has a magic that no version of Kafka writes"
    CRC = "the CRC of a batch is not that of its bytes"
    RECORDS = "the records of a batch do not add up"
    COMPRESSION = "what a batch holds cannot be decompressed"
    OFFSETS = "offsets do not rise"
    OFFSET_RANGE = "an offset does not belong into its segment"
    EPOCHS_FALL = "the leader epoch falls from one batch to the next"
    EPOCH_UNKNOWN = "a batch has a leader epoch that the checkpoint does not name there"
    INDEX_SIZE = "an index is no whole number of entries"
    INDEX_ORDER = "entries of an index do not rise"
    INDEX_BEYOND = "an index points beyond the log"
    INDEX_PLACE = "an index points to where its batch does not begin"
    INDEX_TIME = "an index names another time than its batch has"
    TRANSACTION = "an entry of a transaction index is not one"
    VERSION = "a file has a version that is not known"
    TEXT = "a line of a file is not as its format has it"


class KafkaFault(TowlineError, remedy=Remedy.FIX_DISK):
    """Base class of what stands here."""

    advice = "take the directory from a copy, or start the broker once, so that it recovers its log"


class MalformedBytes(KafkaFault):
    """Bytes that break a rule, wherever they stand."""

    rule: str
    at: int  # byte in the buffer
    found: str
    template = "byte {at}: {rule}: {found}"


class MalformedLog(KafkaFault):
    """A file of a partition or of a log directory breaks a rule."""

    path: str
    at: int  # byte in the file
    rule: str
    found: str
    template = "{path} byte {at}: {rule}: {found}"


class TornLog(MalformedLog):
    """The last write to a segment was cut off: everything before it is whole."""

    advice = "recover the partition, which cuts the torn batch off, or start the broker once, which does the same"


class LogInUse(KafkaFault, remedy=Remedy.FIX_CALL):
    path: str
    template = "a broker runs on {path}: it holds the lock of its .lock"
    advice = "stop the broker first, or take a copy of the directory"


class CleaningCut(KafkaFault, remedy=Remedy.FIX_CALL):
    """A broker died while it put compacted segments in the place of others."""

    path: str
    template = "{path} was to be put in the place of other segments, and was not"
    advice = "start the broker once, so that it ends its cleaning, and stop it"


class NoPartitionHere(KafkaFault, remedy=Remedy.FIX_CALL):
    path: str
    why: str
    template = "{path} is no directory of a partition: {why}"
    advice = "name a directory as <topic>-<number>, with segments in it"


class NoLogDirectory(KafkaFault, remedy=Remedy.FIX_CALL):
    path: str
    template = "{path} is no log directory: it has no meta.properties"
    advice = "name one of the directories that log.dirs of the broker names"


class OffsetOutOfRange(KafkaFault, remedy=Remedy.FIX_CALL):
    path: str
    offset: int
    start: int
    end: int
    template = "{path} has no offset {offset}: it has those from {start} up to {end}"
    advice = "ask for an offset in that range"


class NotAppended(KafkaFault, remedy=Remedy.FIX_CALL):
    """Records or batches that a partition does not take; nothing of them was written."""

    path: str
    why: str
    template = "{path} does not take what is to be appended: {why}"
    advice = "give offsets that rise, behind those that are there"


class RecordsTooLarge(KafkaFault, remedy=Remedy.FIX_CALL):
    size_max: int
    template = "a batch decompresses to more than {size_max} bytes"
    advice = "raise decompressed_size_max of the reader if the producer is to be trusted"


class IllegalTopicName(KafkaFault, remedy=Remedy.FIX_CALL):
    name: str
    template = "{name!r} is no name of a topic of Kafka"
    advice = "use letters, digits, dots, underscores and hyphens, 249 characters at most, neither . nor .."


def in_file(path: str, error: MalformedBytes, before: int = 0) -> MalformedLog:
    """The same of a file whose bytes from `before` on were looked at."""
    kind = TornLog if error.rule == Rule.TORN_BATCH else MalformedLog
    return kind(path, before + error.at, error.rule, error.found)
