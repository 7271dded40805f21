"""Walks over records, against what `encode` and `decode` say."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from towline.errors import MalformedRecord
from towline.format.record import blank, record
from towline.format.record.record import Host, Record
from towline.format.record.rules import Rule
from towline.kernels.jit.rows import Stop
from towline.kernels.scan import scan

BASE = 1 << 30
START = 24
V6 = Host(bytes(range(16)), 1)
ALL = 1_000_000


def made(bodies: list[bytes], **fields: object) -> list[bytes]:
    """Records that stand one behind the other from START on, and carry that offset."""
    encoded: list[bytes] = []
    at = BASE + START
    for number, body in enumerate(bodies):
        one = Record(
            topic=b"TopicA",
            body=body,
            properties=b"TAGS\x01TagA\x02",
            physical_offset=at,
            store_timestamp=1_000 + number,
            born_host=V6 if number % 3 == 2 else record.NO_HOST,
        )
        encoded.append(record.encode(replace(one, **fields)))  # type: ignore[arg-type]
        at += len(encoded[-1])
    return encoded


def walked(log: bytes, stop: int | None = None, flags: int = scan.CHECK_ALL, limit: int = ALL) -> tuple[int, list[int]]:
    """What the walk returns, and its state."""
    buffer = np.frombuffer(bytes(START) + log, np.uint8)
    end = len(buffer) if stop is None else START + stop
    state = np.zeros(scan.WALK_STATE_SIZE, np.int64)
    reason = scan.walk(buffer, START, end, BASE, flags, limit, state)
    return reason, [int(state[0]) - START, *state[1:].tolist()]


@given(st.lists(st.binary(max_size=200), max_size=6))
def test_sound_records_are_walked_to_the_end(bodies: list[bytes]) -> None:
    log = b"".join(made(bodies))
    last = 999 + len(bodies) if bodies else -1
    assert walked(log) == (Stop.DONE, [len(log), len(bodies), last])


def test_where_a_walk_stops() -> None:
    first, second = made([b"one", b"two"])
    both = [len(first + second), 2, 1_001]
    assert walked(first + second + bytes(200)) == (Stop.END, both)
    assert walked(first + second + blank.encode(200) + b"old" * 60) == (Stop.BLANK, both)
    assert walked(first + second + bytes(7)) == (Rule.ENDS_INSIDE, both)
    assert walked(first + second + b"\x00\x00\x01\x00noise.......") == (Rule.MAGIC, both)
    assert walked(first + second, limit=1) == (Stop.FULL, [len(first), 1, 1_000])
    assert walked(first + second, limit=2) == (Stop.DONE, both)
    assert walked(b"") == (Stop.DONE, [0, 0, -1])


def test_a_torn_record_ends_inside_wherever_it_is_cut() -> None:
    first, second = made([b"one", b"two"])
    log = first + second
    for stop in range(len(first) + 1, len(log)):
        assert walked(log, stop=stop) == (Rule.ENDS_INSIDE, [len(first), 1, 1_000])


NO_DIRECTORIES = [b"T\x00", b"T/pic", b"/", b".", b"..", b"a" * 20 + b"/" + b"b" * 30, b"c" * 40 + b"/"]


@pytest.mark.parametrize("topic", [b"...", b".a", b"a.", b"-.-", b"T" * 127, b"\xff.0"])
def test_any_other_topic_can_be_a_directory(topic: bytes) -> None:
    assert walked(made([b"body"], topic=topic)[0], flags=scan.CHECK_PLACE)[0] == Rule.OK


@pytest.mark.parametrize("flags", range(8))
def test_each_check_is_made_only_when_told(flags: int) -> None:
    body = made([b"body"])[0]
    cases = [
        (scan.CHECK_CRC, Rule.BODY_CRC, body[:88] + b"B" + body[89:]),
        *((scan.CHECK_PLACE, Rule.TOPIC_FORM, made([b"body"], topic=topic)[0]) for topic in NO_DIRECTORIES),
        (scan.CHECK_PLACE, Rule.QUEUE_ID, made([b"body"], queue_id=-5)[0]),
        (scan.CHECK_FORM, Rule.PROPERTIES_FORM, made([b"body"], properties=b"TAGS")[0]),
        (scan.CHECK_PLACE, Rule.PHYSICAL_OFFSET, made([b"body"], physical_offset=BASE)[0]),
        (scan.CHECK_PLACE, Rule.STORE_TIMESTAMP, made([b"body"], store_timestamp=0)[0]),
    ]
    for check, rule, log in cases:
        reason, _ = walked(log, flags=flags)
        assert reason == (rule if flags & check else Rule.OK)


@given(st.data())
def test_a_flipped_byte_is_judged_as_decode_judges_it(data: st.DataObject) -> None:
    log = bytearray(b"".join(made([b"one", b"", b"three"])))
    at = data.draw(st.integers(0, len(log) - 1))
    log[at] ^= data.draw(st.integers(1, 255))
    reason, (reached, count, _) = walked(bytes(log), flags=scan.CHECK_CRC)
    wanted, wanted_at, wanted_count = int(Rule.OK), 0, 0
    while wanted_at < len(log) and wanted == Rule.OK:
        try:
            record.decode(log, wanted_at)
        except MalformedRecord as refused:
            wanted = Rule[refused.rule]
            continue
        wanted_at += int.from_bytes(log[wanted_at : wanted_at + 4], "big")
        wanted_count += 1
    if wanted == Rule.SIZE_PAST_END:
        wanted = Rule.ENDS_INSIDE
    if log[wanted_at : wanted_at + 4] == bytes(4):
        wanted = int(Stop.END)
    assert (reason, reached, count) == (wanted, wanted_at, wanted_count)


@given(st.binary(max_size=300), st.integers(0, 2**32 - 1))
def test_noise_behind_a_head_is_never_read_past_the_end(noise: bytes, size: int) -> None:
    log = size.to_bytes(4, "big") + made([b""])[0][4:88] + noise
    reason, state = walked(log)
    assert reason != Stop.DONE or state[0] == len(log)
