"""What a read makes of damaged records, torn tails, bodies that cannot be restored, and of more than a batch holds."""

import zlib
from itertools import pairwise
from typing import Any

import lz4.frame
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from towline.arrow import slices
from towline.arrow.columns import COLUMNS
from towline.arrow.decode import OnCorruption, batches, chosen, decode
from towline.arrow.errors import BatchTooLarge, DamagedBody, DamagedRecord
from towline.arrow.selection import Selection
from towline.format.record import property_crc, record
from towline.format.record.compression import zstd
from towline.format.record.record import COMPRESSED, COMPRESSION_LZ4, COMPRESSION_ZLIB, COMPRESSION_ZSTD, LAYOUT, Record
from towline.format.record.rules import Rule

from .logs import BASE, array, message, narrowed, rows, segment
from .reference import rows_of

EVERYTHING = Selection(system=True, halves=True)
COUNT = 40
BAD = 17
LOG = segment(map(message, range(COUNT)))
EXPECTED = rows_of(LOG, BASE)
STARTS = [row["commitLogOffset"] - BASE for row in EXPECTED]


def read(log: bytes, end: int | None = None, **how: Any) -> tuple[list[int], list[tuple[int, str]]]:
    """Queue offsets of what is read, and what the reader was told."""
    told: list[tuple[int, str]] = []

    def note(problem: DamagedRecord | DamagedBody) -> None:
        told.append((problem.offset - BASE, problem.rule if isinstance(problem, DamagedRecord) else "BODY"))

    how = {"on_damage": note} | how
    columns = ["queueOffset", "body"]
    found = rows(batches(array(log), BASE, 0, len(log) if end is None else end, columns, **how))
    return [row["queueOffset"] for row in found], told


def poked(at: int, data: bytes, log: bytes = LOG) -> bytes:
    return log[:at] + data + log[at + len(data) :]


START = STARTS[BAD]
DAMAGES = {
    "size": (poked(START, b"\x00\x00\x00\x07"), Rule.SIZE_TOO_SMALL, START),
    "zeros": (poked(START, bytes(40)), Rule.SIZE_TOO_SMALL, START),
    "magic": (poked(START + 4, b"\x00"), Rule.MAGIC, START),
    "place": (poked(START + LAYOUT.offset["physical_offset"], b"\x01"), Rule.PHYSICAL_OFFSET, START),
    "far too large": (poked(START, b"\x00\x10\x00\x00"), Rule.ENDS_INSIDE, START),
    "body size": (poked(START + LAYOUT.offset["body_size"], b"\x00\x00\x00\x03"), Rule.PARTS_DO_NOT_ADD_UP, START),
    "negative body size": (poked(START + LAYOUT.offset["body_size"], b"\xff"), Rule.PARTS_DO_NOT_ADD_UP, START),
    "topic length": (poked(START + LAYOUT.size + len(b"body 17"), b"\x00"), Rule.PARTS_DO_NOT_ADD_UP, START),
}
each_damage = pytest.mark.parametrize(("log", "rule", "at"), DAMAGES.values(), ids=DAMAGES)


@each_damage
def test_fail_names_the_record_and_the_rule(log: bytes, rule: Rule, at: int) -> None:
    with pytest.raises(DamagedRecord, match=f"offset {BASE + at} of the log breaks {rule.name}: "):
        read(log)


@each_damage
def test_stop_reads_what_stands_before(log: bytes, rule: Rule, at: int) -> None:
    assert read(log, on_corruption="stop") == (list(range(BAD)), [(at, rule.name)])


@each_damage
def test_skip_leaves_out_the_record_alone(log: bytes, rule: Rule, at: int) -> None:
    wanted = [number for number in range(COUNT) if number != BAD]
    assert read(log, on_corruption="skip") == (wanted, [(at, rule.name)])


