"""Why a log directory of Kafka is not imported into a store, each with what to do about it."""

from shlex import quote

from towline.errors import DiskFull, Remedy, TowlineError
from towline.log.errors import import_command


class ImportRefused(TowlineError, remedy=Remedy.FIX_CALL):
    """Base class of what stands here: nothing was changed."""

    path: str


class NothingToImport(ImportRefused):
    template = "{path} has no partition of a topic that is to be imported"
    advice = "look at its directories, which are called <topic>-<number>, and at the names given with --topic"


class NoSuchTopic(ImportRefused):
    name: str
    template = "{path} has no partition of a topic {name!r}"
    advice = "give a name as the directories of the partitions have it, before their last hyphen"


class NameRefused(ImportRefused):
    topic: str
    why: str
    template = "topic {topic!r} of {path} cannot be imported under this name: {why}"

    @property
    def advice(self) -> str:  # type: ignore[override]
        return f"give it another name: add `--rename {quote(self.topic)}=NAME`"


class TopicThere(ImportRefused):
    topic: str
    why: str
    template = "topic {topic!r} of the store {path} takes no import: {why}"
    advice = "give it another name with `--rename OLD=NEW`, or import into a new store"


class TooManyQueuesThere(ImportRefused):
    count: int
    limit: int
    template = "the store {path} would have {count} queues, {limit} are the limit"
    advice = "choose fewer topics with --topic, and import the others into another store"


class OpenTransaction(ImportRefused):
    offset: int
    end: int
    template = "{path}: from offset {offset} on, of {end}, records belong to a transaction that has no end"
    advice = "start the broker until its coordinator has ended it, or leave out what follows: add `--open leave-out`"


class AbortedTransactions(ImportRefused):
    count: int
    offset: int
    template = "{path}: {count} transactions were aborted, the first of them begins at offset {offset}"
    advice = "leave their records out, as a reader of what is committed does: take `--aborted drop`"


class OffsetsMissing(ImportRefused):
    count: int
    template = "{path}: {count} offsets have no record"
    advice = "keep them as holes, which later messages keep their numbers by: take `--holes keep`"


class RecordTooLarge(ImportRefused):
    offset: int
    what: str
    limit: int
    template = "{path}: {what} of the record at offset {offset} is above the limit of {limit} bytes"
    advice = "leave such records out: add `--too-large leave-out`; for a body max_message_size may be raised as well"


class EpochsDoNotFit(ImportRefused):
    why: str
    template = "{path}: {why}: the log was cut, or is another replica's"
    advice = "take the directory of the partition's leader, or start the broker once, so that it makes both fit"


class SlaveStore(ImportRefused):
    template = "the node of the store {path} is a slave, whose log is its master's"
    advice = "import into the master's store; its slaves follow it"


class NotAtRest(ImportRefused):
    why: str
    template = "the store {path} is not at rest: {why}"

    @property
    def advice(self) -> str:  # type: ignore[override]
        start = f"`towline master start --store {quote(self.path)}`"
        return f"start a node on it once and stop it: {start}, then `towline master stop --store {quote(self.path)}`"


class OtherImport(ImportRefused):
    source: str
    options: str
    why: str
    template = "the store {path} holds an unfinished import of {source}, and this is another one: {why}"

    @property
    def advice(self) -> str:  # type: ignore[override]
        words = import_command(self.source, self.path, self.options)
        return f"go on with that one: run `{words}` as before, or the same with `--abandon`, which takes it away"


class NothingToAbandon(ImportRefused):
    template = "the store {path} holds no unfinished import"
    advice = "nothing is to be done"


class StagedMissing(ImportRefused):
    source: str
    options: str
    segment: str
    template = "segment {segment} of the import of {source} is neither in the log of {path} nor staged"

    @property
    def advice(self) -> str:  # type: ignore[override]
        words = import_command(self.source, self.path, self.options)
        return f"take the rest away: run `{words} --abandon`; the same without `--abandon` begins anew then"


class PublishBegun(ImportRefused):
    source: str
    options: str
    template = "the import of {source} is a part of the log of the store {path} already"

    @property
    def advice(self) -> str:  # type: ignore[override]
        return f"finish it: run `{import_command(self.source, self.path, self.options)}`"


class SourceChanged(ImportRefused):
    why: str
    template = "{path} changed since the import began: {why}"
    advice = "begin anew: take the unfinished import away with `--abandon`, and run the command again"


class NoRoomToImport(DiskFull, remedy=Remedy.FIX_DISK):
    """The file system of the store is too small for what would be written."""

    free: int
    template = "the import takes {size} bytes in {path}, {free} are free"
    advice = "free space there, choose fewer topics with --topic, or name a store on another file system"


class StagedDiffers(TowlineError, remedy=Remedy.FIX_DISK):
    """What was written is not what the source says: it does not become a part of the store."""

    path: str
    at: int  # byte in the file
    rule: str
    source: str
    template = "{path} byte {at}: what was written differs from {source}: {rule}"
    advice = "look at the disks and the kernel log, then begin anew with `--abandon` and the command again"
