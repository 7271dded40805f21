"""Index files: the golden one, a model that puts one key after the other, repair after a kill, and queries."""

import random
from dataclasses import astuple, dataclass

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tests.format.files.test_index_file import time_diff
from towline.format.files import index_file
from towline.format.files.index_file import Entry, Header
from towline.format.java_hash import string_hash
from towline.kernels.jit import rows
from towline.kernels.scan import index

GOLDEN = """
0000018bcfe57d7c 0000018bcfe6eab8 000000000000238c 000000000000251c 00000003 00000006
00000005 00000002 00000003 00000000 00000000 00000000 00000000
00000000 0000000000000000 00000000 00000000
717125c9 000000000000238c 00000005 00000000
717125c8 00000000000023f0 00000002 00000000
717125c9 0000000000002454 00000004 00000001
6b6374ef 00000000000024b8 00000000 00000000
00000000 000000000000251c 0000005d 00000004
"""
HASH_0 = 'C64"91*'  # `TopicA#` and this hash to -2**31
Put = tuple[str, str, int, int]  # topic, key, physical offset, store time


@dataclass
class File:
    """An index file in memory, written as reput does: entries, slots, header."""

    slots: int
    indexes: int
    header: Header

    def __post_init__(self) -> None:
        self.bytes = np.zeros(index_file.file_size(self.slots, self.indexes), np.uint8)
        self.state = np.zeros(index.STATE_SIZE, np.int64)
        self.state[: index.HEADS_USED] = astuple(self.header)

    def put(self, puts: list[Put], heads: int = 256, *, upto: str = "header") -> int:
        log = bytearray()
        table, keys = np.zeros(len(puts), rows.DISPATCH), np.zeros(len(puts), rows.KEY)
        for number, (topic, key, phy, stored) in enumerate(puts):
            row = table[number]
            row["phy"], row["store_timestamp"] = phy, stored
            row["topic_start"], row["topic_length"] = len(log), len(topic.encode())
            log += topic.encode()
            keys[number] = (len(log), len(key.encode()), number)
            log += key.encode()
        scratch = np.full(heads, 77, np.int32)
        bytes_of_log = np.frombuffer(bytes(log), np.uint8)
        written = index.put_entries(
            self.bytes, self.slots, self.indexes, self.state, bytes_of_log, table, keys, 0, len(puts), scratch
        )
        if upto != "entries":
            index.put_slots(self.bytes, self.state, scratch)
        if upto == "header":
            header = Header(*self.state[: index.HEADS_USED].tolist())
            self.bytes[: index_file.HEADER_SIZE] = np.frombuffer(index_file.encode_header(header), np.uint8)
        return written

    def put_all(self, puts: list[Put], heads: int = 256) -> None:
        done = 0
        while done < len(puts) and self.state[index.INDEX_COUNT] < self.indexes:
            done += self.put(puts[done:], heads)

    def query(self, topic: str, key: str, begin: int = 0, end: int = 2**62, limit: int = 64) -> list[int]:
        hashed = index_file.key_hash(topic, key)
        offsets = np.zeros(64, np.int64)
        found = index.query(self.bytes, self.slots, self.indexes, hashed, begin, end, limit, offsets)
        return offsets[:found].tolist()  # type: ignore[no-any-return]


def model(file: File, puts: list[Put]) -> bytes:
    """The file after the puts, one at a time, as spec 4.2 says."""
    header, cells = file.header, [0] * file.slots
    entries = [bytes(index_file.ENTRY_SIZE)] * file.indexes
    for topic, key, phy, stored in puts:
        count = header.index_count
        if count >= file.indexes:
            break
        hashed = index_file.key_hash(topic, key)
        slot = index_file.slot_of(hashed, file.slots)
        previous = cells[slot]
        diff = time_diff(stored, header.begin_timestamp)
        entries[count] = index_file.encode_entry(Entry(hashed, phy, diff, previous))
        cells[slot] = count
        first = count <= 1
        header = Header(
            stored if first else header.begin_timestamp,
            stored,
            phy if first else header.begin_physical_offset,
            phy,
            header.hash_slot_count + (previous == 0),
            count + 1,
        )
    cells_bytes = b"".join(cell.to_bytes(4, "big") for cell in cells)
    return index_file.encode_header(header) + cells_bytes + b"".join(entries)


def rolled() -> File:
    return File(7, 6, Header(1_700_000_000_000, 1_700_000_000_000, 9000, 9000))


