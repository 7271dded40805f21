"""Epochs: the master under which each part of the log was written, and the common part of two nodes' lists (spec 9.5).

An epoch is the time of one master: a number, and the log offset at which it began. It ends where the next one begins,
the newest at the end of the log. Numbers are never used twice: term x 256 + node id (H18).

The file `epochFileCheckpoint` is text, a line each:

    number of entries
    CRC-32 of all entry lines, with their line ends, less its highest bit; 0: do not check
    epoch-startOffset            for each entry

A store without the file has the list IMPLIED: whoever wrote its log, it was epoch 0, from the first byte on.
"""

import zlib
from collections.abc import Iterable, Sequence
from typing import Any, Final, NamedTuple

from towline.errors import MalformedFile

NODES: Final = 256  # numbers of a term
ENTRIES_MAX: Final = 256  # of a list; it goes into one greeting
_CRC_BITS: Final = 0x7FFFFFFF
_INT64_MAX: Final = 2**63 - 1
_DIGITS_MAX: Final = 19
_SHOWN_MAX: Final = 80  # characters of a line that is refused


class Epoch(NamedTuple):
    """`start` is the log offset of the first byte that may be of this epoch."""

    number: int
    start: int


Epochs = tuple[Epoch, ...]  # numbers and starts both rise from one to the next

IMPLIED: Final[Epochs] = (Epoch(0, 0),)


class Common(NamedTuple):
    """Two logs are the same up to `point`, as far as their epochs say; it lies in epoch `number`, or is its end."""

    number: int
    point: int


def number_of(term: int, node: int) -> int:
    assert 0 <= node < NODES
    return term * NODES + node


def term_of(number: int) -> int:
    return number // NODES


def node_of(number: int) -> int:
    """Which node was, or is, the master of an epoch."""
    return number % NODES


# --- the algebra


def opened(epochs: Epochs, number: int, end: int) -> Epochs:
    """The list of a log that ends at `end` when its node begins to write to it in epoch `number`.

    Raises ValueError where the log holds bytes of that epoch already, or of a later one.
    """
    kept = cut(epochs, end)
    if kept and kept[-1].number >= number:
        raise ValueError(f"the log holds bytes of epoch {kept[-1].number}, from {kept[-1].start} on")
    return limited((*kept, Epoch(number, end)))


def cut(epochs: Epochs, end: int) -> Epochs:
    """Without the entries of which a log that ends at `end` holds nothing."""
    return tuple(epoch for epoch in epochs if epoch.start < end)


def limited(epochs: Epochs, log_min: int = 0) -> Epochs:
    """Without the oldest entries where there are too many, and those that end at or before `log_min`."""
    below = sum(following.start <= log_min for following in epochs[1:])
    return epochs[max(below, len(epochs) - ENTRIES_MAX, 0) :]


def end_of(epochs: Epochs, number: int, log_end: int) -> int:
    """Where that epoch, which is in the list, ends."""
    starts = [epoch.start for epoch in epochs if epoch.number > number]
    return min(starts[0], log_end) if starts else log_end


def common_point(
    ours: Epochs, our_end: int, theirs: Epochs, their_end: int, before: int | None = None
) -> Common | None:
    """How far two logs have the same history: the newest of their epochs that we have too, with the same start.

    `before`: only of epochs below that number. None where no epoch is common.
    """
    starts = dict(ours or IMPLIED)
    for epoch in reversed(theirs or IMPLIED):
        if (before is None or epoch.number < before) and starts.get(epoch.number) == epoch.start:
            ends = (end_of(ours, epoch.number, our_end), end_of(theirs, epoch.number, their_end))
            return Common(epoch.number, min(ends))
    return None


def taken_over(ours: Epochs, masters: Epochs, end: int) -> Epochs:
    """The list of a slave whose log, which ends at `end`, is its master's up to there.

    Entries that begin later come with their first byte. Older ones than the master still has are kept.
    """
    first = masters[0] if masters else Epoch(_INT64_MAX, _INT64_MAX)
    older = tuple(one for one in ours if one.number < first.number and one.start < first.start)
    return limited(older + tuple(epoch for epoch in masters if epoch.start <= end))


def checked(pairs: Iterable[Any]) -> Epochs:
    """A list from somewhere else. Raises ValueError saying what is wrong with it."""
    found: list[Epoch] = []
    for pair in pairs:
        if not isinstance(pair, Sequence) or len(pair) != 2 or any(type(part) is not int for part in pair):
            raise ValueError(f"{pair!r} is no epoch and offset")
        epoch = Epoch(*pair)
        if not (0 <= epoch.number <= _INT64_MAX and 0 <= epoch.start <= _INT64_MAX):
            raise ValueError(f"epoch {epoch.number} at {epoch.start} is out of range")
        if found and not (epoch.number > found[-1].number and epoch.start > found[-1].start):
            raise ValueError(
                f"epoch {epoch.number} at {epoch.start} does not follow {found[-1].number} at {found[-1].start}"
            )
        found.append(epoch)
    if len(found) > ENTRIES_MAX:
        raise ValueError(f"{len(found)} epochs; {ENTRIES_MAX} are the most")
    return tuple(found)


# --- the file


def encode(epochs: Epochs) -> bytes:
    """The file's bytes. An empty list is never written."""
    assert epochs
    lines = "".join(f"{number}-{start}\n" for number, start in epochs).encode()
    return f"{len(epochs)}\n{zlib.crc32(lines) & _CRC_BITS}\n".encode() + lines


def decode(data: bytes, path: str) -> Epochs:
    """Raises MalformedFile naming `path` and the line."""
    head, crc, *rows = [line.decode("ascii", "backslashreplace") for line in data.splitlines()] + [""] * 2
    while rows and not rows[-1]:
        rows.pop()
    for number, text in ((1, head), (2, crc)):
        if not _is_number(text):
            raise MalformedFile(path, f"line {number} should be a number, it is {text[:_SHOWN_MAX]!r}")
    if int(head) != len(rows):
        raise MalformedFile(path, f"line 1 promises {head} entries, {len(rows)} follow")
    lines = data.split(b"\n", 2)[2] if data.count(b"\n") >= 2 else b""
    if int(crc) and int(crc) != zlib.crc32(lines) & _CRC_BITS:
        raise MalformedFile(path, f"the entries do not fit the check {crc} in line 2")
    pairs = [_pair(text, line, path) for line, text in enumerate(rows, 3)]
    try:
        return checked(pairs)
    except ValueError as error:
        raise MalformedFile(path, str(error)) from None


def _pair(text: str, line: int, path: str) -> tuple[int, int]:
    number, dash, start = text.partition("-")
    if not (dash and _is_number(number) and _is_number(start)):
        raise MalformedFile(path, f"line {line} should be epoch-startOffset, it is {text[:_SHOWN_MAX]!r}")
    return int(number), int(start)


def _is_number(text: str) -> bool:
    """Of 64 bits about: Python refuses to read thousands of digits."""
    return text.isdecimal() and len(text) <= _DIGITS_MAX
