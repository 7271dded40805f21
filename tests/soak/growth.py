"""What a cluster under a drill uses, and whether that grows: memory, descriptors, files beside the messages."""

from collections import defaultdict
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from statistics import median
from typing import Final

from towline.loadtest.drill.ground import Ground
from towline.loadtest.drill.nodes import DrillNode
from towline.node.process.context import runtime_of

MEMORY, DESCRIPTORS, FILES = "MiB of memory", "descriptors", "files"
# From the middle third of a run to its last: what caches, and processes that begin anew, may differ by.
MORE_MAX: Final = {MEMORY: 12.0, DESCRIPTORS: 8.0, FILES: 16.0}
SHARE_MAX: Final = 0.1
# Messages, what is derived from them, and what was cut off and kept: they grow with the load and the faults.
GROWING: Final = ("commitlog", "consumequeue", "index", "diverged")
Levels = dict[tuple[str, str], float]


def levels_of(node: DrillNode) -> Levels:
    """By unit and process; files by node."""
    found: Levels = {}
    for label, pid in node.pids().items():
        with suppress(OSError):  # a process that ends just now
            place = Path("/proc") / str(pid)
            lines = (place / "status").read_text().splitlines()
            kilobytes = next(int(line.split()[1]) for line in lines if line.startswith("RssAnon:"))
            found[MEMORY, label] = kilobytes / 1024
            found[DESCRIPTORS, label] = float(len(list((place / "fd").iterdir())))
    store = node.store.root
    kept = [path for path in store.rglob("*") if path.relative_to(store).parts[0] not in GROWING]
    found[FILES, f"node {node.number}"] = float(len(kept) + len(list(runtime_of(store).root.rglob("*"))))
    return found


class Growth:
    """Of each unit and process the greatest level of all nodes at each look."""

    def __init__(self, levels: Callable[[DrillNode], Levels] = levels_of) -> None:
        self.looks: list[Levels] = []
        self._levels = levels

    def look(self, ground: Ground) -> None:
        """While nothing is broken."""
        found: Levels = {}
        for node in ground.nodes:
            for what, level in self._levels(node).items():
                found[what] = max(level, found.get(what, 0.0))
        self.looks.append(found)

    def grown(self) -> list[str]:
        """A sentence for each that used clearly more in the last third of the looks than in the middle one."""
        return [
            f"{what} of {label}: {before:.0f}, later {after:.0f}"
            for (what, label), (before, after) in self.thirds().items()
            if after > before * (1 + SHARE_MAX) + MORE_MAX[what]
        ]

    def thirds(self) -> Mapping[tuple[str, str], tuple[float, float]]:
        """The median of the middle third, and of the last one."""
        columns: dict[tuple[str, str], list[float]] = defaultdict(list)
        for levels in self.looks:
            for what, level in levels.items():
                columns[what].append(level)
        third = {what: len(column) // 3 for what, column in columns.items()}
        return {
            what: (median(column[third[what] : -third[what]]), median(column[-third[what] :]))
            for what, column in columns.items()
            if third[what]
        }
