"""The one store of a record's, a blank's or an index header's first word into a mapped file.

It stands apart from `mapped_file`, since it is compiled: who only reads files loads no kernel.
"""

import sys
from typing import Final

from towline.kernels.base.first_word import store_word

from .mapped_file import MappedFile

WORD_SIZE: Final = 8


def store_first_word(mapped: MappedFile, at: int, word: bytes) -> None:
    """Stores the 8 bytes `word` at byte `at` in one store, not byte by byte (and never through pack_into)."""
    assert len(word) == WORD_SIZE
    assert 0 <= at <= mapped.size - WORD_SIZE
    store_word(mapped.array, at, int.from_bytes(word, sys.byteorder, signed=True))
