"""A run as pictures and one page: throughput, latency by percentile, throughput over time."""

import io
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from towline.loadtest.page import PLOT, page, picture, text

from .plan import BUCKET_S, QUANTILES, Durability, Kind, Work
from .report import sections

BARS, LATENCY, OVER_TIME, PAGE = "throughput.png", "latency.png", "over-time.png", "peers.html"
COLOURS: Final = {
    "towline": "#1b6ca8",
    "towline-ring": "#00b3b3",
    "towline-tcp": "#5b5bd6",
    "towline-remoting": "#c05bb5",
    "rocketmq": "#d77310",
    "kafka": "#444444",
    "nats": "#5cb85c",
    "redis": "#d9534f",
}
OTHER: Final = "#9b59b6"
ACROSS: Final = 3  # pictures beside one another
NINES: Final = (0.5, 0.9, 0.99, 0.999, 0.9999)

Rows = Sequence[Mapping[str, Any]]


def draw(directory: Path, result: Mapping[str, Any]) -> list[Path]:
    """Three pictures, and the page that holds them and all tables."""
    directory.mkdir(parents=True, exist_ok=True)
    rows = result["rows"]
    flows = [row for row in rows if _work(row).kind in (Kind.PUT, Kind.SINGLE, Kind.REPLAY)]
    timed = [row for row in rows if _work(row).kind in (Kind.RATE, Kind.TAIL, Kind.SINGLE)]
    over_time = [row for row in rows if _work(row).kind is Kind.PUT and _work(row).durability is Durability.ASYNC]
    with mpl.rc_context(PLOT):
        made = {BARS: _png(flows, _bars), LATENCY: _png(timed, _curve), OVER_TIME: _png(over_time, _time)}
    for name, png in made.items():
        (directory / name).write_bytes(png)
    (directory / PAGE).write_text(_page(result, made), encoding="utf-8")
    return [directory / name for name in (*made, PAGE)]


def _png(rows: Rows, one: Any) -> bytes:
    """A field for each row, in which `one` draws it."""
    down = max(1, math.ceil(len(rows) / ACROSS))
    figure = Figure(figsize=(12, 0.4 + 2.4 * down), layout="constrained")
    fields = figure.subplots(down, ACROSS, squeeze=False).flatten()
    for field in fields[len(rows) :]:
        field.set_axis_off()
    for field, row in zip(fields, rows, strict=False):
        field.set_title(row["name"], fontsize=8)
        one(field, row["systems"])
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=110)
    return buffer.getvalue()


def _bars(field: Axes, systems: Mapping[str, Mapping[str, Any]]) -> None:
    """Medians, and every round as a dot."""
    for at, (system, figures) in enumerate(systems.items()):
        field.barh(at, figures["per_s"] / 1e3, color=_colour(system), height=0.7)
        field.plot([one / 1e3 for one in figures["rounds"]], [at] * len(figures["rounds"]), ".", color="black", ms=3)
    field.set_yticks(range(len(systems)), list(systems), fontsize=7)
    field.invert_yaxis()
    field.set_xlabel("thousand messages a second", fontsize=7)


def _curve(field: Axes, systems: Mapping[str, Mapping[str, Any]]) -> None:
    """Latency by percentile, each nine as wide as the one before."""
    shares = [share for share in QUANTILES if 0.0 < share < 1.0]
    for system, figures in systems.items():
        us = [value for share, value in zip(QUANTILES, figures["quantiles_us"], strict=True) if share in shares]
        field.plot([-math.log10(1 - share) for share in shares], us, label=system, color=_colour(system), linewidth=1.2)
    field.set_yscale("log")
    field.set_xticks([-math.log10(1 - share) for share in NINES], [f"{100 * share:g}%" for share in NINES], fontsize=7)
    field.set_ylabel("us", fontsize=7)
    _legend(field, systems)


def _time(field: Axes, systems: Mapping[str, Mapping[str, Any]]) -> None:
    for system, figures in systems.items():
        curve = np.array(figures["by_time"], dtype=np.float64) / BUCKET_S / 1e3
        whole = curve[:-1] if len(curve) > 1 else curve  # the last bucket is not a whole one
        field.plot(BUCKET_S * np.arange(len(whole)), whole, label=system, color=_colour(system), linewidth=1.2)
    field.set_ylabel("thousand/s", fontsize=7)
    field.set_xlabel("seconds", fontsize=7)
    field.set_ylim(bottom=0)
    _legend(field, systems)


def _legend(field: Axes, systems: Mapping[str, Any]) -> None:
    if systems:
        field.legend(fontsize=6, frameon=False)


def _page(result: Mapping[str, Any], pngs: Mapping[str, bytes]) -> str:
    machine, minutes = result["machine"], result["seconds"] / 60
    parts = [
        f"<p>{text(result['made'])}; {text(machine['cpu'])}, {machine['cpus']} CPUs, {machine['memory_gb']} GB; load "
        f"{machine['load']:.1f} before; medians of up to {result['rounds']} rounds; {minutes:.0f} minutes.</p>",
        "<ul>" + "".join(f"<li>{text(name)}: {text(what)}</li>" for name, what in result["versions"].items()) + "</ul>",
        *(f"<h2>{text(name.removesuffix('.png'))}</h2>{picture(png, name)}" for name, png in pngs.items()),
    ]
    for section in sections(result):
        heads = "".join(f"<th>{text(column.removeprefix('#'))}</th>" for column in section.columns)
        rows = "".join("<tr>" + "".join(f"<td>{text(cell)}</td>" for cell in row) + "</tr>" for row in section.rows)
        parts.append(f"<h2>{text(section.title)}</h2><table><tr>{heads}</tr>{rows}</table>")
    return page("Towline beside other servers", "\n".join(parts))


def _work(row: Mapping[str, Any]) -> Work:
    return Work.read(row["work"])


def _colour(system: str) -> str:
    return COLOURS.get(system, OTHER)
