"""What a master keeps of its groups on disk: offsets every few seconds, settings as soon as they change."""

import logging
from collections.abc import Callable
from typing import Any

from towline.errors import TowlineError
from towline.format.groups import OffsetTable, groups_content, offsets_content, read_groups, read_offsets
from towline.format.topics import DataVersion
from towline.log.config_file import ConfigFile
from towline.places import Store
from towline.runtime.clock import Clock

from .files import GROUPS, OFFSETS, Saver, load
from .offsets import Offsets
from .table import Groups

Then = Callable[[TowlineError | None], None]


class _Waiting:
    """For the end of several jobs; told the first thing that went wrong."""

    def __init__(self, jobs: int, then: Then) -> None:
        self._jobs, self._then = jobs, then
        self._error: TowlineError | None = None

    def ended(self, error: TowlineError | None) -> None:
        self._jobs -= 1
        self._error = self._error or error
        if not self._jobs:
            self._then(self._error)


class GroupStore:
    """`interval_ms` between two writes of the offsets; none while nothing changed."""

    def __init__(
        self, store: Store, offsets: Offsets, groups: Groups, clock: Clock, log: logging.Logger, interval_ms: int
    ) -> None:
        self._offsets_file = ConfigFile(store.config / OFFSETS)
        self._groups_file = ConfigFile(store.config / GROUPS)
        self._offsets, self._groups = offsets, groups
        self._clock, self._log, self._interval_ms = clock, log, interval_ms
        self._saver = Saver()
        self._versions = {OFFSETS: DataVersion(), GROUPS: DataVersion()}
        self._saved = {OFFSETS: 0, GROUPS: 0}  # `changes` that the newest job holds
        self._jobs: dict[int, tuple[str, list[Then]]] = {}
        self._due_ms = clock.monotonic_ms() + interval_ms

    def load(self) -> None:
        """Raises MalformedFile when both generations of a file are damaged."""
        offsets = load(self._offsets_file, read_offsets, self._log)
        groups = load(self._groups_file, read_groups, self._log)
        if offsets is not None:
            self._versions[OFFSETS] = offsets.data_version
            self._offsets.load(offsets.offsets)
        if groups is not None:
            self._versions[GROUPS] = groups.data_version
            self._groups.load(groups)

    @property
    def awaited(self) -> bool:
        """Whether somebody waits for a file."""
        return any(waiting for _, waiting in self._jobs.values())

    @property
    def due_ms(self) -> int:
        return self._due_ms

    def turn(self, now_ms: int) -> None:
        """Starts what is due and tells whoever waits for what has ended."""
        for number, error in self._saver.finished():
            name, waiting = self._jobs.pop(number)
            if error is not None:
                self._log.error("%s is not saved, which is tried again: %s", name, error)
                self._saved[name] = -1
            for then in waiting:
                then(error)
        if now_ms >= self._due_ms:
            self._due_ms = now_ms + self._interval_ms
            self.save()

    def save(self, then: Then | None = None) -> None:
        """Writes what changed; `then` is called when it is durable, or with what went wrong."""
        self._save_offsets()
        self._save_groups()
        if then is None:
            return
        if not self._jobs:
            then(None)
            return
        waiting = _Waiting(len(self._jobs), then)
        for _, thens in self._jobs.values():
            thens.append(waiting.ended)

    def save_groups(self) -> None:
        """The settings alone, when they changed."""
        self._save_groups()

    def close(self) -> None:
        """Saves the last state, and waits for it."""
        self.save()
        self._saver.close()
        self.turn(0)

    def _save_offsets(self) -> None:
        if self._offsets.changes == self._saved[OFFSETS]:
            return
        table = OffsetTable(offsets=self._offsets.snapshot(), data_version=self._next(OFFSETS))
        self._submit(OFFSETS, self._offsets_file, lambda: offsets_content(table), self._offsets.changes)

    def _save_groups(self) -> None:
        if self._groups.changes == self._saved[GROUPS]:
            return
        table = self._groups.snapshot(self._next(GROUPS))
        self._submit(GROUPS, self._groups_file, lambda: groups_content(table), self._groups.changes)

    def _submit(self, name: str, file: ConfigFile, content: Callable[[], dict[str, Any]], changes: int) -> None:
        self._jobs[self._saver.submit(file, content)] = (name, [])
        self._saved[name] = changes

    def _next(self, name: str) -> DataVersion:
        before = self._versions[name]
        found = DataVersion(
            counter=before.counter + 1, state_version=before.state_version, timestamp=self._clock.now_ms()
        )
        self._versions[name] = found
        return found
