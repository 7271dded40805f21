"""Sleeps in a row without the interpreter, whose wake-up costs three times as much."""

from towline.kernels.jit.calls import bytes_at, call_int
from towline.kernels.jit.compiled import I64, READ, WRITE, Bytes, kernel

from .words import load_shared, raw_i64, store_shared

_CLOCK_MONOTONIC = 1
_NS_PER_S = 1_000_000_000
TIME_SIZE = 16  # bytes of a timespec


@kernel(I64(I64, WRITE, I64, I64, WRITE, I64, READ, I64, I64, I64))
def sleep_on(
    poll: int, items: Bytes, count: int, clock: int, now: Bytes, words: int, seen: Bytes, beat: int, times: int, ms: int
) -> int:
    """Up to `times` sleeps of `ms` on `count` poll items; how many were slept to their end.

    After each the time goes into the word at byte `beat` of the words at address `words` (the duty's own), and one that
    is not as `seen` any more ends it, as anything does that wakes the poll: an item, a signal. `poll` and `clock` are
    the addresses of zmq_poll (or poll) and clock_gettime.
    """
    shared = bytes_at(words, max(beat + 8, seen.size))
    for slept in range(times):
        if call_int(poll, items.ctypes.data, count, ms, 0) != 0:
            return slept
        call_int(clock, _CLOCK_MONOTONIC, now.ctypes.data, 0, 0)
        store_shared(shared, beat, raw_i64(now, 0) * _NS_PER_S + raw_i64(now, 8))
        for at in range(0, seen.size, 8):
            if load_shared(shared, at) != raw_i64(seen, at):
                return slept + 1
    return times
