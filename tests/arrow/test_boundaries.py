"""Where records begin, against a walk one by one: sound logs, ends of every kind, and logs made to mislead."""

from dataclasses import replace
from random import Random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from towline.arrow import boundaries as chains
from towline.arrow.boundaries import boundaries
from towline.format.record import blank, record
from towline.format.record.record import Host
from towline.format.record.rules import Rule
from towline.limits import KIB

from .logs import BASE, array, message, segment

SEGMENT = 512 * KIB
V6 = Host(bytes(range(16)), 1)


def walked(log: bytes, start: int = 0, end: int | None = None) -> list[int]:
    """Starts of records by their sizes alone."""
    at, found = start, []
    while at < (len(log) if end is None else end) and record.MAGIC_V1.to_bytes(4, "big") == log[at + 4 : at + 8]:
        found.append(at)
        at += int.from_bytes(log[at : at + 4], "big")
    return found


def filled(sizes: range, seed: int = 1, size: int = SEGMENT) -> bytes:
    """A full segment of messages with bodies of random sizes."""
    random = Random(seed)
    records, room = [], size
    while room > sizes.stop + 300:
        one = message(len(records), body=random.randbytes(random.choice(sizes)))
        room -= len(record.encode(one))
        records.append(one)
    return segment(records, size)


SHAPES = {
    "small": range(40),
    "a kilobyte": range(900, 1_100),
    "mixed": range(0, 9_000, 37),
    "large": range(30_000, 60_000),
    "all of one size": range(100, 101),
}
each_shape = pytest.mark.parametrize("sizes", SHAPES.values(), ids=SHAPES)


@each_shape
def test_a_full_segment(sizes: range) -> None:
    log = filled(sizes)
    found = boundaries(array(log), BASE, 0, len(log))
    assert found.positions.tolist() == walked(log)
    assert (found.rule, found.waits, found.blank) == (Rule.OK, False, True)
    unchecked = boundaries(array(log), BASE, 0, len(log), check_heads=False)
    assert (unchecked.positions.tolist(), unchecked.end, unchecked.blank) == (walked(log), found.end, True)
    assert log[found.end + 4 : found.end + 8] == blank.MAGIC.to_bytes(4, "big")


