"""Offsets of streams and how limits are shared over queues: no JVM, no store."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from towline.spark.errors import CheckpointUnusable
from towline.spark.offsets import LogOffset, QueueOffsets, Source, mode_of, proportional, share, share_bytes

OURS = Source("ab" * 16, "broker-a")
BACKLOGS = st.lists(st.integers(0, 10**12), max_size=40)
KEYS = st.tuples(st.sampled_from(["A", "B", "Ü"]), st.integers(0, 3))
ENDS = st.dictionaries(KEYS, st.integers(0, 10**12), max_size=8)


# --- the JSON


@given(st.integers(0, 2**62))
def test_an_offset_of_the_log_is_read_as_it_was_written(position: int) -> None:
    offset = LogOffset(OURS, position)
    assert LogOffset.read(offset.to_json(), OURS) == offset
    assert mode_of(offset.to_json()) == "scan"


@given(ENDS, ENDS, st.integers(0, 9))
def test_offsets_of_queues_are_read_as_they_were_written(
    ends: dict[tuple[str, int], int], began: dict[tuple[str, int], int], turn: int
) -> None:
    offset = QueueOffsets(OURS, ends, began, turn)
    assert QueueOffsets.read(offset.to_json(), OURS) == offset
    assert mode_of(offset.to_json()) == "queue"


def test_the_form_is_the_one_that_is_documented() -> None:
    assert LogOffset(OURS, 7).to_json() == {"v": 1, "store": "ab" * 16, "commitLog": {"broker-a": 7}}
    assert QueueOffsets(OURS, {("T", 0): 3, ("T", 1): 4}).to_json() == {
        "v": 1,
        "store": "ab" * 16,
        "brokerName": "broker-a",
        "queues": {"T": {"0": 3, "1": 4}},
    }


@pytest.mark.parametrize(
    ("offset", "why"),
    [
        ({"v": 1, "queues": {}}, "readMode queue"),
        ({"v": 2, "commitLog": {"broker-a": 7}}, "version 2"),
        ({"commitLog": {"broker-a": 7}}, "version None"),
        ({"v": 1, "store": "cd" * 16, "commitLog": {"broker-a": 7}}, "of the store cdcd"),
        ({"v": 1, "commitLog": {"broker-b": 7}}, "of the broker 'broker-b'"),
        ({"v": 1, "commitLog": {"broker-a": -1}}, "not an offset"),
        ({"v": 1, "commitLog": {"a": 1, "b": 2}}, "not an offset"),
        ({"v": 1, "commitLog": 7}, "not an offset"),
        ({"kafka": {"0": 1}}, "not an offset"),
        (7, "not an offset"),
    ],
)
def test_a_checkpoint_of_something_else_is_refused(offset: dict[str, object], why: str) -> None:
    with pytest.raises(CheckpointUnusable, match=why):
        LogOffset.read(offset, OURS)


def test_a_checkpoint_of_a_scan_is_refused_by_a_query_of_queues() -> None:
    with pytest.raises(CheckpointUnusable, match="readMode scan, and the query reads queue"):
        QueueOffsets.read(LogOffset(OURS, 7).to_json(), OURS)


def test_a_slave_goes_on_with_its_masters_checkpoint_and_a_real_brokers_store_goes_by_its_name() -> None:
    assert LogOffset.read(LogOffset(OURS, 7).to_json(), Source("ab" * 16, "another-name")).position == 7
    assert LogOffset.read(LogOffset(Source("", "broker-a"), 7).to_json(), OURS).position == 7


# --- batches of queues


def test_a_new_queue_begins_at_its_earliest_message_also_in_a_replay() -> None:
    start = QueueOffsets(OURS, {("T", 0): 5})
    ranges = start.wanted({("T", 0): (0, 9), ("T", 1): (100, 130)})
    end = start.after(ranges, cut=False)
    again = QueueOffsets.read(end.to_json(), OURS)
    assert start.ranges_to(again) == {("T", 0): (5, 9), ("T", 1): (100, 130)} == ranges


def test_a_queue_without_messages_is_known_from_then_on_and_nothing_new_is_the_same_offset() -> None:
    start = QueueOffsets(OURS, {})
    known = start.after(start.wanted({("T", 0): (4, 4)}), cut=False)
    assert known.ends == {("T", 0): 4}
    assert known.after(known.wanted({("T", 0): (4, 4)}), cut=False) is known


def test_a_queue_that_ends_before_the_offset_or_is_gone_has_nothing_new() -> None:
    start = QueueOffsets(OURS, {("T", 0): 50, ("U", 0): 7})
    ranges = start.wanted({("T", 0): (0, 20)})
    assert start.after(ranges, cut=False) is start
    assert start.ranges_to(start) == {}


@given(ENDS, st.dictionaries(KEYS, st.tuples(st.integers(0, 10**6), st.integers(0, 10**6)), max_size=8))
def test_batch_after_batch_gives_every_number_once(
    ends: dict[tuple[str, int], int], found: dict[tuple[str, int], tuple[int, int]]
) -> None:
    bounds = {key: (low, low + more) for key, (low, more) in found.items()}
    offset, seen = QueueOffsets(OURS, ends), dict[tuple[str, int], list[tuple[int, int]]]()
    whole = offset.wanted(bounds)
    for _ in range(200):
        wanted = offset.wanted(bounds)
        counts = share(max(1, 10**6), [end - first for first, end in wanted.values()], offset.turn)
        ranges = {key: (first, first + count) for (key, (first, _)), count in zip(wanted.items(), counts, strict=True)}
        following = offset.after(ranges, cut=True)
        if following == offset:
            break
        for key, (first, end) in offset.ranges_to(following).items():
            seen.setdefault(key, []).append((first, end))
        offset = following
    for key, (first, end) in whole.items():
        splits = seen.get(key, [])
        assert sum(upto - begin for begin, upto in splits) == end - first
        assert [begin for begin, _ in splits] == [first, *[upto for _, upto in splits]][: len(splits)]


# --- limits


@given(st.integers(1, 10**12), BACKLOGS, st.integers(0, 100))
def test_a_limit_is_used_to_the_last_message(limit: int, backlogs: list[int], turn: int) -> None:
    taken = share(limit, backlogs, turn)
    assert sum(taken) == min(limit, sum(backlogs))
    assert all(0 <= count <= backlog for count, backlog in zip(taken, backlogs, strict=True))


@given(st.integers(1, 10**12), BACKLOGS, st.integers(0, 100))
def test_no_queue_starves_and_large_ones_get_their_part(limit: int, backlogs: list[int], turn: int) -> None:
    waiting = sum(backlog > 0 for backlog in backlogs)
    taken = share(limit, backlogs, turn)
    if limit >= waiting:
        assert all(count >= (backlog > 0) for count, backlog in zip(taken, backlogs, strict=True))
        fair = [limit * backlog / max(1, sum(backlogs)) for backlog in backlogs]
        off = [abs(count - part) for count, part in zip(taken, fair, strict=True)]
        assert limit >= sum(backlogs) or max(off, default=0) <= waiting + 1 + limit * 1e-9


def test_a_limit_below_the_number_of_queues_goes_round() -> None:
    backlogs, seen = [9] * 5, [0] * 5
    for turn in range(5):
        seen = [before + count for before, count in zip(seen, share(2, backlogs, turn), strict=True)]
    assert seen == [2, 2, 2, 2, 2]


@given(st.integers(0, 10**15), st.lists(st.integers(0, 10**12), max_size=30))
def test_proportional_parts_add_up(amount: int, weights: list[int]) -> None:
    parts = proportional(amount, weights)
    assert sum(parts) == (amount if sum(weights) else 0)
    assert all(
        abs(part * sum(weights) - amount * weight) < sum(weights) for part, weight in zip(parts, weights, strict=True)
    ) or not sum(weights)


@given(
    st.integers(1, 5_000),
    st.lists(st.lists(st.integers(0, 700), max_size=60), min_size=1, max_size=6),
    st.integers(0, 20),
)
def test_bytes_are_kept_to_or_a_single_message_is_taken(limit: int, queues: list[list[int]], turn: int) -> None:
    def sizes(place: int, skip: int, count: int) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
        return np.array(queues[place][skip : skip + min(count, 7)], dtype=np.int64)

    taken = share_bytes(limit, [len(queue) for queue in queues], sizes, turn)
    used = sum(sum(queue[:count]) for queue, count in zip(queues, taken, strict=True))
    assert used <= limit or sum(taken) == 1
    assert sum(taken) or not any(queues)
    left = [queue[count] for queue, count in zip(queues, taken, strict=True) if count < len(queue)]
    assert sum(taken) == 1 or all(used + size > limit for size in left), "another message would have fitted"


def test_the_queue_whose_turn_it_is_gets_its_large_message_through() -> None:
    queues = [[10] * 100, [90]]

    def sizes(place: int, skip: int, count: int) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
        return np.array(queues[place][skip : skip + count], dtype=np.int64)

    assert share_bytes(100, [100, 1], sizes, 0) == [10, 0]
    assert share_bytes(100, [100, 1], sizes, 1) == [1, 1]
