"""kept.toml of a store: settings that were changed while the node ran, and that each start of it goes by.

Written by the supervisor, and by `towline config unset` while no node runs.
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from towline.errors import StoreNotWritable, UnreadableSettings
from towline.log.files.segment_files import sync_directory
from towline.log.files.store_files import write_atomically
from towline.places import Store
from towline.runtime.settings import SNAKES, read_toml

_HEAD: Final = """\
# Changed while the node ran, by `towline config set --keep`. Read at each start of the node: what stands here wins over
# the node's file of settings, the environment and flags win over what stands here; `towline config unset` ends that.
"""


def read_kept(store: Store) -> dict[str, Any]:
    """Value by key, as the file spells them; empty without it. Raises UnreadableSettings."""
    return read_toml(store.kept_settings) if store.kept_settings.exists() else {}


def write_kept(store: Store, kept: Mapping[str, Any]) -> None:
    """Raises what `write_atomically` raises, and StoreNotWritable."""
    path = store.kept_settings
    if kept:
        write_atomically(path, _toml_of(kept))
    elif path.exists():
        try:
            path.unlink()
        except OSError as error:
            raise StoreNotWritable(str(path), error.strerror or str(error)) from None
        sync_directory(path.parent)


def without(store: Store, keys: Sequence[str]) -> tuple[dict[str, Any], dict[str, Any]]:
    """(what stays kept, what does not) when these keys are to be kept no more, without keys all. A file that cannot be
    read goes as a whole then, to kept.toml.bak; where keys are named, UnreadableSettings is raised."""
    try:
        kept = read_kept(store)
    except UnreadableSettings:
        if keys:
            raise
        _put_aside(store.kept_settings)
        return {}, {}
    meant = {SNAKES.get(key, key) for key in keys} | set(keys)
    gone = {key: value for key, value in kept.items() if not keys or key in meant or SNAKES.get(key) in meant}
    return {key: value for key, value in kept.items() if key not in gone}, gone


def _put_aside(path: Path) -> None:
    try:
        path.replace(path.with_name(f"{path.name}.bak"))
    except OSError as error:
        raise StoreNotWritable(str(path), error.strerror or str(error)) from None
    sync_directory(path.parent)


def _toml_of(kept: Mapping[str, Any]) -> bytes:
    """A string of JSON is one of TOML but for DEL, and so are numbers and switches."""
    lines = [f"{key} = {json.dumps(value, ensure_ascii=False)}\n" for key, value in sorted(kept.items())]
    return (_HEAD + "".join(lines).replace("\x7f", "\\u007f")).encode()
