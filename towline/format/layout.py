"""Layouts: fixed runs of big-endian fields, summed from the letters of `struct` and drawn as a table.

Every format module describes its bytes once with a `Layout`; no literal offset stands anywhere else.
"""

import struct
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Field:
    name: str
    letter: str  # one struct letter, or a count and `s`
    meaning: str

    @property
    def size(self) -> int:
        return struct.calcsize(">" + self.letter)


class Layout:
    """`size` and `offset[name]` in bytes; `pack`/`unpack_from` in the order of the fields."""

    def __init__(self, *fields: Field) -> None:
        self.fields = fields
        self._struct = struct.Struct(">" + "".join(field.letter for field in fields))
        self.size = self._struct.size
        self.offset: dict[str, int] = {}
        at = 0
        for field in fields:
            self.offset[field.name] = at
            at += field.size
        assert at == self.size
        self.pack = self._struct.pack
        self.unpack_from = self._struct.unpack_from

    def rows(self) -> list[str]:
        """One line per field: offset, length, name, meaning. The docstring of a format module shows the same lines."""
        return [f"{self.offset[field.name]} {field.size} {field.name} {field.meaning}" for field in self.fields]
