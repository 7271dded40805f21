"""The work of `towline store clean`."""

import time
from pathlib import Path
from typing import Final

from towline.errors import StartFailed
from towline.node.process.context import open_node
from towline.node.report.status import node_facts
from towline.runtime.positions import Position

from .output import show

TAKEN_MAX_S: Final = 5.0
STEP_S: Final = 0.05


def clean_store(root: Path, as_json: bool) -> None:
    """Asks allocate, and waits until it has heard. Raises NodeNotRunning; StartFailed when nobody hears it."""
    node_facts(root)
    node = open_node(root)
    low = node.positions.get(Position.LOG_MIN)
    node.store.clean.touch()
    deadline = time.monotonic() + TAKEN_MAX_S
    while node.store.clean.exists():
        if time.monotonic() > deadline:
            node.store.clean.unlink(missing_ok=True)
            raise StartFailed("cleaning", f"allocate did not hear of it within {TAKEN_MAX_S:.0f} s")
        time.sleep(STEP_S)
    hours = node.settings.file_reserved_time
    result = {"asked": True, "log_min": low, "file_reserved_time": hours}
    told = f"segments older than {hours} h go now, the log began at {low:,}; run/node.log names each"
    show(result, as_json, lambda console: console.print(told))