@each_damage
@pytest.mark.parametrize("how", ["stop", "skip"])
def test_chosen_positions_are_judged_the_same(log: bytes, rule: Rule, at: int, how: OnCorruption) -> None:
    told: list[Any] = []
    found = rows(
        chosen(array(log), BASE, np.array(STARTS), ["queueOffset"], on_corruption=how, on_damage=told.append, rows=9)
    )
    # A place that is wrong and a size that reaches far are for who walks: here the caller knows where records stand.
    if rule is Rule.PHYSICAL_OFFSET:
        assert (len(found), told) == (COUNT, [])
        return
    wanted = [number for number in range(COUNT) if number != BAD] if how == "skip" else list(range(BAD))
    assert [row["queueOffset"] for row in found] == wanted
    assert [problem.offset - BASE for problem in told] == [at]


def test_several_damaged_records_are_told_one_by_one() -> None:
    log = poked(STARTS[3] + LAYOUT.offset["body_size"], b"\x00\x00\x00\x03", LOG)
    log = poked(STARTS[30] + LAYOUT.offset["body_size"], b"\xff", log)
    log = poked(STARTS[33] + 4, b"\x00", log)
    kept, told = read(log, on_corruption="skip", rows=5)
    assert kept == [number for number in range(COUNT) if number not in (3, 30, 33)]
    assert [at for at, _ in told] == [STARTS[3], STARTS[30], STARTS[33]]


def test_a_size_that_claims_other_records_loses_none_of_them() -> None:
    size = STARTS[BAD + 3] - START - 5
    kept, told = read(poked(START, size.to_bytes(4, "big")), on_corruption="skip")
    assert kept == [number for number in range(COUNT) if number != BAD]
    assert told == [(START, "PARTS_DO_NOT_ADD_UP")]


@settings(max_examples=80, deadline=None)
@given(st.integers(0, COUNT - 1), st.binary(min_size=1, max_size=8), st.data())
def test_whatever_happens_to_one_record_no_other_is_lost(row: int, noise: bytes, data: st.DataObject) -> None:
    size = EXPECTED[row]["size"]
    at = STARTS[row] + data.draw(st.integers(0, size - len(noise)) | st.integers(0, 11 - len(noise)))
    told: list[Any] = []
    made = batches(
        array(poked(at, noise)),
        BASE,
        0,
        len(LOG),
        COLUMNS,
        EVERYTHING,
        broker_name="broker-a",
        check_crcs=True,
        on_corruption="skip",
        on_damage=told.append,
        rows=data.draw(st.integers(1, COUNT)),
        whole=True,
    )
    found = rows(made)
    others = [one for one in found if one["commitLogOffset"] - BASE != STARTS[row]]
    assert others == [one for one in EXPECTED if one is not EXPECTED[row]]
    assert len(found) == COUNT or told


def test_a_skip_does_not_believe_a_copied_record_in_the_damaged_one() -> None:
    inner = record.encode(message(99))
    log = segment([message(0), message(1, body=inner), message(2)])
    damaged = poked(rows_of(log, BASE)[1]["commitLogOffset"] - BASE + 4, b"\x00", log)
    assert read(damaged, on_corruption="skip")[0] == [0, 2]


def test_a_skip_does_not_believe_a_forged_record_without_a_right_crc() -> None:
    first = segment([message(0)])
    place = BASE + len(first) + LAYOUT.size
    inner = bytearray(record.encode(message(99, physical_offset=place)))
    inner[LAYOUT.size] ^= 1
    log = segment([message(0), message(1, body=bytes(inner)), message(2)])
    assert read(poked(len(first) + 4, b"\x00", log), on_corruption="skip")[0] == [0, 2]


def test_nothing_behind_the_damage_ends_a_skip() -> None:
    log = poked(STARTS[-1] + 4, b"\x00")
    assert read(log, on_corruption="skip") == (list(range(COUNT - 1)), [(STARTS[-1], "MAGIC")])


# --- ends


@pytest.mark.parametrize("cut", [1, 7, 8, 50, len(LOG) - STARTS[-1] - 1])
def test_a_torn_tail_is_no_damage(cut: int) -> None:
    assert read(LOG[: STARTS[-1] + cut]) == (list(range(COUNT - 1)), [])


