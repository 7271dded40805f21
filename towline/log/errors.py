"""What an operator meets when files of a store are damaged, full or in use: errors of recovery, verify and repair."""

from towline.errors import MalformedFile, Remedy, SegmentSizeMismatch, StoreNotWritable, TowlineError


class StoreFault(TowlineError):
    """Base class of what stands here: found in a store's files. No facts of its own."""

    remedy = Remedy.FIX_DISK
    advice = "run `towline store verify` on the store"


class DurableLost(MalformedFile):
    """How far the log is durable is not known, so torn cannot be told from corrupt. Facts: path, what is wrong."""

    advice = "run `towline store repair`: it reads the whole log and writes the file anew"

    def __init__(self, path: str, problem: str) -> None:
        super().__init__(path, problem)


class DerivedFileSize(SegmentSizeMismatch):
    """A queue or index file has another size than the settings say. Facts: path, its size, the expected one."""

    advice = "set the sizes the store was made with, or run `towline store repair`: it derives queues and index anew"

    def __init__(self, path: str, length: int, configured: int) -> None:
        super().__init__(path, length, configured)


class SaveInDoubt(StoreNotWritable):
    """A file was replaced, and neither that nor its old content could be made durable: a crash leaves one of both.

    Facts: path, what went wrong with the new content and with the old one.
    """

    advice = "look at the kernel log and the disk; the node writes the file again until the disk takes it"

    def __init__(self, path: str, reason: str, second: str) -> None:
        self.second = second
        super().__init__(path, reason)
        self.args = (path, reason, second)

    def describe(self) -> str:
        return f"what {self.path} says after a crash is not known: {self.reason}; and of its old content: {self.second}"


class RepairRefused(StoreFault):
    """`towline store repair` would have to guess. Facts: path, byte in the file, why."""

    remedy = Remedy.FIX_CALL
    advice = "restore the file from a copy or another node, or name the record to step over with --skip OFFSET"

    def __init__(self, path: str, at: int, why: str) -> None:
        self.path, self.at, self.why = path, at, why
        super().__init__(path, at, why)

    def describe(self) -> str:
        return f"{self.path} byte {self.at} is not repaired: {self.why}"


class PoolEmpty(TowlineError):
    """The transient store pool has no free buffer for the next segment. Facts: milliseconds waited, buffers, size."""

    remedy = Remedy.RETRY
    advice = "send again a little later; for good, raise transient_store_pool_size or give the store a faster disk"

    def __init__(self, waited_ms: int, count: int, size: int) -> None:
        self.waited_ms, self.count, self.size = waited_ms, count, size
        super().__init__(waited_ms, count, size)

    def describe(self) -> str:
        waited = f" after {self.waited_ms} ms" if self.waited_ms else ""
        return f"none of the {self.count} buffers of {self.size} bytes is free{waited}"


class PoolElsewhere(TowlineError):
    """A killed node left bytes in a transient pool that this start would not look into. Facts: where, and where not."""

    remedy = Remedy.FIX_CALL
    advice = (
        "start the node with the XDG_RUNTIME_DIR it had before; to give those bytes up, remove that directory first"
    )

    def __init__(self, path: str, expected: str) -> None:
        self.path, self.expected = path, expected
        super().__init__(path, expected)

    def describe(self) -> str:
        return f"the store's transient pool is {self.path}, and this start would use {self.expected}"


class SegmentNotMade(TowlineError):
    """The log's writer has no next segment. Facts: its base, why."""

    remedy = Remedy.FIX_DISK
    advice = "look at the disk and at what allocate logged; puts go on as soon as a segment can be made"

    def __init__(self, base: int, why: str) -> None:
        self.base, self.why = base, why
        super().__init__(base, why)

    def describe(self) -> str:
        return f"the log has no segment {self.base}: {self.why}"


class NoDispatcher(TowlineError):
    """The setting `dispatchers` names something that cannot be had. Facts: what it names, why."""

    remedy = Remedy.FIX_CALL
    advice = "name a function as package.module:function that the node's Python can import"

    def __init__(self, place: str, why: str) -> None:
        self.place, self.why = place, why
        super().__init__(place, why)

    def describe(self) -> str:
        return f"the dispatcher {self.place!r} cannot be had: {self.why}"


