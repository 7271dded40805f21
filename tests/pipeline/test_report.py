"""The report: everything in one file, readable without anything else, nothing of a message taken as markup."""

import re
from base64 import b64decode
from datetime import UTC, datetime, timedelta

import pytest

from towline.pipeline.job import Column, Plot, Result
from towline.pipeline.report import ROWS_MAX, page, png

NOON = datetime(2026, 1, 31, 12, tzinfo=UTC)
TIMES = [NOON + timedelta(minutes=number) for number in range(4)]
NAN = float("nan")
PLOTS = [
    Plot(title="lines", kind="line", x=TIMES, series={"a": [1, 2, NAN, 4], "b": [4, 3, 2, 1]}, y_label="ms", log=True),
    Plot(title="steps", kind="steps", x=[1, 2, 3, 4], series={"a": [0, 2, 1, 5]}),
    Plot(title="bars", kind="bars", x=["UA", "DL"], series={"EWR": [3.5, -1.0], "JFK": [2.0, NAN]}),
    Plot(title="stacked", kind="stacked", x=[str(n) for n in range(12)], series={"a": [1] * 12, "b": [2] * 12}),
]
COLUMNS = (
    Column("topic", "string", "its name"),
    Column("count", "bigint", "messages"),
    Column("at", "timestamp", "when"),
)


@pytest.mark.parametrize("plot", PLOTS, ids=lambda plot: plot.kind)
def test_a_plot_is_a_picture_whose_bytes_follow_from_it(plot):
    assert png(plot).startswith(b"\x89PNG\r\n")
    assert png(plot) == png(plot)


def test_plots_that_differ_give_pictures_that_differ():
    assert len({png(plot) for plot in PLOTS}) == len(PLOTS)


def test_the_page_holds_sentence_pictures_summary_rows_and_what_was_asked():
    result = Result(
        rows=[("<b>", 1_234_567, NOON), ("t", None, None)],
        summary={"count": 12, "share": 0.5},
        sentence="all <is> well",
        plots=PLOTS[:2],
    )
    text = page("stats", COLUMNS, result, {"store": "/s&t"})
    assert "all &lt;is&gt; well" in text
    assert "<b>" not in text
    assert '<td class="n">1,234,567</td><td>2026-01-31T12:00:00+00:00</td>' in text
    assert "<th>count</th><td>12</td>" in text
    assert "/s&amp;t" in text
    pictures = re.findall(r'src="data:image/png;base64,([^"]+)"', text)
    assert [b64decode(picture) for picture in pictures] == [png(plot) for plot in PLOTS[:2]]
    assert not re.search(r'(src|href)="(?!data:)', text)


def test_a_long_table_is_cut_and_says_so():
    result = Result(rows=[("t", number, NOON) for number in range(ROWS_MAX + 5)], summary={}, sentence="many")
    text = page("stats", COLUMNS, result, {})
    assert text.count("<tr><td>t</td>") == ROWS_MAX
    assert "and 5 more rows" in text
