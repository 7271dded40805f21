"""The file `durable` of the store root: the offset up to which the log is synced (hazards H3, H5). flush writes it."""

import os
from dataclasses import replace
from pathlib import Path
from typing import Final

from towline.errors import MalformedFile, SyncFailed
from towline.format.files import durable_slots
from towline.format.files.checkpoint import Checkpoint
from towline.format.files.durable import Durable
from towline.log.files.store_files import write_atomically
from towline.places import Store

from .checkpoint_file import CheckpointFile

NAME: Final = "durable"


class DurableFile:
    """Two slots written in turn: a torn write leaves the state before it.

    A state that retracts something (an offset goes down, a sync failed) is written to both slots, so that no torn
    write restores the older state.
    """

    def __init__(self, store: Path) -> None:
        self.path = store / NAME
        self.state: Durable | None = None  # as loaded or saved last
        self._sequence = 0
        self._is_old = False  # as long as the file on the disk is
        self._fd = -1

    def load(self) -> Durable | None:
        """The newest valid state; None for a store without the file. Raises MalformedFile if no slot is valid."""
        try:
            data = self.path.read_bytes()
        except FileNotFoundError:
            return None
        self._sequence, self.state = durable_slots.decode(data, str(self.path))
        self._is_old = durable_slots.is_old(data)
        return self.state

    def save(self, state: Durable) -> Durable:
        """Writes `state` durably and returns it as written: `sync_failed` stays set once it was. Raises SyncFailed."""
        before = self.state if self.state is not None else self.load()
        if before is None:
            self._create(state)
            return state
        state = replace(state, sync_failed=state.sync_failed or before.sync_failed)
        self._write(state, slots=durable_slots.SLOT_COUNT if _takes_back(before, state) else 1)
        return state

    def clear_sync_failed(self) -> Durable:
        """Clears the flag. Only `store mend` calls this, after the range was written anew and synced."""
        before = self.state if self.state is not None else self.load()
        assert before is not None, f"{self.path} does not exist: nothing failed"
        state = replace(before, sync_failed=False)
        self._write(state, slots=durable_slots.SLOT_COUNT)
        return state

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def _create(self, state: Durable) -> None:
        write_atomically(self.path, durable_slots.first(state))
        self._sequence, self.state, self._is_old = 1, state, False

    def _write(self, state: Durable, *, slots: int) -> None:
        if self._is_old:
            self._create(state)  # its slots have no place of their own
            return
        if self._fd < 0:
            self._fd = os.open(self.path, os.O_WRONLY | os.O_CLOEXEC)
        for _ in range(slots):
            sequence = self._sequence + 1
            at = durable_slots.place(sequence)
            try:
                os.pwrite(self._fd, durable_slots.encode(sequence, state), at)
                os.fdatasync(self._fd)
            except OSError as error:
                end = at + durable_slots.SLOT_SIZE
                raise SyncFailed(str(self.path), at, end, error.errno or 0, error.strerror or "") from error
            self._sequence = sequence  # not before: a write that failed is tried again in the same slot
        self.state = state


def begins_too_late(state: Durable | None, first: int, checkpoint: CheckpointFile) -> bool:
    """Whether segments that were durable are missing before `first`, the base of the log's first one.

    A node records the minimum before it deletes anything; a real broker, which writes the checkpoint, does not.
    """
    return state is not None and state.log_min < min(first, state.flushed) and not checkpoint.others_wrote()


def confirmed_within(end: int, *marks: int) -> int:
    """The greatest of all marks of what was confirmed, within a log that ends at `end`: none is ever ahead of what was
    confirmed, all may be behind it."""
    return min(max(marks), end)


def confirmed_durably(store: Store) -> int:
    """The log offset that was confirmed by this node or its master, as the store's files record it once a second.

    Records are confirmed before they are dispatched to queues. In a real broker's checkpoint the field means another
    offset.
    """
    durable = DurableFile(store.root).load()
    file = CheckpointFile(store.root)
    try:
        checkpoint = Checkpoint() if file.others_wrote() else file.load() or Checkpoint()
    except MalformedFile:  # recovery writes it anew
        checkpoint = Checkpoint()
    return max(checkpoint.confirm_phy_offset, durable.queues_durable if durable is not None else 0)


def _takes_back(before: Durable, state: Durable) -> bool:
    return (
        state.sync_failed != before.sync_failed
        or state.flushed < before.flushed
        or state.queues_durable < before.queues_durable
        or state.log_min < before.log_min
    )
