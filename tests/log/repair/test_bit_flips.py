"""A thousand seeded flips of one bit over every kind of file: verify names file and bytes, or no reader looks at them.

Which bytes nobody looks at follows from the formats alone, and is written down here: `unchecked`. Seed and count may be
set: TOWLINE_FLIP_SEED, TOWLINE_FLIPS.
"""

import os
import random
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from tests.faults.noting import note
from tests.log.sound import look, sound_store
from tests.log.stores import SEGMENT, SETTINGS, SLOTS, StoreMaker
from towline.format.files import index_file
from towline.format.files.durable_slots import SLOT_SIZE
from towline.format.record import blank
from towline.log.repair.verify_report import Weight
from towline.log.state.durable_file import DurableFile

SEED = int(os.environ.get("TOWLINE_FLIP_SEED", "20260727"))
FLIPS = int(os.environ.get("TOWLINE_FLIPS", "1000"))
INSISTS = replace(SETTINGS, force_property_crc=True)
KINDS = ("commitlog", "consumequeue", "index", "checkpoint", "durable", "identity.json", "config")
Stretch = tuple[int, int, str]


@pytest.fixture(scope="module")
def maker(tmp_path_factory: pytest.TempPathFactory) -> StoreMaker:
    """Records with property CRCs over three segments, two index files, and state files of which all slots were used."""
    maker = sound_store(tmp_path_factory.mktemp("flips"), 64, 2000, with_crc=True)
    for _ in range(2):
        file = DurableFile(maker.root)
        state = file.load()
        assert state is not None
        file.save(state)
        file.close()
    return maker


def files_of(maker: StoreMaker, kind: str) -> list[Path]:
    path = maker.root / kind
    return sorted(one for one in path.rglob("*") if one.is_file()) if path.is_dir() else [path]


def unchecked(maker: StoreMaker, path: Path) -> list[Stretch]:
    """Bytes that no reader of the format looks at."""
    if path.parent == maker.store.commitlog:
        base = int(path.name)
        ends = [at - base for at in maker.blanks if base <= at < base + SEGMENT]
        return [(at + blank.SIZE, SEGMENT, "behind a blank's 8 bytes") for at in ends]
    if path.parent == maker.store.index:
        count = index_file.decode_header(path.read_bytes()).index_count
        first, last = index_file.entry_at(SLOTS, 0), index_file.entry_at(SLOTS, count)
        return [
            (first, first + index_file.ENTRY_SIZE, "entry 0, which is never used"),
            (last, path.stat().st_size, "entries at or behind indexCount"),
        ]
    return []


def flip(path: Path, bit: int) -> None:
    with path.open("r+b") as file:
        file.seek(bit // 8)
        (byte,) = file.read(1)
        file.seek(bit // 8)
        file.write(bytes([byte ^ 1 << bit % 8]))


def test_the_store_is_sound_before(maker: StoreMaker) -> None:
    assert look(maker, INSISTS).findings.rows == []
    assert len(files_of(maker, "commitlog")) == 3
    assert len(files_of(maker, "index")) == 2
    assert all(
        any(one.read_bytes()[:SLOT_SIZE]) and any(one.read_bytes()[SLOT_SIZE:]) for one in files_of(maker, "durable")
    )


def test_without_insisting_a_flip_in_a_record_that_keeps_its_property_crc_is_named_too(maker: StoreMaker) -> None:
    """As a note where nothing but the property CRC tells of it: then no start refuses the store."""
    chosen = random.Random(SEED)
    weights: Counter[Weight] = Counter()
    for number in range(FLIPS // 4):
        stored = chosen.choice(maker.records)
        bit = chosen.randrange(8 * len(stored.data))
        before_the_end = len(stored.data) - bit // 8
        if before_the_end == 1 or 12 <= before_the_end <= 21:  # what makes the last property a CRC
            continue
        path, at = maker.path(stored.at), stored.at % SEGMENT + bit // 8
        flip(path, 8 * at + bit % 8)
        found = look(maker).findings.rows
        flip(path, 8 * at + bit % 8)
        name = str(path.relative_to(maker.root))
        rows = [row for row in found if row.path == name and row.at <= at < row.end]
        assert rows, f"seed {SEED}, flip {number}: bit {bit % 8} of byte {at} of {name} was not named: {found}"
        weights[max(row.weight for row in rows)] += 1
    assert set(weights) == {Weight.NOTE, Weight.DAMAGE}
    note(weights.total(), seed=SEED)


def test_every_flip_is_named_or_lies_where_nobody_looks(maker: StoreMaker) -> None:
    chosen = random.Random(SEED)
    named: Counter[str] = Counter()
    for number in range(FLIPS):
        kind = KINDS[number % len(KINDS)]
        path = chosen.choice(files_of(maker, kind))
        bit = chosen.randrange(8 * path.stat().st_size)
        free = [why for first, end, why in unchecked(maker, path) if first <= bit // 8 < end]
        flip(path, bit)
        found = look(maker, INSISTS).findings.rows
        flip(path, bit)
        told = f"seed {SEED}, flip {number}: bit {bit % 8} of byte {bit // 8} of {path.relative_to(maker.root)}"
        if free:
            assert found == [], f"{told} does not count ({free[0]}), yet was found: {found}"
            continue
        name = str(path.relative_to(maker.root))
        rows = [row for row in found if row.path == name and row.at <= bit // 8 < row.end]
        assert rows, f"{told} was not named: {found}"
        assert all(row.rule and row.sentence and row.remedy for row in rows)
        named[kind] += 1
    assert set(named) == set(KINDS)
    assert sum(named.values()) > FLIPS * 3 // 4
    assert look(maker, INSISTS).findings.rows == []
    note(FLIPS, seed=SEED)


def test_every_byte_of_a_record_counts(maker: StoreMaker) -> None:
    """One record from end to end, which a thousand flips only sample."""
    stored = maker.records[20]
    path = maker.path(stored.at)
    body = range(200, len(stored.data) - 100)
    for at in (at for at in range(len(stored.data)) if at not in body):
        bit = 8 * (stored.at % SEGMENT + at) + at % 8
        flip(path, bit)
        rows = look(maker, INSISTS).findings.rows
        flip(path, bit)
        assert any(row.path.startswith("commitlog") and row.at <= bit // 8 < row.end for row in rows), (at, rows)
