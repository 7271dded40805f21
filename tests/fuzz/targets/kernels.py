"""Kernels over bytes that others made. An input ends, or begins, at a page that nobody may read or write."""

import contextlib
import ctypes
import mmap
from functools import cache
from typing import Final

import numpy as np

from tests.fuzz.target import Grammar, Target, hold
from tests.fuzz.targets.desks import AREA, QUEUES, RingDesk, SocketDesk, sent
from tests.fuzz.targets.records import WORDS, records, with_crc
from tests.fuzz.targets.remoting import FIELDS, frame, framed
from tests.kernels.put.desk import NEVER, NOW, Log
from tests.kernels.remoting import test_puts, test_sends
from tests.kernels.scan import test_dispatch
from towline.errors import MalformedRecord
from towline.format.files import consume_queue, index_file
from towline.format.record import blank, properties, record
from towline.format.record.rules import Rule
from towline.format.remoting.batch import member
from towline.format.remoting.command import Form
from towline.format.wire.frames import Group, decode_put, encode_put
from towline.format.wire.put_ring import HEAD_SIZE, PAD, Word, request_word
from towline.kernels.base.directory import QueueDirectory
from towline.kernels.jit.rows import RESTORED, Stop
from towline.kernels.put import restore
from towline.kernels.scan import dispatch, heads, index, pairs, queues, scan, units, verify
from towline.limits import KIB, REQUEST_GROUPS_MAX, RETRY_TOPIC_SIZE_MAX

BASE: Final = 1 << 30
SEGMENT: Final = 1 << 20
SLOTS, INDEXES = 7, 24
Bytes = np.ndarray[tuple[int], np.dtype[np.uint8]]
_ROOM: Final = 16 * KIB
_HEAD_MAX: Final = record.SIZE_MIN + 24  # bytes of the least record with IPv6 hosts
_LIBC: Final = ctypes.CDLL(None, use_errno=True)


@cache
def _fences(number: int) -> Bytes:
    """Memory with a page on each side that ends whoever touches it."""
    page = mmap.PAGESIZE
    memory = np.frombuffer(mmap.mmap(-1, _ROOM + 2 * page), np.uint8)
    for at in (0, page + _ROOM):
        if _LIBC.mprotect(ctypes.c_void_p(memory.ctypes.data + at), page, 0):
            raise OSError(ctypes.get_errno(), f"no fence {number}")
    return memory[page : page + _ROOM]


def fenced(data: bytes, number: int = 0) -> Bytes:
    """The bytes before a fence or, every second size, behind one. The next call with that number takes the place."""
    memory = _fences(number)
    held = memory[: len(data)] if len(data) % 2 else memory[_ROOM - len(data) :]
    held[:] = np.frombuffer(data, np.uint8)
    return held


def log() -> bytes:
    """Records that stand one behind the other from BASE on."""
    found = b""
    for row in records():
        found += row[:28] + (BASE + len(found)).to_bytes(8, "big") + row[36:]
    return found


def _logs() -> list[bytes]:
    return [log(), log()[:300], log()[:120] + bytes(80), log()[:110] + blank.encode(100) + bytes(92), records()[4]]


def _first_rule(data: bytes) -> tuple[int, int, int]:
    """Rule, place and count where a walk by the interpreter ends."""
    at, count = 0, 0
    while at < len(data):
        try:
            record.decode(data, at)
        except MalformedRecord as refused:
            rule = int(Rule[refused.rule])
            return (int(Rule.ENDS_INSIDE) if rule == Rule.SIZE_PAST_END else rule), at, count
        at += int.from_bytes(data[at : at + 4], "big")
        count += 1
    return int(Rule.OK), at, count


