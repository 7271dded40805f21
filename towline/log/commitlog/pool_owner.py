"""Whose a transient pool is: the file `owner.json` beside its buffers. A supervisor reads it, so it imports little."""

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

OWNER_NAME: Final = "owner.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolOwner:
    """Whose bytes a pool holds: one start of a node on one directory, within one boot of the machine.

    `begin` is the log's end at that start: nothing before it is in a buffer. `tail_crc` is that of the bytes before it,
    `flushed` what the state file said then. `directory` is the inode of commitlog/: a copy of the store, though it lies
    at the same path and has the same identity, has another. `pool` is where the buffers lie, which depends on the
    environment of whoever started the node.
    """

    boot_id: str
    generation: int
    store_id: str
    device: int
    directory: int
    segment_size: int
    begin: int
    tail_crc: int
    flushed: int
    pool: str


def encode_owner(owner: PoolOwner) -> bytes:
    return json.dumps(asdict(owner), indent=1).encode()


def read_owner(path: Path) -> PoolOwner | None:
    """None if there is no such file, or it is not whole."""
    try:
        content: dict[str, Any] = json.loads(path.read_bytes())
        return PoolOwner(**content)
    except (FileNotFoundError, ValueError, TypeError):
        return None
