"""Offsets of a group: the file of a broadcasting member, and where a queue without an offset begins.

The file is RocketMQ's offsetTable (one map per topic). It is replaced whole: a temporary file is written, synced and
renamed, then the directory is synced; the version before stays beside it as .bak.
"""

import fcntl
import json
import logging
import os
import threading
from collections.abc import Callable, Generator
from datetime import datetime
from pathlib import Path
from typing import Any

from towline.client.link.rpc import Reply
from towline.client.read.reader import Start, to_ms
from towline.link.unclosed import call_in_child, on_drop, renew

from .coordinator_rpc import Question
from .errors import OffsetsFileDamaged, OffsetsFileTaken, OffsetsNotSaved

log = logging.getLogger(__name__)
Offsets = dict[tuple[str, int], int]


class OffsetsFile:
    """The offsets file of a broadcasting member, locked by one consumer at a time. Raises OffsetsFileTaken, OSError."""

    def __init__(self, path: Path) -> None:
        self.path = path
        path.parent.mkdir(parents=True, exist_ok=True)
        lock = os.open(path.with_name(path.name + ".lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(lock)
            raise OffsetsFileTaken(str(path)) from None
        self._locks = [lock]  # empty once it is closed
        on_drop(self, _close_all, self._locks)
        call_in_child(self)
        self._guard = threading.Lock()  # a thread that commits, and the member's own
        self._known: Offsets | None = None  # what the file holds; None before it was read

    @property
    def _before(self) -> Path:
        return self.path.with_name(self.path.name + ".bak")

    def load(self) -> Offsets:
        """The offsets; empty without a file.

        A damaged or missing file is restored from its .bak, which is logged as an error.

        Raises OffsetsFileDamaged when that cannot be read either, OffsetsNotSaved when the file cannot be made anew.
        """
        with self._guard:
            return dict(self._loaded())

    def save(self, offsets: Offsets) -> None:
        """Merges `offsets` into the file: other queues stay. The file is durable when this returns.

        Raises OffsetsNotSaved; the file is then what it was. Before the first `load` also what that raises.
        """
        with self._guard:
            before = self._loaded()
            merged = {**before, **offsets}
            if merged != before:
                self._replace(merged)
                self._known = merged

    def _loaded(self) -> Offsets:
        if self._known is None:
            self._known = self._read()
        return self._known

    def _read(self) -> Offsets:
        trouble = f"{self.path} is missing"
        try:
            found = _read(self.path)
        except OffsetsFileDamaged as error:
            if not self._before.exists():
                raise
            found, trouble = None, error.describe()
        if found is None and (found := _read(self._before)) is not None:
            self._replace(found, keep=False)
            log.error("%s: its copy from before is used and takes its place, some messages will come again", trouble)
        return found or {}

    def _replace(self, offsets: Offsets, *, keep: bool = True) -> None:
        """`keep` makes the file that is there the one before."""
        try:
            self._write(offsets, keep=keep)
        except OSError as error:
            raise OffsetsNotSaved(str(self.path), str(error)) from None

    def _write(self, offsets: Offsets, *, keep: bool) -> None:
        table: dict[str, dict[str, int]] = {}
        for (topic, queue_id), offset in sorted(offsets.items()):
            table.setdefault(topic, {})[str(queue_id)] = offset
        temporary = self.path.with_name(self.path.name + ".tmp")
        with temporary.open("wb") as opened:
            opened.write(json.dumps({"offsetTable": table}, indent=1).encode())
            opened.flush()
            os.fsync(opened.fileno())
        if keep and self.path.exists():
            self._before.unlink(missing_ok=True)
            os.link(self.path, self._before)
        temporary.replace(self.path)
        directory = os.open(self.path.parent, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(directory)
        finally:
            os.close(directory)

    def close(self) -> None:
        _close_all(self._locks)

    def forked(self) -> None:
        """Closes the child's copy of the lock; the file stays locked by the parent."""
        renew(self._guard)
        self.close()


def _close_all(descriptors: list[int]) -> None:
    while descriptors:
        os.close(descriptors.pop())


def _read(path: Path) -> Offsets | None:
    """None when it is not there."""
    try:
        content = json.loads(path.read_bytes())
        return {
            (str(topic), int(queue_id)): int(offset)
            for topic, queues in content["offsetTable"].items()
            for queue_id, offset in queues.items()
        }
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise OffsetsFileDamaged(str(path), f"it holds no offset table: {error}") from None


def first_offsets(keys: list[tuple[str, int]], start: Start) -> Generator[Question, Reply, Offsets]:
    """Asks the node for the offset at which each of these queues begins."""
    found: Offsets = {}
    if isinstance(start, str):
        name = "min" if start == "first" else "max"
        for topic in sorted({topic for topic, _ in keys}):
            reply = yield Question("bounds", {"topic": topic})
            rows: dict[int, Any] = {int(row["queue"]): row for row in reply.facts["queues"]}
            found |= {key: int(rows[key[1]][name]) if key[1] in rows else 0 for key in keys if key[0] == topic}
        return found
    for topic, queue_id in keys:
        facts = {"topic": topic, "queue": queue_id, "time": to_ms(start), "boundary": "lower"}
        reply = yield Question("offset_by_time", facts)
        found[topic, queue_id] = int(reply.facts["offset"])
    return found


def first_offset(
    ask: Callable[[str, dict[str, Any], int], Reply], topic: str, queue_id: int, when: datetime | int, timeout_ms: int
) -> int:
    """The offset of the queue's first message that was stored at or after `when`."""
    facts = {"topic": topic, "queue": queue_id, "time": to_ms(when), "boundary": "lower"}
    return int(ask("offset_by_time", facts, timeout_ms).facts["offset"])
