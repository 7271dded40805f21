"""A run of `towline bench layouts` as two pictures: what is put, and what is kept, by the number of queues."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from towline.loadtest.page import PLOT

from .putting import ASYNC, ONE_LOG, PER_QUEUE, PER_QUEUE_WHOLE, SYNC
from .report import NAMES, figures

PUT, KEPT = "layouts-put.png", "layouts-kept.png"
COLOURS: Final = {ONE_LOG: "#1b6ca8", PER_QUEUE: "#d77310", PER_QUEUE_WHOLE: "#9b59b6"}
FIELDS: Final = {
    PUT: (
        ("put, SYNC_FLUSH, messages/s", SYNC, "per_s"),
        ("syncs a second, SYNC_FLUSH", SYNC, "syncs_per_s"),
        ("put, ASYNC_FLUSH, messages/s in a burst", ASYNC, "per_s"),
        ("p99 of a group in us, ASYNC_FLUSH, steady load", ASYNC, "steady_p99_us"),
    ),
    KEPT: (
        ("reading a queue from memory, MB/s", ASYNC, "read_mb_s"),
        ("reading a queue from the disk, MB/s", ASYNC, "read_cold_mb_s"),
        ("kill -9 until every queue can be read, s", ASYNC, "whole_s"),
        ("files", ASYNC, "files"),
    ),
}


def draw(directory: Path, result: Mapping[str, Any]) -> list[Path]:
    """The files. All axes are logarithmic."""
    directory.mkdir(parents=True, exist_ok=True)
    for name, fields in FIELDS.items():
        with mpl.rc_context(PLOT):
            figure = Figure(figsize=(10, 6), layout="constrained")
            for field, (title, flush, wanted) in zip(figure.subplots(2, 2).flatten(), fields, strict=True):
                _curves(field, title, {system: figures(result, flush, system, wanted) for system in COLOURS})
            figure.savefig(directory / name, dpi=110)
    return [directory / name for name in FIELDS]


def _curves(field: Axes, title: str, by_system: Mapping[str, Mapping[int, float]]) -> None:
    for system, found in by_system.items():
        if found:
            queues = sorted(found)
            values = [found[each] for each in queues]
            field.plot(queues, values, "o-", label=NAMES[system], color=COLOURS[system], linewidth=1.2, markersize=4)
    field.set_title(title, fontsize=9)
    field.set_xscale("log")
    field.set_yscale("log")
    field.set_xlabel("queues", fontsize=8)
    if field.lines:
        field.legend(fontsize=7, frameon=False)
