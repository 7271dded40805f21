"""Small files of a store, of backups and of archives: JSON behind a check."""

import contextlib
import json
import tempfile
from collections.abc import Callable
from dataclasses import asdict
from functools import cache
from pathlib import Path
from typing import Any, Final

from tests.fuzz.target import Grammar, Target, hold
from towline.errors import MalformedFile, StoreOfAnotherVersion
from towline.log.backup.backup_manifest import BackupFile, Manifest
from towline.log.files import config_file
from towline.log.files.config_file import CHECK, ConfigFile, read_config, read_undamaged
from towline.log.state import identity, in_sync_file
from towline.log.state.archived import Archived
from towline.log.state.identity import Identity, IdentityFile
from towline.log.state.in_sync_file import InSyncRecord
from towline.log.state.queue_minima import NAME as MINIMA
from towline.log.state.queue_minima import load_minima, minima_content
from towline.log.state.role_file import Role, load_role
from towline.log.state.truncation_file import TruncationFile, read_kept
from towline.pipeline.archive_manifest import ArchivedFile, ArchivedSegment, Head
from towline.places import Store
from towline.serve.groups.offsets import read_resets
from towline.serve.groups.request_modes import RequestModes

PATH: Final = "a/file"
Content = dict[str, Any]
_CUT: Final = {"point": 100, "end": 900, "epoch": 257, "node": 1, "master": 2, "why": "it diverged", "time": 17}
_KEPT: Final = _CUT | {
    "accept_loss": False,
    "epochs": [[0, 0], [257, 100]],
    "files": [["00000000000000000000", 100, 900]],
}
_ROW: Final = BackupFile("commitlog/00000000000000000000", 1 << 20, 7, 17)
_MANIFEST: Final = Manifest(
    number=1, node=0, broker_name="b", role="master", store_id="ab" * 16, cluster="c", epochs=(), segment_size=1 << 20,
    start=0, end=17, time_ms=1, version="0.1.0", segments=(_ROW,), small=(_ROW,),
)  # fmt: skip
_FILE: Final = ArchivedFile(
    name="data/x.parquet", topic="T", day="2026-11-21", rows=3, first=0, last=9, first_ms=1, last_ms=2, size=9, crc=7
)
_SEGMENT: Final = ArchivedSegment(base=0, start=0, data_end=10, probe=5, records=3, plain=True, files=(_FILE,))


@cache
def _directory() -> Path:
    """A directory for files that are read by their paths; it goes with the process, or with its worker's scratch."""
    made = tempfile.TemporaryDirectory(prefix="tlfuzz-")
    _KEEP.append(made)
    return Path(made.name)


_KEEP: Final[list[Any]] = []


def _checked(content: Content) -> bytes:
    return config_file.encode(json.loads(json.dumps(content)))


def with_check(data: bytes) -> bytes:
    """The same content with the check that it should have, where it is JSON at all."""
    try:
        content = json.loads(data)
        return config_file.encode(content) if isinstance(content, dict) else data
    except (ValueError, RecursionError, TypeError):
        return data


def _in_file(name: str, data: bytes) -> Path:
    path = _directory() / name
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(data)
    return path


def _config(data: bytes) -> object:
    path = _in_file("config.json", data)
    found = read_undamaged(path)
    hold(read_config(path) == found, "both readers say the same")
    if found is None or CHECK not in data.decode("utf-8", "replace"):
        return found is None
    hold(ConfigFile(path).load() == found, "a file that is whole is what is loaded")
    return len(found)


def _identity(data: bytes) -> object:
    path = _in_file(identity.NAME, data)
    found = IdentityFile(path.parent).load()
    assert found is not None
    path.write_bytes(identity.encode(found))
    hold(IdentityFile(path.parent).load() == found, "what was read is written as it was")
    return "check" in json.loads(data)


def _role(data: bytes) -> object:
    store = Store(_directory())
    _in_file(str(store.role.relative_to(store.root)), data)
    found = load_role(store)
    return None if found is None else found.role


def _truncation(data: bytes) -> object:
    store = Store(_directory())
    path = _in_file(str(store.truncate.relative_to(store.root)), data)
    found = TruncationFile(store).load()
    if found is not None:
        hold(0 <= found.point <= found.end, "it names a part of the log")
    return len(read_kept(path).files)


def _minima(data: bytes) -> object:
    store = Store(_directory())
    _in_file(str((store.config / MINIMA).relative_to(store.root)), data)
    found = load_minima(store)
    _in_file(str((store.config / MINIMA).relative_to(store.root)), _checked(minima_content(found)))
    hold(load_minima(store) == found, "what was read is written as it was")
    return len(found)