def _walk(data: bytes) -> object:
    held, state = fenced(data), np.zeros(scan.WALK_STATE_SIZE, np.int64)
    reason = scan.walk(held, 0, len(data), BASE, scan.CHECK_CRC, len(data), state)
    rule, at, count = _first_rule(data)
    size, magic = data[at : at + 4], data[at + 4 : at + 8]
    if reason == Stop.END:
        hold(size == bytes(4), "a log ends where a size is 0")
    elif reason == Stop.BLANK:
        hold(magic == blank.MAGIC.to_bytes(4, "big"), "a blank is one")
    else:
        short = len(data) - at < _HEAD_MAX and rule == Rule.ENDS_INSIDE  # the kernel looks at the magic first
        hold(reason == rule or short, "kernel and interpreter name the same rule")
    hold((state[scan.REACHED], state[scan.COUNT]) == (at, count), "and the same place")
    for flags in (scan.CHECK_ALL, scan.CHECK_ALL | scan.CHECK_PROPERTY_CRC, scan.CHECK_FORM):
        scan.walk(held, 0, len(data), BASE, flags, len(data), state)
        hold(state[scan.REACHED] <= at or not flags & scan.CHECK_CRC, "more checks pass no further")
    verify.foreign_property_crcs(held, 0, at, np.zeros(4, np.int64))
    return reason, count > 1


def _heads(data: bytes) -> object:
    held, positions = fenced(data), np.zeros(64, np.int64)
    count = heads.walk_heads(held, BASE, 0, len(data), positions)
    end = int(positions[count])
    hold(0 <= end <= len(data), "a walk ends within the log")
    words, longs = np.zeros(2 * 64, np.int32), np.zeros(9 * 64, np.int64)
    layout = record.LAYOUT.offset
    words_at = np.array([layout["queue_id"], layout["reconsume_times"]])
    longs_at = np.array([layout["queue_offset"], layout["store_timestamp"]])
    tried = positions[:count].copy()
    sound = heads.read_heads(held, BASE, tried, True, words_at, longs_at, 64, words, longs)
    for row in range(sound):
        with contextlib.suppress(MalformedRecord):  # it looks at more
            one = record.decode(data, int(tried[row]), check_crc=False)
            read = int(words[row]), int(words[64 + row]), int(longs[7 * 64 + row]), int(longs[8 * 64 + row])
            wanted = one.queue_id, one.reconsume_times, one.queue_offset, one.store_timestamp
            hold(read == wanted, "fields are equal")
    return count, sound


def _dispatch(data: bytes) -> object:
    found = test_dispatch.Scan(data)
    found.log = fenced(data)
    reason = found.run()
    while reason == Stop.UNKNOWN_QUEUE:
        row = found.rows[found.state[scan.COUNT]]
        topic = data[row["topic_start"] : row["topic_start"] + row["topic_length"]]
        reached = int(found.state[scan.REACHED])
        found.directory.add(topic, int.from_bytes(data[reached + 12 : reached + 16], "big", signed=True))
        reason = found.run()
    count, first = int(found.state[scan.COUNT]), 0
    for row in found.rows[:count]:
        keys = [found.key(number) for number in range(row["key_start"], row["key_start"] + row["key_count"])]
        hold(row["key_start"] == first, "keys stand in the order of the records")
        first += int(row["key_count"])
        with contextlib.suppress(MalformedRecord):
            one = record.decode(data, int(row["phy"]) - test_dispatch.BASE, check_crc=False)
            known = properties.decode(one.properties)
            if "\ufffd" in "".join(known.values()) or len(known.get(properties.DELAY, "")) > 18:
                continue
            hold(keys == test_dispatch.model_keys(one), "keys are those of the properties")
            hold(row["tags_code"] == test_dispatch.model_tags_code(one), "so is the tags code")
    return reason, count > 1, first > 2


def _index(data: bytes) -> object:
    size = index_file.file_size(SLOTS, INDEXES)
    held = fenced(data[:size].ljust(size, b"\0"))
    count = min(max(index_file.decode_header(held.tobytes()).index_count, 1), INDEXES)
    offsets, found = np.zeros(5, np.int64), 0
    for number in range(1, count):
        entry = index_file.decode_entry(held.tobytes(), index_file.entry_at(SLOTS, number))
        if entry.key_hash >= 0:
            got = index.query(held, SLOTS, INDEXES, entry.key_hash, 0, 1 << 62, 5, offsets)
            hold(0 <= got <= 5, "no more is found than is asked for")
            found = max(found, got)
    cells = np.zeros(SLOTS, np.int32)
    hold(0 <= index.rebuild_slots(held, SLOTS, 0, count, cells) <= SLOTS, "slots are those there are")
    bad = verify.check_chains(held, SLOTS, 0, count, np.zeros(SLOTS, np.int32), np.zeros(3, np.int64))
    return count > 1, found, bad > 0


