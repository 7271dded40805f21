"""Bits that flip in a store under a node that runs: on the disk and in the page cache alike, for every process."""

from pathlib import Path

from .nodes import SEGMENT, TestNode


def flip(node: TestNode, marked: bytes) -> int:
    """One bit in the middle of these bytes, which stand once in the log. The log offset of that byte."""
    found = [(path, at) for path in sorted(node.store.commitlog.iterdir()) for at in _places(path, marked)]
    ((path, at),) = found
    at += len(marked) // 2
    with path.open("r+b") as file:
        file.seek(at)
        byte = file.read(1)[0]
        file.seek(at)
        file.write(bytes([byte ^ 4]))
    return int(path.name) + at


def _places(path: Path, marked: bytes) -> list[int]:
    data = path.read_bytes()
    assert len(data) == SEGMENT
    at = data.find(marked)
    return [] if at < 0 else [at, *(data.find(marked, at + 1) for _ in range(data.count(marked) - 1))]
