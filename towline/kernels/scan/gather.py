"""Merging runs of many batches by queue, so that one write to a queue holds all its entries (spec 3.1)."""

from typing import Final

from towline.format.files import consume_queue
from towline.kernels.base.words import copy_bytes
from towline.kernels.jit.compiled import (
    I64,
    NUMBERS,
    READ,
    RUNS,
    RUNS_READ,
    WORDS,
    WORDS_READ,
    WRITE,
    Bytes,
    Numbers,
    Rows,
    Words,
    kernel,
)

NONE: Final = -1  # in `heads` and `links`, and as NEXT_RUN

# State, as indexes. `gather_runs` adds to the first three; `merge_runs` goes on from the other two.
RUN_COUNT: Final = 0
BYTES_USED: Final = 1
QUEUE_COUNT: Final = 2
PLACE: Final = 3  # of the queue in `order` that comes next
NEXT_RUN: Final = 4  # the run of it that comes next, NONE for its first
GATHER_STATE_SIZE: Final = 5

_SIZE: Final = consume_queue.SIZE


@kernel(I64(RUNS_READ, READ, RUNS, WRITE, WORDS, WORDS, WORDS, WORDS, NUMBERS))
def gather_runs(
    some: Rows,
    some_entries: Bytes,
    runs: Rows,
    entries: Bytes,
    heads: Words,
    tails: Words,
    links: Words,
    order: Words,
    state: Numbers,
) -> int:
    """Puts the runs `some` and their entries behind those that are there, each behind its queue's last; how many.

    By queue index: `heads` and `tails`, a queue's first and last run, NONE without one. By run: `links`, the queue's
    next one. `order` has the queues as they were met. The caller sees to it that everything fits.
    """
    number = state[RUN_COUNT]
    used = state[BYTES_USED]
    for place in range(some.size):
        one = some[place]
        run = runs[number]
        size = one.count * _SIZE
        copy_bytes(entries, used, some_entries, one.start, size)
        run.start = used
        run.queue_offset = one.queue_offset
        run.phy_end = one.phy_end
        run.count = one.count
        run.queue_index = one.queue_index
        used += size
        links[number] = NONE
        if heads[one.queue_index] == NONE:
            heads[one.queue_index] = number
            order[state[QUEUE_COUNT]] = one.queue_index
            state[QUEUE_COUNT] += 1
        else:
            links[tails[one.queue_index]] = number
        tails[one.queue_index] = number
        number += 1
    state[RUN_COUNT] = number
    state[BYTES_USED] = used
    return some.size


@kernel(I64(RUNS_READ, READ, WORDS_READ, WORDS_READ, WORDS_READ, RUNS, WRITE, NUMBERS))
def merge_runs(
    runs: Rows,
    entries: Bytes,
    heads: Words,
    links: Words,
    order: Words,
    merged: Rows,
    target: Bytes,
    state: Numbers,
) -> int:
    """Fills `merged` and `target` with the runs of the next queues, each made one; how many, 0 behind the last queue.

    A queue that does not fit whole goes on in the next call. `target` holds the largest run of all at least.
    """
    opened = 0
    used = 0
    full = False
    while state[PLACE] < state[QUEUE_COUNT] and opened < merged.size and not full:
        number = state[NEXT_RUN]
        if number == NONE:
            number = int(heads[order[state[PLACE]]])
        if used + runs[number].count * _SIZE > target.size:
            break
        one = merged[opened]
        one.start = used
        one.queue_offset = runs[number].queue_offset
        one.queue_index = runs[number].queue_index
        one.count = 0
        while number != NONE and not full:
            run = runs[number]
            size = run.count * _SIZE
            full = used + size > target.size
            if not full:
                copy_bytes(target, used, entries, run.start, size)
                used += size
                one.count += run.count
                one.phy_end = run.phy_end
                number = int(links[number])
        opened += 1
        state[NEXT_RUN] = number
        if number == NONE:
            state[PLACE] += 1
    return opened
