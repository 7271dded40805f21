"""Does the work of `towline bench layouts` by `peers.layouts`, of the repository alone."""

import math
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from rich.console import Console

from .bench_peers import chosen, keeper, minutes_of, noter, of_repository
from .interrupts import Interrupts
from .output import add_row, progress_console, show, table

EXTRA: Final = "drill,kafka"  # draw pictures, and know Kafka's batches
RESULT: Final = "layouts.json"
NOBODY: Final = "none"


def bench_layouts(
    quick: bool, servers: str, rounds: int, drop_caches: bool, minutes: float, output: Path, resume: bool, as_json: bool
) -> int:
    harness, pictures, cells = (_module(name) for name in ("harness", "pictures", "cells"))
    plan = cells.QUICK if quick else cells.Plan()
    plan = replace(plan, rounds=rounds, rounds_many=rounds) if rounds else plan
    names = [] if quick or servers == NOBODY else chosen("servers", servers, cells.SERVERS)
    within_s = 60 * minutes if minutes else math.inf
    plan = replace(plan, servers=tuple(names), drop_caches=drop_caches, within_s=within_s)
    console, keep = progress_console(), keeper(output, RESULT)
    with Interrupts(), console.status("measuring") as status:
        result = harness.measure(plan, noter(console, status), keep, output, resume=resume)
        keep(result)
        files = [output / RESULT, *pictures.draw(output, result)]
    show(result, as_json, lambda console: render_layouts(console, result, files))
    return 0


def _module(name: str) -> Any:
    return of_repository(f"layouts.{name}", EXTRA)


def render_layouts(console: Console, result: dict[str, Any], files: list[Path]) -> None:
    report = _module("report")
    for section in report.sections(result):
        made = table(*section.columns)
        for row in section.rows:
            add_row(made, *row)
        console.print(f"\n{section.title}", style="bold")
        console.print(made)
    for sentence in report.conclusions(result):
        console.print(sentence.replace("**", ""), markup=False, soft_wrap=True)
    machine = result["machine"]
    console.print(f"\n{machine['cpus']} CPUs, load {machine['load']:.1f} before; {minutes_of(result['seconds'])}")
    for file in files:
        console.print(str(file), soft_wrap=True)
