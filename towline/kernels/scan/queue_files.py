"""Writing queue entries to files: one call writes the runs of thousands of queues (spec 3.1; H7).

Files are written with pwrite, as H7 wants it; the loop over them is compiled, because with 10,000 queues the
interpreter would take longer over a batch than everything else together. Open descriptors are bounded: a file that is
not open takes the place of one that the batch before did not touch either; without such a one it is opened, written and
closed.
"""

from typing import Any, Final

from towline.format.files import consume_queue
from towline.kernels.jit.compiled import (
    I64,
    NUMBERS,
    READ,
    RUNS_READ,
    WORDS,
    Bytes,
    Numbers,
    Rows,
    Words,
    helper,
    kernel,
    types,
)

# State of `write_runs`, as indexes.
ROOT: Final = 0  # in: descriptor of the directory to which paths are relative
STAMP: Final = 1  # in: number of the batch, growing
HAND: Final = 2  # in and out: the place at which a search for a descriptor to close begins
OPENED: Final = 3  # out, added to: files opened
STATE_SIZE: Final = 4

NOWHERE: Final = -1  # as the base of a queue: no file of it was prepared
CLOSED: Final = -1
_PROBES: Final = 8
_OPEN_FLAGS: Final = 0o2000002  # O_RDWR | O_CLOEXEC
_SIZE: Final = consume_queue.SIZE

_pwrite: Any = types.ExternalFunction("pwrite", types.int64(types.int32, types.uintp, types.uintp, types.int64))
_openat: Any = types.ExternalFunction("openat", types.int32(types.int32, types.uintp, types.int32, types.int32))
_close: Any = types.ExternalFunction("close", types.int32(types.int32))


@helper
def _place_for(queue: int, places: Words, fds: Words, used: Numbers, state: Numbers) -> int:
    """A place for one more descriptor, its holder closed; -1 when all that were checked are in use."""
    count = places.size
    place = state[HAND]
    for _ in range(min(_PROBES, count)):
        place = place + 1 if place + 1 < count else 0
        holder = places[place]
        if holder < 0 or used[holder] < state[STAMP] - 1:
            state[HAND] = place
            if holder >= 0:
                _close(fds[holder])
                fds[holder] = CLOSED
            places[place] = queue
            return place
    state[HAND] = place
    return -1


@helper
def _write_all(fd: int, address: int, size: int, at: int) -> bool:
    while size > 0:
        written = _pwrite(fd, address, size, at)
        if written <= 0:
            return False
        address += written
        size -= written
        at += written
    return True


@kernel(I64(RUNS_READ, I64, I64, READ, I64, NUMBERS, NUMBERS, READ, WORDS, NUMBERS, WORDS, NUMBERS))
def write_runs(
    runs: Rows,
    first: int,
    stop: int,
    entries: Bytes,
    file_size: int,
    bases: Numbers,
    path_starts: Numbers,
    paths: Bytes,
    fds: Words,
    used: Numbers,
    places: Words,
    state: Numbers,
) -> int:
    """Writes the entries of runs[first:stop] to their queues' files; returns the number of the run it stopped at.

    By queue index: `bases`, the first byte of the prepared file (full-sized, entries before the run's written) or
    NOWHERE; `path_starts`, where its path, ended by 0, begins in `paths`; `fds`, its descriptor or CLOSED; `used`, the
    STAMP of its last write. `places` holds the queue of each open descriptor, or -1. Stops before a run that does not
    lie in the prepared file, and before one that cannot be opened or written: the caller does it and says why.
    """
    number = first
    while number < stop:
        run = runs[number]
        queue = run.queue_index
        at = run.queue_offset * _SIZE
        size = run.count * _SIZE
        base = bases[queue]
        if base == NOWHERE or at < base or at + size > base + file_size:
            break
        fd = fds[queue]
        place = -1
        if fd == CLOSED:
            place = _place_for(queue, places, fds, used, state)
            fd = _openat(state[ROOT], paths.ctypes.data + path_starts[queue], _OPEN_FLAGS, 0)
            if fd < 0:
                if place >= 0:
                    places[place] = -1
                break
            state[OPENED] += 1
            if place >= 0:
                fds[queue] = fd
        whole = _write_all(fd, entries.ctypes.data + run.start, size, at - base)
        used[queue] = state[STAMP]
        if fds[queue] == CLOSED:
            _close(fd)
        if not whole:
            break
        number += 1
    return number