def _index_files() -> list[bytes]:
    found = []
    for keys in (3, 12):
        header = index_file.Header(1_700_000_000_000, 1_700_000_009_000, 0, 900, min(keys, SLOTS), keys + 1)
        cells = [keys - (keys - 1 - slot) % SLOTS if slot < keys else 0 for slot in range(SLOTS)]
        entries = [index_file.Entry(n - 1, 100 * n, n, max(n - SLOTS, 0)) for n in range(1, keys + 1)]
        made = index_file.encode_header(header) + b"".join(cell.to_bytes(4, "big") for cell in cells)
        found.append(made + bytes(20) + b"".join(map(index_file.encode_entry, entries)))
    return found


def _entries(data: bytes) -> object:
    """Entries of a queue that a damaged file may hold, and records that they name."""
    found = np.zeros(3, np.int64)
    count = queues.leading_records(fenced(data), record.SIZE_MIN, BASE, BASE + SEGMENT, SEGMENT, 64 * KIB, found)
    whole = len(data) // consume_queue.SIZE
    hold(0 <= count <= whole, "no more records than entries")
    named = [consume_queue.decode(data, 20 * number) for number in range(whole)]
    for entry in named[:count]:
        at = entry.physical_offset
        hold(BASE <= at <= at + entry.record_size <= BASE + SEGMENT, "each lies within the log")
    positions = np.array([entry.physical_offset for entry in named], np.int64)
    sizes, target = np.array([entry.record_size for entry in named], np.int32), np.zeros(4_096, np.uint8)
    size = queues.gather(fenced(bytes(range(256)) * 8, 1), positions, sizes, whole, target)
    hold(0 <= size <= len(target) and not target[size:].any(), "nothing is copied beyond the room")
    units.rule_out(fenced(data.ljust(64, b"\0"), 1), np.array([0, 20]), 8, 17, np.array([0, 63]), np.zeros(2, np.uint8))
    return count, size > 0


def _queue_entries() -> list[bytes]:
    rows = [(BASE + 100 * number, 100, number) for number in range(6)]
    near = [(0, 256, 0), (256, 300, 7), (900, 20, -1)]
    made = [b"".join(consume_queue.encode(*row) for row in some) for some in (rows, near, rows[::-1])]
    return [*made, consume_queue.FILLER + made[0]]


def _stored(desk: Log) -> list[bytes]:
    """What stands in the log, which has to be records, and zeros behind them."""
    end, at = desk.state.at, 0
    hold(not desk.bytes[end:].any(), "nothing of a refused request stays in the log")
    whole, found = desk.bytes[:end].tobytes(), []
    while at < end:
        record.decode(whole, at)
        size = int.from_bytes(whole[at : at + 4], "big")
        found.append(whole[at : at + size])
        at += size
    return found


def _append(data: bytes) -> object:
    """A head behind its size, and records."""
    size = int.from_bytes(data[:2], "big")
    head = fenced(data[2 : 2 + size])
    desk = SocketDesk(head, fenced(data[2 + size :], 1))
    reason, row = desk.serve(), desk.rows[0]
    found = _stored(desk)
    hold(bool(found) == (desk.state.requests == 1), "what is served is stored")
    if found:
        groups = decode_put(head.tobytes(), REQUEST_GROUPS_MAX)[3]
        hold(sum(group.count for group in groups) == len(found), "as many records as were announced")
    return reason, int(row["status"]), int(row["rule"])


def _requests() -> list[bytes]:
    one, two = sent(1), sent(2, QUEUES[3], 300)
    made = []
    for parts in ([(0, one)], [(0, one), (3, two)], [(3, two)]):
        groups = [Group(*QUEUES[queue], 1, len(row)) for queue, row in parts]
        head = encode_put(7, 0, NEVER, groups)
        made.append(len(head).to_bytes(2, "big") + head + b"".join(row for _, row in parts))
    return made


def _with_request_crc(data: bytes) -> bytes:
    size = 2 + int.from_bytes(data[:2], "big")
    return data[:size] + with_crc(data[size:])


