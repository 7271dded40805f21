"""The list of mutants: the files of `lists/`, one for each area, named by it.

A mutant is one mistake that somebody could make: `old` is text that stands in `file` exactly once, `new` is what the
mistake would have there. `breaks` says which promise it breaks, `rule` where that promise stands: a rule of
docs/hazards.md ("H5") or the number of a decision ("0085"). `tests` are paths or node ids that ought to fail.
"""

import ast
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]
LISTS: Final = Path(__file__).parent / "lists"
_KERNELS: Final = ("towline/kernels/", "towline/format/")


class DoesNotApply(Exception):
    """The text that a mutant replaces does not stand in its file exactly once: the list is behind the code."""

    def __init__(self, name: str, file: str, found: int) -> None:
        super().__init__(f"{name}: its text stands {found} times in {file}, write the mutant anew")


@dataclass(frozen=True, slots=True)
class Mutant:
    """One mistake. `name` is `area/what-is-done`."""

    name: str
    breaks: str
    rule: str
    file: str
    old: str
    new: str
    tests: tuple[str, ...]

    @property
    def area(self) -> str:
        return self.name.partition("/")[0]

    @property
    def needs_compiling(self) -> bool:
        """Whether kernels are made of its file."""
        return self.file.startswith(_KERNELS)

    @property
    def test_files(self) -> list[str]:
        return sorted({test.partition("::")[0] for test in self.tests})

    def apply(self, text: str) -> str:
        """The file's text with the mistake in it. Raises DoesNotApply."""
        found = text.count(self.old)
        if found != 1:
            raise DoesNotApply(self.name, self.file, found)
        return text.replace(self.old, self.new)

    def changes(self, text: str) -> bool:
        """Whether the file means something else with the mistake than without. Raises DoesNotApply, SyntaxError."""
        return ast.dump(ast.parse(self.apply(text))) != ast.dump(ast.parse(text))


def mutants_in(path: Path) -> list[Mutant]:
    """Of one file of the list. Raises TOMLDecodeError, and TypeError for a key that a mutant does not have."""
    rows = tomllib.loads(path.read_text(encoding="utf-8"))["mutant"]
    return [Mutant(**row | {"name": f"{path.stem}/{row['name']}", "tests": tuple(row["tests"])}) for row in rows]


def every_mutant() -> list[Mutant]:
    return [mutant for path in sorted(LISTS.glob("*.toml")) for mutant in mutants_in(path)]
