"""Put rings (`towline.format.wire.put_ring`) in memory: one direction of a ring, the client's end, and put's end.

The memory is a sealed memfd, which put opens as /proc/PID/fd/N: it has no name, so no file is left behind, and neither
side can shrink it under the other. The client holds a record lock on it for as long as it lives.

Words are read and stored through a cast view only, each once. Words of the other side are copied first, then checked.
"""

import contextlib
import fcntl
import mmap
import os
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Self

from towline.errors import MalformedFrame, TowlineError
from towline.fence import fence
from towline.format.wire.frames import Buffer
from towline.format.wire.put_ring import (
    ANSWERS_SIZE,
    HEAD_SIZE,
    MAGIC,
    PAD,
    SIZE_BITS,
    VERSION,
    WORD,
    Cut,
    Word,
    entry_max,
    file_size,
    padded,
    request_word,
    stamp_of,
)

NAME: Final = "towline-put-ring"
_SEALS: Final = ("F_SEAL_SHRINK", "F_SEAL_GROW", "F_SEAL_SEAL")
SEALS: Final = sum(getattr(fcntl, name, 0) for name in _SEALS)  # where there are none, no node offers a ring
MODE: Final = 0o600
NS_PER_MS: Final = 1_000_000
_TOKEN_BITS: Final = 62
_BELL: Final = b"\0"


class RingBroken(TowlineError):
    """What the other side wrote cannot be: the ring is cut off."""

    cut: Cut
    advice = "use the client library of the node's own version"

    def describe(self) -> str:
        return f"a ring in shared memory is broken: {self.cut.sentence}"


class Memory:
    """A mapped ring: `words` for its positions, `view` for its bytes."""

    def __init__(self, descriptor: int, size: int) -> None:
        self._mapping = mmap.mmap(descriptor, size)
        self.view = memoryview(self._mapping)
        self.words = self.view.cast("q")

    def close(self) -> None:
        self.words.release()
        self.view.release()
        self._mapping.close()


class _Area:
    """`start` and `size` of one direction's bytes, and the words of its two positions."""

    def __init__(self, memory: Memory, start: int, size: int, tail: Word, head: Word) -> None:
        self._words, self._view = memory.words, memory.view
        self._start, self._size, self._mask = start, size, size - 1
        self._tail_word, self._head_word = int(tail), int(head)
        self._tail, self._head = int(self._words[tail]), int(self._words[head])

    @property
    def places(self) -> tuple[int, int]:
        """Tail and head as this side knows them."""
        return self._tail, self._head

    def go_to(self, tail: int, head: int) -> None:
        """Follows a kernel that has done the same work from `places` on."""
        self._tail, self._head = tail, head


class EntryWriter(_Area):
    """The only writer of entries. Raises RingBroken when the reader's position is impossible."""

    @property
    def free(self) -> int:
        """Bytes until the area is full, as far as the reader has come."""
        head = int(self._words[self._head_word])
        if not self._head <= head <= self._tail:
            raise RingBroken(Cut.POSITION)
        self._head = head
        return self._size - (self._tail - head)

    def offer(self, word: int, parts: Sequence[Buffer]) -> bool:
        """Adds an entry of `parts`, one after the other. False, and nothing is added, while there is no room."""
        size = padded(sum(map(len, parts)))
        assert size <= entry_max(self._size) + WORD
        at = self._tail & self._mask
        left = self._size - at
        skip = 0 if size <= left else left
        if size + skip > self._size - (self._tail - self._head) and size + skip > self.free:
            return False
        if skip:
            self._words[(self._start + at) >> 3] = PAD
            at = 0
        place = self._start + at
        self._words[place >> 3] = word
        place += WORD
        for part in parts:
            end = place + len(part)
            self._view[place:end] = part
            place = end
        self._tail += size + skip
        self._words[self._tail_word] = self._tail  # only from here on is anything of it there
        return True