@each_shape
@pytest.mark.parametrize("splits", [2, 3, 7, 31, 100])
def test_splits_wherever_they_are_give_each_record_once(sizes: range, splits: int) -> None:
    """A split ends anywhere; the next begins where it says that its last record ended."""
    log = filled(sizes, seed=splits)
    at, found = 0, []
    for end in range(len(log) // splits, len(log) + splits, len(log) // splits):
        split = boundaries(array(log), BASE, at, min(end, len(log)))
        assert all(at <= position < end for position in split.positions.tolist())
        found += split.positions.tolist()
        if split.blank:
            break
        assert split.rule is Rule.OK
        at = split.end
    assert found == walked(log)


@pytest.mark.parametrize("behind", range(1, 9))
def test_a_record_that_starts_in_the_last_bytes_of_a_split_belongs_to_it(behind: int) -> None:
    log = segment(map(message, range(100)), SEGMENT)
    last = walked(log)[50]
    found = boundaries(array(log), BASE, 0, last + behind)
    assert found.positions[-1] == last
    assert found.end == walked(log)[51]


def test_a_split_without_a_record_finds_none() -> None:
    log = segment(map(message, range(3)))
    for at in (0, len(log)):
        found = boundaries(array(log), BASE, at, at)
        assert (len(found.positions), found.end, found.rule) == (0, at, Rule.OK)


SOUND = segment(map(message, range(200)))
NEXT = record.encode(message(200, physical_offset=BASE + len(SOUND)))
ENDS = {
    "behind the last record": (b"", Rule.OK, False, False),
    "zeros": (bytes(500), Rule.SIZE_TOO_SMALL, True, False),
    "a blank of 8 bytes": (blank.encode(8), Rule.OK, False, True),
    "a blank and garbage": (blank.encode(80) + NEXT[:72], Rule.OK, False, True),
    "fewer bytes than a head's first two words": (NEXT[:7], Rule.ENDS_INSIDE, True, False),
    "a head that is cut off": (NEXT[:60], Rule.ENDS_INSIDE, True, False),
    "a body that is cut off": (NEXT[:-1], Rule.ENDS_INSIDE, True, False),
    "noise": (b"\x00\x00\x01\x00" + b"noise" * 100, Rule.MAGIC, False, False),
    "a size below the least": (b"\x00\x00\x00\x5b" + NEXT[4:], Rule.SIZE_TOO_SMALL, False, False),
    "a negative size": (b"\xff\xff\xff\xff" + NEXT[4:], Rule.SIZE_TOO_SMALL, False, False),
    "a damaged size": (b"\x00\x10\x00\x00" + NEXT[4:] + bytes(1_000), Rule.ENDS_INSIDE, False, False),
    "another place's record": (record.encode(message(0)), Rule.PHYSICAL_OFFSET, False, False),
    "too small for its addresses": (
        (lambda whole: (100).to_bytes(4, "big") + whole[4:36] + b"\x00\x00\x00\x30" + whole[40:])(NEXT + bytes(100)),
        Rule.SIZE_TOO_SMALL,
        False,
        False,
    ),
}


@pytest.mark.parametrize(("tail", "rule", "waits", "is_blank"), ENDS.values(), ids=ENDS)
def test_where_and_why_a_walk_ends(tail: bytes, rule: Rule, waits: bool, is_blank: bool) -> None:
    log = SOUND + tail
    found = boundaries(array(log), BASE, 0, len(log))
    assert found.positions.tolist() == walked(SOUND)
    assert (found.end, found.rule, found.waits, found.blank) == (len(SOUND), rule, waits, is_blank)


@pytest.mark.parametrize("cut", range(1, len(NEXT)))
def test_a_torn_tail_waits_wherever_it_is_cut(cut: int) -> None:
    found = boundaries(array(SOUND + NEXT[:cut]), BASE, 0, len(SOUND) + cut)
    assert (len(found.positions), found.end, found.waits) == (200, len(SOUND), True)


def test_a_segment_that_is_nearly_empty_takes_no_walk_over_its_zeros(monkeypatch: pytest.MonkeyPatch) -> None:
    log = segment(map(message, range(3))) + bytes(1 << 20)
    asked = []
    judge = chains.judge
    monkeypatch.setattr(chains, "judge", lambda *call: asked.append(call) or judge(*call))
    counts = [len(batch) for batch, _ in chains._batches(array(log), BASE, 0, len(log) - 91)]
    assert sum(counts) == 4
    assert boundaries(array(log), BASE, 0, len(log)).waits
    assert len(asked) == 1


# --- logs that mislead


def _bait(random: Random, at: int, forged: bool) -> bytes:
    """Records for a body: with their own place in PHYSICALOFFSET, or copied from elsewhere."""
    inner = bytearray()
    for number in range(random.randrange(1, 12)):
        place = BASE + at + len(inner) if forged else random.randrange(BASE)
        inner += record.encode(message(number, body=random.randbytes(random.randrange(50)), physical_offset=place))
    return bytes(inner)


def hostile(seed: int, forged: bool) -> bytes:
    random = Random(seed)
    log = bytearray()
    number = 0
    while len(log) < 200 * KIB:
        one = message(number, born_host=random.choice([V6, message(0).born_host]), physical_offset=BASE + len(log))
        head = record.layout_of(record.BORN_HOST_IPV6 if one.born_host.is_ipv6 else 0).size
        if random.random() < 0.3:
            noise = random.randbytes(random.randrange(30))
            body = noise + _bait(random, len(log) + head + len(noise), forged) + random.randbytes(random.randrange(9))
            one = replace(one, body=body)
        log += record.encode(one)
        number += 1
    return bytes(log)


@pytest.mark.parametrize("forged", [False, True], ids=["copied", "forged"])
@pytest.mark.parametrize("seed", range(20))
def test_records_inside_of_bodies_are_no_records(seed: int, forged: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chains, "STRIDE_MIN", 512)
    log = hostile(seed, forged)
    assert boundaries(array(log), BASE, 0, len(log)).positions.tolist() == walked(log)


def test_forged_records_do_mislead_the_search_and_are_walked_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else the test above would show nothing."""
    monkeypatch.setattr(chains, "STRIDE_MIN", 512)
    true = fooled = 0
    for seed in range(20):
        log = hostile(seed, forged=True)
        firsts = chains._beginnings(array(log), BASE, 0, len(log))
        known = set(walked(log))
        true += sum(first in known for first in firsts.tolist())
        fooled += sum(first not in known for first in firsts.tolist())
    assert true > 1_000
    assert fooled > 100


def test_copied_records_do_not_mislead_the_search(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chains, "STRIDE_MIN", 512)
    log = hostile(0, forged=False)
    assert set(chains._beginnings(array(log), BASE, 0, len(log)).tolist()) <= set(walked(log))


@settings(max_examples=60, deadline=None)
@given(st.lists(st.binary(max_size=700), max_size=60), st.integers(128, 4_096), st.data())
def test_any_log_with_any_stride_and_any_damage(bodies: list[bytes], stride: int, data: st.DataObject) -> None:
    log = bytearray(segment([message(number, body=body) for number, body in enumerate(bodies)]))
    if log and data.draw(st.booleans()):
        at = data.draw(st.integers(0, len(log) - 1))
        log[at : at + 1] = data.draw(st.binary(max_size=3))
    expected, at = [], 0
    while at < len(log) and chains.judge(array(bytes(log)), BASE, at)[0] is Rule.OK:
        expected.append(at)
        at += int.from_bytes(log[at : at + 4], "big")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(chains, "STRIDE_MIN", stride)
        found = boundaries(array(bytes(log)), BASE, 0, len(log))
    assert found.positions.tolist() == expected
    assert found.end == at
    assert found.positions.dtype == np.int64
