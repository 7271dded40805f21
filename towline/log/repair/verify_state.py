"""Verification of the small files of a store: durable offset, checkpoint, identity, config/, and leftovers.

`durable` has a CRC in each slot, `checkpoint`, `identity.json` and the files of config/ a check that Towline writes. A
file with a check must be laid out byte for byte as Towline writes it, so no bit of it is unchecked. Without one it is a
real broker's, of which only the form can be checked.
"""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, Final

import numpy as np

from towline.errors import MalformedFile
from towline.format.files import checkpoint as checkpoint_format
from towline.format.files import durable_slots
from towline.format.files.checkpoint import CHECKED_SIZE, Checkpoint
from towline.format.files.durable import Durable
from towline.format.files.epochs import Epochs
from towline.format.files.epochs import decode as decode_epochs
from towline.format.files.epochs import encode as encode_epochs
from towline.format.files.topics import DELETED, SYSTEM_PREFIXES, SYSTEM_TOPICS, read_topics
from towline.log.files import config_file
from towline.log.files.mirrored_file import MirroredFile, read_mirrored
from towline.log.files.store_files import last_settings
from towline.log.state import identity
from towline.log.state.epoch_file import EpochFile
from towline.log.state.floors import LOG_END
from towline.log.state.in_sync_file import InSyncFile
from towline.log.state.queue_minima import MINIMA
from towline.log.state.queue_minima import NAME as MINIMA_FILE
from towline.log.state.role_file import load_role
from towline.log.state.truncation_file import TruncationFile
from towline.places import Store

from .verify_report import REPAIR, START, Findings, Weight

_MEMBERS: Final = {
    "topics.json": {"dataVersion", "topicConfigTable", DELETED},
    "consumerOffset.json": {"dataVersion", "groupTopicMap", "offsetTable", "pullOffsetTable"},
    "delayOffset.json": {"dataVersion", "offsetTable", LOG_END},
    "timerOffset.json": {"cancelsFrom", "deliveredDue", "deliveredOffset", "from", "upTo", LOG_END},
    "transactionOffset.json": {"halfOffset", "opOffset", LOG_END},
    "subscriptionGroup.json": {"dataVersion", "forbiddenTable", "subscriptionGroupTable"},
    "messageRequestMode.json": {"messageRequestModeMap"},
    MINIMA_FILE: {MINIMA},
}
_FILES: Final = (
    "abort",
    "lock",
    "checkpoint",
    "durable",
    "identity.json",
    "kept.toml",
    "reserve",
    "brokerIdentity",
    "epochFileCheckpoint",
)
_BACKUP: Final = ".bak"
_DIRECTORY: Final = "it is a directory"
_NAMED_MAX: Final = 5  # topics of one sentence


def verify_durable(store: Store, segment_size: int, findings: Findings) -> Durable | None:
    """The state that holds; None without the file, or if neither slot is whole."""
    path = store.durable
    if not path.exists():
        if store.identity.exists():
            findings.add(path, 0, 0, "NO_DURABLE")
        return None
    if path.is_dir():
        findings.add(path, 0, durable_slots.SIZE, "DURABLE", _DIRECTORY)
        return None
    data = path.read_bytes()
    try:
        _, state = durable_slots.decode(data, str(path))
    except MalformedFile as error:
        findings.add(path, 0, max(len(data), durable_slots.SIZE), "DURABLE", error.problem)
        return None
    for at, end in durable_slots.torn(data):
        findings.add(path, at, end, "DURABLE_SLOT")
    if state.sync_failed:
        said = f"a sync of the log failed, only bytes before offset {state.flushed} are surely on the disk"
        findings.add(path, 0, len(data), "SYNC_FAILED", said)
    if state.flushed < state.log_min or state.segment_base != state.flushed - state.flushed % segment_size:
        findings.add(path, 0, len(data), "DURABLE_STATE")
    return state


def verify_checkpoint(store: Store, findings: Findings) -> Checkpoint | None:
    """The checkpoint; None without one that can be read."""
    path = store.checkpoint
    if not path.exists():
        return None
    if path.is_dir():
        findings.add(path, 0, CHECKED_SIZE, "CHECKPOINT", _DIRECTORY, remedy=REPAIR)
        return None
    data = path.read_bytes()
    try:
        found = checkpoint_format.decode(data, str(path))
    except MalformedFile as error:
        findings.add(path, 0, min(len(data), CHECKED_SIZE), "CHECKPOINT", error.problem)
        return None
    if len(data) != checkpoint_format.SIZE:
        said = f"a checkpoint has {checkpoint_format.SIZE} bytes, this file has {len(data)}"
        findings.add(path, 0, len(data), "CHECKPOINT", said)
    fields = checkpoint_format.LAYOUT.size
    for place in np.flatnonzero(np.frombuffer(data, np.uint8)[fields : checkpoint_format.CHECK_AT]):
        at = fields + int(place)
        findings.add(path, at, at + 1, "CHECKPOINT", "a byte behind the fields is not zero")
    return found