@pytest.mark.parametrize("cut", [7, 8, 50])
def test_nothing_is_cut_off_by_the_border_of_a_segment(cut: int) -> None:
    log = LOG[: STARTS[-1] + cut]
    with pytest.raises(DamagedRecord, match=f"offset {BASE + STARTS[-1]} of the log breaks SIZE_PAST_END"):
        read(log, whole=True)
    assert read(log, whole=True, on_corruption="skip") == (list(range(COUNT - 1)), [(STARTS[-1], "SIZE_PAST_END")])
    assert read(LOG, whole=True) == (list(range(COUNT)), [])


def test_a_record_that_reaches_over_the_end_of_a_split_is_damage() -> None:
    with pytest.raises(DamagedRecord, match=f"offset {BASE + STARTS[9]} of the log breaks SIZE_PAST_END"):
        read(LOG, end=STARTS[10] - 1)
    assert read(LOG, end=STARTS[10] - 1, on_corruption="stop")[0] == list(range(9))
    assert read(LOG, end=STARTS[10])[0] == list(range(10))


def test_splits_at_records_give_everything_once() -> None:
    borders = [0, STARTS[1], STARTS[13], STARTS[14], STARTS[39], len(LOG)]
    found = []
    for start, end in pairwise(borders):
        found += rows(batches(array(LOG), BASE, start, end, COLUMNS, broker_name="broker-a", rows=4))
    assert found == EXPECTED


# --- checksums


def test_a_wrong_body_crc_is_met_only_when_asked_for() -> None:
    log = poked(START + LAYOUT.size, b"B")
    assert read(log)[0] == list(range(COUNT))
    with pytest.raises(DamagedRecord, match="BODY_CRC"):
        read(log, check_crcs=True)
    assert read(log, check_crcs=True, on_corruption="stop") == (list(range(BAD)), [(START, "BODY_CRC")])
    kept, told = read(log, check_crcs=True, on_corruption="skip", rows=3)
    assert (len(kept), told) == (COUNT - 1, [(START, "BODY_CRC")])


def _with_property_crc(count: int) -> bytes:
    log = b""
    for number in range(count):
        properties = property_crc.appended(b"TAGS\x01red" if number % 2 else b"")
        encoded = record.encode(message(number, properties=properties, physical_offset=BASE + len(log)))
        log += property_crc.filled(encoded)
    return log


def test_a_property_crc_is_compared_only_for_a_store_that_insists() -> None:
    log = _with_property_crc(6)
    assert read(log, check_crcs=True, force_property_crc=True) == (list(range(6)), [])
    starts = [row["commitLogOffset"] - BASE for row in rows_of(log, BASE)]
    damaged = poked(starts[3] + LAYOUT.offset["flag"], b"\x01", log)
    kept, told = read(damaged, check_crcs=True, force_property_crc=True, on_corruption="skip")
    assert (kept, told) == ([0, 1, 2, 4, 5], [(starts[3], "PROPERTY_CRC")])
    assert read(damaged, check_crcs=True) == (list(range(6)), [])
    body = poked(starts[3] + LAYOUT.size, b"?", damaged)
    assert read(body, check_crcs=True, on_corruption="skip")[1] == [(starts[3], "BODY_CRC")]
    with pytest.raises(DamagedRecord, match="PROPERTY_CRC_MISSING"):
        read(
            poked(starts[3], log[starts[3] : starts[4]].replace(b"__CRC32#", b"__CRC33#"), log),
            check_crcs=True,
            force_property_crc=True,
        )
    assert rows(batches(array(log), BASE, 0, len(log), ["properties"])) == narrowed(rows_of(log, BASE), ["properties"])


# --- compressed bodies

BODY = b"a body that repeats itself. " * 50


def streamed(body: bytes) -> bytes:
    stream = zstd.ZstdCompressor()
    return stream.compress(body) + stream.flush()


STREAMS = [
    (zlib.compress, COMPRESSION_ZLIB),
    (zlib.compress, 0),
    (lz4.frame.compress, COMPRESSION_LZ4),
    (zstd.compress, COMPRESSION_ZSTD),
    (streamed, COMPRESSION_ZSTD),
]


def packed(number: int, body: bytes = BODY) -> Record:
    compress, kind = STREAMS[number % len(STREAMS)]
    return message(number, body=compress(b"%d" % number + body), sys_flag=COMPRESSED | kind)


