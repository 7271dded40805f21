"""Entries of many rounds: gathered and merged, each queue's come out as they went in."""

import numpy as np
import pytest

from towline.format.files.consume_queue import SIZE
from towline.kernels.jit.rows import RUN
from towline.log.queues import gather as module
from towline.log.queues.gather import Gather
from towline.log.queues.queue_entries import Round

QUEUES = 7
NO_ROWS = np.zeros(0, dtype=np.int32)


def made(rng, rounds, per_run):
    """Rounds of random queues, and by queue the bytes, first offset and newest end that must come out."""
    expected, nexts, found = {}, dict.fromkeys(range(QUEUES), 0), []
    for number in range(rounds):
        queues = rng.permutation(QUEUES)[: rng.integers(1, QUEUES + 1)].tolist()
        runs, parts, at = np.zeros(len(queues), dtype=RUN), [], 0
        for place, queue in enumerate(queues):
            count = int(rng.integers(1, per_run + 1))
            data = rng.integers(0, 256, count * SIZE, dtype=np.uint8)
            runs[place] = (at, nexts[queue], number * 1000 + place, count, queue)
            first, before, _ = expected.get(queue, (nexts[queue], b"", 0))
            expected[queue] = (first, before + data.tobytes(), number * 1000 + place)
            nexts[queue] += count
            parts.append(data)
            at += count * SIZE
        found.append(Round(runs, np.concatenate(parts), 0, NO_ROWS))
    return found, expected


def merged(gather):
    """By queue what came out, and how many runs that took."""
    found, runs = {}, 0
    for one in gather.rounds():
        for run in one.runs:
            start, offset, end, count, queue = run.item()
            first, before, _ = found.get(queue, (offset, b"", 0))
            assert offset == first + len(before) // SIZE, "a queue goes on where it ended"
            found[queue] = (first, before + one.entries[start : start + count * SIZE].tobytes(), end)
            runs += 1
    return found, runs


@pytest.mark.parametrize("seed", range(4))
def test_each_queue_comes_out_in_one_run(seed):
    rounds, expected = made(np.random.default_rng(seed), 30, 9)
    gather = Gather(sum(int(one.runs["count"].sum()) for one in rounds), QUEUES)
    for one in rounds:
        gather.add(one)
    assert gather.room == 0
    assert merged(gather) == (expected, len(expected))
    assert merged(gather) == ({}, 0), "nothing is left"


@pytest.mark.parametrize("seed", range(4))
def test_what_the_target_does_not_hold_goes_on_in_the_next_round(monkeypatch, seed):
    monkeypatch.setattr(module, "_TARGET", 10 * SIZE)
    monkeypatch.setattr(module, "_MERGED", 2)
    rounds, expected = made(np.random.default_rng(seed), 30, 9)
    gather = Gather(10_000, QUEUES)
    for one in rounds:
        gather.add(one)
    found, runs = merged(gather)
    assert found == expected
    assert runs > len(expected)


def test_a_cleared_one_takes_others(monkeypatch):
    monkeypatch.setattr(module, "_TARGET", 10 * SIZE)
    gather = Gather(10_000, QUEUES)
    for one in made(np.random.default_rng(1), 30, 9)[0]:
        gather.add(one)
    next(gather.rounds())
    gather.clear()
    rounds, expected = made(np.random.default_rng(2), 5, 9)
    for one in rounds:
        gather.add(one)
    assert merged(gather)[0] == expected
