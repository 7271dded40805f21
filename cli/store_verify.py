"""The work of `towline store verify`."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn, TransferSpeedColumn

from towline.log.repair.verify import Verified, verify
from towline.log.repair.verify_report import Weight
from towline.node.store.store_access import node_kept_away, verify_beside_node
from towline.node.store.store_shape import shape_of
from towline.places import Store

from .output import add_row, progress_console, show, sized, table

_WORDS: Final = {Weight.NOTE: "sound", Weight.HEALS: "to be healed", Weight.DAMAGE: "damaged"}
_MB: Final = 1_000_000


def verify_store(root: Path, config: Path | None, as_json: bool) -> int:
    """Status 0, 1 or 2. A store on which a node runs is read up to what it dispatched."""
    store = Store(root.resolve())
    settings, delays_ms = shape_of(store, config)
    with node_kept_away(store) as limit, reading(store, "verifying") as progress:
        found = verify_beside_node(lambda: verify(store, settings, delays_ms=delays_ms, limit=limit, progress=progress))
    show(document_of(found), as_json, lambda console: render(console, found))
    return int(found.weight)


@contextmanager
def reading(store: Store, what: str) -> Iterator[Callable[[int], None]]:
    """A bar on standard error: bytes of the log, speed, and the time that is left."""
    total = sum(path.stat().st_size for path in store.commitlog.iterdir()) if store.commitlog.is_dir() else 0
    columns = (TextColumn(what), BarColumn(), DownloadColumn(), TransferSpeedColumn(), TimeRemainingColumn())
    with Progress(*columns, console=progress_console(), transient=True) as bar:
        task = bar.add_task(what, total=total or None)
        yield lambda size: bar.advance(task, size)


def document_of(found: Verified) -> dict[str, Any]:
    log = found.log
    return {
        "status": int(found.weight),
        "verdict": _WORDS[found.weight],
        "up_to": found.limit,
        "log": {"min": log.log_min, "end": log.end, "records": log.records},
        "segments": [
            {"base": one.base, "verdict": one.verdict, "records": one.records, "used": one.used} for one in log.segments
        ],
        "findings": [row.row() for row in found.findings.rows],
        "not_shown": [
            {"file": path, "rule": rule, "count": count} for (path, rule), count in found.findings.dropped.items()
        ],
        "seconds": round(found.seconds, 3),
        "bytes": found.bytes,
        "bytes_per_second": round(found.bytes / found.seconds),
    }


def render(console: Console, found: Verified) -> None:
    log = found.log
    segments = table("segment", "#records", "#bytes used", "verdict")
    for one in log.segments:
        add_row(segments, f"{one.base:020d}", f"{one.records:,}", f"{one.used:,}", one.verdict)
    console.print(segments)
    render_findings(console, found)
    speed = found.bytes / found.seconds / _MB
    console.print(f"{log.records:,} records, {sized(found.bytes)} in {found.seconds:.2f} s ({speed:,.0f} MB/s)")
    if found.limit is not None:
        console.print(f"a node runs on the store: it was read up to {found.limit:,}, the end of what was dispatched")
    console.print(f"the store is {_WORDS[found.weight]}")


def render_findings(console: Console, found: Verified) -> None:
    for row in found.findings.rows:
        told = f"{row.path} bytes {row.at} to {row.end}: {row.rule}, {row.sentence}; {row.remedy}"
        console.print(f"{row.weight.name.lower()}: {told}", soft_wrap=True, markup=False)
    for (path, rule), count in found.findings.dropped.items():
        console.print(f"{path}: {count:,} more of {rule}", markup=False)
