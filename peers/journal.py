"""What the turns of a run found, kept on disk as they end: a run that is broken off goes on where it was.

`turns.jsonl`: a line that says which run it is, then a line for each turn, work by work, and for each look at the
machine's limits. It is removed when the run is whole.
"""

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

NAME: Final = "turns.jsonl"
GIVEN_UP: Final = 2  # failures of a system at a work, after which it is not asked again

Entry = dict[str, Any]


class Journal:
    """Kept in memory alone where there is no directory. The file is made with its first turn."""

    def __init__(self, run: Entry, directory: Path | None = None, *, resume: bool = False) -> None:
        """`run` is what makes two runs the same one. Without `resume`, and where another run lies in the directory, it
        begins anew."""
        self._path = directory / NAME if directory else None
        self._unwritten: list[Entry] = [json.loads(json.dumps(run))]
        self._began = False  # the file is ours
        self.limits: list[dict[str, float]] = []
        self.turns: list[Entry] = []
        self._took_s: dict[tuple[str, str], float] = {}
        self._over: set[tuple[str, str, int]] = set()
        self._absent: set[tuple[str, str]] = set()
        self._failures: Counter[tuple[str, str]] = Counter()
        if resume and self._path and self._path.is_file():
            lines = list(_lines(self._path))
            if lines[:1] == self._unwritten:
                self._unwritten, self._began = [], True
                for entry in lines[1:]:
                    self._know(entry)

    def add(self, entry: Entry) -> None:
        """A turn: {"system", "work", "round", "took_s"} and one of "found", "absent", "failed"; or {"limits"}."""
        self._know(entry)
        self._unwritten.append(entry)
        if self._path is None or not self.turns:
            return
        self._path.parent.mkdir(parents=True, exist_ok=True)
        with self._path.open("a" if self._began else "w", encoding="utf-8") as file:
            file.writelines(json.dumps(each) + "\n" for each in self._unwritten)
        self._began, self._unwritten = True, []

    def remove(self) -> None:
        """The run is whole."""
        if self._path is not None:
            self._path.unlink(missing_ok=True)

    def is_over(self, system: str, work: str, number: int) -> bool:
        """Whether it need not be asked in that round: it was, or cannot do the work."""
        key = (system, work)
        return (system, work, number) in self._over or key in self._absent or self._failures[key] >= GIVEN_UP

    def took_s(self, system: str, work: str) -> float | None:
        """The last time."""
        return self._took_s.get((system, work))

    def found(self, system: str, work: str) -> dict[int, Entry]:
        """By round."""
        return {
            turn["round"]: turn["found"]
            for turn in self.turns
            if turn["system"] == system and turn["work"] == work and "found" in turn
        }

    def absent(self) -> dict[str, str]:
        return {_name(turn): turn["absent"] for turn in self.turns if "absent" in turn}

    def failed(self) -> dict[str, str]:
        """Each sentence with the round it is of."""
        made: dict[str, list[str]] = {}
        for turn in self.turns:
            if "failed" in turn:
                made.setdefault(_name(turn), []).append(f"round {turn['round'] + 1}: {turn['failed']}")
        return {name: "; ".join(said) for name, said in made.items()}

    def _know(self, entry: Entry) -> None:
        if "limits" in entry:
            self.limits.append(entry["limits"])
            return
        self.turns.append(entry)
        key = (entry["system"], entry["work"])
        self._over.add((*key, entry["round"]))
        self._took_s[key] = entry["took_s"]
        self._absent |= {key} if "absent" in entry else set()
        self._failures[key] += "failed" in entry


def _name(turn: Entry) -> str:
    return f"{turn['system']}: {turn['work']}"


def _lines(path: Path) -> Iterator[Entry]:
    """The last one may be torn."""
    for line in path.read_text(encoding="utf-8").splitlines():
        try:
            yield json.loads(line)
        except json.JSONDecodeError:
            return
