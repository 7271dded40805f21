"""Put rings: entries come out as they went in, whatever the order in which stores become visible, and never in part."""

import fcntl
import os
import time
from collections import deque
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from towline.errors import MalformedFrame
from towline.format.wire.frames import GROUP, PUT
from towline.format.wire.put_ring import (
    HEAD_SIZE,
    PAD,
    REQUESTS_SIZE_MAX,
    STAMPS,
    WORD,
    Cut,
    Word,
    answer_room,
    entry_max,
    file_size,
    padded,
    read_request_word,
    request_word,
    stamp_of,
    written_ms,
)
from towline.link.put_ring import (
    ClientRing,
    EntryReader,
    EntryWriter,
    NodeRing,
    Offer,
    RingBroken,
    RingRefused,
    requests_reader,
    requests_writer,
)

AREA = 256
SIZE = 64 * 1024
GENERATION = 7


class Seen:
    """What one side sees of the memory. Its stores reach the other one later, in order: x86 promises no more."""

    def __init__(self, size: int) -> None:
        self.view = memoryview(bytearray(size))
        self.words = self.view.cast("q")
        self.sent: deque[tuple[int, bytes]] = deque()

    def side(self) -> SimpleNamespace:
        return SimpleNamespace(words=_Words(self), view=_Bytes(self))

    def deliver(self, other: "Seen") -> None:
        at, data = self.sent.popleft()
        other.view[at : at + len(data)] = data


class _Words:
    def __init__(self, seen: Seen) -> None:
        self._seen = seen

    def __getitem__(self, word: int) -> int:
        return self._seen.words[word]

    def __setitem__(self, word: int, value: int) -> None:
        self._seen.words[word] = value
        self._seen.sent.append((word * WORD, int(value).to_bytes(WORD, "little", signed=True)))


class _Bytes:
    def __init__(self, seen: Seen) -> None:
        self._seen = seen

    def __getitem__(self, part: slice) -> memoryview:
        return self._seen.view[part]

    def __setitem__(self, part: slice, data: bytes) -> None:
        self._seen.view[part] = data
        step = 5  # a copy becomes visible in parts
        self._seen.sent.extend((part.start + at, bytes(data[at : at + step])) for at in range(0, len(data), step))


