"""Does the work of `towline bench`."""

from collections.abc import Callable
from typing import Any

import typer
from rich.console import Console

from towline.limits import GIB

from .bench_delay import render_delay
from .bench_ha import render_ha
from .bench_put import render_put
from .bench_reading import render_consume, render_filter
from .bench_recovery import render_recovery, sizes_of
from .bench_reput import render_reput
from .bench_segments import render_segments
from .bench_spark import render_spark
from .bench_steps import render_steps
from .lazy import load_module
from .output import progress_console, show


def _measured(
    name: str, render: Callable[[Console, Any], None], as_json: bool, quick: bool, extra: str = "server", **plan: Any
) -> int:
    """Runs one bench, by its own quick plan or by this one, and shows what it found."""
    module = load_module(f"towline.loadtest.bench.{name}", extra)
    with progress_console().status("measuring") as status:
        result = module.measure(module.QUICK if quick else module.Plan(**plan), status.update)
    show(result, as_json, lambda console: render(console, result))
    return 0


def bench_put(seconds: float, rounds: int, quick: bool, as_json: bool) -> int:
    return _measured("put", render_put, as_json, quick, seconds=seconds, rounds=rounds)


def bench_recovery(sizes: str, rounds: int, quick: bool, as_json: bool) -> int:
    return _measured("recovery", render_recovery, as_json, quick, sizes=sizes_of(sizes), rounds=rounds)


def bench_reput(records: int, rounds: int, queues: int, quick: bool, as_json: bool) -> int:
    return _measured("reput", render_reput, as_json, quick, records=records, rounds=rounds, many=queues)


def bench_consume(rounds: int, replay: float, quick: bool, as_json: bool) -> int:
    return _measured("consume", render_consume, as_json, quick, rounds=rounds, replay=int(replay * GIB))


def bench_filter(rounds: int, quick: bool, as_json: bool) -> int:
    return _measured("filter", render_filter, as_json, quick, rounds=rounds)


def bench_delay(rate: int, burst: int, rounds: int, quick: bool, as_json: bool) -> int:
    return _measured("delay", render_delay, as_json, quick, rate=rate, burst=burst, rounds=rounds)


def bench_steps(rates: str, seconds: float, transport: str, reads_files: bool, quick: bool, as_json: bool) -> int:
    try:
        each = tuple(int(rate) for rate in rates.split(","))
    except ValueError:
        raise typer.BadParameter("numbers with commas, as in 10,1000", param_hint="--rates") from None
    if transport not in ("ipc", "tcp"):
        raise typer.BadParameter("ipc or tcp", param_hint="--transport")
    options: dict[str, Any] = {"rates": each, "seconds": seconds, "transport": transport, "reads_files": reads_files}
    return _measured("steps", render_steps, as_json, quick, **options)


def bench_segments(rounds: int, seconds: float, quick: bool, as_json: bool) -> int:
    return _measured("segments", render_segments, as_json, quick, rounds=rounds, seconds=seconds)


def bench_ha(rounds: int, seconds: float, behind: float, rate: int, quick: bool, as_json: bool) -> int:
    plan: dict[str, Any] = {"rounds": rounds, "seconds": seconds, "behind": int(behind * GIB), "rate": rate * 1_000_000}
    return _measured("ha", render_ha, as_json, quick, **plan)


def bench_spark(rounds: int, large: float, quick: bool, as_json: bool) -> int:
    return _measured("spark", render_spark, as_json, quick, "server,spark", rounds=rounds, large=int(large * GIB))
