"""The writer of ConsumeQueues: the runs of a batch by one kernel call, new files one by one (spec 3.2)."""

import os
from typing import Final

import numpy as np
import numpy.typing as npt

from towline.format.files.consume_queue import SIZE
from towline.kernels.base.directory import QueueDirectory
from towline.kernels.scan.queue_files import CLOSED, NOWHERE, OPENED, ROOT, STAMP, STATE_SIZE, write_runs
from towline.log.files.segment_files import segment_name

from .consume_queue import ConsumeQueueFiles

_QUEUES_AT_FIRST: Final = 64
_PATHS_AT_FIRST: Final = 4096


class QueueWriter:
    """Writes for the queues of one directory, by their numbers there.

    `files` makes and fills what is not there yet; beside its descriptors at most `open_max` are held here.
    """

    def __init__(self, files: ConsumeQueueFiles, directory: QueueDirectory, open_max: int) -> None:
        self._files, self._directory = files, directory
        self._bases: npt.NDArray[np.int64] = np.full(_QUEUES_AT_FIRST, NOWHERE, dtype=np.int64)
        self._starts = np.zeros(_QUEUES_AT_FIRST, dtype=np.int64)
        self._fds: npt.NDArray[np.int32] = np.full(_QUEUES_AT_FIRST, CLOSED, dtype=np.int32)
        self._used = np.zeros(_QUEUES_AT_FIRST, dtype=np.int64)
        self._places: npt.NDArray[np.int32] = np.full(open_max, -1, dtype=np.int32)
        self._paths = np.zeros(_PATHS_AT_FIRST, dtype=np.uint8)
        self._paths_used = 0
        self._state = np.zeros(STATE_SIZE, dtype=np.int64)
        self._state[ROOT] = -1

    def write(self, runs: npt.NDArray[np.void], entries: npt.NDArray[np.uint8]) -> None:
        """Writes rows of RUN whose `start` counts in `entries`; not synced. Raises DiskFull, IllegalTopic."""
        if self._state[ROOT] < 0:
            self._files.root.mkdir(parents=True, exist_ok=True)
            self._state[ROOT] = os.open(self._files.root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        self._grow()
        self._state[STAMP] += 1
        number = 0
        while number < len(runs):
            number = write_runs(
                runs,
                number,
                len(runs),
                entries,
                self._files.file_size,
                self._bases,
                self._starts,
                self._paths,
                self._fds,
                self._used,
                self._places,
                self._state,
            )
            if number < len(runs):
                self._write_one(runs[number], entries)
                number += 1

    @property
    def opened(self) -> int:
        """Files opened so far, again and again included."""
        return int(self._state[OPENED])

    def close_queue(self, topic: bytes, queue_id: int) -> None:
        """Closes the open file of a queue that is deleted; its next entry makes a new one."""
        number = self._directory.lookup(topic, queue_id)
        if 0 <= number < len(self._bases):
            self._close_file(number)

    def close(self) -> None:
        """Closes every file. The object may go on to be used."""
        for fd in self._fds[self._fds != CLOSED].tolist():
            os.close(fd)
        self._fds[:] = CLOSED
        self._places[:] = -1
        if self._state[ROOT] >= 0:
            os.close(int(self._state[ROOT]))
            self._state[ROOT] = -1

    def _write_one(self, run: npt.NDArray[np.void], entries: npt.NDArray[np.uint8]) -> None:
        """A run for which a file is to be made, filled or left, or which went wrong: then this says why."""
        number, offset, start, count = (int(run[name]) for name in ("queue_index", "queue_offset", "start", "count"))
        self._close_file(number)
        topic, queue_id = self._directory.topic(number).decode("utf-8", "replace"), self._directory.queue_id(number)
        self._files.write(topic, queue_id, offset, entries[start : start + count * SIZE].data)
        last = (offset + count - 1) * SIZE
        self._enter(number, f"{topic}/{queue_id}/", last - last % self._files.file_size)

    def _enter(self, number: int, directory: str, base: int) -> None:
        path = np.frombuffer(f"{directory}{segment_name(base)}\0".encode(), dtype=np.uint8)
        if not self._starts[number]:
            self._starts[number] = self._reserve(len(path))
        start = int(self._starts[number])
        self._paths[start : start + len(path)] = path  # as long as the one before: bases have 20 digits
        self._bases[number] = base

    def _close_file(self, number: int) -> None:
        self._bases[number] = NOWHERE
        if self._fds[number] != CLOSED:
            os.close(int(self._fds[number]))
            self._fds[number] = CLOSED
            self._places[self._places == number] = -1

    def _reserve(self, size: int) -> int:
        start = max(self._paths_used, 1)  # 0 stands for no path
        self._paths_used = start + size
        while self._paths_used > len(self._paths):
            self._paths = np.concatenate((self._paths, np.zeros_like(self._paths)))
        return start

    def _grow(self) -> None:
        more = len(self._directory) - len(self._bases)
        if more > 0:
            more = max(more, len(self._bases))
            self._bases = np.concatenate((self._bases, np.full(more, NOWHERE, dtype=np.int64)))
            self._starts = np.concatenate((self._starts, np.zeros(more, dtype=np.int64)))
            self._fds = np.concatenate((self._fds, np.full(more, CLOSED, dtype=np.int32)))
            self._used = np.concatenate((self._used, np.zeros(more, dtype=np.int64)))