class ARingIsAQueueOfWholeRequests(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.ours, self.theirs = Seen(HEAD_SIZE + AREA), Seen(HEAD_SIZE + AREA)
        names = (HEAD_SIZE, AREA, Word.REQUESTS_TAIL, Word.REQUESTS_HEAD)
        self.writer = EntryWriter(self.ours.side(), *names)
        self.reader = EntryReader(self.theirs.side(), *names)
        self.model: deque[tuple[int, bytes, int]] = deque()  # and what it takes, with what it left unused before it
        self.tail = self.held = 0  # bytes that were ever taken; that are now

    @rule(head=st.binary(max_size=40), records=st.binary(max_size=entry_max(AREA) - 40))
    def offer(self, head: bytes, records: bytes) -> None:
        word = request_word(len(head), len(head) + len(records))
        size = padded(len(head) + len(records))
        left = AREA - self.tail % AREA
        needed = size if size <= left else left + size  # an entry never wraps
        fits = self.held + needed <= AREA
        if self.writer.offer(word, (head, records)):
            assert fits
            self.model.append((word, head + records, needed))
            self.tail += needed
            self.held += needed
        else:
            assert not fits or self.theirs.sent, "it is refused only where it does not fit"

    @precondition(lambda self: self.ours.sent)
    @rule(count=st.integers(1, 40))
    def stores_of_the_writer_arrive(self, count: int) -> None:
        for _ in range(min(count, len(self.ours.sent))):
            self.ours.deliver(self.theirs)

    @precondition(lambda self: self.theirs.sent)
    @rule()
    def a_store_of_the_reader_arrives(self) -> None:
        self.theirs.deliver(self.ours)

    @rule()
    def take(self) -> None:
        taken = self.reader.take(AREA)
        if taken is None:
            assert self.ours.sent or not self.model, "what has arrived whole is there to be taken"
            return
        *expected, needed = self.model.popleft()
        assert taken == tuple(expected)
        self.held -= needed

    @invariant()
    def the_writer_never_sees_more_room_than_there_is(self) -> None:
        free = self.writer.free
        assert free <= AREA - self.held
        assert free == AREA - self.held or self.theirs.sent


ARingIsAQueueOfWholeRequests.TestCase.settings = settings(max_examples=60, stateful_step_count=60, deadline=None)
TestARing = ARingIsAQueueOfWholeRequests.TestCase


@pytest.fixture
def memory():
    view = memoryview(bytearray(HEAD_SIZE + AREA))
    return SimpleNamespace(view=view, words=view.cast("q"))


class TestEntries:
    def test_of_every_size_come_out_as_they_went_in(self, memory):
        writer, reader = requests_writer(memory, AREA), requests_reader(memory, AREA)
        for size in [*range(entry_max(AREA) + 1), *range(entry_max(AREA), -1, -1)]:
            data = bytes(at & 0xFF for at in range(size))
            assert writer.offer(request_word(3, size), (data[:3], data[3:]))
            assert reader.take(AREA) == (request_word(3, size), data)
            assert reader.take(AREA) is None
            assert writer.free == AREA

    def test_wait_where_the_ring_is_full_and_go_on_when_one_is_taken(self, memory):
        writer, reader = requests_writer(memory, AREA), requests_reader(memory, AREA)
        data = bytes(24)
        taken = 0
        while writer.offer(len(data), (data,)):
            taken += 1
        assert taken == AREA // padded(len(data))
        assert reader.take(AREA)
        assert writer.offer(len(data), (data,))

    def test_that_do_not_fit_before_the_end_leave_a_pad_there(self, memory):
        writer, reader = requests_writer(memory, AREA), requests_reader(memory, AREA)
        for size in (100, 100):
            assert writer.offer(size, (bytes(size),))
            assert reader.take(AREA)
        assert writer.offer(60, (b"x" * 60,))
        assert memory.words[(HEAD_SIZE + 2 * padded(100)) // WORD] == PAD
        assert memory.words[Word.REQUESTS_TAIL] == AREA + padded(60)
        assert reader.take(AREA) == (60, b"x" * 60)

    def test_are_not_there_before_the_tail_says_so(self, memory):
        writer, reader = requests_writer(memory, AREA), requests_reader(memory, AREA)
        assert writer.offer(5, (b"hello",))
        memory.words[Word.REQUESTS_TAIL] = 0  # as if killed before its last store
        assert reader.take(AREA) is None
        assert memory.view[HEAD_SIZE + WORD : HEAD_SIZE + WORD + 5] == b"hello"


def _words(**values: int):
    """A client's words, as positions and as the first entry's."""
    return {Word[name] if name.isupper() else name: value for name, value in values.items()}


GARBAGE = {
    "a tail beyond the ring": (_words(REQUESTS_TAIL=AREA + WORD), Cut.POSITION),
    "a tail before the head": (_words(REQUESTS_TAIL=-WORD), Cut.POSITION),
    "a tail that is no multiple of a word": (_words(REQUESTS_TAIL=13, first=5), Cut.POSITION),
    "the greatest tail": (_words(REQUESTS_TAIL=2**63 - 8), Cut.POSITION),
    "the least tail": (_words(REQUESTS_TAIL=-(2**63)), Cut.POSITION),
    "an entry beyond the tail": (_words(REQUESTS_TAIL=16, first=9), Cut.LENGTH),
    "an entry beyond the ring": (_words(REQUESTS_TAIL=AREA, first=AREA), Cut.LENGTH),
    "an entry of 4 GiB": (_words(REQUESTS_TAIL=64, first=0xFFFF_FFFF), Cut.LENGTH),
    "a negative word": (_words(REQUESTS_TAIL=64, first=-2), Cut.LENGTH),
    "the least word": (_words(REQUESTS_TAIL=64, first=-(2**63)), Cut.LENGTH),
    "a pad beyond the tail": (_words(REQUESTS_TAIL=64, first=PAD), Cut.LENGTH),
    "an entry that is larger than one may be": (_words(REQUESTS_TAIL=AREA, first=200), Cut.LENGTH),
}


class TestGarbage:
    @pytest.mark.parametrize(("words", "cut"), GARBAGE.values(), ids=GARBAGE)
    def test_of_a_client_cuts_the_ring_off_by_name(self, memory, words, cut):
        reader = requests_reader(memory, AREA)
        for word, value in words.items():
            memory.words[HEAD_SIZE // WORD if word == "first" else word] = value
        with pytest.raises(RingBroken) as caught:
            reader.take(entry_max(AREA))
        assert caught.value.cut is cut

    def test_a_position_that_moves_back_is_seen(self, memory):
        writer, reader = requests_writer(memory, AREA), requests_reader(memory, AREA)
        writer.offer(5, (b"hello",))
        assert reader.take(AREA)
        memory.words[Word.REQUESTS_TAIL] = 0
        with pytest.raises(RingBroken):
            reader.take(AREA)

    @pytest.mark.parametrize("head", [-8, 8, 2**62], ids=["back", "beyond the tail", "far beyond"])
    def test_the_readers_position_is_no_more_believed_than_the_writers(self, memory, head):
        writer = requests_writer(memory, AREA)
        memory.words[Word.REQUESTS_HEAD] = head
        with pytest.raises(RingBroken):
            assert writer.free


@pytest.fixture
def bell(tmp_path):
    os.mkfifo(tmp_path / "put.bell")
    return tmp_path / "put.bell"


@pytest.fixture
def client(bell):
    ring = ClientRing(Offer(SIZE, GENERATION, bell))
    yield ring
    ring.close()


@pytest.fixture
def node(client):
    ring = NodeRing(client.facts, SIZE, GENERATION)
    yield ring
    ring.close(Cut.CLOSING)


class TestBothEnds:
    def test_a_request_and_its_answer_cross(self, client, node):
        assert client.send(b"head", b"records")
        word, data = node.requests.take(entry_max(SIZE))
        head_size, size, stamp = read_request_word(word)
        assert (head_size, size) == (4, 11)
        assert node.since_ms <= written_ms(stamp, time.monotonic_ns() // 1_000_000, 0, -1)
        assert data == b"headrecords"
        assert node.answer(b"answer")
        assert client.receive() == b"answer"
        assert client.receive() is None

    def test_whoever_sleeps_is_rung_and_nobody_else(self, client, node, bell):
        reader = os.open(bell, os.O_RDWR | os.O_NONBLOCK)
        try:
            client.send(b"head", b"records")
            with pytest.raises(BlockingIOError):
                os.read(reader, 1)
            node.sleeps(True)
            client.send(b"head", b"records")
            assert os.read(reader, 10) == b"\0"
        finally:
            os.close(reader)
        assert client.arm()
        node.answer(b"answer")
        node.wake()
        assert os.read(client.fileno(), 10) == b"\0"
        assert not client.arm()
        client.disarm()

    def test_what_put_cut_off_says_why(self, bell):
        client = ClientRing(Offer(SIZE, GENERATION, bell))
        NodeRing(client.facts, SIZE, GENERATION).close(Cut.LENGTH)
        assert client.waits
        with pytest.raises(MalformedFrame, match="larger than"):
            client.receive()
        client.close()

    def test_its_size_is_sealed_so_that_nobody_can_take_pages_from_under_put(self, client):
        descriptor = client.facts["ring"]
        assert fcntl.fcntl(descriptor, fcntl.F_GET_SEALS) & (fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_SEAL)
        with pytest.raises(PermissionError):
            os.ftruncate(descriptor, 0)

    def test_a_full_ring_takes_no_more_until_put_has_taken(self, client, node):
        records = bytes(8000)
        sent = 0
        while client.send(b"head", records):
            sent += 1
        assert sent == SIZE // padded(8004)
        assert node.requests.take(entry_max(SIZE))
        assert node.requests.take(entry_max(SIZE))
        assert client.send(b"head", records)


class TestPutTakesNoOtherRing:
    def test_than_the_one_that_is_described(self, client):
        for name in ("pid", "ring", "bell", "token"):
            with pytest.raises(RingRefused):
                NodeRing({**client.facts, name: None}, SIZE, GENERATION)

    def test_than_one_whose_token_is_shown(self, client):
        with pytest.raises(RingRefused, match="token"):
            NodeRing({**client.facts, "token": 1}, SIZE, GENERATION)

    def test_than_one_of_this_generation(self, client):
        with pytest.raises(RingRefused, match="generation"):
            NodeRing(client.facts, SIZE, GENERATION + 1)

    def test_than_one_of_the_size_that_is_offered(self, client):
        with pytest.raises(RingRefused, match=str(file_size(SIZE))):
            NodeRing(client.facts, 2 * SIZE, GENERATION)

    def test_than_memory_of_that_name(self, client, tmp_path):
        with (tmp_path / "file").open("wb") as file, pytest.raises(RingRefused, match="memory"):
            NodeRing({**client.facts, "ring": file.fileno()}, SIZE, GENERATION)

    def test_than_one_with_a_bell_that_is_a_pipe(self, client):
        with Path("/dev/null").open("wb") as file, pytest.raises(RingRefused, match="pipe"):
            NodeRing({**client.facts, "bell": file.fileno()}, SIZE, GENERATION)

    def test_than_one_whose_size_is_sealed(self, client):
        descriptor = os.memfd_create("towline-put-ring", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        try:
            os.fchmod(descriptor, 0o600)
            os.ftruncate(descriptor, file_size(SIZE))
            with pytest.raises(RingRefused, match="sealed"):
                NodeRing({**client.facts, "ring": descriptor}, SIZE, GENERATION)
        finally:
            os.close(descriptor)

    def test_than_one_that_is_there(self, client):
        with pytest.raises(RingRefused, match="opened"):
            NodeRing({**client.facts, "pid": 2**22 + 1}, SIZE, GENERATION)


def test_the_room_for_an_answer_holds_every_answer_of_so_many_groups():
    assert answer_room(1) == 512
    assert answer_room(1024) >= padded(21 + 1024 * 16)


@pytest.mark.parametrize("now_ms", [0, 1, STAMPS - 1, STAMPS, 5 * STAMPS + 7])
@pytest.mark.parametrize("waited_ms", [0, 1, 1_500, STAMPS - 1])
def test_a_stamp_says_when_a_request_was_written(now_ms, waited_ms):
    stamp = stamp_of(now_ms)
    assert read_request_word(request_word(30, 100, stamp)) == (30, 100, stamp)
    assert 0 < stamp <= STAMPS
    assert written_ms(stamp, now_ms + waited_ms, 0, -1) == now_ms


def test_a_stamp_is_believed_within_bounds_and_none_is_no_time():
    opened, now = 10_000, 12_000
    assert written_ms(0, now, opened, 11_990) == 11_990
    for stamp in (1, stamp_of(now + 1), stamp_of(opened - 1), STAMPS):
        assert opened <= written_ms(stamp, now, opened, 11_990) <= now


def test_every_request_that_may_be_has_a_word():
    largest = request_word(PUT.size + 1024 * (GROUP.size + 255), REQUESTS_SIZE_MAX // 2, STAMPS)
    assert read_request_word(largest) == (PUT.size + 1024 * (GROUP.size + 255), REQUESTS_SIZE_MAX // 2, STAMPS)
    assert 0 < largest < 1 << 63