def verify_times(store: Store, found: Checkpoint, last_store_timestamp: int, findings: Findings) -> None:
    """An unclean start of a real broker trusts these times: none may be later than the newest record."""
    for name in ("physic_msg_timestamp", "logics_msg_timestamp", "index_msg_timestamp"):
        at = checkpoint_format.LAYOUT.offset[name]
        if getattr(found, name) > last_store_timestamp:
            said = f"{name} {getattr(found, name)} is later than the newest record, {last_store_timestamp}"
            findings.add(store.checkpoint, at, at + 8, "CHECKPOINT_AHEAD", said)


def verify_identity(store: Store, findings: Findings) -> None:
    """Raises StoreOfAnotherVersion: what this program finds in such a store means nothing."""
    path = store.identity
    file = identity.IdentityFile(store.root)
    if not path.exists():
        return
    if path.is_dir():
        findings.add(path, 0, 0, "IDENTITY", _DIRECTORY)
        return
    data = path.read_bytes()
    try:
        found = file.load()
    except MalformedFile as error:
        rule = "IDENTITY_CHECK" if "check" in error.describe() else "IDENTITY"
        findings.add(path, 0, len(data), rule, error.describe())
        return
    if found is not None:
        _compare(path, data, identity.encode(found), "IDENTITY_FORM", findings)


def verify_epochs(store: Store, findings: Findings) -> Epochs:
    """The list of the file itself; empty without one that can be read."""
    path, file = store.epochs, EpochFile(store)
    for one in (path, file.backup):
        if one.is_dir():
            findings.add(one, 0, 0, "EPOCHS", _DIRECTORY)
            return ()
    if file.is_healed:
        findings.add(path, 0, 0, "EPOCHS_TORN")
    found: Epochs = ()
    for one in (file.backup, path):
        data = one.read_bytes() if one.exists() else b""
        try:
            found = decode_epochs(data, str(one)) if data else ()
        except MalformedFile as error:
            weight = Weight.DAMAGE if one == path or file.is_healed else Weight.NOTE
            findings.add(one, 0, len(data), "EPOCHS", error.problem, weight=weight)
            continue
        if found:
            _compare(one, data, encode_epochs(found), "EPOCHS_FORM", findings)
    return found


def verify_config(store: Store, findings: Findings, *, running: bool) -> None:
    """Every JSON file of config/ with the generation before it. A `running` node writes new ones."""
    paths = sorted(store.config.iterdir()) if store.config.is_dir() else []
    for path in paths:
        if path.name.endswith(".tmp") and not running:
            findings.add(path, 0, path.stat().st_size, "LEFTOVER", remedy=REPAIR)
    names = {path.name.removesuffix(_BACKUP) for path in paths}
    for name in sorted(name for name in names if name.endswith(".json")):
        _generations(store.config / name, store.config / (name + _BACKUP), findings)


def verify_settings(store: Store, findings: Findings) -> None:
    """Of the last start. Without them nobody knows how many entries an index file has that is not of the usual size."""
    path = store.settings
    if path.exists() and not last_settings(store):
        findings.add(path, 0, path.stat().st_size, "SETTINGS")


def verify_words(store: Store, findings: Findings, *, running: bool) -> None:
    """What binds a node towards others: each word in two copies, as a start reads them."""
    _readable(store.role, partial(load_role, store), "ROLE_LOST", findings)
    _readable(store.truncate, TruncationFile(store).load, "TRUNCATION_LOST", findings)
    sets = InSyncFile(store)
    for path, lost in ((store.in_sync, "IN_SYNC_LOST"), (store.promise, "PROMISE_LOST")):
        file = MirroredFile(path)
        try:
            found = sets.load() if path == store.in_sync else file.load()
        except MalformedFile as error:
            size = path.stat().st_size if path.exists() else 0
            findings.add(path, 0, size, lost, error.problem)
            continue
        if found is not None and not file.is_whole and not running:  # who runs may be between the two
            torn = path if read_mirrored(path) is None else file.backup
            size = torn.stat().st_size if torn.exists() else 0
            plain = torn == file.backup and (not size or read_mirrored(torn) is not None)
            findings.add(torn, 0, size, "WORD", weight=Weight.NOTE if plain else Weight.HEALS)


