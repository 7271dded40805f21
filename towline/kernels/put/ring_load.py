"""A load generator for put rings, for benchmarks. No process of a node calls it."""

from typing import Final

from towline.format.wire.frames import PUT, PUT_ANSWER
from towline.format.wire.put_ring import ANSWERS_SIZE, HEAD_SHIFT, HEAD_SIZE, PAD, WORD, Word
from towline.kernels.base.words import (
    copy_bytes,
    cycles,
    full_fence,
    load_i64,
    load_shared,
    load_u8,
    pause,
    raw_store_i64,
    store_i64,
    store_shared,
)
from towline.kernels.jit.compiled import I64, NUMBERS, READ, WRITE, Bytes, Numbers, helper, kernel

# `state`: numbers that the caller keeps from call to call.
SENT_TAIL: Final = 0
ANSWERED_HEAD: Final = 1
SENT: Final = 2
ANSWERED: Final = 3
TOLD: Final = 4  # of what was sent, as far as put was rung for it, or was awake
STATE_SIZE: Final = 5

# Why `put_through` came back.
DONE: Final = 0
SILENT: Final = 1  # no answer has come in so many looks
REFUSED: Final = 2  # an answer that is not PUT_OK
ASLEEP: Final = 3  # put sleeps: ring its bell and call again

_TAIL: Final = WORD * Word.REQUESTS_TAIL.value
_HEAD: Final = WORD * Word.REQUESTS_HEAD.value
_ANSWERS_TAIL: Final = WORD * Word.ANSWERS_TAIL.value
_ANSWERS_HEAD: Final = WORD * Word.ANSWERS_HEAD.value
_PUT_SLEEPS: Final = WORD * Word.PUT_SLEEPS.value
_ID_AT: Final = PUT.offset["request_id"]
_STATUS_AT: Final = PUT_ANSWER.offset["status"]
_ANSWERED_ID_AT: Final = PUT_ANSWER.offset["request_id"]


@helper
def _send(ring: Bytes, state: Numbers, area: int, head: Bytes, records: Bytes, begun: Numbers) -> bool:
    size = head.size + records.size
    takes = WORD + ((size + WORD - 1) & ~(WORD - 1))
    tail = state[SENT_TAIL]
    at = tail & (area - 1)
    skip = area - at if at + takes > area else 0
    if tail + skip + takes - load_shared(ring, _HEAD) > area:
        return False
    begun[state[SENT]] = cycles()
    if skip:
        raw_store_i64(ring, HEAD_SIZE + at, PAD)
        at = 0
    place = HEAD_SIZE + at
    raw_store_i64(ring, place, head.size << HEAD_SHIFT | size)  # without a stamp
    copy_bytes(ring, place + WORD, head, 0, head.size)
    store_i64(ring, place + WORD + _ID_AT, state[SENT])
    copy_bytes(ring, place + WORD + head.size, records, 0, records.size)
    state[SENT_TAIL] = tail + skip + takes
    state[SENT] += 1
    store_shared(ring, _TAIL, state[SENT_TAIL])
    return True


@helper
def _receive(ring: Bytes, state: Numbers, area: int, done: Numbers) -> int:
    """Takes every answer that is there; how many, -1 if one is a refusal."""
    tail = load_shared(ring, _ANSWERS_TAIL)
    head = state[ANSWERED_HEAD]
    found = 0
    while head != tail:
        at = HEAD_SIZE + area + (head & (ANSWERS_SIZE - 1))
        word = load_shared(ring, at)
        if word == PAD:
            head += ANSWERS_SIZE - (head & (ANSWERS_SIZE - 1))
            continue
        if load_u8(ring, at + WORD + _STATUS_AT) != 0 or load_i64(ring, at + WORD + _ANSWERED_ID_AT) < 0:
            return -1
        head += WORD + ((word + WORD - 1) & ~(WORD - 1))
        done[state[ANSWERED] + found] = cycles()
        found += 1
    state[ANSWERED_HEAD] = head
    if found:
        state[ANSWERED] += found
        store_shared(ring, _ANSWERS_HEAD, head)
    return found


@kernel(I64(WRITE, I64, NUMBERS, READ, READ, I64, I64, I64, NUMBERS, NUMBERS))
def put_through(
    ring: Bytes,
    area: int,
    state: Numbers,
    head: Bytes,
    records: Bytes,
    count: int,
    window: int,
    looks: int,
    begun: Numbers,
    done: Numbers,
) -> int:
    """Sends requests of this head and these records until `count` are sent in all, `window` of them on their way.

    `begun` and `done` get the cycles at which each was sent and answered: `count` places. Returns DONE when all of them
    are answered; ASLEEP, once, where put sleeps on what was sent; SILENT when nothing came in so many looks.
    """
    left = looks
    while state[ANSWERED] < count:
        while (
            state[SENT] < count
            and state[SENT] - state[ANSWERED] < window
            and _send(ring, state, area, head, records, begun)
        ):
            left = looks
        if state[TOLD] != state[SENT]:
            state[TOLD] = state[SENT]
            full_fence()
            if load_shared(ring, _PUT_SLEEPS) != 0:
                return ASLEEP
        found = _receive(ring, state, area, done)
        if found < 0:
            return REFUSED
        if found == 0:
            if left <= 0:
                return SILENT
            left -= 1
            pause()
        else:
            left = looks
    return DONE
