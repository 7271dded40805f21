"""`towline store repair --yes`: carries out a RepairPlan. No process runs on the store.

After a kill at any point a second run finishes: bytes are kept before they are overwritten, the mark up to which queues
are synced is lowered before a record is replaced that they point to, and queues and index are built beside the old ones
and exchanged; where that takes two renames, a start between them derives queues and index itself.
"""

import os
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Final

from towline.format.files.topics import QUEUE_NUMS_DEFAULT, TopicConfig, TopicTable, topics_content
from towline.format.record import blank, skipped
from towline.log.commitlog.commit_log import CommitLogReader
from towline.log.files import config_file
from towline.log.files.config_file import ConfigFile
from towline.log.files.segment_files import sync_file, zero_range
from towline.log.files.sparse_file import written_end
from towline.log.files.store_files import last_settings, write_atomically
from towline.log.queues.consume_queue import ConsumeQueueFiles
from towline.log.recovery.quarantine import Quarantine
from towline.log.recovery.recovery import RecoverySettings, recover
from towline.log.state import identity
from towline.log.state.durable_file import DurableFile
from towline.log.state.role_file import SLAVE, Role, save_role
from towline.places import Store

from .rebuild import Rebuild, now_ms, replace_directory, save_derived, sync_files
from .repair_plan import RepairPlan, Step, Stretch
from .verify_state import known_members, readable

_WORD: Final = 8
SOLE_MASTER: Final = "ASYNC_MASTER"  # as the settings of the last start say it
_LOG_ACTIONS: Final = ("skip", "cut", "blank", "state", "checkpoint", "rebuild", "recover", "remove")


