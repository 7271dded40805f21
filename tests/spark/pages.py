"""README and the page "Towline and Spark": code blocks and tables, as tests run and compare them."""

import re
from collections.abc import Iterator
from dataclasses import dataclass

from tests.repo.trees import ROOT

README = ROOT / "README.md"
PAGE = ROOT / "docs" / "spark.md"
TEXT = PAGE.read_text(encoding="utf-8")
_FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_CELL_END = re.compile(r"(?<!\\)\|")
CODE = ("python", "sh")
OUTPUT = "text"
STORES = {PAGE: "/tmp/shop", README: "/tmp/m"}  # what a page calls the directory that it works in
_DRAWING_ENDS = "\n## Start\n"


@dataclass(frozen=True)
class Block:
    """`line` is that of its first line of code; `output` is what the page says it prints, None: it does not say."""

    kind: str
    code: str
    line: int
    output: str | None = None


def blocks(page: str, *, others: tuple[str, ...] = ()) -> list[Block]:
    """Code of the page in order. A block of text belongs to the code before it; `others` are kinds that are no code."""
    found: list[Block] = []
    for match in _FENCE.finditer(page):
        kind, code = match[1], match[2]
        line = page.count("\n", 0, match.start()) + 2
        if kind == OUTPUT:
            assert found, f"line {line}: output of nothing"
            assert found[-1].output is None, f"line {line}: a second output of the block at line {found[-1].line}"
            found[-1] = Block(found[-1].kind, found[-1].code, found[-1].line, code)
        elif kind not in others:
            assert kind in CODE, f"line {line}: a block of kind {kind!r} is not run by the tests"
            found.append(Block(kind, code, line))
    return found


def blocks_of_readme() -> list[Block]:
    drawing, _, rest = README.read_text(encoding="utf-8").partition(_DRAWING_ENDS)
    return blocks("\n" * (drawing.count("\n") + 2) + rest)


def rows(page: str, name: str) -> Iterator[list[str]]:
    """Cells of the table between the comments `name` and `end of name`, without its head."""
    table = page[page.index(f"<!-- {name} -->") : page.index(f"<!-- end of {name} -->")]
    for line in table.splitlines()[3:]:
        yield [cell.strip() for cell in _CELL_END.split(line)[1:-1]]
