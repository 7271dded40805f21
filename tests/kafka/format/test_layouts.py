"""The diagrams of Kafka's formats, and the tables of docs/kafka-format.md. TOWLINE_REWRITE=1 draws those anew."""

import os
import re

import pytest

from tests.repo.test_format_page import drawn
from tests.repo.trees import ROOT
from towline.format.layout import Layout
from towline.kafka.format import (
    batch,
    compression,
    control,
    message_set,
    offset_index,
    producer_snapshot,
    time_index,
    transaction_index,
)

MODULES = (
    batch,
    compression,
    control,
    message_set,
    offset_index,
    producer_snapshot,
    time_index,
    transaction_index,
)
PAGE = ROOT / "docs" / "kafka-format.md"
PLACE = re.compile(r"^<!-- layout (\S+) -->\n(?:\n```\n.*?\n```\n)?", re.MULTILINE | re.DOTALL)


def layouts_of(module) -> dict[str, Layout]:
    return {name: value for name, value in vars(module).items() if isinstance(value, Layout)}


@pytest.mark.parametrize("module", MODULES, ids=lambda module: module.__name__.rpartition(".")[2])
def test_the_diagram_in_the_docstring_is_the_layout(module):
    shown = [line.split() for line in module.__doc__.splitlines() if line[:6].strip().isdigit()]
    assert shown == [row.split() for layout in layouts_of(module).values() for row in layout.rows()]
    assert shown


def test_the_page_shows_every_layout_as_it_is():
    known = {
        f"{module.__name__.rpartition('.')[2]}.{name}": layout
        for module in MODULES
        for name, layout in layouts_of(module).items()
    }
    before = PAGE.read_text(encoding="utf-8")
    assert sorted(PLACE.findall(before)) == sorted(known)
    wanted = PLACE.sub(lambda place: f"<!-- layout {place[1]} -->\n\n```\n{drawn(known[place[1]])}\n```\n", before)
    if os.environ.get("TOWLINE_REWRITE"):
        PAGE.write_text(wanted, encoding="utf-8")
    assert PAGE.read_text(encoding="utf-8") == wanted
