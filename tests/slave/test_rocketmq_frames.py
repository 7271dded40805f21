"""HAService's frames: whole messages come out, however they were cut; what no master sends is refused by name."""

from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.log.stores import HOST, NOON, SEGMENT, StoreMaker
from towline.errors import LinkRefused
from towline.format.record import record
from towline.format.record.record import Record
from towline.limits import KIB
from towline.log.commitlog.commit_log import CommitLogReader
from towline.slave.receive import SLICE_MAX
from towline.slave.rocketmq.frames import FRAME_MAX, HEAD, READ_MAX, UNIT_MAX, Frames, last_message

COUNT = 500


@pytest.fixture(scope="module")
def maker(tmp_path_factory: pytest.TempPathFactory) -> StoreMaker:
    """Three segments and a bit, with blanks."""
    made = StoreMaker(tmp_path_factory.mktemp("log"))
    made.fill(COUNT)
    assert len(made.blanks) >= 3
    return made


@pytest.fixture(scope="module")
def log(maker: StoreMaker) -> bytes:
    return b"".join(path.read_bytes() for path in sorted(maker.store.commitlog.iterdir()))[: maker.end]


def framed(log: bytes, start: int, end: int, size: int) -> bytes:
    """The log [start, end) in frames of `size` bytes at most, with a heartbeat behind each."""
    frames = bytearray()
    while start < end:
        stop = min(end, start + size, start - start % SEGMENT + SEGMENT)
        frames += HEAD.pack(start, stop - start) + log[start:stop] + HEAD.pack(stop, 0)
        start = stop
    return bytes(frames)


def all_of(frames: Frames) -> list[tuple[int, bytes]]:
    found = []
    while True:
        offset, data = frames.whole()
        if not data:
            return found
        found.append((offset, bytes(data)))


def taken(frames: Frames, came: bytes, step: int) -> list[tuple[int, bytes]]:
    found = []
    for at in range(0, len(came), step):
        frames.take(memoryview(came)[at : at + step])
        found += all_of(frames)
    return found


@settings(max_examples=20, deadline=None)
@given(data=st.data(), size=st.integers(100, 40 * KIB), step=st.integers(200, 100 * KIB))
def test_the_log_comes_out_however_frames_and_reads_are_cut(
    maker: StoreMaker, log: bytes, data: st.DataObject, size: int, step: int
) -> None:
    start = data.draw(st.sampled_from([stored.at for stored in maker.records[:300]]))
    found = taken(Frames(start, SEGMENT), framed(log, start, maker.end, size), step)
    assert b"".join(piece for _, piece in found) == log[start:]
    ends = {stored.end for stored in maker.records} | {at - at % SEGMENT + SEGMENT for at in maker.blanks}
    for offset, piece in found:
        assert offset // SEGMENT == (offset + len(piece) - 1) // SEGMENT, "a stretch is of one segment"
        assert offset + len(piece) in ends, "and ends behind a message or a segment"


def test_the_beginning_of_a_message_is_kept_back(maker: StoreMaker, log: bytes) -> None:
    first = maker.records[0]
    frames = Frames(0, SEGMENT)
    frames.take(memoryview(HEAD.pack(0, first.end - 1) + log[: first.end - 1]))
    assert all_of(frames) == []
    assert not frames.is_inside
    frames.take(memoryview(HEAD.pack(first.end - 1, 1) + log[first.end - 1 : first.end]))
    assert all_of(frames) == [(0, first.data)]


def test_a_blank_is_handed_on_with_all_that_is_behind_it_to_the_segments_end(maker: StoreMaker, log: bytes) -> None:
    """What a broker left there is copied as it stands."""
    at, border = maker.blanks[0], SEGMENT
    filled = log[at : at + 8] + b"\x5a" * (border - at - 8)
    frames = Frames(at, SEGMENT)
    frames.take(memoryview(HEAD.pack(at, 8) + filled[:8]))
    assert all_of(frames) == []
    frames.take(memoryview(HEAD.pack(at + 8, border - at - 8) + filled[8:]))
    assert all_of(frames) == [(at, filled)]


Damage = Callable[[bytes, int, int], bytes]  # of the log, where the next message begins and ends: what comes

