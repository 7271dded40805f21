"""`python -m peers.quote`: tables and pictures of docs and README, from what is kept in loadtest/results.

`peers.json` is the last full run (`make bench-full`), `layouts.json` the last of `make bench-layouts`; `figures.json`
has the figures of the other commands, as they were written down.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from towline.start import home

from .figures import six, tables
from .layouts import report as layouts
from .layouts.pictures import draw
from .report import markdown

PEERS: Final = Path("loadtest/results/peers.json")
FIGURES: Final = Path("loadtest/results/figures.json")
PAGE: Final = Path("docs/benchmarks.md")
LAYOUTS: Final = Path("loadtest/results/layouts.json")
LAYOUTS_PAGE: Final = Path("docs/layouts.md")
IMAGES: Final = Path("docs/images")
README: Final = Path("README.md")


def quoted(page: str, name: str, text: str) -> str:
    """The page with `text` between its marks of that name. Raises ValueError where it has no such marks."""
    begin, end = f"<!-- {name}: begin -->", f"<!-- {name}: end -->"
    head, rest = page[: page.index(begin)], page[page.index(end) :]
    return f"{head}{begin}\n{text}{rest}"


def pages(root: Path) -> Iterator[tuple[Path, str]]:
    """(file, what it must hold) of each page that quotes results."""
    peers, figures = _read(root / PEERS), _read(root / FIGURES)
    page = (root / PAGE).read_text(encoding="utf-8")
    yield root / PAGE, quoted(quoted(page, "figures", tables(figures)), "bench peers", markdown(peers))
    yield root / README, quoted((root / README).read_text(encoding="utf-8"), "six figures", six(peers, figures))
    page = (root / LAYOUTS_PAGE).read_text(encoding="utf-8")
    yield root / LAYOUTS_PAGE, quoted(page, "bench layouts", layouts.markdown(_read(root / LAYOUTS)))


def main() -> None:
    for path, text in pages(home()):
        path.write_text(text, encoding="utf-8")
    draw(home() / IMAGES, _read(home() / LAYOUTS))


def _read(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8"))


if __name__ == "__main__":
    main()
