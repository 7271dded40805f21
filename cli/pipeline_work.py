"""Does the work of `towline pipeline list` and `towline pipeline ship`."""

from pathlib import Path

from rich.console import Console

from towline.pipeline.registry import JOBS
from towline.pipeline.ship import ship as pack

from .output import add_row, show, table


def list_jobs(as_json: bool) -> None:
    def render(console: Console) -> None:
        made = table("job", "what it does")
        for name, entry in JOBS.items():
            add_row(made, name, entry.summary)
        console.print(made)

    show({"jobs": [{"job": name, "summary": entry.summary} for name, entry in JOBS.items()]}, as_json, render)


def ship(file: Path, as_json: bool) -> None:
    path = pack(file)
    size = path.stat().st_size
    show({"file": path, "bytes": size}, as_json, lambda console: console.print(f"{path}: {size:,} bytes", markup=False))
