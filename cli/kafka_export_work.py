"""Does the work of `towline kafka export`."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from towline.kafka.exchange.export import ExportResult, export
from towline.kafka.exchange.export_choice import source_of
from towline.kafka.exchange.export_partition import Exported, PartitionWork, write_partition
from towline.kafka.exchange.export_target import JOURNAL
from towline.kafka.exchange.export_words import Asked
from towline.spark.stores import StoreFacts

from .interrupts import Interrupts
from .output import add_row, progress_console, show, sized, table

__all__ = ["Asked", "export_topics"]

SHOWN_MAX: Final = 40
DAMAGES_SHOWN: Final = 10


def export_topics(asked: Asked, as_json: bool) -> int:
    """Raises what `source_of` and `export` do."""
    choices = asked.choices()
    with Interrupts():
        source = source_of(choices)
        messages = sum(each.of.end - each.of.start for each in source.choices)
        try:
            with _bar(messages) as progress:
                result = export(choices, source, _one_by_one, progress)
        except KeyboardInterrupt:
            _say_how_to_go_on(choices.root)
            raise
    show(result.document(), as_json, lambda console: _render(console, result))
    return 0


def _one_by_one(
    facts: StoreFacts, works: Sequence[PartitionWork], progress: Callable[[int], None]
) -> Iterator[tuple[PartitionWork, Exported]]:
    for work in works:
        yield work, write_partition(facts, work, progress)


def _say_how_to_go_on(root: Path) -> None:
    if (root / JOURNAL).exists():
        said = f"{root} has whole partitions alone: the same command goes on with those that are missing"
        progress_console().print(said, markup=False, soft_wrap=True)


@contextmanager
def _bar(messages: int) -> Iterator[Callable[[int], None]]:
    """Messages, each when it is written and when it was read back."""
    columns = (TextColumn("exporting"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=progress_console(), transient=True) as bar:
        task = bar.add_task("exporting", total=2 * messages)
        yield lambda count: bar.advance(task, count)


def _render(console: Console, result: ExportResult) -> None:
    made = table("partition", "#start", "#end", "#messages", "#holes", "#damaged", "#bytes")
    for each in result.partitions[:SHOWN_MAX]:
        counts = (f"{number:,}" for number in (each.start, each.end, each.digest.count, each.holes, each.damaged))
        add_row(made, each.name, *counts, sized(each.log_bytes))
    console.print(made)
    if len(result.partitions) > SHOWN_MAX:
        console.print(f"and {len(result.partitions) - SHOWN_MAX:,} more; --json has them all")
    size = sum(each.digest.bytes for each in result.partitions)
    said = f"{result.messages:,} messages in {len(result.partitions):,} partitions stand in {result.root}"
    rate = f"{result.seconds:.1f} s, {size / max(result.seconds, 1e-9) / 1e6:,.0f} MB/s"
    console.print(f"{said}, each compared with the store ({rate})", markup=False, soft_wrap=True)
    for line in _left_out(result):
        console.print(line, markup=False, soft_wrap=True)


def _left_out(result: ExportResult) -> Iterator[str]:
    if result.kept:
        yield f"{result.kept:,} of the partitions stood there from an attempt before"
    for name, count in result.left_properties.items():
        yield f"left out: property {name} of {count:,} messages"
    for topic, why in result.left_topics.items():
        yield f"left out: topic {topic}, {why}"
    for each in result.waiting:
        yield f"left out: {each.delayed:,} delayed messages of {each.topic} and {each.halves:,} halves of transactions"
    if result.damaged:
        yield f"left out: {result.damaged:,} damaged messages, whose offsets are holes"
    named = [said for each in result.partitions for said in each.damages]
    yield from named[:DAMAGES_SHOWN]