def _readable(path: Path, load: Callable[[], object], rule: str, findings: Findings) -> None:
    try:
        load()
    except MalformedFile as error:
        findings.add(path, 0, path.stat().st_size if path.exists() else 0, rule, error.problem)


def verify_topics(store: Store, topics: set[str], findings: Findings) -> None:
    """Topics that have queues stand in topics.json, but for those that nobody makes by hand."""
    path = store.config / "topics.json"
    content = readable(path) or readable(path.with_name(path.name + _BACKUP)) or {}
    known = set(content.get("topicConfigTable", {})) | set(content.get(DELETED, {})) | SYSTEM_TOPICS
    unknown = sorted(topic for topic in topics - known if not topic.startswith((*SYSTEM_PREFIXES, "%")))
    if unknown:
        named = ", ".join(unknown[:_NAMED_MAX]) + (", ..." if len(unknown) > _NAMED_MAX else "")
        said = f"{len(unknown)} topics have queues, but no configuration: {named}"
        findings.add(path, 0, 0, "TOPIC_UNKNOWN", said)


def _generations(primary: Path, backup: Path, findings: Findings) -> None:
    content, before = readable(primary), readable(backup)
    for path, found in ((primary, content), (backup, before)):
        if found is not None:
            _form(path, found, findings)
    if content is None:
        size = primary.stat().st_size if primary.exists() else 0
        if before is not None:
            findings.add(primary, 0, size, "CONFIG")
        elif size or (backup.exists() and backup.stat().st_size):
            findings.add(primary if size else backup, 0, size or backup.stat().st_size, "CONFIG_LOST")
    elif backup.exists() and before is None:
        findings.add(backup, 0, backup.stat().st_size, "CONFIG", "the generation before the file cannot be read")


def _form(path: Path, content: dict[str, Any], findings: Findings) -> None:
    data = path.read_bytes()
    if config_file.CHECK.encode() in data:
        _compare(path, data, config_file.encode(content), "CONFIG_FORM", findings)
    elif strange := content.keys() - known_members(path, content).keys():
        findings.add(path, 0, len(data), "CONFIG_MEMBER", f"nobody writes a member {sorted(strange)[0]!r}")


def readable(path: Path) -> dict[str, Any] | None:
    """The content of a file of config/; None if it cannot be read, or holds no table where it should."""
    content = config_file.read_config(path)
    if content is not None and path.name.removesuffix(_BACKUP) == "topics.json":
        try:
            read_topics(content, str(path))
        except MalformedFile:
            return None
        if "topicConfigTable" not in content:
            return None
    return content


def known_members(path: Path, content: dict[str, Any]) -> dict[str, Any]:
    """The content without members that nobody writes."""
    known = _MEMBERS.get(path.name.removesuffix(_BACKUP))
    return {name: value for name, value in content.items() if known is None or name in known}


def _compare(path: Path, data: bytes, expected: bytes, rule: str, findings: Findings) -> None:
    """A row for the bytes between the first and the last that differ."""
    if data == expected:
        return
    size = min(len(data), len(expected))
    differs = np.flatnonzero(np.frombuffer(data[:size], np.uint8) != np.frombuffer(expected[:size], np.uint8))
    first = int(differs[0]) if len(differs) else size
    end = int(differs[-1]) + 1 if len(data) == len(expected) else max(len(data), len(expected))
    findings.add(path, first, end, rule)


def verify_leftovers(store: Store, findings: Findings, *, running: bool) -> None:
    """`abort`, staging/ and files that are none of a store's."""
    if running:
        return
    if store.abort.exists():
        findings.add(store.abort, 0, store.abort.stat().st_size, "CLOSED_UNCLEANLY")
    for path in sorted(store.staging.iterdir()) if store.staging.is_dir() else ():
        remedy = START if path.is_file() else REPAIR
        findings.add(path, 0, path.stat().st_size, "LEFTOVER", remedy=remedy)
    for path in sorted(store.root.iterdir()):
        if path.name.removesuffix(_BACKUP) not in _FILES and path.is_file():
            findings.add(path, 0, path.stat().st_size, "UNKNOWN_FILE", weight=Weight.NOTE)