class Repair:
    """`run` once. `note` hears of each step before it is done, `progress` bytes of the log that were read."""

    def __init__(
        self,
        store: Store,
        settings: RecoverySettings,
        plan: RepairPlan,
        *,
        delays_ms: tuple[int, ...] = (),
        note: Callable[[str], None] = lambda _: None,
        progress: Callable[[int], None] = lambda _: None,
    ) -> None:
        self._store, self._settings, self._plan, self._delays = store, settings, plan, delays_ms
        self._note, self._progress = note, progress
        self._diverged, self._now = Quarantine(store.root), now_ms()

    def run(self) -> list[Step]:
        """What was done, with what was kept. Raises RepairRefused before anything; SyncFailed, DiskFull later."""
        if self._plan.refused:
            raise self._plan.refused[0]
        done = [self._file(step) for step in self._plan.steps if step.action in _FILE_ACTIONS]
        steps = [step for step in self._plan.steps if step.action in _LOG_ACTIONS]
        if steps:
            self._take_back()
            done += self._log_bytes(steps)
            self._rebuild()
            self._save_state()
            self._note("recover")
            recover(self._store, self._settings)
            done += [step for step in steps if step.action not in ("skip", "blank", "checkpoint")]
        return done

    # --- the log

    def _take_back(self) -> None:
        """Until queues are derived anew, a start must not trust them."""
        self._note("take back")
        store, plan = self._store, self._plan
        if not (plan.queues or plan.index) or plan.verified.findings.of("DURABLE") or not store.durable.exists():
            return
        file = DurableFile(store.root)
        state = file.load()
        if state is not None:
            file.save(replace(state, queues_durable=plan.verified.log.log_min))
        file.close()

    def _log_bytes(self, steps: list[Step]) -> list[Step]:
        done = []
        stretches = {stretch.damage.start: stretch for stretch in self._plan.stretches}
        for step in steps:
            path = self._store.root / step.path
            if step.action == "skip":
                self._note(f"skip {step.path} byte {step.at}")
                kept = self._skip(path, stretches[int(path.name) + step.at])
                done.append(replace(step, kept=str(kept)))
            elif step.action == "blank":
                kept = self._keep(path, step.at, step.at + blank.SIZE)
                _write(path, step.at, blank.encode(self._settings.segment_size - step.at))
                done.append(replace(step, kept=str(kept)))
            elif step.action == "checkpoint":
                done.append(replace(step, kept=self._taken(path)))
        return done

    def _skip(self, path: Path, stretch: Stretch) -> Path:
        """Its first word is stored last: until then the stretch is as damaged as it was."""
        damage, base = stretch.damage, int(path.name)
        start, end = damage.start - base, damage.end - base
        kept = self._keep(path, start, end)
        at, head = start, b""
        for size, lost in stretch.spans:
            data = skipped.encode(size, base + at, lost, max(damage.timestamp, 1), with_crc=stretch.with_crc)
            if at == start:
                head, data = data[:_WORD], bytes(_WORD) + data[_WORD:]
            _write(path, at, data)
            at += size
        if at < end:
            rest = blank.encode(end - at) if stretch.blank else b""
            _zero(path, at, end)
            if at == start:
                head = rest
            elif rest:
                _write(path, at, rest)
        sync_file(path)
        self._note(f"head {damage.start}")
        if head:
            _write(path, start, head)
        sync_file(path)
        return kept

    def _keep(self, path: Path, start: int, end: int) -> Path:
        base = int(path.name)
        return self._diverged.keep(path, base, base + start, base + end, self._now)

    # --- queues and index

    def _rebuild(self) -> None:
        plan, store = self._plan, self._store
        if not (plan.queues or plan.index):
            return
        scratch = store.staging / "repair"
        shutil.rmtree(scratch, ignore_errors=True)
        scratch.mkdir(parents=True)
        reader = CommitLogReader(store.commitlog, self._settings.segment_size)
        reader.load()
        queues, index = scratch / store.consumequeue.name, scratch / store.index.name
        self._note("rebuild")
        try:
            Rebuild(
                reader,
                self._settings,
                self._delays,
                queues if plan.queues else None,
                index if plan.index else None,
                store.consumequeue,
            ).run(plan.verified.log.log_min, plan.end, self._progress)
        finally:
            reader.close()
        if plan.queues and store.consumequeue_ext.exists():  # the new queues hold tags' hashes, and lead to no unit
            self._note(f"take {store.consumequeue_ext.name}")
            self._diverged.take(store.consumequeue_ext, self._now)
        for made, target in ((queues, store.consumequeue), (index, store.index)):
            if made.exists():
                replace_directory(made, target, lambda old: self._diverged.take(old, self._now), self._note)
        scratch.rmdir()

    def _save_state(self) -> None:
        """The log and what is derived were read to the end, and everything is synced now."""
        plan, store = self._plan, self._store
        self._note("state")
        sync_files(store.commitlog, store.consumequeue, store.index)
        if store.durable.exists() and any(step.path == store.durable.name for step in plan.steps):
            keep = self._diverged.take if store.durable.is_dir() else self._diverged.keep_file
            keep(store.durable, self._now)
        save_derived(store, self._settings.segment_size, plan.verified.log.log_min, plan.end)

    # --- single files

    def _file(self, step: Step) -> Step:
        path = self._store.root / step.path
        self._note(f"{step.action} {step.path}")
        kept = _FILE_ACTIONS[step.action](self, path)
        return replace(step, kept=kept)

    def _move(self, path: Path) -> str:
        if path.parent == self._store.staging and path.is_file() and _is_zero(path):
            path.unlink()  # a segment under construction: nothing was ever written to it
            return ""
        for derived, anew in ((self._store.consumequeue, self._plan.queues), (self._store.index, self._plan.index)):
            if anew and path.is_relative_to(derived):
                return ""  # it goes with the directory, which is read once more before
        return self._taken(path)

    def _identity(self, path: Path) -> str:
        kept = self._diverged.keep_file(path, self._now)
        found = identity.IdentityFile(self._store.root).load()
        assert found is not None
        write_atomically(path, identity.encode(found))
        return str(kept)

    def _config(self, path: Path) -> str:
        content = readable(path)
        if content is not None:
            kept = str(self._diverged.keep_file(path, self._now))
            write_atomically(path, config_file.encode(known_members(path, content)))
            return kept
        kept = self._taken(path)
        file = ConfigFile(path.with_name(path.name.removesuffix(".bak")))
        if readable(file.path) is not None:
            return kept
        before = readable(file.backup)
        if before is None:
            self._taken(file.path)
            self._taken(file.backup)
            before = topics_content(self._topics()) if file.path.name == "topics.json" else None
        if before is not None:
            file.save(before)
        return kept

    def _in_sync(self, path: Path) -> str:
        """Doubt first: a node that forgets its set must never look as if it had had none."""
        write_atomically(self._store.doubt, b"")
        return self._both(path)

    def _role(self, path: Path) -> str:
        """A slave takes no puts and may be promoted; a master that was replaced meanwhile must not be one again (H19).

        Unless it is known to have been none, it wrote as a sole master: what it then confirmed is not forgotten.
        """
        sole = last_settings(self._store).get("broker_role", SOLE_MASTER) == SOLE_MASTER
        self._taken(path.with_name(path.name + config_file.BACKUP))
        kept = str(self._diverged.keep_file(path, self._now)) if path.is_file() else self._taken(path)
        # In place of the other: without a role a node begins with that of its command.
        save_role(self._store, Role(SLAVE, 0, "what it was could not be read: `towline promote` it", -1, sole=sole))
        self._taken(path.with_name(path.name + config_file.BACKUP))
        return kept

    def _both(self, path: Path) -> str:
        """Takes both generations; where the newer one is kept."""
        self._taken(path.with_name(path.name + config_file.BACKUP))
        return self._taken(path)

    def _topics(self) -> TopicTable:
        """The topics that the queues show, each with as many queues as were written to, four at least."""
        counts: dict[str, int] = {}
        for topic, queue_id in ConsumeQueueFiles(
            self._store.consumequeue, self._settings.queue_file_size, 1
        ).list_queues():
            counts[topic] = max(counts.get(topic, QUEUE_NUMS_DEFAULT), queue_id + 1)
        topics = {
            name: TopicConfig(topic_name=name, read_queue_nums=count, write_queue_nums=count)
            for name, count in counts.items()
        }
        return TopicTable(topics=topics)

    def _taken(self, path: Path) -> str:
        return str(self._diverged.take(path, self._now)) if os.path.lexists(path) else ""


_FILE_ACTIONS: Final[dict[str, Callable[[Repair, Path], str]]] = {
    "move": Repair._move,
    "identity": Repair._identity,
    "config": Repair._config,
    "in_sync": Repair._in_sync,
    "role": Repair._role,
    "truncation": Repair._both,
}


def _is_zero(path: Path) -> bool:
    size = path.stat().st_size
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return written_end(fd, 0, size) == 0
    finally:
        os.close(fd)


def _write(path: Path, at: int, data: bytes) -> None:
    fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    try:
        rest = memoryview(data)
        while rest:
            size = os.pwrite(fd, rest, at)
            rest, at = rest[size:], at + size
    finally:
        os.close(fd)


def _zero(path: Path, start: int, end: int) -> None:
    fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    try:
        zero_range(fd, start, end)
    finally:
        os.close(fd)