CASES: dict[str, tuple[str, Damage]] = {
    "a size below 0": ("SIZE", lambda log, at, end: HEAD.pack(at, -1)),
    "a frame of more than 4 MiB": ("SIZE", lambda log, at, end: HEAD.pack(at, FRAME_MAX + 1)),
    "a web server": ("SIZE", lambda log, at, end: b"HTTP/1.1 400 Bad Request\r\n\r\n"),
    "a frame over the segment's end": ("BORDER", lambda log, at, end: HEAD.pack(at, SEGMENT - at % SEGMENT + 1)),
    "a frame that leaves something out": ("OFFSET", lambda log, at, end: HEAD.pack(at + 100, 100)),
    "a frame of what was sent": ("OFFSET", lambda log, at, end: HEAD.pack(0, 100)),
    "a heartbeat of another place": ("OFFSET", lambda log, at, end: HEAD.pack(at + 8, 0)),
    "garbage": ("RECORD", lambda log, at, end: HEAD.pack(at, 400) + b"\xa5" * 400),
    "zeros": ("RECORD", lambda log, at, end: HEAD.pack(at, 400) + bytes(400)),
    "a message of another place": ("RECORD", lambda log, at, end: HEAD.pack(at, end - at) + log[: end - at]),
    "a flipped bit of a body": (
        "RECORD",
        lambda log, at, end: HEAD.pack(at, end - at) + log[at : end - 60] + b"\0" + log[end - 59 : end],
    ),
    "a message longer than a segment": (
        "RECORD",
        lambda log, at, end: HEAD.pack(at, 100) + (SEGMENT + 1).to_bytes(4, "big") + log[4:100],
    ),
    "a blank that ends before its segment": (
        "RECORD",
        lambda log, at, end: HEAD.pack(at, 8) + (100).to_bytes(4, "big") + bytes.fromhex("cbd43194"),
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_what_no_master_sends_is_refused_by_name(maker: StoreMaker, log: bytes, case: str) -> None:
    rule, damage = CASES[case]
    one, two = maker.records[5], maker.records[6]
    assert len(one.data) == len(two.data)
    frames = Frames(one.at, SEGMENT)
    came = HEAD.pack(one.at, len(one.data)) + one.data
    frames.take(memoryview(came))
    assert all_of(frames) == [(one.at, one.data)]
    with pytest.raises(LinkRefused) as refusal:
        taken(frames, damage(log, two.at, two.end), READ_MAX)
    assert refusal.value.code == rule
    assert "Remedy: " in refusal.value.sentence


@pytest.mark.parametrize("damage", ["a body", "a blank"])
def test_what_is_whole_before_the_damage_comes_out_first(maker: StoreMaker, log: bytes, damage: str) -> None:
    """However much has come at once: it is stored here, if the master's end is lost."""
    one, two = maker.records[5], maker.records[6]
    rule, bad = CASES["a flipped bit of a body" if damage == "a body" else "a blank that ends before its segment"]
    frames = Frames(one.at, SEGMENT)
    frames.take(memoryview(HEAD.pack(one.at, len(one.data)) + one.data + bad(log, two.at, two.end)))
    offset, data = frames.whole()
    assert (offset, bytes(data)) == (one.at, one.data)
    with pytest.raises(LinkRefused) as refusal:
        frames.whole()
    assert refusal.value.code == rule


def test_no_stretch_is_longer_than_what_is_cleaned_up_behind_a_killed_receiver() -> None:
    """Of a broker that takes messages of 15 MiB."""
    log = b""
    for body in (UNIT_MAX - 2 * KIB, KIB, KIB, KIB):
        made = Record(topic=b"large", body=bytes(body), physical_offset=len(log), store_timestamp=NOON, store_host=HOST)
        log += record.encode(made)
    assert len(log) > UNIT_MAX
    frames, found = Frames(0, 64 * UNIT_MAX), []
    for at in range(0, len(log), READ_MAX // 2):
        part = log[at : at + READ_MAX // 2]
        frames.take(memoryview(HEAD.pack(at, len(part)) + part))
        if at + len(part) == len(log):
            found += all_of(frames)
    assert b"".join(piece for _, piece in found) == log
    assert max(len(piece) for _, piece in found) <= SLICE_MAX


def test_heads_that_come_byte_by_byte_are_heads(maker: StoreMaker, log: bytes) -> None:
    end = maker.records[3].end
    assert b"".join(piece for _, piece in taken(Frames(0, SEGMENT), framed(log, 0, end, 150), 1)) == log[:end]


def test_it_has_room_for_a_read_beside_the_largest_message_that_is_under_way() -> None:
    frames = Frames(0, 64 * UNIT_MAX)
    head = (UNIT_MAX).to_bytes(4, "big") + bytes.fromhex("daa320a7")
    at = 0
    while at < UNIT_MAX - 1:
        assert frames.room > 0
        size = min(READ_MAX - HEAD.size, UNIT_MAX - 1 - at)
        frames.take(memoryview(HEAD.pack(at, size) + (head if not at else b"").ljust(size, b"\1")))
        assert all_of(frames) == []
        at += size
    assert frames.room == READ_MAX


@pytest.mark.parametrize("number", [0, 1, 150, 499])
def test_the_last_message_of_a_log_is_found(maker: StoreMaker, number: int) -> None:
    stored = maker.records[number]
    reader = CommitLogReader(maker.store.commitlog, SEGMENT)
    assert last_message(reader, 0, stored.end) == (stored.at, stored.data)


def test_behind_a_blank_the_last_message_is_the_one_before_it(maker: StoreMaker) -> None:
    reader = CommitLogReader(maker.store.commitlog, SEGMENT)
    before = max((stored for stored in maker.records if stored.end <= SEGMENT), key=lambda stored: stored.at)
    assert last_message(reader, 0, SEGMENT) == (before.at, before.data)


def test_a_log_that_is_empty_has_no_last_message(tmp_path: Path) -> None:
    assert last_message(CommitLogReader(tmp_path, SEGMENT), SEGMENT, SEGMENT) is None
