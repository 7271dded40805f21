"""The picture of a drill: throughput, lag, roles and what was not acknowledged over time; and a page around it."""

import io
from pathlib import Path
from typing import Any, Final

import matplotlib as mpl
import numpy as np
import numpy.typing as npt
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from towline.loadtest.page import PLOT, page, picture, text

from .history import ACKNOWLEDGED, SAMPLES, History, read_history, read_lines

BIN_S: Final = 0.1
PNG, PAGE = "timeline.png", "report.html"
ROLES: Final = {"master": "#1b6ca8", "slave": "#9fc5e8", "down": "#d9534f"}
KIB: Final = 1024
_EVENT: Final = ("what", "begin", "service", "healed", "end", "facts")


def draw(directory: Path, result: dict[str, Any]) -> None:
    """timeline.png and report.html beside the history in `directory`."""
    history, samples = read_history(directory), read_lines(directory / SAMPLES)
    with mpl.rc_context(PLOT):
        buffer = io.BytesIO()
        _figure(history, samples, result).savefig(buffer, format="png", dpi=110)
    (directory / PNG).write_bytes(buffer.getvalue())
    (directory / PAGE).write_text(_page(result, buffer.getvalue()), encoding="utf-8")


def _figure(history: History, samples: list[dict[str, Any]], result: dict[str, Any]) -> Figure:
    nodes = sorted({number for sample in samples for number in sample["roles"]}, key=int)
    figure = Figure(figsize=(11, 8), layout="constrained")
    rows = figure.subplots(4, 1, sharex=True, height_ratios=[3, 2, 0.5 + 0.4 * len(nodes), 2])
    end = max([1.0, *(sample["t"] for sample in samples)])
    edges = np.arange(0.0, end + BIN_S, BIN_S)
    _rates(rows[0], history, edges)
    for number in nodes:
        at, lag = _series(samples, number)
        rows[1].plot(at, lag / KIB, label=f"node {number}", linewidth=1)
    rows[1].set_ylabel("KiB behind\nthe master")
    _legend(rows[1])
    _roles(rows[2], samples, nodes, end)
    _errors(rows[3], history, edges)
    for row in rows:
        for event in result["events"]:
            row.axvline(event["begin"], color="#d9534f", linewidth=1)
            for key, colour in (("service", "#5cb85c"), ("healed", "#f0ad4e"), ("end", "#777777")):
                if event[key] is not None:
                    row.axvline(event[key], color=colour, linewidth=0.8, linestyle="--")
    rows[3].set_xlabel("seconds; red: fault, green: service is back, yellow: healed, grey: all in sync again")
    state = "passed" if result["passed"] else "FAILED"
    figure.suptitle(f"{result['drill']}, {result['nodes']} nodes, failover {result['failover']}: {state}")
    return figure


def _rates(axes: Axes, history: History, edges: npt.NDArray[np.float64]) -> None:
    sent, _ = np.histogram(history.t_start, edges)
    acknowledged, _ = np.histogram(history.t_end[history.has(ACKNOWLEDGED)], edges)
    axes.plot(edges[:-1], sent / BIN_S, color="#aaaaaa", linewidth=1, label="sent")
    axes.plot(edges[:-1], acknowledged / BIN_S, color="#1b6ca8", linewidth=1.2, label="acknowledged")
    axes.set_ylabel("messages/s")
    _legend(axes)


def _errors(axes: Axes, history: History, edges: npt.NDArray[np.float64]) -> None:
    for status, colour in (("stored", "#f0ad4e"), ("unknown", "#d9534f")):
        counts, _ = np.histogram(history.t_end[history.has(status)], edges)
        axes.plot(edges[:-1], counts / BIN_S, color=colour, linewidth=1.2, label=f"{status}, not promised")
    axes.set_ylabel("messages/s")
    _legend(axes)


def _series(samples: list[dict[str, Any]], number: str) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """Times and bytes; a gap where the node was no slave."""
    found = [(sample["t"], sample["lag"].get(number, np.nan)) for sample in samples]
    at, lag = np.array(found, dtype=np.float64).reshape(-1, 2).T
    return at, lag


def _roles(axes: Axes, samples: list[dict[str, Any]], nodes: list[str], end: float) -> None:
    for row, number in enumerate(nodes):
        for now, following in zip(samples, [*samples[1:], {"t": end}], strict=True):
            role = now["roles"].get(number, "down")
            axes.barh(row, following["t"] - now["t"], left=now["t"], height=0.7, color=ROLES.get(role, "#777777"))
    axes.set_yticks(range(len(nodes)), [f"node {number}" for number in nodes])
    for role, colour in ROLES.items():
        axes.plot([], [], color=colour, linewidth=5, label=role)
    axes.grid(visible=False)
    _legend(axes)


def _legend(axes: Axes) -> None:
    axes.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0), frameon=False)


def _page(result: dict[str, Any], png: bytes) -> str:
    shown = {key: value for key, value in result.items() if key not in ("events", "faults", "verdict")}
    rows = "".join(f"<tr><th>{text(key)}</th><td>{text(value)}</td></tr>" for key, value in shown.items())
    events = "".join("<tr>" + "".join(f"<td>{text(event[key])}</td>" for key in _EVENT) for event in result["events"])
    wrong = "".join(f"<li>{text(fault)}</li>" for fault in result["faults"]) or "<li>nothing</li>"
    state = "passed" if result["passed"] else "FAILED"
    return page(
        f"{result['drill']}: {state}",
        f"""{picture(png, "throughput, lag, roles and errors over time")}
<h2>What was wrong</h2><ul>{wrong}</ul>
<h2>Figures</h2><table>{rows}</table>
<h2>What was done</h2><table><tr><th>fault</th><th>begin</th><th>service back</th>
<th>healed</th><th>in sync</th><th></th></tr>{events}</table>""",
    )
