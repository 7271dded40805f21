"""Runs of many queues written at once: bounded descriptors, new files, rolls, and what a failed write falls back to."""

import os

import numpy as np
import pytest

from towline.errors import DiskFull, IllegalTopic
from towline.format.files.consume_queue import ENTRY, encode
from towline.kernels.base.directory import QueueDirectory
from towline.kernels.jit.rows import RUN
from towline.kernels.scan.queue_files import CLOSED
from towline.log.queues.consume_queue import ConsumeQueueFiles
from towline.log.queues.queue_writer import QueueWriter

PER_FILE = 5
FILE = PER_FILE * 20


class Queues:
    """Six queues of two topics, written in turns; `expected` is what they hold."""

    def __init__(self, root, open_max, topics=("A", "B"), queues=3):
        self.directory = QueueDirectory()
        self.names = [(topic, queue) for topic in topics for queue in range(queues)]
        for topic, queue in self.names:
            self.directory.add(topic.encode(), queue)
        self.files = ConsumeQueueFiles(root, FILE, 2)
        self.writer = QueueWriter(self.files, self.directory, open_max)
        self.expected = [[] for _ in self.names]
        self.phy = 0

    def write(self, counts):
        """So many entries to each queue."""
        runs = np.zeros(sum(count > 0 for count in counts), dtype=RUN)
        data, number = b"", 0
        for queue, count in enumerate(counts):
            if count:
                runs[number] = (len(data), len(self.expected[queue]), 0, count, queue)
                number += 1
            for _ in range(count):
                self.phy += 100
                self.expected[queue].append(self.phy)
                data += encode(self.phy, 100, queue)
        self.writer.write(runs, np.frombuffer(data, dtype=np.uint8))

    def check(self):
        reader = ConsumeQueueFiles(self.files.root, FILE, 8)
        for (topic, queue_id), expected in zip(self.names, self.expected, strict=True):
            found = []
            while len(part := reader.read(topic, queue_id, len(found), PER_FILE)):
                found += part["physical_offset"].tolist()
            assert found == expected
        reader.close()

    def close(self):
        self.writer.close()
        self.files.close()


@pytest.fixture
def make(tmp_path):
    made = []

    def new(open_max, **more):
        made.append(Queues(tmp_path / "consumequeue", open_max, **more))
        return made[-1]

    yield new
    for each in made:
        each.close()


@pytest.mark.parametrize("open_max", [1, 2, 4, 64])
def test_every_entry_stands_in_its_place_with_any_number_of_open_files(make, open_max):
    queues = make(open_max)
    draw = np.random.default_rng(open_max)
    for _ in range(60):
        queues.write(draw.integers(0, 4, len(queues.names)).tolist())
        assert np.count_nonzero(queues.writer._fds != CLOSED) <= open_max
    queues.check()


def test_a_file_that_stays_in_use_is_not_closed_for_others(make):
    queues = make(2)
    queues.write([1] * 6)
    for _ in range(2):
        queues.write([1, 1, 0, 0, 0, 0])  # the first two take both places
    before = queues.writer.opened
    queues.write([1] * 6)
    assert queues.writer.opened == before + 4, "only the others were opened"
    queues.check()


def test_numbers_that_grow_find_room(make):
    queues = make(8, topics=tuple(f"T{number}" for number in range(100)), queues=2)
    queues.write([1] * 200)
    queues.write([2] * 200)
    queues.check()


def test_a_file_that_went_away_is_made_again_by_who_can_say_what_is_wrong(make):
    queues = make(1)
    queues.write([1] * 6)
    path = queues.files.root / "B" / "2" / "00000000000000000000"
    path.unlink()
    queues.files.close()
    queues.write([0, 0, 0, 0, 0, 1])
    entries = np.fromfile(path, dtype=ENTRY)
    assert entries["physical_offset"][1] == queues.expected[5][1]


def test_a_full_disk_is_named(make, monkeypatch):
    queues = make(4)
    queues.write([1] * 6)

    def full(fd, data, at):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "pwrite", full)
    with pytest.raises(DiskFull):
        queues.write([PER_FILE, 0, 0, 0, 0, 0])  # into a new file


def test_a_topic_that_is_no_directory_is_refused(make):
    queues = make(4, topics=("..",), queues=1)
    with pytest.raises(IllegalTopic):
        queues.write([1])
