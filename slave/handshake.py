"""The slave's side of the replication handshake: its greeting, and its check of the master's welcome (H17, H18).

Where its log continues behind the common point, that tail is not the master's: the point is recorded durably, and the
node's next start truncates there. No position moves back before that.
"""

import zlib
from string import hexdigits
from typing import Any

from towline.errors import LinkRefused, MalformedFrame
from towline.format.files.epochs import Epochs, checked, cut, node_of, taken_over
from towline.log.commitlog.commit_log import CommitLogReader
from towline.log.state.durable_file import confirmed_durably, confirmed_within
from towline.log.state.epoch_file import EpochFile
from towline.log.state.identity import STORE_ID_BYTES
from towline.log.state.truncation_file import Truncation, TruncationFile, take_back_word
from towline.node.peers.handshake import own_facts
from towline.node.process.context import Node
from towline.node.roles.role_commands import TRUNCATE, submit_command
from towline.replication.handshake import number
from towline.runtime.positions import Position, Writer


class ReceiverHandshake:
    """`facts` makes a greeting, `agree` checks the welcome, then `before_bytes` is called for each slice."""

    def __init__(self, node: Node, log: CommitLogReader, epoch_written: Writer, file: EpochFile | None = None) -> None:
        self._node, self._log, self._epoch_written = node, log, epoch_written
        self._file = EpochFile(node.store) if file is None else file
        self._epochs: Epochs = self._file.load()
        self._coming: Epochs = ()
        self._before: int | None = None
        self._before_of = 0  # the epoch of the master whose bytes differed
        self._judged = False  # the welcome of the last greeting was checked
        self.ordered = False  # this node's next start is to cut its log: until then nothing is received
        self.epoch = 0  # of the master that is followed
        self._doubted_to: int | None = None  # where that one's log ended, of a node that may have lost something

    def order_truncation(self) -> None:
        """Orders the truncation. Raises StoreNotWritable, SyncFailed, DiskFull: then it is tried again."""
        submit_command(self._node.store.root, {"order": TRUNCATE})
        self.ordered = True

    def facts(self, end: int, low: int) -> dict[str, Any]:
        """The greeting of a log that holds [low, end)."""
        node, empty = self._node, end == low
        facts = self._own_facts()
        if empty:
            facts["store"] = ""  # an empty slave takes the master's store id over
        return facts | {
            "node": node.settings.broker_id,
            "instance": node.generation,
            "epochs": [] if empty else cut(self._epochs, end),
            "end": end,
            "empty": empty,
            "segment_size": node.settings.mapped_file_size_commit_log,
            "promised": node.positions.get(Position.PROMISED),
            "before": None if empty else self._before,
            "from_last": node.settings.sync_from_last_file,
            "seed": node.settings.seed,
            "seed_rate": node.settings.seed_byte_in_second,
        }

    def agree(self, welcome: dict[str, Any], end: int, low: int) -> int:
        """Checks the welcome and returns where the stream begins: at `end`, or anywhere for an empty log. `epoch` is
        followed then.

        Raises MalformedFrame; LinkRefused where the master is outdated or its log does not match ours. A truncation may
        have been ordered by then.
        """
        try:
            epoch, start, common = (number(welcome, name) for name in ("epoch", "start", "common"))
            size, crc, masters_end = (number(welcome, name) for name in ("tail_size", "tail_crc", "end"))
            masters = checked(welcome["epochs"])
        except (KeyError, TypeError, ValueError) as error:
            raise MalformedFrame(f"the master's welcome lacks a fact or has a wrong one: {error}") from None
        self._check_identity(welcome)
        self._judged = True
        self._check_epoch(epoch, masters)
        if self._before is not None and epoch != self._before_of:
            self._before = None
            raise LinkRefused("TAIL", "another master answers: it is greeted anew")
        if low == end:
            if start < low:
                raise MalformedFrame(f"the master wants to begin at {start}, our log at {low}")
        else:
            if not self._is_same(start, size, crc, end, low):
                self._before, self._before_of = common, epoch
                said = f"the {size} bytes before {start}, in epoch {common}, are not ours: one epoch back"
                raise LinkRefused("TAIL", said)
            if start < end:
                self._truncate(start, end, epoch)
        self._before = None
        self.epoch = epoch
        self._epochs = self._save(taken_over(() if low == end else cut(self._epochs, max(end, 1)), masters, start))
        self._coming = tuple(one for one in masters if one.start > start)
        self._doubted_to = masters_end if self._node.store.doubt.exists() else None
        self.holds(start)
        if take_back_word(self._node.store):
            self._node.log.warning("nothing that was confirmed is cut off: the operator's word to do so is taken back")
        return start

    def holds(self, end: int) -> None:
        """Notes that the log goes up to `end`: everything any master acknowledged stood in this master's log at the
        welcome."""
        if self._doubted_to is not None and end >= self._doubted_to:
            self._node.store.doubt.unlink(missing_ok=True)
            self._doubted_to = None

    def before_bytes(self, end: int) -> None:
        """Records epochs that begin below `end` on disk before those bytes are appended (H18)."""
        if self._coming and self._coming[0].start < end:
            begun = tuple(one for one in self._coming if one.start < end)
            self._epochs = self._save((*self._epochs, *begun))
            self._coming = self._coming[len(begun) :]

    def outdated(self) -> str:
        """Why the followed master is outdated; empty while it is not."""
        promised = self._node.positions.get(Position.PROMISED)
        if promised <= self.epoch:
            return ""
        return f"epoch {promised} was promised to node {node_of(promised)}, the master's is {self.epoch}"

    def _check_identity(self, welcome: dict[str, Any]) -> None:
        """Checks that the master states both ids; the link compares what both sides state."""
        cluster, store = welcome.get("cluster"), welcome.get("store")
        if cluster != self._node.settings.broker_cluster_name:
            raise MalformedFrame(f"the master names the cluster {cluster!r}")
        if not isinstance(store, str) or len(store) != 2 * STORE_ID_BYTES or set(store) - set(hexdigits):
            raise MalformedFrame(f"the master's store id is {store!r}")

    def _check_epoch(self, epoch: int, masters: Epochs) -> None:
        known = max(self._epochs[-1].number, self._node.positions.get(Position.PROMISED))
        if epoch < known:
            said = f"its epoch is {epoch}, and we know {known}: node {node_of(known)} is master, or was after it"
            raise LinkRefused("EPOCH", said)
        if masters and masters[-1].number > epoch:
            raise MalformedFrame(f"the master is of epoch {epoch}, and has bytes of {masters[-1].number}")

    def _is_same(self, point: int, size: int, crc: int, end: int, low: int) -> bool:
        """Whether the bytes before the point are ours; where all of our log would be cut there are none to compare."""
        first = max(low, self._log.segment_of(max(point - 1, 0)))
        if not low <= point <= end or (point > low and point - size < first):
            raise MalformedFrame(f"the master wants to begin at {point} after {size} bytes, our log is {low} to {end}")
        if point == low or not size:
            return True
        same = zlib.crc32(self._log.slice(point - size, point)) == crc
        self._log.close()
        return same

    def refused(self) -> bool:
        """Handles a failed greeting. True where no step back is left, so that an immediate retry is useless.

        A step back counts only for the master that it was found with.
        """
        judged, self._judged = self._judged, False
        lost = not judged and self._before is not None
        if lost:
            self._before = None
        return lost

    def _truncate(self, point: int, end: int, epoch: int) -> None:
        """Records the point of truncation; raises LinkRefused in any case."""
        node = self._node
        positions = (node.positions.get(Position.CONFIRMED), node.positions.get(Position.DISPATCHED))
        confirmed = confirmed_within(end, *positions, self._confirmed_durably())
        accepted = node.store.accept_loss.exists()
        if point < confirmed and not accepted:
            raise LinkRefused(
                "CONFIRMED",
                f"the master has our log only up to {point}, and up to {confirmed} it was confirmed here, so readers "
                f"have seen it: give these bytes up with `towline slave accept-loss --store {node.store.root}`, which "
                f"keeps them in diverged/ and has node {node.settings.broker_id} join; or let it be the master with "
                f"`towline promote --accept-loss --store {node.store.root}`",
            )
        why = f"its log goes on behind {point}, up to {end}, with what the master does not have"
        wanted = Truncation(
            point=point,
            end=end,
            epoch=cut(self._epochs, end)[-1].number,
            node=node.settings.broker_id,
            master=node_of(epoch),
            why=why,
            time=node.clock.now_ms(),
            accept_loss=accepted,
        )
        self._save_truncation(wanted)
        self.order_truncation()
        raise LinkRefused("TRUNCATE", f"{why}: it is cut there, and kept in diverged/")

    def _own_facts(self) -> dict[str, Any]:
        return own_facts(self._node, "slave")

    def _confirmed_durably(self) -> int:
        return confirmed_durably(self._node.store)

    def _save_truncation(self, wanted: Truncation) -> None:
        TruncationFile(self._node.store).save(wanted)

    def _save(self, epochs: Epochs) -> Epochs:
        if epochs:
            self._file.save(epochs)
            self._epoch_written.replace(epochs[-1].number)
        return epochs or self._epochs