def golden_puts() -> list[Put]:
    return [
        ("TopicA", "k1", 9100, 1_700_000_005_500),
        ("TopicA", "k2", 9200, 1_700_000_007_999),
        ("TopicA", "k1", 9300, 1_700_000_009_500),
        ("TopicA", "polygenelubricants", 9400, 1_700_000_004_000),
        ("TopicA", HASH_0, 9500, 1_700_000_099_000),
        ("TopicA", "one too many", 9600, 1_700_000_099_000),
    ]


def test_the_golden_file() -> None:
    assert string_hash("TopicA#" + HASH_0) == -(2**31)
    file = rolled()
    assert file.put(golden_puts()) == 5
    assert file.bytes.tobytes().hex() == "".join(GOLDEN.split())
    assert file.put(golden_puts()) == 0
    assert file.query("TopicA", "k1") == [9300, 9100]
    assert file.query("TopicA", "k1", begin=1_700_000_008_000) == [9300, 9100]
    assert file.query("TopicA", "k1", 1_700_000_009_500, 1_700_000_009_500) == [9300]
    assert file.query("TopicA", "k1", limit=1) == [9300]
    assert file.query("TopicA", "k3") == []


PUTS = st.lists(
    st.tuples(
        st.sampled_from(["TopicA", "主题"]),
        st.sampled_from(["k1", "k2", "polygenelubricants", "k" * 40]) | st.text(max_size=3),
        st.integers(1, 2**50),
        st.integers(1_699_999_990_000, 1_700_000_090_000),
    ),
    max_size=40,
)


@given(PUTS, st.sampled_from([8, 16, 64, 1024]), st.integers(1, 12), st.integers(2, 30), st.booleans())
def test_batches_write_what_single_puts_would(
    puts: list[Put], heads: int, slots: int, indexes: int, is_first: bool
) -> None:
    header = Header() if is_first else rolled().header
    file = File(slots, indexes, header)
    file.put_all(puts, heads)
    if puts:
        assert file.bytes.tobytes() == model(file, puts)


@given(PUTS, PUTS, st.integers(1, 8))
def test_a_kill_before_the_header_is_repaired(before: list[Put], lost: list[Put], slots: int) -> None:
    for upto in ("entries", "slots"):
        file = File(slots, 50, Header())
        file.put(before, 1024)
        sound = file.bytes.copy()
        header = file.state.copy()
        file.put(lost, 1024, upto=upto)
        count = int(header[index.INDEX_COUNT])
        heads = np.zeros(slots, np.int32)
        assert index.rebuild_slots(file.bytes, slots, 0, count, heads) == header[index.HASH_SLOT_COUNT]
        index.write_slots(file.bytes, heads, 0, slots)
        end = index_file.entry_at(slots, count)
        assert file.bytes[:end].tobytes() == sound[:end].tobytes()
        file.state[:] = header
        file.put(lost, 1024)
        again = File(slots, 50, Header())
        again.put(before, 1024)
        again.put(lost, 1024)
        if before or lost:
            assert file.bytes.tobytes() == again.bytes.tobytes()


@given(PUTS, st.integers(1, 8), st.data())
def test_slots_are_rebuilt_from_the_entries(puts: list[Put], slots: int, data: st.DataObject) -> None:
    file = File(slots, 50, Header())
    file.put(puts, 1024)
    sound = file.bytes.copy()
    for slot in range(slots):
        file.bytes[index_file.slot_at(slot) + 3] = data.draw(st.integers(0, 255))
    heads = np.zeros(slots, np.int32)
    count = int(file.state[index.INDEX_COUNT])
    used = index.rebuild_slots(file.bytes, slots, 0, count // 2, heads)
    used += index.rebuild_slots(file.bytes, slots, max(count // 2, 1), count, heads)
    assert used == file.state[index.HASH_SLOT_COUNT]
    index.write_slots(file.bytes, heads, 0, slots)
    assert file.bytes.tobytes() == sound.tobytes()
    assert index.write_slots(file.bytes, heads, 0, slots) == 0


@given(PUTS, st.integers())
def test_a_query_of_a_damaged_file_ends(puts: list[Put], seed: int) -> None:
    pick = random.Random(seed)
    file = File(3, 50, Header())
    file.put(puts, 1024)
    for at in range(len(file.bytes)):
        if pick.random() < 0.3:
            file.bytes[at] = pick.randrange(256)
    assert len(file.query("TopicA", "k1")) <= 64