def test_every_kind_of_compression_among_plain_bodies() -> None:
    log = segment([packed(number) if number % 3 else message(number) for number in range(30)])
    found = rows(batches(array(log), BASE, 0, len(log), COLUMNS, broker_name="broker-a", rows=8))
    assert found == rows_of(log, BASE)
    stored = rows(batches(array(log), BASE, 0, len(log), ["body"], decompress=False))
    assert [row["body"] for row in stored] == [
        record.decode(log, row["commitLogOffset"] - BASE).body for row in rows_of(log, BASE)
    ]


def test_a_batch_is_cut_by_what_its_bodies_become() -> None:
    log = segment([packed(number, bytes(100_000)) if number % 2 else message(number) for number in range(12)])
    made = list(batches(array(log), BASE, 0, len(log), ["queueOffset", "body"], bytes=250_000))
    assert [row["queueOffset"] for row in rows(made)] == list(range(12))
    assert [batch.num_rows for batch in made] == [5, 4, 3]
    assert max(batch.nbytes for batch in made) < 260_000


BROKEN = [message(number, body=b"no stream", sys_flag=COMPRESSED | COMPRESSION_ZSTD) for number in (1, 4)]
MIXED = [packed(0), BROKEN[0], packed(2), message(3), BROKEN[1], packed(5)]


def test_a_body_that_cannot_be_restored_is_damage_for_who_reads_bodies() -> None:
    log = segment(MIXED)
    at = rows_of_sizes(log)
    with pytest.raises(DamagedBody, match=f"offset {BASE + at[1]} of the log: the body is no zstd stream"):
        read(log)
    with pytest.raises(DamagedBody):
        decode(array(log), BASE, np.array(at), ["body"])
    assert read(log, on_corruption="stop") == ([0], [(at[1], "BODY")])
    assert read(log, on_corruption="skip") == ([0, 2, 3, 5], [(at[1], "BODY"), (at[4], "BODY")])
    assert read(log, decompress=False)[0] == list(range(6))
    assert len(rows(batches(array(log), BASE, 0, len(log), ["topic"]))) == 6


def rows_of_sizes(log: bytes) -> list[int]:
    at, found = 0, []
    while at < len(log):
        found.append(at)
        at += int.from_bytes(log[at : at + 4], "big")
    return found


def test_skipped_bodies_and_cuts_do_not_disturb_each_other() -> None:
    log = segment([packed(n, bytes(60_000)) if n % 3 else BROKEN[0] for n in range(30)])
    kept = rows(batches(array(log), BASE, 0, len(log), ["queueOffset", "body"], bytes=130_000, on_corruption="skip"))
    assert [row["queueOffset"] for row in kept] == [n for n in range(30) if n % 3]
    assert {len(row["body"]) for row in kept} == {60_001, 60_002}


# --- cuts


def test_a_batch_is_cut_by_rows_and_by_bytes() -> None:
    log = segment([message(number, body=bytes(1_000)) for number in range(20)])
    made = list(batches(array(log), BASE, 0, len(log), COLUMNS, rows=6))
    assert [batch.num_rows for batch in made] == [6, 6, 6, 2]
    made = list(batches(array(log), BASE, 0, len(log), COLUMNS, bytes=3_600))
    assert [batch.num_rows for batch in made] == [3] * 6 + [2]
    made = list(batches(array(log), BASE, 0, len(log), COLUMNS, bytes=1))
    assert [batch.num_rows for batch in made] == [1] * 20


def test_stretches_further_apart_than_32_bits(monkeypatch: pytest.MonkeyPatch) -> None:
    """The limit is lowered, so that no log of 2 GiB is needed."""
    monkeypatch.setattr(slices, "VALUES_MAX", 1_000)
    at = np.array([STARTS[0], STARTS[20], STARTS[39]])
    found = rows([decode(array(LOG), BASE, at, COLUMNS, broker_name="broker-a")])
    assert found == [EXPECTED[0], EXPECTED[20], EXPECTED[39]]
    with pytest.raises(BatchTooLarge, match="would hold"):
        decode(array(LOG), BASE, np.array(STARTS), ["properties"])