def _content(data: bytes) -> Content:
    """The object in a file whose check is right."""
    path = _in_file("content.json", data)
    return read_undamaged(path) or {}


def _in_sync(data: bytes) -> object:
    found = in_sync_file.record_of(_content(data), PATH)
    hold(in_sync_file.record_of(in_sync_file.facts_of(found), PATH) == found, "what was read is written as it was")
    return len(found.ids)


def _manifests(data: bytes) -> object:
    """Each reader says of each content that it is none of its own, or takes it."""
    content = _content(data)
    found = []
    readers: tuple[Callable[[Content, str], object], ...] = (Manifest.of, ArchivedSegment.of, Head.of, Archived.of)
    for read in readers:
        with contextlib.suppress(MalformedFile):
            found.append(type(read(dict(content), PATH)).__name__)
    resets = content.get("resets")
    with contextlib.suppress(MalformedFile):
        found.append(str(len(read_resets(resets, PATH))))
    modes = RequestModes()
    with contextlib.suppress(MalformedFile):
        modes.load(content, PATH)
        found.append(str(len(modes.content())))
    return tuple(found)


TARGETS: Final = (
    Target(
        name="state.config",
        covers=("towline.log.files.config_file:read_config", "towline.log.files.config_file:read_undamaged"),
        seeds=lambda: [_checked(_KEPT), _checked({"offsetTable": {"T@g": {"0": 1}}}), b'{"a":1}', b""],
        run=_config, refusals=(MalformedFile,), grammar=Grammar.JSON, mend=with_check, weight=0.5,
        words=(b'"offsetTable":', b"{0:1}"),
    ),
    Target(
        name="state.identity", covers=("towline.log.state.identity:IdentityFile.load",),
        seeds=lambda: [identity.encode(Identity(cluster="c", store_id="ab" * 16))],
        run=_identity, refusals=(MalformedFile, StoreOfAnotherVersion), grammar=Grammar.JSON, weight=0.5,
    ),
    Target(
        name="state.role", covers=("towline.log.state.role_file:load_role",),
        seeds=lambda: [_checked(asdict(Role("master", 257, "why", 1))), _checked(asdict(Role("slave", 0, "", -1)))],
        run=_role, refusals=(MalformedFile,), grammar=Grammar.JSON, mend=with_check, weight=0.5,
    ),
    Target(
        name="state.truncation",
        covers=(
            "towline.log.state.truncation_file:TruncationFile.load", "towline.log.state.truncation_file:read_kept",
            "towline.format.files.epochs:checked",
        ),
        seeds=lambda: [_checked(_KEPT)], run=_truncation, refusals=(MalformedFile,), grammar=Grammar.JSON,
        mend=with_check, weight=0.5,
    ),
    Target(
        name="state.in-sync", covers=("towline.log.state.in_sync_file:record_of",),
        seeds=lambda: [_checked(in_sync_file.facts_of(InSyncRecord(257, 3, 1, 0b111, 2)))],
        run=_in_sync, refusals=(MalformedFile,), grammar=Grammar.JSON, mend=with_check, weight=0.5,
    ),
    Target(
        name="state.minima", covers=("towline.log.state.queue_minima:load_minima",),
        seeds=lambda: [_checked({"minima": {"T": {"0": {"logOffset": 5, "offset": 17}}}}), b"{}"],
        run=_minima, refusals=(MalformedFile,), grammar=Grammar.JSON, mend=with_check, weight=0.5,
    ),
    Target(
        name="state.manifests",
        covers=(
            "towline.log.backup.backup_manifest:Manifest.of", "towline.pipeline.archive_manifest:ArchivedSegment.of",
            "towline.pipeline.archive_manifest:Head.of", "towline.log.state.archived:Archived.of",
            "towline.serve.groups.offsets:read_resets", "towline.serve.groups.request_modes:RequestModes.load",
        ),
        seeds=lambda: [
            _checked(asdict(_MANIFEST)), _checked(asdict(_SEGMENT)),
            _checked(asdict(Head(store_id="ab", broker_name="b", segment_size=1 << 20))),
            _checked(asdict(Archived(1 << 20, 900, 7, "/a", 17))), _checked({"resets": {"g": {"T": 3}}}),
            _checked({"messageRequestModeMap": {"T": {"g": {"mode": "POP", "popShareQueueNum": 1}}}}),
        ],
        run=_manifests, refusals=(MalformedFile,), grammar=Grammar.JSON, mend=with_check, weight=0.5,
    ),
)  # fmt: skip
