"""The HTML report of a job: what it found in a sentence, pictures, the summary, the table. One file, nothing linked."""

import base64
import html
import io
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, Final

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from .job import Column, Plot, Result

ROWS_MAX: Final = 2000
_SIZE: Final = (10.0, 4.0)
_STYLE: Final[dict[Any, Any]] = {
    "font.size": 9,
    "axes.grid": True,
    "grid.alpha": 0.3,
    "axes.spines.top": False,
    "timezone": "UTC",
}


def png(plot: Plot) -> bytes:
    """The picture of one plot."""
    with mpl.rc_context(_STYLE):
        figure = Figure(figsize=_SIZE, layout="constrained")
        axes = figure.subplots()
        if plot.kind in ("line", "steps"):
            _lines(axes, plot)
        else:
            _bars(axes, plot)
        axes.set_title(plot.title)
        axes.set_xlabel(plot.x_label)
        axes.set_ylabel(plot.y_label)
        if plot.log:
            axes.set_yscale("log")
        if len(plot.series) > 1:
            axes.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0), frameon=False)
        buffer = io.BytesIO()
        figure.savefig(buffer, format="png", dpi=110)
    return buffer.getvalue()


def render(name: str, columns: Sequence[Column], result: Result, asked: Mapping[str, Any], path: Path) -> None:
    """Writes the page. `asked` are the options as they were given."""
    path.write_text(page(name, columns, result, asked), encoding="utf-8")


def page(name: str, columns: Sequence[Column], result: Result, asked: Mapping[str, Any]) -> str:
    pictures = "".join(f'<img alt="{_text(plot.title)}" src="{_embedded(plot)}">\n' for plot in result.plots)
    head = "".join(f'<th title="{_text(column.meaning)}">{_text(column.name)}</th>' for column in columns)
    rows = "".join(_row(row) for row in result.rows[:ROWS_MAX])
    more = len(result.rows) - ROWS_MAX
    rest = f"<p>and {more:,} more rows; --json has them all</p>" if more > 0 else ""
    return f"""<!doctype html>
<html lang="en"><meta charset="utf-8"><title>towline pipeline {_text(name)}</title>
<style>body{{font:14px sans-serif;max-width:80em;margin:2em auto}}td,th{{padding:.15em .8em;text-align:left}}
td.n{{text-align:right;font-variant-numeric:tabular-nums}}img{{max-width:100%}}</style>
<h1>{_text(name)}</h1>
<p>{_text(result.sentence)}</p>
{pictures}<h2>Summary</h2>{_pairs(result.summary)}
<h2>Rows</h2><table><tr>{head}</tr>
{rows}</table>{rest}
<h2>Asked for</h2>{_pairs(asked)}</html>
"""


def _lines(axes: Axes, plot: Plot) -> None:
    drawn = "steps-post" if plot.kind == "steps" else "default"
    for label, values in plot.series.items():
        axes.plot(np.asarray(plot.x), np.asarray(values, dtype=np.float64), linewidth=1.2, label=label, drawstyle=drawn)
    axes.set_ylim(bottom=None if plot.log else 0)
    if len(plot.x) and isinstance(plot.x[0], datetime):
        axes.tick_params(axis="x", labelrotation=20)


def _bars(axes: Axes, plot: Plot) -> None:
    places = np.arange(len(plot.x), dtype=np.float64)
    stacked = plot.kind == "stacked"
    width = 0.8 if stacked else 0.8 / max(len(plot.series), 1)
    below = np.zeros(len(plot.x))
    for number, (label, values) in enumerate(plot.series.items()):
        heights = np.asarray(values, dtype=np.float64)
        at = places if stacked else places - 0.4 + width * (number + 0.5)
        axes.bar(at, heights, width, bottom=below if stacked else None, label=label)
        below += np.nan_to_num(heights)
    axes.set_xticks(places, [str(each) for each in plot.x], rotation=30 if len(plot.x) > 8 else 0)


def _embedded(plot: Plot) -> str:
    return f"data:image/png;base64,{base64.b64encode(png(plot)).decode()}"


def _pairs(values: Mapping[str, Any]) -> str:
    rows = "".join(f"<tr><th>{_text(key)}</th><td>{_text(value)}</td></tr>" for key, value in values.items())
    return f"<table>{rows}</table>"


def _row(row: Sequence[Any]) -> str:
    cells = (f"<td{_class(value)}>{_text('' if value is None else value)}</td>" for value in row)
    return f"<tr>{''.join(cells)}</tr>\n"


def _class(value: object) -> str:
    return ' class="n"' if isinstance(value, int | float) and not isinstance(value, bool) else ""


def _text(value: object) -> str:
    if isinstance(value, float):
        return f"{value:,.3f}"
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}"
    return html.escape(value.isoformat() if isinstance(value, datetime) else str(value))
