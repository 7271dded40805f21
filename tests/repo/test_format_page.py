"""The tables of bytes in docs/format.md are the layouts of towline/format. TOWLINE_REWRITE=1 draws them anew."""

import importlib
import os
import pkgutil
import re

import towline.format
from tests.repo.trees import ROOT
from towline.format.layout import Layout

PAGE = ROOT / "docs" / "format.md"
PLACE = re.compile(r"^<!-- layout (\S+) -->\n(?:\n```\n.*?\n```\n)?", re.MULTILINE | re.DOTALL)


def layouts() -> dict[str, Layout]:
    """`module.NAME` -> layout, of every module below towline.format, under the name it has where it is made."""
    found: dict[int, tuple[str, Layout]] = {}
    for module in pkgutil.walk_packages(towline.format.__path__, f"{towline.format.__name__}."):
        text = importlib.import_module(module.name)
        for name, value in vars(text).items():
            source = (ROOT / f"{module.name.replace('.', '/')}.py") if not module.ispkg else None
            if isinstance(value, Layout) and source and re.search(rf"^{name}\b.*= ", source.read_text(), re.MULTILINE):
                found.setdefault(id(value), (f"{module.name.rpartition('.')[2]}.{name}", value))
    return dict(found.values())


def drawn(layout: Layout) -> str:
    """The fields of a layout as a table of text."""
    rows = [("at", "len", "field", ""), *(tuple(row.split(" ", 3)) for row in layout.rows())]
    width = max(len(row[2]) for row in rows)
    return "\n".join(f"{at:>3} {size:>4}  {name:<{width}}  {meaning}".rstrip() for at, size, name, meaning in rows)


def test_the_page_shows_every_layout_as_it_is():
    known = layouts()
    before = PAGE.read_text(encoding="utf-8")
    named = PLACE.findall(before)
    assert sorted(named) == sorted(known), "docs/format.md: give each layout one place: <!-- layout module.NAME -->"
    wanted = PLACE.sub(lambda place: f"<!-- layout {place[1]} -->\n\n```\n{drawn(known[place[1]])}\n```\n", before)
    if os.environ.get("TOWLINE_REWRITE"):
        PAGE.write_text(wanted, encoding="utf-8")
    assert PAGE.read_text(encoding="utf-8") == wanted
