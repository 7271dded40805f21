"""What an operator meets when files of a store are damaged, full or in use: errors of recovery, verify and repair."""

from shlex import quote

from towline.errors import MalformedFile, Remedy, SegmentSizeMismatch, StoreNotWritable, TowlineError


class StoreFault(TowlineError, remedy=Remedy.FIX_DISK):
    """Base class of what stands here: found in a store's files."""

    advice = "run `towline store verify` on the store"


class DurableLost(MalformedFile):
    """How far the log is durable is not known, so a torn end looks like a corrupt one."""

    advice = "run `towline store repair --yes`: it reads the whole log and writes the file anew"


class DerivedFileSize(SegmentSizeMismatch):
    """A queue or index file has another size than the settings say."""

    advice = (
        "set the sizes the store was made with, or run `towline store repair --yes`: it derives queues and index anew"
    )


class SaveInDoubt(StoreNotWritable):
    """A file was replaced, and neither that nor its old content could be made durable: a crash leaves one of both."""

    second: str  # what went wrong with the old content
    template = "what {path} says after a crash is not known: {reason}; and of its old content: {second}"
    advice = "look at the kernel log and the disk; the node writes the file again until the disk takes it"


class RepairRefused(StoreFault, remedy=Remedy.FIX_CALL):
    """`towline store repair --yes` would have to guess."""

    path: str
    at: int  # byte in the file
    why: str
    skip: str = ""  # the log offset by which it can be given up, "" where it cannot be
    template = "{path} byte {at} is not repaired: {why}"

    @property
    def advice(self) -> str:  # type: ignore[override]
        step_over = f", or go on without it: `towline store repair --yes --skip {self.skip}`" if self.skip else ""
        return f"restore the file from a copy or another node{step_over}"


class PoolEmpty(TowlineError, remedy=Remedy.RETRY):
    """The transient store pool has no free buffer for the next segment."""

    waited_ms: int
    count: int
    size: int
    advice = "send again a little later; for good, raise transient_store_pool_size or give the store a faster disk"

    def describe(self) -> str:
        waited = f" after {self.waited_ms} ms" if self.waited_ms else ""
        return f"none of the {self.count} buffers of {self.size} bytes is free{waited}"


class PoolElsewhere(TowlineError, remedy=Remedy.FIX_CALL):
    """A killed node left bytes in a transient pool that this start would not read."""

    path: str
    expected: str
    template = "the store's transient pool is {path}, and this start would use {expected}"
    advice = (
        "start the node with the XDG_RUNTIME_DIR it had before; to give those bytes up, remove that directory first"
    )


class SegmentNotMade(TowlineError, remedy=Remedy.FIX_DISK):
    base: int
    why: str
    template = "the log has no segment {base}: {why}"
    advice = "look at the disk and at what allocate logged; puts go on as soon as a segment can be made"


class NoDispatcher(TowlineError, remedy=Remedy.FIX_CALL):
    place: str
    why: str
    template = "the dispatcher {place!r} cannot be had: {why}"
    advice = "name a function as package.module:function that the node's Python can import"


class NoStoreHere(StoreFault, remedy=Remedy.FIX_CALL):
    path: str
    template = "{path} has no directory commitlog, so no store is there"
    advice = "name the store directory of a node, or of a real broker, with --store"


class NotInStore(StoreFault, remedy=Remedy.FIX_CALL):
    """What was asked for by name is not there."""

    path: str
    asked: str
    there: str  # "" for nothing of the kind
    listing: str  # the command that shows all, as a remedy names it

    @property
    def advice(self) -> str:  # type: ignore[override]
        return f"name one that {self.listing} lists"

    def describe(self) -> str:
        return f"{self.path} has no {self.asked}; it has {self.there or 'none'}"


class EpochsLost(MalformedFile):
    """Which master wrote the newest part of the log is not known."""

    advice = (
        "restore the file from a copy; `epochFileCheckpoint.bak` is the list before, to be taken only where no epoch "
        "was opened since"
    )


class WordLost(MalformedFile):
    """What this node has promised to its peers, or acknowledged with whom, is not known."""

    advice = (
        "restore the file from a copy, or let the node join as a slave with an empty store; its `.bak` is the word "
        "before, to be taken only where no promotion and no change of the in-sync set came since"
    )


class InSyncLost(WordLost):
    """With whom this node acknowledged is not known."""

    advice = (
        "restore the file from a copy of this store, or let `towline store repair --yes` take it away: then the node "
        "is in doubt, and becomes master only where nobody who is silent can hold more"
    )


class RoleLost(MalformedFile):
    """Which role this node last agreed on with its peers is not known."""

    advice = (
        "restore the file from a copy, or run `towline store repair --yes`: the node is a slave then, and "
        "`towline promote` makes it the master again where its peers allow that"
    )


class TruncationLost(MalformedFile):
    """From where on this slave's log is to be cut off is not known."""

    advice = (
        "run `towline store repair --yes`: it moves the file to diverged/, and the slave's next handshake "
        "finds the point anew"
    )


class TruncationRefused(StoreFault, remedy=Remedy.FIX_CALL):
    """A start was to cut off what had been confirmed."""

    path: str
    point: int
    confirmed: int
    template = "{path} would cut the log at {point}, and it was confirmed up to {confirmed}"
    advice = (
        "give the bytes up with `towline slave accept-loss`, which keeps them in diverged/, and start it; to keep "
        "them, move the file away, start the node, and make it the master with `towline promote`"
    )


class EpochPast(StoreFault, remedy=Remedy.FIX_CALL):
    epoch: int
    why: str
    template = "epoch {epoch} cannot begin: {why}"
    advice = "start the node again: it agrees on a new epoch; numbers of epochs are never used twice"


class BackupRefused(StoreFault, remedy=Remedy.FIX_CALL):
    """A backup cannot be continued, or a restore not begun; nothing was changed."""

    path: str
    why: str
    advice = "name an empty directory, or the backup of the same store"


class BackupDamaged(StoreFault):
    path: str
    problem: str
    template = "{path} is damaged: {problem}"
    advice = (
        "take the file from another copy of the backup, or remove it and run `towline store backup --store STORE --to "
        "BACKUP` again while the store still holds what was in it"
    )


class ManifestLost(MalformedFile):
    """What a backup holds is not known."""

    advice = (
        "take the file from another copy of the backup, or begin another one in an empty directory: "
        "`towline store backup --store STORE --to DIR`"
    )


class RestoreUnfinished(StoreFault, remedy=Remedy.FIX_CALL):
    """A store is being made of a backup, and that was broken off."""

    path: str
    backup: str

    def describe(self) -> str:
        return f"{self.path} was being restored from {self.backup or 'a backup'}, and that was not finished"

    @property
    def advice(self) -> str:  # type: ignore[override]
        again = f"`towline store restore --store {quote(self.path)} --from {quote(self.backup) or 'BACKUP'}`"
        return f"run {again} again: it begins anew"


class ImportUnfinished(StoreFault, remedy=Remedy.FIX_CALL):
    """Segments that were imported are becoming a part of the log, and that was broken off."""

    path: str
    source: str
    options: str
    template = "{path} was taking in an import from {source}, and that was not finished"

    @property
    def advice(self) -> str:  # type: ignore[override]
        words = import_command(self.source, self.path, self.options)
        return f"run `{words}` again: it goes on; with `--abandon` it takes the import away"


def import_command(source: str, store: str, options: str) -> str:
    """What is typed for an import from Kafka; `options` stand as they are."""
    return " ".join(filter(None, ("towline kafka import", quote(source), "--store", quote(store), options)))