class EntryReader(_Area):
    """The only reader of entries."""

    @property
    def waits(self) -> bool:
        """Whether there is an entry."""
        return int(self._words[self._tail_word]) != self._head

    def take(self, size_max: int) -> tuple[int, bytes] | None:
        """The next entry's word and a copy of its bytes, of which a request has the size in its lower half.

        None when there is none. Raises RingBroken: then nothing more can be read here.
        """
        tail = int(self._words[self._tail_word])
        while True:
            there = tail - self._head
            if tail < self._tail or there > self._size or tail & (WORD - 1):
                raise RingBroken(Cut.POSITION)
            self._tail = tail
            if not there:
                return None
            at = self._head & self._mask
            word = int(self._words[(self._start + at) >> 3])  # read once: it may change under our eyes
            left = min(self._size - at, there)
            if word != PAD:
                break
            if self._size - at > there:
                raise RingBroken(Cut.LENGTH)
            self.skip(self._size - at)
        size = word & SIZE_BITS
        taken = padded(size)
        if word < 0 or size > size_max or taken > left:
            raise RingBroken(Cut.LENGTH)
        place = self._start + at + WORD
        data = bytes(self._view[place : place + size])
        self.skip(taken)
        return word, data

    def skip(self, size: int) -> None:
        """Passes over `size` bytes, which are whole entries and pads that were read."""
        self._head += size
        self._words[self._head_word] = self._head


def requests_writer(memory: Memory, size: int) -> EntryWriter:
    return EntryWriter(memory, HEAD_SIZE, size, Word.REQUESTS_TAIL, Word.REQUESTS_HEAD)


def requests_reader(memory: Memory, size: int) -> EntryReader:
    return EntryReader(memory, HEAD_SIZE, size, Word.REQUESTS_TAIL, Word.REQUESTS_HEAD)


def answers_writer(memory: Memory, size: int) -> EntryWriter:
    return EntryWriter(memory, HEAD_SIZE + size, ANSWERS_SIZE, Word.ANSWERS_TAIL, Word.ANSWERS_HEAD)


def answers_reader(memory: Memory, size: int) -> EntryReader:
    return EntryReader(memory, HEAD_SIZE + size, ANSWERS_SIZE, Word.ANSWERS_TAIL, Word.ANSWERS_HEAD)


@dataclass(frozen=True, slots=True)
class Offer:
    """The ring that a node offers in its welcome: bytes of the requests' area, its generation, put's doorbell."""

    size: int
    generation: int
    bell: Path

    @classmethod
    def of(cls, welcome: dict[str, Any]) -> Self | None:
        """The offer in a welcome; None where the node offers none."""
        facts = welcome.get("put_ring")
        if not isinstance(facts, dict):
            return None
        try:
            return cls(int(facts["size"]), int(facts["generation"]), Path(str(facts["bell"])))
        except (KeyError, TypeError, ValueError, OverflowError):  # JSON may hold 1e999
            return None


