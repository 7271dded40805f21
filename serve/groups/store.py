"""Saves a master's groups: offsets every few seconds, everything else as soon as it changes."""

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from towline.clock import Clock
from towline.errors import MalformedFile, TowlineError
from towline.format.files.groups import OffsetTable, groups_content, offsets_content, read_groups, read_offsets
from towline.format.files.topics import DataVersion
from towline.log.files.config_file import ConfigFile, read_undamaged
from towline.log.files.config_writer import Saver
from towline.places import Store

from .files import FILTERS, GROUPS, OFFSETS, load, log_left_out
from .filters import GroupFilters
from .offsets import RESETS, Key, Offsets, read_resets, resets_content
from .request_modes import FILE as MODES
from .request_modes import RequestModes
from .table import Groups

Then = Callable[[TowlineError | None], None]
Content = Callable[[], dict[str, Any]]
_UNSAVED: Final = -1


@dataclass(slots=True)
class StoredFile:
    """One file. `changes` returns the number of changes of its content; the thread calls what `content` returns."""

    file: ConfigFile
    changes: Callable[[], int]
    content: Callable[[DataVersion], Content]
    version: DataVersion = field(default_factory=DataVersion)
    saved: int = 0  # `changes` that the newest job holds
    runs: bool = False  # a job; there is one at a time, so that a slow disk does not pile up copies
    waiting: list[Then] = field(default_factory=list)  # for the end of the job
    next: list[Then] = field(default_factory=list)  # for the end of the one after it

    @property
    def name(self) -> str:
        return self.file.path.name


