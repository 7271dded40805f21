"""The put ring: memory shared by one producer and the put process of its node, instead of a socket.

    word 0..7      what it is, written by the client before put hears of it (`Word`)
    word 8, 16 ..  a 64-byte line for each word that moves, one writer each
    byte 4096..    requests: a ring of entries from the client
    behind them    answers: a ring of entries from put

A position counts bytes since the ring was made and never moves back; byte `position % size` of its area is meant. An
entry is a word and its bytes, filled up to a multiple of 8, and never wraps: where it does not fit before the end of
the area, a PAD word stands in its place and the entry begins at the start. It is visible once the tail has passed it.

    request  word: bytes of head and records | bytes of the PUT head << 26 | stamp << 45; then both as in ZeroMQ's parts
    answer   word: its bytes; then a PUT_ANSWER

The stamp says when the client wrote the request: 1 + the monotonic clock's ms modulo STAMPS, or 0 for "not said". It is
for statistics alone, and believed within bounds.

Words are signed, 64 bits, in the machine's order. Pure: nothing here touches memory.
"""

from enum import IntEnum
from typing import Final

from towline.limits import KIB, MIB, REQUEST_GROUPS_MAX, RETRY_TOPIC_SIZE_MAX

from .frames import GROUP, PLACE, PUT, PUT_ANSWER

MAGIC: Final = 0x31474E52_4C574F54  # "TOWLRNG1" as the machine's 64-bit word
VERSION: Final = 2
HEAD_SIZE: Final = 4096
WORD: Final = 8
PAD: Final = -1  # the rest of the area holds nothing
ANSWERS_SIZE: Final = 256 * KIB
REQUESTS_SIZE_MIN: Final = 64 * KIB
REQUESTS_SIZE_MAX: Final = 64 * MIB
PUT_ANSWER_SIZE: Final = PUT_ANSWER.size
SENTENCE_MAX: Final = 448  # bytes of a refusal's sentence; the rest is cut off
REFUSAL_ROOM: Final = 512  # of the answers' ring: what any answer without places takes at most
HEAD_SHIFT: Final = 26
STAMP_SHIFT: Final = 45
SIZE_BITS: Final = (1 << HEAD_SHIFT) - 1
HEAD_BITS: Final = (1 << (STAMP_SHIFT - HEAD_SHIFT)) - 1
STAMPS: Final = (1 << (63 - STAMP_SHIFT)) - 1  # ms, some four minutes; what waited as long has passed its deadline
assert REQUESTS_SIZE_MAX // 2 <= SIZE_BITS
assert PUT.size + REQUEST_GROUPS_MAX * (GROUP.size + RETRY_TOPIC_SIZE_MAX) <= HEAD_BITS


class Word(IntEnum):
    """Numbers of words. The writer of each is in the comment."""

    MAGIC = 0  # client, once
    VERSION = 1  # client, once
    TOKEN = 2  # client, once: whoever names the ring shows it
    REQUESTS_SIZE = 3  # client, once
    ANSWERS_SIZE = 4  # client, once
    GENERATION = 5  # client, once: of the node that it was made for
    REQUESTS_TAIL = 8  # client
    REQUESTS_HEAD = 16  # put
    ANSWERS_TAIL = 24  # put
    ANSWERS_HEAD = 32  # client
    CLIENT_SLEEPS = 40  # client: it waits for its bell
    PUT_SLEEPS = 48  # put: it waits for its bell
    CUT = 56  # put: why it will not look at the ring again, a `Cut`


class Cut(IntEnum):
    """Why put has done with a ring."""

    NOT = 0
    CLOSING = 1
    POSITION = 2
    LENGTH = 3
    FORM = 4

    @property
    def sentence(self) -> str:
        return _SENTENCES[self]


_SENTENCES: Final = {
    Cut.NOT: "it is in use",
    Cut.CLOSING: "the put process ends, or was told to forget the client",
    Cut.POSITION: "a position moved back, or beyond what is in the ring",
    Cut.LENGTH: "an entry is larger than what is in the ring, or than an entry may be",
    Cut.FORM: "an entry is no put",
}


def file_size(requests_size: int) -> int:
    return HEAD_SIZE + requests_size + ANSWERS_SIZE


def fits_area(requests_size: int) -> bool:
    """Whether the requests' area may have this size: a power of two within the bounds."""
    within = REQUESTS_SIZE_MIN <= requests_size <= REQUESTS_SIZE_MAX
    return within and requests_size & (requests_size - 1) == 0


def entry_max(area: int) -> int:
    """Bytes of the largest entry: with less than half of the area it fits wherever the last one ended."""
    return area // 2 - WORD


def padded(size: int) -> int:
    """What an entry of `size` bytes takes, its word included."""
    return WORD + (size + WORD - 1) // WORD * WORD


def request_word(head_size: int, size: int, stamp: int = 0) -> int:
    return stamp << STAMP_SHIFT | head_size << HEAD_SHIFT | size


def read_request_word(word: int) -> tuple[int, int, int]:
    """Bytes of the head, bytes of head and records, stamp; of a word that is no PAD."""
    return word >> HEAD_SHIFT & HEAD_BITS, word & SIZE_BITS, word >> STAMP_SHIFT


def stamp_of(now_ms: int) -> int:
    """Of a request that is written now, by the monotonic clock."""
    return 1 + now_ms % STAMPS


def written_ms(stamp: int, now_ms: int, since_ms: int, unsaid_ms: int) -> int:
    """When a request with that stamp was written, as far as that can be: not before `since_ms`, nor after `now_ms`.

    `unsaid_ms` for one that does not say. All are of the monotonic clock.
    """
    if not stamp:
        return unsaid_ms
    return max(since_ms, now_ms - (now_ms + 1 - stamp) % STAMPS)


def answer_room(groups: int) -> int:
    """Bytes of the answers' ring that the answer to a put of so many groups takes at most."""
    return max(REFUSAL_ROOM, padded(PUT_ANSWER.size + groups * PLACE.size))
