"""What differs between two states of what the page shows, in the form in which a browser is told. Pure.

Everything shown is a table of rows by key, or a document of named sections. A browser that comes later is told the
state, and from then on what changes.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

Row = Sequence[Any]
Sections = Mapping[str, Any]


class Table:
    """Rows whose first cell is their key."""

    def __init__(self) -> None:
        self._rows: dict[str, list[Any]] = {}

    def __len__(self) -> int:
        return len(self._rows)

    def state(self) -> dict[str, Any]:
        """All of it."""
        return {"all": list(self._rows.values())}

    def change(self, rows: Iterable[Row]) -> dict[str, Any]:
        """Takes the rows of now: those that are new or other than before, and the keys of those that are gone."""
        now = {str(row[0]): list(row) for row in rows}
        found: dict[str, Any] = {}
        if changed := [row for key, row in now.items() if self._rows.get(key) != row]:
            found["rows"] = changed
        if gone := [key for key in self._rows if key not in now]:
            found["gone"] = gone
        self._rows = now
        return found


class Documents:
    """Documents by name, each of sections."""

    def __init__(self) -> None:
        self._known: dict[str, dict[str, Any]] = {}

    def __getitem__(self, name: str) -> Sections:
        """Empty before the first change."""
        return self._known.get(name, {})

    def __iter__(self) -> Any:
        return iter(self._known)

    def state(self) -> dict[str, Any]:
        """All of it."""
        return dict(self._known)

    def change(self, name: str, sections: Sections) -> dict[str, Any]:
        """Takes some sections of one: those that are other than before. What is not given stays."""
        known = self._known.setdefault(name, {})
        found = {
            section: value for section, value in sections.items() if section not in known or known[section] != value
        }
        known.update(found)
        return found