class GroupStore:
    """The files. Offsets are written every `interval_ms`, if they changed."""

    def __init__(
        self,
        store: Store,
        offsets: Offsets,
        groups: Groups,
        filters: GroupFilters | None,
        modes: RequestModes,
        clock: Clock,
        log: logging.Logger,
        interval_ms: int,
    ) -> None:
        self._offsets, self._groups, self._filters, self._modes = offsets, groups, filters, modes
        self._clock, self._log, self._interval_ms = clock, log, interval_ms
        self._others: Mapping[str, Any] = {}  # members of consumerOffset.json that only other brokers write
        self._saver = Saver("groups")
        self._jobs: dict[int, StoredFile] = {}
        self._due_ms = clock.monotonic_ms() + interval_ms
        self._kept_offsets = StoredFile(ConfigFile(store.config / OFFSETS), lambda: offsets.changes, self._of_offsets)
        self._kept_groups = StoredFile(ConfigFile(store.config / GROUPS), lambda: groups.changes, self._of_groups)
        self._at_once = [self._kept_groups]
        if filters is not None:
            file = ConfigFile(store.config / FILTERS)
            self._at_once.append(StoredFile(file, lambda: filters.changes, lambda _: _still(filters.content())))
        self._kept_modes = StoredFile(
            ConfigFile(store.config / MODES), lambda: modes.changes, lambda _: _still(modes.content())
        )
        self._at_once.append(self._kept_modes)

    def load(self) -> None:
        """Loads the files. Raises MalformedFile when both generations of offsets, settings or modes are damaged."""
        found = load(self._kept_offsets.file, _read, self._log)
        if found is not None:
            table, resets = found
            self._kept_offsets.version = table.data_version
            self._offsets.load(table.offsets, resets)
            self._others = table.others
            log_left_out(self._kept_offsets.file, table.left_out, self._log)
        groups = load(self._kept_groups.file, read_groups, self._log)
        if groups is not None:
            self._kept_groups.version = groups.data_version
            self._groups.load(groups)
            log_left_out(self._kept_groups.file, groups.left_out, self._log)
        modes = load(self._kept_modes.file, lambda content, path: (content, path), self._log)
        if modes is not None:
            self._modes.load(*modes)
        if self._filters is not None:
            self._load_filters(self._filters)

    @property
    def files(self) -> list[ConfigFile]:
        """The files of offsets and settings."""
        return [self._kept_offsets.file, self._kept_groups.file]

    @property
    def awaited(self) -> bool:
        """Whether an answer waits for a file."""
        return any(kept.waiting or kept.next for kept in self._jobs.values())

    @property
    def due_ms(self) -> int:
        return self._due_ms

    def cycle(self, now_ms: int) -> None:
        """Starts writes that are due, and calls back those that waited for finished ones."""
        self._finish(now_ms)
        for kept in self._at_once:
            if kept.saved != _UNSAVED:
                self._save(kept)
        if now_ms >= self._due_ms:
            self._due_ms = now_ms + self._interval_ms
            self.save()

    def save(self, then: Then | None = None) -> None:
        """Writes what changed; `then` is called when it is durable, or with the error."""
        for kept in (self._kept_offsets, *self._at_once):
            self._save(kept)
        if then is None:
            return
        if not self._jobs:
            then(None)
            return
        ended = _SaveWaiter(len(self._jobs), then).ended
        for kept in self._jobs.values():
            (kept.waiting if kept.changes() == kept.saved else kept.next).append(ended)

    def close(self) -> None:
        """Saves the last state, and waits for it."""
        for _ in range(2):  # what runs, then what changed since it began
            self.save()
            self._saver.close()
            self._finish(0)

    def _finish(self, now_ms: int) -> None:
        for number, error in self._saver.finished():
            kept = self._jobs.pop(number)
            kept.runs = False
            if error is not None:
                self._log.error("%s is not saved, which is tried again: %s", kept.name, error)
                kept.saved = _UNSAVED
                self._due_ms = max(self._due_ms, now_ms + self._interval_ms)
            ended, kept.waiting, kept.next = kept.waiting, kept.next, []
            if kept.waiting:
                self._save(kept)
            for then in ended:
                then(error)

    def _load_filters(self, filters: GroupFilters) -> None:
        """Loads subscriptions. Without them every record is evaluated when it is pulled, so damage is logged and then
        ignored.

        The generation before a damaged one is not used: reput may have evaluated other expressions since.
        """
        file = self._at_once[1].file
        path = file.path if file.path.exists() else file.backup
        try:
            content = read_undamaged(path)
            if content is not None:
                table = filters.read(content, str(path))
                for each, error in table.refused:
                    asked = (each.consumer_group, each.topic)
                    self._log.warning("%s: the subscription of %s to %s is left out: %s", path, *asked, error)
                filters.load(table)
        except MalformedFile as error:
            self._log.warning("bitmaps speak for nobody until they are subscribed again: %s", error)

    def _of_offsets(self, version: DataVersion) -> Content:
        table = OffsetTable(offsets=self._offsets.snapshot(), data_version=version, others=self._others)
        resets = self._offsets.resets()
        return lambda: offsets_content(table) | ({RESETS: resets_content(resets)} if resets else {})

    def _of_groups(self, version: DataVersion) -> Content:
        table = self._groups.snapshot(version)
        return lambda: groups_content(table)

    def _save(self, kept: StoredFile) -> None:
        changes = kept.changes()
        if changes == kept.saved or kept.runs:
            return
        before = kept.version
        kept.version = DataVersion(
            counter=before.counter + 1, state_version=before.state_version, timestamp=self._clock.now_ms()
        )
        self._jobs[self._saver.submit(kept.file, kept.content(kept.version))] = kept
        kept.saved, kept.runs = changes, True


class _SaveWaiter:
    """Waits for the end of several writes; calls back with the first error."""

    def __init__(self, jobs: int, then: Then) -> None:
        self._jobs, self._then = jobs, then
        self._error: TowlineError | None = None

    def ended(self, error: TowlineError | None) -> None:
        self._jobs -= 1
        self._error = self._error or error
        if not self._jobs:
            self._then(self._error)


def _read(content: dict[str, Any], path: str) -> tuple[OffsetTable, dict[Key, int]]:
    """Raises MalformedFile."""
    resets = read_resets(content.pop(RESETS, {}), path)
    return read_offsets(content, path), resets


def _still(content: dict[str, Any]) -> Content:
    return lambda: content
