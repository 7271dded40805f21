"""Results of drills, benchmarks and load tests in a directory: JSON files told by their members, and what lies beside.

Everything here is read when a person asks for it. Only regular files below the directory are given out.
"""

import json
import os
from collections import deque
from collections.abc import Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import Any, Final

from .errors import NothingFound, UnreadableReport

REPORTS_MAX: Final = 200
LOOKED_MAX: Final = 5_000  # files and directories
DEPTH_MAX: Final = 3
SIZE_MAX: Final = 16 << 20  # bytes of a result; a history may be larger
ROWS_MAX: Final = 500
PICTURE: Final = ".png"
BESIDE: Final = frozenset({PICTURE, ".html", ".json", ".jsonl", ".log", ".csv", ".txt"})
# What members of other kinds than a result has lead to.
ODD: Final = (TypeError, ValueError, LookupError, AttributeError, ArithmeticError, RecursionError)
UNREADABLE: Final = "unreadable"

Document = Mapping[str, Any]


class Reports:
    """`root` is None where no directory was named."""

    def __init__(self, root: Path | None) -> None:
        self._root = None if root is None else root.resolve()

    def all(self) -> dict[str, Any]:
        """What there is, the newest first: path, kind, title, passed (None where a result says nothing), made_ms. A
        result that cannot be shown is listed with the reason as its title."""
        if self._root is None:
            return {"directory": None, "reports": []}
        rows: list[dict[str, Any]] = []
        for path in self._files():
            document = self._read(path)
            if document is None or (kind := kind_of(document)) is None:
                continue
            try:
                made = path.stat().st_mtime_ns // 1_000_000
            except OSError:  # it has gone meanwhile
                continue
            try:
                title, passed = headline(kind, document)
            except ODD as error:
                kind, title, passed = UNREADABLE, f"a {kind} that cannot be shown: {_why(error)}", None
            name = str(path.relative_to(self._root))
            rows.append({"path": name, "kind": kind, "title": title, "passed": passed, "made_ms": made})
        rows.sort(key=lambda row: row["made_ms"], reverse=True)
        return {"directory": str(self._root), "reports": rows[:REPORTS_MAX]}

    def one(self, name: str) -> dict[str, Any]:
        """Title, facts (pairs), tables (caption, columns, rows), and the files beside it. Raises NothingFound and
        UnreadableReport."""
        path = self._path(name)
        document = self._read(path)
        kind = None if document is None else kind_of(document)
        if document is None or kind is None:
            raise NothingFound(f"report {name}")
        try:
            title, passed = headline(kind, document)
            shown = told(kind, document)
        except ODD as error:
            raise UnreadableReport(name, _why(error)) from None
        beside = [each for each in _entries(path.parent, LOOKED_MAX) if _suffix(each) in BESIDE and _may_be_had(each)]
        files = [str(Path(each.path).relative_to(self._of())) for each in beside]
        return {"path": name, "kind": kind, "title": title, "passed": passed, **shown, "files": files}

    def file(self, name: str) -> tuple[Path, bool]:
        """A file below the directory, and whether it is a picture. Raises NothingFound."""
        path = self._path(name)
        if path.suffix not in BESIDE:
            raise NothingFound(f"file {name}")
        return path, path.suffix == PICTURE

    def _of(self) -> Path:
        if self._root is None:
            raise NothingFound("a directory of reports")
        return self._root

    def _path(self, name: str) -> Path:
        """Links that lead out of the directory are followed by nobody."""
        root = self._of()
        try:
            path = (root / name).resolve(strict=True)
        except (OSError, ValueError, RuntimeError):  # the last is of links in a circle
            raise NothingFound(f"report {name}") from None
        if not path.is_relative_to(root) or not path.is_file() or not _is_text(path.name):
            raise NothingFound(f"report {name}")
        return path

    def _files(self) -> Iterator[Path]:
        """JSON files, as far as so many entries are looked at: those of a directory before those deeper below."""
        left, waiting = LOOKED_MAX, deque([(self._of(), 0)])
        while waiting and left:
            here, depth = waiting.popleft()
            found = _entries(here, left)
            left -= len(found)
            for each in found:
                if not _is_text(each.name):
                    continue
                if each.is_dir(follow_symlinks=False):
                    if depth < DEPTH_MAX:
                        waiting.append((Path(each.path), depth + 1))
                elif _suffix(each) == ".json" and each.is_file(follow_symlinks=False):
                    yield Path(each.path)

    def _read(self, path: Path) -> Document | None:
        """None for what is no JSON object, or too large."""
        try:
            if path.stat().st_size > SIZE_MAX:
                return None
            found = json.loads(path.read_bytes())
        except (OSError, ValueError, RecursionError):
            return None
        return found if isinstance(found, dict) else None


def _entries(directory: Path, most: int) -> list[os.DirEntry[str]]:
    """What lies in a directory, by name; no more of it is read. Nothing of one that is not there or may not be read."""
    try:
        with os.scandir(directory) as entries:
            return sorted(islice(entries, most), key=lambda each: each.name)
    except OSError:
        return []