def _ring(data: bytes) -> object:
    """The first 16 bytes are where the client says that its requests end, and the head of answers; then the area."""
    desk = RingDesk()
    area = data[16 : 16 + AREA]
    desk.bytes_of_ring[HEAD_SIZE : HEAD_SIZE + len(area)] = np.frombuffer(area, np.uint8)
    tail, answered = np.frombuffer(data[:16].ljust(16, b"\0"), np.int64).tolist()
    desk.memory.words[Word.REQUESTS_TAIL], desk.memory.words[Word.ANSWERS_HEAD] = tail, answered
    reason = desk.serve()
    found = _stored(desk)
    hold(bool(found) == (desk.state.requests > 0), "what is served is stored")
    return reason, len(found), int(desk.rows[0]["status"])


def _rings() -> list[bytes]:
    made = []
    for count in (1, 3):
        area = b""
        for number in range(count):
            row = sent(number)
            head = encode_put(7, 0, NEVER, [Group(*QUEUES[0], 1, len(row))])
            entry = request_word(len(head), len(head) + len(row)).to_bytes(8, "little") + head + row
            area += entry.ljust((len(entry) + 7) // 8 * 8, b"\0")
        made.append(len(area).to_bytes(8, "little") + bytes(8) + area)
    return [*made, (16).to_bytes(8, "little") + bytes(8) + PAD.to_bytes(8, "little", signed=True)]


def _sends(data: bytes) -> object:
    """Frames one behind the other: rows of the kernel say what the interpreter reads, and become records of a ring."""
    held = fenced(data)
    sends = np.zeros(64, test_sends.SENT)
    text = np.zeros(64 * test_sends.TEXT_MAX, np.uint8)
    count = test_sends.read_sends(held, len(data), sends, text)
    plain = 0
    for row in sends[:count]:
        if row["plain"]:
            test_sends.check_equal(row, text.tobytes(), data)
            plain += 1
    if plain:
        ring = test_puts.Ring(test_puts.HOSTS[len(data) % 2])
        done, _ = ring.send(data)
        for _ in range(done):
            taken = ring.requests.take(test_puts.AREA)
            if taken is None:  # several rows may go as one request
                break
            word, entry = taken
            decode_put(entry[: word >> 26 & (1 << 19) - 1], REQUEST_GROUPS_MAX)
    return count, plain


def _frames() -> list[bytes]:
    batch = member(7, b"first", b"TAGS\x01A") + member(-1, b"", b"")
    made = [frame(form, FIELDS | {"i": test_sends.PROPERTIES}) for form in Form]
    made += [frame(form, FIELDS | {"m": "true"}, batch, 320) for form in Form]
    return [*made, made[0] + made[1], made[2] + made[3] + b"\0\0\1"]


def _framed(data: bytes) -> bytes:
    """Lengths that fit: the body is what stands behind a header that is known, if one is."""
    for known in _frames()[:4]:
        header = 8 + int.from_bytes(known[5:8], "big")
        if len(data) > header and data[8:20] == known[8:20]:
            return (len(data) - 4).to_bytes(4, "big") + data[4:]
    return framed(data)


def _pairs(data: bytes) -> object:
    room = fenced(data + bytes(pairs.SLACK))
    beginnings = np.array([0, len(data) // 2, len(data)], np.int64)
    first = np.zeros(3, np.int64)
    columns = [np.zeros(200, np.int64) for _ in range(4)]
    count = pairs.find_pairs(room, beginnings, first, *columns)
    if count < 0:
        return None
    row, begin, middle, end = (column[:count].tolist() for column in columns)
    for number in (0, 1):
        part = data[beginnings[number] : beginnings[number + 1]]
        wanted = [
            (name, value)
            for name, mark, value in (item.partition(b"\x01") for item in part.split(b"\x02"))
            if name and mark and value
        ]
        got = [(data[begin[n] : middle[n]], data[middle[n] + 1 : end[n]]) for n in range(count) if row[n] == number]
        hold(got == wanted, "pairs are those of the interpreter")
    return count


def _restored(data: bytes) -> object:
    """Two bytes say where in the log an entry of a queue says that a record begins, two of what size it is."""
    at, size, held = int.from_bytes(data[:2], "big"), int.from_bytes(data[2:4], "big"), fenced(data[4:])
    rows, topics = np.zeros(1, RESTORED), QueueDirectory()
    picks, positions, sizes = np.zeros(1, np.int64), np.array([BASE + at]), np.array([size], np.int32)
    with_crc_ = bool(len(data) % 3 == 0)
    restore.look(held, BASE, positions, sizes, picks, *topics.arrays, with_crc_, rows)
    target = np.zeros(20 * KIB, np.uint8)
    if rows[0]["rule"] or not 0 < rows[0]["topic_length"] <= RETRY_TOPIC_SIZE_MAX:  # no topic has another name
        return int(rows[0]["rule"])
    made = restore.make(held, BASE, positions, picks, np.zeros(1, np.int64), with_crc_, rows, target)
    if made:
        one = record.decode(target.tobytes(), check_crc=False)
        hold(one.topic == bytes(held[rows[0]["topic_start"] :][: rows[0]["topic_length"]]), "it is for its topic")
    return made


def _restorable() -> list[bytes]:
    return [b"\0\0" + len(row).to_bytes(2, "big") + row for row in records()[9:11]]


TARGETS: Final = (
    Target(
        name="kernels.walk",
        covers=("towline.kernels.scan.scan:walk", "towline.kernels.scan.verify:foreign_property_crcs"),
        seeds=_logs, run=_walk, words=WORDS, mend=with_crc, is_compiled=True, weight=3,
    ),
    Target(
        name="kernels.heads", covers=("towline.kernels.scan.heads:walk_heads", "towline.kernels.scan.heads:read_heads"),
        seeds=_logs, run=_heads, words=WORDS, is_compiled=True, weight=2,
    ),
    Target(
        name="kernels.dispatch", covers=("towline.kernels.scan.dispatch:scan_dispatch",),
        seeds=_logs, run=_dispatch, words=(*WORDS, dispatch.SCHEDULE_TOPIC), is_compiled=True, grammar=Grammar.TEXT,
    ),
    Target(
        name="kernels.index",
        covers=(
            "towline.kernels.scan.index:query", "towline.kernels.scan.index:rebuild_slots",
            "towline.kernels.scan.verify:check_chains",
        ),
        seeds=_index_files, run=_index, is_compiled=True, size_max=1_024,
    ),
    Target(
        name="kernels.entries",
        covers=(
            "towline.kernels.scan.queues:leading_records", "towline.kernels.scan.queues:gather",
            "towline.kernels.scan.units:rule_out",
        ),
        seeds=_queue_entries, run=_entries, is_compiled=True, size_max=1_024,
    ),
    Target(
        name="kernels.append", covers=("towline.kernels.put.append:append_rows",),
        seeds=_requests, run=_append, words=WORDS, mend=_with_request_crc, is_compiled=True, weight=0.5,
    ),
    Target(
        name="kernels.ring", covers=("towline.kernels.put.put_ring:serve_ring",),
        seeds=_rings, run=_ring, words=(PAD.to_bytes(8, "little", signed=True), NOW.to_bytes(8, "big")),
        is_compiled=True, weight=0.5,
    ),
    Target(
        name="kernels.sends",
        covers=("towline.kernels.remoting.sends:read_sends", "towline.kernels.remoting.puts:put_sends"),
        seeds=_frames, run=_sends, words=(b"\\u0001", b'"i":', b"\x01", b"\x02"), grammar=Grammar.JSON,
        mend=_framed, is_compiled=True, weight=0.5,
    ),
    Target(
        name="kernels.pairs", covers=("towline.kernels.scan.pairs:find_pairs",),
        seeds=lambda: [b"TAGS\x01a\x02KEYS\x01k1 k2\x02X\x01y", b"\x01\x02" * 20, b"a\x01b\x02" * 30],
        run=_pairs, words=(b"\x01", b"\x02"), is_compiled=True, weight=2,
    ),
    Target(
        name="kernels.restore", covers=("towline.kernels.put.restore:look", "towline.kernels.put.restore:make"),
        seeds=_restorable, run=_restored, words=WORDS, is_compiled=True, grammar=Grammar.TEXT,
    ),
)  # fmt: skip
