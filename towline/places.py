"""Paths: the store directory (spec section 1, plus Towline's own files) and the runtime directory of a node.

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
    def batchconsumequeue(self) -> Path:
        """Of a RocketMQ's topics of the kind BatchCQ; nothing here reads these queues."""
        return self.root / "batchconsumequeue"

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
    def restoring(self) -> Path:
        """Stands here while a store is restored from a backup: it is none yet."""
        return self.root / "restoring.json"

    @property
    def kafka_import(self) -> Path:
        """Segments of an import from Kafka, and its plan, until they are a part of the log."""
        return self.root / "kafka-import"

    @property
    def kafka_import_ended(self) -> Path:
        """The same of one that has ended, while it is removed: nobody reads it."""
        return self.root / "kafka-import.ended"

    @property
    def kafka_import_begun(self) -> Path:
        """Stands here while the segments of an import become a part of the log: the store is none until they are."""
        return self.kafka_import / "begun.json"

    @property
    def epochs(self) -> Path:
        """Under which master each part of the log was written (spec 9.5)."""
        return self.root / "epochFileCheckpoint"

    @property
    def ha(self) -> Path:
        """What this node is and has promised to its peers: role, promise, in-sync set, a truncation under way."""
        return self.root / "ha"

    @property
    def role(self) -> Path:
        return self.ha / "role.json"

    @property
    def promise(self) -> Path:
        return self.ha / "promise.json"

    @property
    def in_sync(self) -> Path:
        return self.ha / "in_sync.json"

    @property
    def truncate(self) -> Path:
        """Where the next start cuts the log off, and why (H17)."""
        return self.ha / "truncate.json"

    @property
    def doubt(self) -> Path:
        """It is there where something acknowledged from memory may be lost, and no master has made that good since."""
        return self.ha / "doubt"

    @property
    def accept_loss(self) -> Path:
        """The operator's word that bytes which were confirmed here may be cut off; the truncation takes it away."""
        return self.ha / "accept_loss"

    @property
    def order(self) -> Path:
        """What the supervisor has to do next: promote, agree, truncate."""
        return self.run / "order.json"

    @property
    def order_result(self) -> Path:
        """What became of the last order."""
        return self.run / "order_result.json"

    @property
    def asked(self) -> Path:
        """What this start is to agree about with its peers: the wanted role, an order, what the operator allows."""
        return self.run / "asked.json"

    @property
    def run(self) -> Path:
        """What belongs to a running node: duty locks, effective settings, node.json, the node's log."""
        return self.root / "run"

    @property
    def settings(self) -> Path:
        return self.run / "settings.json"

    @property
    def changes(self) -> Path:
        """Changes of settings that the running node is asked for, and what came of each."""
        return self.run / "changes"

    @property
    def kept_settings(self) -> Path:
        """Settings that were changed while a node ran, and are to hold from then on."""
        return self.root / "kept.toml"

    @property
    def node(self) -> Path:
        return self.run / "node.json"

    @property
    def recovery(self) -> Path:
        """What the last start's recovery found and did, and how long each part took."""
        return self.run / "recovery.json"

    @property
    def known(self) -> Path:
        """What a node that was stopped in order leaves to the next start."""
        return self.run / "known.json"

    @property
    def link(self) -> Path:
        """Of a slave: which master it follows, or why none. Written by the receiver whenever that changes."""
        return self.run / "link.json"

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
        """The secret that the node's own processes show put: see `towline.node.process.secret`."""
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
    def wrote(self) -> Path:
        """Which page cache has had everything that nodes wrote here since one of them ran, whatever ended them."""
        return self.root / "wrote"

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