def _is_text(name: str) -> bool:
    """Whether a file's name is UTF-8: no address names another one."""
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


def _suffix(entry: os.DirEntry[str]) -> str:
    return Path(entry.name).suffix


def _may_be_had(entry: os.DirEntry[str]) -> bool:
    """Whether it is a file that an address can name."""
    try:
        return _is_text(entry.name) and entry.is_file()
    except OSError:  # of links in a circle
        return False


def _why(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"


def kind_of(document: Document) -> str | None:
    """What a result is of; None for a file that is none."""
    if {"drill", "passed"} <= document.keys():
        return "drill"
    if {"faults", "rows", "machine"} <= document.keys():
        return "fault matrix"
    if {"rows", "goals", "versions"} <= document.keys():
        return "comparison"
    if {"rows", "plan", "versions"} <= document.keys():
        return "layouts"
    if {"rows", "errors", "broken"} <= document.keys():
        return "load test"
    if {"figures", "machines"} <= document.keys():
        return "figures"
    return "benchmark" if {"machine", "seconds"} <= document.keys() else None


def headline(kind: str, document: Document) -> tuple[str, bool | None]:
    """One line, and whether it passed."""
    if kind == "drill":
        lost = f"{_text(document.get('acknowledged', 0))} acknowledged, {document.get('lost', '?')} lost"
        return f"{document['drill']}: {lost}", bool(document["passed"])
    if kind == "fault matrix":
        return _of_faults(document)
    if kind == "comparison":
        return f"comparison with {', '.join(sorted(document['versions']))}", None
    if kind == "layouts":
        return "one log beside a log per partition", None
    if kind == "load test":
        return f"load test of {_text(document.get('seconds', 0))} s", not document["broken"]
    if kind == "figures":
        return f"{len(document['figures'])} recorded figures", None
    names = [key for key in ("bench", "what", "name") if isinstance(document.get(key), str)]
    return (str(document[names[0]]) if names else "benchmark"), None


def _of_faults(document: Document) -> tuple[str, bool]:
    """Of the rows that were run. One that failed, or that the machine could not run, is no success."""
    rows = document["rows"]
    lost = sum(row["lost"] or 0 for row in rows)
    injected = sum(row["injected"] for row in rows)
    passed = bool(rows) and not any(row["failed"] or row["missing"] for row in rows)
    return f"fault matrix: {len(rows)} rows, {_text(injected)} faults, {_text(lost)} lost", passed


def told(kind: str, document: Document) -> dict[str, Any]:
    """The facts and tables of a result. What is not known by name is shown as it stands."""
    facts: list[list[str]] = []
    tables: list[dict[str, Any]] = []
    if kind == "comparison":
        tables.append(_comparison(document["rows"]))
    if kind == "layouts":
        tables.append(_table("layouts", [_flat(row) for row in document["rows"]]))
    if kind == "figures":
        tables.append(_figures(document["figures"]))
    for key, value in document.items():
        if key in ("verdict", "notes") or (key in ("rows", "figures") and tables):
            continue
        if _is_table(value):
            tables.append(_table(key, value))
        elif isinstance(value, dict):
            facts += [[f"{key}: {name}", _text(each)] for name, each in list(value.items())[:ROWS_MAX]]
        else:
            facts.append([key, _text(value)])
    return {"facts": facts, "tables": tables}


def _is_table(value: object) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(row, dict) for row in value)


def _table(caption: str, rows: list[dict[str, Any]]) -> dict[str, Any]:
    columns = list(dict.fromkeys(key for row in rows for key in row))
    cells = [[_text(row.get(column, "")) for column in columns] for row in rows[:ROWS_MAX]]
    return {"caption": caption, "columns": columns, "rows": cells}


def _flat(row: dict[str, Any]) -> dict[str, Any]:
    """A row whose figures are columns like the rest."""
    figures = row.get("figures") or {}
    return {key: value for key, value in row.items() if key != "figures"} | figures


def _comparison(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Messages a second of each system."""
    systems = list(dict.fromkeys(name for row in rows for name in row["systems"]))
    cells = [
        [str(row["name"]), *(_text(row["systems"].get(name, {}).get("per_s", "")) for name in systems)]
        for row in rows[:ROWS_MAX]
    ]
    return {"caption": "messages a second", "columns": ["work", *systems], "rows": cells}


def _figures(rows: list[dict[str, Any]]) -> dict[str, Any]:
    cells = []
    for row in rows[:ROWS_MAX]:
        results = "; ".join(f"{machine}: {each.get('figure', '')}" for machine, each in row.get("results", {}).items())
        cells.append([_text(row.get(key, "")) for key in ("topic", "what", "goal")] + [results])
    return {"caption": "figures", "columns": ["topic", "what", "goal", "result"], "rows": cells}


def _text(value: object) -> str:
    if isinstance(value, float):
        return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:,.3g}"
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}"
    return value if isinstance(value, str) else json.dumps(value)
