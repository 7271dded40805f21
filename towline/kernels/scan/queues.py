"""ConsumeQueue entries from dispatch rows, grouped by queue; many records in one buffer (spec 3.1, 3.2)."""

from typing import Any, Final

from towline.format.files import consume_queue
from towline.format.record.record import TRANSACTION_PREPARED, TRANSACTION_ROLLBACK
from towline.kernels.base.words import copy_bytes, load_i32, load_i64, store_i32, store_i64
from towline.kernels.jit.compiled import (
    DISPATCHES_READ,
    I64,
    NUMBERS,
    NUMBERS_READ,
    READ,
    RUNS,
    WORDS,
    WORDS_READ,
    WRITE,
    Bytes,
    Numbers,
    Rows,
    Words,
    helper,
    kernel,
)

NEW_QUEUE: Final = -1  # as an expected offset: the queue's first entry may have any

# State of `group_entries`, as indexes: all out.
ROWS: Final = 0  # first row not read; the given end when all were
GAP: Final = 1  # queue index of the row whose number stopped it; -1 when none did
GROUP_STATE_SIZE: Final = 2

_SIZE: Final = consume_queue.SIZE
_PHYSICAL_OFFSET: Final = consume_queue.LAYOUT.offset["physical_offset"]
_RECORD_SIZE: Final = consume_queue.LAYOUT.offset["record_size"]
_TAGS_CODE: Final = consume_queue.LAYOUT.offset["tags_code"]
# What `leading_records` found, as indexes: all out.
START: Final = 0  # of the first record in the log
END: Final = 1  # of the last
TOTAL: Final = 2  # bytes of all of them
LEADING_SIZE: Final = 3

_SKIPPED: Final = -1  # in `order`: the row gets no entry


@helper
def _open_run(run: Any, row: Any) -> None:
    run.queue_index = row.queue_index
    run.queue_offset = row.queue_offset
    run.count = 0
    run.start = 0
    run.phy_end = 0


@helper
def _assign(
    rows: Rows,
    first: int,
    stop: int,
    expected: Numbers,
    reached: Numbers,
    runs: Rows,
    room: int,
    marks: Words,
    order: Words,
    state: Numbers,
) -> int:
    """Gives each row its run in `order`, counts the entries of each run; returns how many runs there are."""
    opened = 0
    kept = 0
    number = first
    state[GAP] = -1
    while number < stop and kept < room:
        row = rows[number]
        order[number - first] = _SKIPPED
        if row.transaction not in (TRANSACTION_PREPARED, TRANSACTION_ROLLBACK):
            queue = row.queue_index
            mark = marks[queue]
            due = runs[mark - 1].queue_offset + runs[mark - 1].count if mark > 0 else expected[queue]
            built = row.queue_offset < due and row.phy < reached[queue]
            if row.queue_offset != due and due != NEW_QUEUE and not built:
                state[GAP] = queue
                break
            if not built:
                if mark == 0:
                    if opened == runs.size:
                        break
                    _open_run(runs[opened], row)
                    opened += 1
                    mark = opened
                    marks[queue] = mark
                runs[mark - 1].count += 1
                order[number - first] = mark - 1
                kept += 1
        number += 1
    state[ROWS] = number
    return opened


@kernel(I64(DISPATCHES_READ, I64, I64, NUMBERS_READ, NUMBERS_READ, RUNS, WRITE, WORDS, WORDS, NUMBERS))
def group_entries(
    rows: Rows,
    first: int,
    stop: int,
    expected: Numbers,
    reached: Numbers,
    runs: Rows,
    entries: Bytes,
    marks: Words,
    order: Words,
    state: Numbers,
) -> int:
    """Writes 20-byte entries for rows[first:stop] into `entries`, each queue's together; returns the number of `runs`.

    `expected` holds by queue index, for every queue of the directory, the next queue offset, or NEW_QUEUE where any may
    come first; `reached` the end of the newest record that has an entry. A row below the one, of a record before the
    other, was built already and is skipped, as are prepared and rolled back ones. Any other row whose number is not the
    next, a gap or a number that comes twice, ends the grouping before it, with the queue in state[GAP] and the row in
    state[ROWS]. It also ends early when `runs` or `entries` are full. `marks`, as long as `expected`, must be 0 and is
    0 again afterwards; `order` takes as many numbers as there are rows.
    """
    opened = _assign(rows, first, stop, expected, reached, runs, entries.size // _SIZE, marks, order, state)
    at = 0
    for number in range(opened):
        run = runs[number]
        run.start = at
        at += run.count * _SIZE
        marks[run.queue_index] = 0
    for number in range(first, state[ROWS]):
        place = order[number - first]
        if place == _SKIPPED:
            continue
        row = rows[number]
        run = runs[place]
        entry = run.start
        store_i64(entries, entry + _PHYSICAL_OFFSET, row.phy)
        store_i32(entries, entry + _RECORD_SIZE, row.size)
        store_i64(entries, entry + _TAGS_CODE, row.tags_code)
        run.start = entry + _SIZE
        run.phy_end = row.phy + row.size
    for number in range(opened):
        runs[number].start -= runs[number].count * _SIZE
    return opened


@kernel(I64(READ, I64, I64, I64, I64, I64, NUMBERS))
def leading_records(
    entries: Bytes, least: int, floor: int, written: int, segment_size: int, size_max: int, found: Numbers
) -> int:
    """How many records the first entries name that one answer may hold, and where in the log they are.

    All lie in the segment of the first, in order, in [floor, written), none below `least` bytes; they are `size_max`
    bytes together, in a stretch of twice as many. 0 where already the first is not such a record.
    """
    count = total = 0
    first = reached = border = 0
    for number in range(entries.size // _SIZE):
        at = number * _SIZE
        place = load_i64(entries, at + _PHYSICAL_OFFSET)
        size = load_i32(entries, at + _RECORD_SIZE)
        if number == 0:
            first, reached = place, floor
            border = min(written, place - place % segment_size + segment_size)
        if size < least or place < reached or place > border - size or total + size > size_max:
            break
        if place + size - first > 2 * size_max:
            break
        count += 1
        total += size
        reached = place + size
    found[START], found[END], found[TOTAL] = first, reached, total
    return count


@kernel(I64(READ, NUMBERS_READ, WORDS_READ, I64, WRITE))
def gather(log: Bytes, positions: Numbers, sizes: Words, count: int, target: Bytes) -> int:
    """Copies `count` records at these positions of the array into `target`, back to back; returns the bytes written.

    Stops before a record that does not fit `target` or does not lie in the array.
    """
    at = 0
    for number in range(count):
        start = positions[number]
        size = int(sizes[number])
        if size < 0 or start < 0 or start > log.size - size or at + size > target.size:
            break
        copy_bytes(target, at, log, start, size)
        at += size
    return at
