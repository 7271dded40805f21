"""Where things lie: the store directory (spec section 1, plus Towline's own files) and the runtime directory of a node.

Pure paths; nothing here touches the disk.
"""

import hashlib
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Store:
    """The files of one store root. What RocketMQ knows has RocketMQ's name."""

    root: Path

    @property
    def commitlog(self) -> Path:
        return self.root / "commitlog"

    @property
    def consumequeue(self) -> Path:
        return self.root / "consumequeue"

    @property
    def consumequeue_ext(self) -> Path:
        return self.root / "consumequeue_ext"

    @property
    def index(self) -> Path:
        return self.root / "index"

    @property
    def config(self) -> Path:
        return self.root / "config"

    @property
    def checkpoint(self) -> Path:
        return self.root / "checkpoint"

    @property
    def abort(self) -> Path:
        return self.root / "abort"

    @property
    def lock(self) -> Path:
        return self.root / "lock"

    @property
    def staging(self) -> Path:
        """Segments under construction: the same file system as commitlog/, but outside it."""
        return self.root / "staging"

    @property
    def diverged(self) -> Path:
        """Bytes that recovery cut off, kept aside."""
        return self.root / "diverged"

    @property
    def durable(self) -> Path:
        """How far the log is certainly on disk (H3)."""
        return self.root / "durable"

    @property
    def identity(self) -> Path:
        return self.root / "identity.json"

    @property
    def run(self) -> Path:
        """What belongs to a running node: duty locks, effective settings, node.json, the node's log."""
        return self.root / "run"

    @property
    def settings(self) -> Path:
        return self.run / "settings.json"

    @property
    def node(self) -> Path:
        return self.run / "node.json"

    @property
    def recovery(self) -> Path:
        """What the last start's recovery found and did, and how long each part took."""
        return self.run / "recovery.json"

    @property
    def known(self) -> Path:
        """What a node that was stopped in order tells the next start."""
        return self.run / "known.json"

    @property
    def pool_owner(self) -> Path:
        """The same as `pool/owner.json` of the runtime directory, while a transient pool is this store's."""
        return self.run / "pool.json"

    @property
    def clean(self) -> Path:
        """Made by who wants expired segments to go now; allocate takes it away."""
        return self.run / "clean"

    @property
    def node_log(self) -> Path:
        return self.run / "node.log"

    def duty_lock(self, duty: str) -> Path:
        return self.run / f"{duty}.lock"


@dataclass(frozen=True, slots=True)
class Runtime:
    """Shared memory, doorbells and sockets of a node: in memory, mode 0700, short (a socket's path has 107 bytes)."""

    root: Path

    @classmethod
    def of(cls, store: Path, base: Path) -> "Runtime":
        """`base` is a directory in memory; the name is a hash of the store's absolute path."""
        return cls(base / hashlib.sha256(str(store).encode()).hexdigest()[:16])

    @property
    def positions(self) -> Path:
        return self.root / "positions"

    @property
    def queue_ends(self) -> Path:
        return self.root / "queue_ends"

    @property
    def secret(self) -> Path:
        """What the node's own pieces show put: see `towline.node.secret`."""
        return self.root / "secret"

    @property
    def put_stats(self) -> Path:
        """What put took, per queue; put writes it."""
        return self.root / "put_stats"

    @property
    def get_stats(self) -> Path:
        """What serve answered, per queue; serve writes it."""
        return self.root / "get_stats"

    @property
    def page_cache(self) -> Path:
        """Which page cache holds what the running node writes."""
        return self.root / "page_cache"

    @property
    def known(self) -> Path:
        """What a killed node left in memory, while the next one recovers."""
        return self.root / "known.json"

    @property
    def pool(self) -> Path:
        """The transient store pool's buffers; they outlive a killed node until its next start."""
        return self.root / "pool"

    def bell(self, duty: str) -> Path:
        return self.root / f"{duty}.bell"

    def socket(self, name: str) -> Path:
        return self.root / f"{name}.sock"