class ClientRing:
    """The client's end of a ring. Used by one thread.

    `facts` are for put, which accepts the ring before anything is sent.
    """

    def __init__(self, offer: Offer) -> None:
        """Raises OSError where the machine does not let us."""
        self._closed = False
        self._size = offer.size
        size = file_size(offer.size)
        with contextlib.ExitStack() as undo:
            self._descriptor = os.memfd_create(NAME, os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
            undo.callback(os.close, self._descriptor)
            os.fchmod(self._descriptor, MODE)
            os.ftruncate(self._descriptor, size)
            fcntl.fcntl(self._descriptor, fcntl.F_ADD_SEALS, SEALS)
            fcntl.lockf(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            self._bell = os.open(offer.bell, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)  # H12
            undo.callback(os.close, self._bell)
            self._own_bell, self._own_bell_in = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
            undo.callback(os.close, self._own_bell)
            undo.callback(os.close, self._own_bell_in)
            self.memory = Memory(self._descriptor, size)
            undo.pop_all()
        token = int.from_bytes(os.urandom(8)) >> (64 - _TOKEN_BITS)
        words = self.memory.words
        words[Word.VERSION], words[Word.TOKEN], words[Word.GENERATION] = VERSION, token, offer.generation
        words[Word.REQUESTS_SIZE], words[Word.ANSWERS_SIZE] = offer.size, ANSWERS_SIZE
        words[Word.MAGIC] = MAGIC
        self.requests = requests_writer(self.memory, offer.size)
        self.answers = answers_reader(self.memory, offer.size)
        self.facts = {"pid": os.getpid(), "ring": self._descriptor, "bell": self._own_bell_in, "token": token}

    def fileno(self) -> int:
        """The descriptor of the doorbell that put rings while the client sleeps."""
        return self._own_bell

    @property
    def put_bell(self) -> int:
        """The descriptor of put's doorbell."""
        return self._bell

    def fits(self, size: int) -> bool:
        """Whether a request of `size` bytes, head and records, fits into the ring at all."""
        return size <= entry_max(self._size)

    def send(self, head: bytes, records: Buffer) -> bool:
        """Sends a request; False while there is no room. Raises MalformedFrame when put's positions are impossible."""
        try:
            word = request_word(len(head), len(head) + len(records), stamp_of(time.monotonic_ns() // NS_PER_MS))
            sent = self.requests.offer(word, (head, records))
        except RingBroken as broken:
            raise MalformedFrame(f"put's ring: {broken.cut.sentence}") from None
        if sent:
            self.nudge()
        return sent

    def nudge(self) -> None:
        """Wakes put, if it sleeps, after a request was added."""
        fence()
        if self.memory.words[Word.PUT_SLEEPS]:
            self._wake_put()

    def receive(self) -> bytes | None:
        """The next answer; None without one.

        Raises MalformedFrame when put has cut the ring off, or wrote something impossible.
        """
        try:
            taken = self.answers.take(entry_max(ANSWERS_SIZE))
        except RingBroken as broken:
            raise MalformedFrame(f"put's ring: {broken.cut.sentence}") from None
        if taken is not None:
            return taken[1]
        cut = int(self.memory.words[Word.CUT])
        if cut:
            raise MalformedFrame(f"put has cut the ring off: {Cut(cut).sentence}")
        return None

    @property
    def waits(self) -> bool:
        """Whether an answer is there, or will never come through this ring."""
        return self.answers.waits or bool(self.memory.words[Word.CUT])

    def arm(self) -> bool:
        """Prepares for sleep; False when an answer is there already (H12)."""
        self.memory.words[Word.CLIENT_SLEEPS] = 1
        fence()
        return not self.waits

    def stay_awake(self) -> None:
        """Tells put that nobody sleeps; what has rung already stays in the doorbell."""
        self.memory.words[Word.CLIENT_SLEEPS] = 0

    def disarm(self) -> None:
        """Ends what `arm` began, and empties the doorbell."""
        self.stay_awake()
        with contextlib.suppress(BlockingIOError):
            os.read(self._own_bell, 4096)

    def _wake_put(self) -> None:
        with contextlib.suppress(BlockingIOError):  # a full pipe rings already
            os.write(self._bell, _BELL)

    def close(self) -> None:
        """Closes the ring; put notices that the lock is gone and closes its end."""
        if self._closed:
            return
        self._closed = True
        self.memory.close()
        for descriptor in (self._descriptor, self._bell, self._own_bell, self._own_bell_in):
            os.close(descriptor)


class RingRefused(TowlineError):
    """A ring that put does not take; the socket is used."""

    why: str
    template = "the ring is not taken: {why}"
    advice = "use the socket, or the client of this version on the node's own machine"


class NodeRing:
    """Put's end of a client's ring, mapped and checked. Put trusts nothing that the client wrote."""

    def __init__(self, facts: dict[str, Any], size: int, generation: int) -> None:
        """`facts` are those of a ClientRing; `size` and `generation` what it has to have. Raises RingRefused."""
        try:
            pid, ring, bell, token = (int(facts[name]) for name in ("pid", "ring", "bell", "token"))
        except (KeyError, TypeError, ValueError, OverflowError):  # JSON may hold 1e999
            raise RingRefused("it is not described") from None
        self.pid = pid
        self.size = size
        self.since_ms = time.monotonic_ns() // NS_PER_MS  # nothing in it is older
        with contextlib.ExitStack() as undo:
            try:
                self._descriptor = _open_memory(Path(f"/proc/{pid}/fd/{ring}"), file_size(size))
                undo.callback(os.close, self._descriptor)
                self._bell = _open_bell(Path(f"/proc/{pid}/fd/{bell}"))
                undo.callback(os.close, self._bell)
                self.memory = Memory(self._descriptor, file_size(size))
            except OSError as error:
                raise RingRefused(f"it cannot be opened ({error.strerror})") from None
            undo.callback(self.memory.close)
            _check(self.memory.words, token, size, generation)
            undo.pop_all()
        self.requests = requests_reader(self.memory, size)
        self.answers = answers_writer(self.memory, size)
        self.was_left = False  # its client had gone when that was looked at last
        self.reserved = 0  # of the answers' ring, for requests that were taken and not answered
        self.rings = False  # answers were added since the client was looked after
        self.woken = False  # a kernel came back for a client that slept, and has not seen it awake since
        self.is_closed = False

    def is_same(self, other: "NodeRing") -> bool:
        """Whether both are the same memory."""
        return bool(self.memory.words[Word.TOKEN] == other.memory.words[Word.TOKEN])

    @property
    def bell(self) -> int:
        """The descriptor of the doorbell that wakes the client."""
        return self._bell

    def has_room(self, size: int) -> bool:
        """Whether answers of `size` bytes find room beside those for which it is kept. Raises RingBroken."""
        return self.answers.free - self.reserved >= size

    def answer(self, answer: bytes) -> bool:
        """Writes an answer; False if there is no room, because none was kept for it. Raises RingBroken."""
        self.rings = True
        return self.answers.offer(len(answer), (answer,))

    def wake(self) -> None:
        """Wakes the client if it sleeps: once after the answers of a cycle, and behind a fence."""
        self.rings = False
        if self.memory.words[Word.CLIENT_SLEEPS]:
            with contextlib.suppress(OSError):  # it rings already; or nobody is there any more
                os.write(self._bell, _BELL)

    def sleeps(self, value: bool) -> None:
        self.memory.words[Word.PUT_SLEEPS] = value

    def is_left(self) -> bool:
        """Whether the client's process has ended, or closed its end. Nobody else holds the lock, or ever could."""
        try:
            fcntl.lockf(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return False
        return True

    def close(self, cut: Cut) -> None:
        """Closes the ring; the client reads `cut` as the reason."""
        self.is_closed = True
        self.memory.words[Word.CUT] = cut
        self.rings = True
        fence()
        self.wake()
        self.memory.close()
        os.close(self._descriptor)
        os.close(self._bell)


def _open_memory(path: Path, size: int) -> int:
    """Raises RingRefused, OSError. What it is is looked at before it is opened: to open a device does something."""
    if not str(path.readlink()).startswith(f"/memfd:{NAME}"):
        raise RingRefused("it is no memory of that name")
    descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    try:
        found = os.fstat(descriptor)
        if found.st_uid != os.geteuid() or found.st_mode & 0o777 != MODE:
            raise RingRefused("it belongs to somebody else, or others may open it")
        if found.st_size != size:
            raise RingRefused(f"it has {found.st_size} bytes and not {size}")
        if fcntl.fcntl(descriptor, fcntl.F_GET_SEALS) & SEALS != SEALS:
            raise RingRefused("its size is not sealed")
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def _open_bell(path: Path) -> int:
    if not str(path.readlink()).startswith("pipe:"):
        raise RingRefused("its bell is no pipe")
    return os.open(path, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)


def _check(words: memoryview, token: int, size: int, generation: int) -> None:
    wanted = {
        Word.MAGIC: MAGIC,
        Word.VERSION: VERSION,
        Word.TOKEN: token,
        Word.REQUESTS_SIZE: size,
        Word.ANSWERS_SIZE: ANSWERS_SIZE,
        Word.GENERATION: generation,
        Word.ANSWERS_TAIL: 0,
        Word.REQUESTS_HEAD: 0,
    }
    for word, value in wanted.items():
        if words[word] != value:
            raise RingRefused(f"its {word.name.lower()} is {words[word]} and not {value}")
