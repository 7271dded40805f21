"""Does the work of `towline kafka import`."""

import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from shlex import quote
from typing import Any, Final, TypeVar

from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn, TransferSpeedColumn

from towline.kafka.exchange.import_plan import Choices
from towline.kafka.exchange.import_report import document_of, topic_rows
from towline.kafka.exchange.importing import Imported, abandon, import_directory, is_unfinished
from towline.places import Store

from .interrupts import Interrupts
from .output import add_row, progress_console, show, table

PASSES: Final = 3  # over the source: measured, written, compared
Work = TypeVar("Work")
Done = TypeVar("Done")


class Here:
    """Unit after unit, by this process."""

    parallel = 1

    def __init__(self, bar: Progress, task: Any) -> None:
        self._bar, self._task = bar, task

    def run(self, what: str, work: Callable[[Work], Done], parts: Sequence[Work]) -> list[Done]:
        self._bar.update(self._task, description=what)
        return [work(part) for part in parts]


def import_directory_into(
    source: Path, root: Path, choices: Choices, config: Path | None, given_up: bool, as_json: bool
) -> int:
    """Imports, or with `given_up` takes an unfinished import away. Raises what `importing` does."""
    store = Store(root.resolve())
    if given_up:
        return _abandon(store, as_json)
    started = time.monotonic()
    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn())
    try:
        with Interrupts(), Progress(
            *columns, TimeRemainingColumn(), console=progress_console(), transient=True
        ) as bar:  # fmt: skip
            task = bar.add_task("look", total=PASSES * _size(source) or None)
            work = Here(bar, task)
            done = import_directory(source, store, choices, config, work, lambda size: bar.advance(task, size))
    except KeyboardInterrupt:
        if is_unfinished(store):
            again = f"towline kafka import {quote(str(source))} --store {quote(str(store.root))}"
            sys.stderr.write(f"towline: the same command goes on; `{again} --abandon` takes away what is written\n")
        raise
    seconds = time.monotonic() - started
    show(document_of(done, seconds), as_json, lambda console: _render(console, done, seconds))
    return 0


def _abandon(store: Store, as_json: bool) -> int:
    source = abandon(store)
    said = f"the unfinished import of {source or 'a log directory'} was taken away; {store.root} is as it was before"
    show({"abandoned": source, "store": str(store.root)}, as_json, lambda console: console.print(said, markup=False))
    return 0


def _size(source: Path) -> int:
    return sum(path.stat().st_size for path in source.glob("*-*/*.log"))


def _render(console: Console, done: Imported, seconds: float) -> None:
    made = table("topic", "from", "#queues", "#messages", "#bytes", "#holes", "#dropped", "#left out")
    for row in topic_rows(done.plan):
        dropped = row["aborted"] + row["tombstones_dropped"]
        numbers = (row["messages"], row["body_bytes"], row["holes"], dropped, row["left_out"] + row["left_open"])
        add_row(made, row["topic"], row["source"], row["queues"], *(f"{number:,}" for number in numbers))
    console.print(made)
    found = document_of(done, seconds)
    console.print(
        f"{found['messages']:,} messages in {found['segments']} segments, log {found['from']:,} to {found['end']:,}; "
        f"{seconds:.1f} s, {found['source_bytes'] / seconds / 1e6:,.0f} MB/s of the source"
    )
    console.print("verified: yes, every record was read back and compared with the source")
    console.print(f"next: towline master start --store {quote(str(done.plan.store))}", markup=False, soft_wrap=True)
