"""The compiled store of a record's first word, made without the GIL while it waits for a page.

A page of the log is protected against writing whenever it is written back, so even this store may have to wait for the
disk. An interpreted one would hold every other thread of the process up with it.
"""

from towline.kernels.jit.compiled import I64, WRITE, Bytes, kernel

from .words import raw_store_i64


@kernel(I64(WRITE, I64, I64))
def store_word(log: Bytes, at: int, word: int) -> int:
    """Stores the 8 bytes of `word`, in the machine's order, at byte `at` in one store. Returns the byte behind them."""
    raw_store_i64(log, at, word)
    return at + 8
