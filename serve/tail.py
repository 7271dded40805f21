"""What a reader on the node's machine has to know to follow the log's end by itself (decision 0060)."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from towline.node.process.context import Node
from towline.node.store.confirmed import confirmed_parts
from towline.runtime.positions import GENERATION_WORD, Position


def tail_facts(node: Node) -> Mapping[str, Any]:
    """For the welcome: the positions file, and which of its words say what is confirmed, dispatched, and of which
    start of the node they are."""
    return {
        "positions": str(node.runtime.positions.resolve()),
        "file": _identity(node.runtime.positions),
        "directory": _identity(node.store.commitlog),
        "generation": [GENERATION_WORD, node.generation],
        "confirmed": [part.word for part in confirmed_parts(node.settings, node.positions)],
        "dispatched": Position.DISPATCHED.word,
        "segment_size": node.settings.mapped_file_size_commit_log,
    }


def _identity(path: Path) -> list[int]:
    found = path.stat()
    return [found.st_dev, found.st_ino]
