"""Entries grouped by queue, against a model that puts one record after the other (spec 3.2)."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from towline.format.files import consume_queue
from towline.kernels.jit import rows
from towline.kernels.scan import queues
from towline.kernels.scan.queues import GAP, GROUP_STATE_SIZE, NEW_QUEUE, ROWS

QUEUES = 5


class Grouping:
    """Rows for one call, and its outcome."""

    def __init__(self, table: list[tuple[int, int, int]], expected: list[int], reached: int = 0) -> None:
        """`table`: queue index, queue offset, transaction; records stand 1,000 bytes apart."""
        self.rows = np.zeros(len(table), rows.DISPATCH)
        for number, (queue, offset, transaction) in enumerate(table):
            row = self.rows[number]
            row["queue_index"], row["queue_offset"], row["transaction"] = queue, offset, transaction
            row["phy"], row["size"], row["tags_code"] = 1_000 * number, 100 + number, -number
        self.expected = np.array(expected, np.int64)
        self.reached = np.full(len(expected), reached, np.int64)
        self.marks = np.zeros(len(expected), np.int32)
        self.state = np.zeros(GROUP_STATE_SIZE, np.int64)

    def run(self, first: int = 0, room: int = 99, runs: int = 9) -> dict[int, tuple[int, bytes]]:
        """Queue index to queue offset of the first entry, and the entries."""
        count = len(self.rows)
        table = np.zeros(runs, rows.RUN)
        entries = np.zeros(20 * room, np.uint8)
        order = np.zeros(count, np.int32)
        opened = queues.group_entries(
            self.rows, first, count, self.expected, self.reached, table, entries, self.marks, order, self.state
        )
        assert not self.marks.any()
        outcome = {}
        for run in table[:opened]:
            start, size = int(run["start"]), 20 * int(run["count"])
            text = entries[start : start + size].tobytes()
            last = consume_queue.decode(text, size - 20)
            assert run["phy_end"] == last.physical_offset + last.record_size
            outcome[int(run["queue_index"])] = (int(run["queue_offset"]), text)
        return outcome


def model(
    table: list[tuple[int, int, int]], expected: list[int], reached: int
) -> tuple[dict[int, tuple[int, bytes]], int, int]:
    """What `run` gives, the first row not looked at, and the queue of a gap or -1."""
    due = list(expected)
    outcome: dict[int, tuple[int, bytes]] = {}
    for number, (queue, offset, transaction) in enumerate(table):
        if transaction in (4, 12):
            continue
        if due[queue] == NEW_QUEUE:
            due[queue] = offset
        if offset < due[queue] and 1_000 * number < reached:
            continue
        if offset != due[queue]:
            return outcome, number, queue
        first, text = outcome.get(queue, (offset, b""))
        outcome[queue] = (first, text + consume_queue.encode(1_000 * number, 100 + number, -number))
        due[queue] += 1
    return outcome, len(table), -1


TABLES = st.lists(
    st.tuples(st.integers(0, QUEUES - 1), st.integers(0, 4), st.sampled_from([0, 0, 0, 4, 8, 12])), max_size=25
)


@given(TABLES, st.lists(st.integers(NEW_QUEUE, 2), min_size=QUEUES, max_size=QUEUES), st.integers(0, 25))
def test_grouping(table: list[tuple[int, int, int]], expected: list[int], built: int) -> None:
    """`built`: so many records may have been grouped before."""
    grouping = Grouping(table, expected, 1_000 * built)
    outcome, stopped_at, gap = model(table, expected, 1_000 * built)
    assert grouping.run() == outcome
    assert grouping.state[ROWS] == stopped_at
    assert grouping.state[GAP] == gap


def test_golden_entries() -> None:
    grouping = Grouping([(0, 0, 0)] * 3, [0])
    values = [(4260, 165, 2598919), (4260, 165, -843952037), (388, 161, 1_700_000_010_123)]
    for number, (phy, size, tags_code) in enumerate(values):
        row = grouping.rows[number]
        row["phy"], row["size"], row["tags_code"], row["queue_offset"] = phy, size, tags_code, number
    _, text = grouping.run()[0]
    assert text.hex() == (
        "00000000000010a4000000a5000000000027a80700000000000010a4000000a5ffffffffcdb2505b"
        "0000000000000184000000a10000018bcfe58f8b"
    )


def test_full_arrays_end_the_grouping_and_it_goes_on_from_there() -> None:
    table = [(0, 0, 0), (1, 0, 0), (0, 1, 0), (2, 0, 0)]
    grouping = Grouping(table, [0, 0, 0])
    grouping.run(runs=2)
    assert grouping.state.tolist() == [3, -1]
    grouping.run(room=2)
    assert grouping.state.tolist() == [2, -1]
    grouping.expected[:] = [1, 1, 0]
    outcome = grouping.run(first=2)
    assert {queue: offset for queue, (offset, _) in outcome.items()} == {0: 1, 2: 0}


@given(
    st.lists(st.tuples(st.integers(0, 90) | st.integers(2**63 - 40, 2**63 - 1), st.integers(0, 30))),
    st.integers(0, 200),
)
def test_gather(places: list[tuple[int, int]], room: int) -> None:
    log = np.arange(100, dtype=np.uint8)
    positions = np.array([start for start, _ in places], np.int64)
    sizes = np.array([size for _, size in places], np.int32)
    target = np.full(room, 255, np.uint8)
    wanted = b""
    for start, size in places:
        if start + size > 100 or len(wanted) + size > room:
            break
        wanted += bytes(range(start, start + size))
    assert queues.gather(log, positions, sizes, len(places), target) == len(wanted)
    assert target.tobytes() == wanted + b"\xff" * (room - len(wanted))


# --- which records one answer may hold

SEGMENT = 1_000
PLACES = st.lists(st.tuples(st.integers(-5, 2_500), st.integers(-1, 300)), max_size=8)


@given(PLACES, st.integers(0, 600), st.integers(0, 2_500), st.integers(1, 700))
def test_leading_records_are_those_that_one_answer_may_hold(
    places: list[tuple[int, int]], floor: int, written: int, size_max: int
) -> None:
    data = b"".join(consume_queue.encode(place, size, 0) for place, size in sorted(places))
    taken: list[tuple[int, int]] = []
    for place, size in sorted(places):
        first = taken[0][0] if taken else place
        reached = sum(taken[-1]) if taken else floor
        fits = size >= 20 and reached <= place and place + size <= min(written, first - first % SEGMENT + SEGMENT)
        near = place + size - first <= 2 * size_max
        if not (fits and near and sum(each for _, each in taken) + size <= size_max):
            break
        taken.append((place, size))
    found = np.zeros(queues.LEADING_SIZE, np.int64)
    entries = np.frombuffer(data, np.uint8)
    assert queues.leading_records(entries, 20, floor, written, SEGMENT, size_max, found) == len(taken)
    if taken:
        assert (found[queues.START], found[queues.END]) == (taken[0][0], sum(taken[-1]))
        assert found[queues.TOTAL] == sum(size for _, size in taken)


def test_an_entry_that_names_what_cannot_be_is_no_leading_record() -> None:
    found = np.zeros(queues.LEADING_SIZE, np.int64)
    for place, size in ((2**63 - 1, 100), (-(2**63), 100), (0, 2**31 - 1), (0, -(2**31)), (950, 100), (0, 19)):
        entries = np.frombuffer(consume_queue.encode(place, size, 0), np.uint8)
        assert queues.leading_records(entries, 20, 0, 2**62, SEGMENT, 2**40, found) == 0