class NoStoreHere(StoreFault):
    """A command was given a directory that holds no log. Fact: its path."""

    remedy = Remedy.FIX_CALL
    advice = "name the store directory of a node, or of a real broker, with --store"

    def __init__(self, path: str) -> None:
        self.path = path
        super().__init__(path)

    def describe(self) -> str:
        return f"{self.path} has no directory commitlog, so no store is there"


class EpochsLost(MalformedFile):
    """Which master wrote the newest part of the log is not known. Facts: path, what is wrong."""

    advice = (
        "restore the file from a copy; `epochFileCheckpoint.bak` is the list before, to be taken only where no epoch "
        "was opened since"
    )

    def __init__(self, path: str, problem: str) -> None:
        super().__init__(path, problem)


class WordLost(MalformedFile):
    """What this node has promised to its peers, or acknowledged with whom, is not known. Facts: path, what is wrong."""

    advice = (
        "restore the file from a copy, or let the node join as a slave with an empty store; its `.bak` is the word "
        "before, to be taken only where no promotion and no change of the in-sync set came since"
    )

    def __init__(self, path: str, problem: str) -> None:
        super().__init__(path, problem)


class InSyncLost(WordLost):
    """With whom this node acknowledged is not known. Facts: path, what is wrong."""

    advice = (
        "restore the file from a copy of this store, or let `towline store repair --yes` take it away: then the node "
        "is in doubt, and becomes master only where nobody who is silent can hold more"
    )


class TruncationRefused(StoreFault):
    """A start was to cut off what had been confirmed. Facts: the file that says so, its point, the confirmed end."""

    remedy = Remedy.FIX_CALL
    advice = (
        "make this node the master with `towline promote`, or give the bytes up with `towline slave accept-loss`; they "
        "are kept in diverged/"
    )

    def __init__(self, path: str, point: int, confirmed: int) -> None:
        self.path, self.point, self.confirmed = path, point, confirmed
        super().__init__(path, point, confirmed)

    def describe(self) -> str:
        return f"{self.path} would cut the log at {self.point}, and it was confirmed up to {self.confirmed}"


class EpochPast(StoreFault):
    """A master was to begin an epoch that is no new one for its log. Facts: the epoch, what is known."""

    remedy = Remedy.FIX_CALL
    advice = "start the node again: it agrees on a new epoch; numbers of epochs are never used twice"

    def __init__(self, epoch: int, why: str) -> None:
        self.epoch, self.why = epoch, why
        super().__init__(epoch, why)

    def describe(self) -> str:
        return f"epoch {self.epoch} cannot begin: {self.why}"


class BackupRefused(StoreFault):
    """A backup cannot be continued, or a restore not begun; nothing was changed. Facts: directory, why."""

    remedy = Remedy.FIX_CALL
    advice = "name an empty directory, or the backup of the same store"

    def __init__(self, path: str, why: str) -> None:
        self.path, self.why = path, why
        super().__init__(path, why)

    def describe(self) -> str:
        return f"{self.path}: {self.why}"


class BackupDamaged(StoreFault):
    """A file of a backup is not what its manifest says. Facts: path, what is wrong."""

    advice = "take the file from another copy of the backup, or remove it and run `towline store backup` again"

    def __init__(self, path: str, problem: str) -> None:
        self.path, self.problem = path, problem
        super().__init__(path, problem)

    def describe(self) -> str:
        return f"{self.path} is damaged: {self.problem}"


class RestoreUnfinished(StoreFault):
    """A store is only in part what its backup holds. Facts: store root, the backup."""

    remedy = Remedy.FIX_CALL
    advice = "run `towline store restore` again: it begins anew"

    def __init__(self, path: str, backup: str) -> None:
        self.path, self.backup = path, backup
        super().__init__(path, backup)

    def describe(self) -> str:
        return f"{self.path} was being restored from {self.backup}, and that was not finished"
