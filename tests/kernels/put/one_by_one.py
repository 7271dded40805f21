"""The model of the append: one request after the other."""

import numpy as np

from tests.kernels.put.desk import BASE, CHECKS, HOST, LOG, NOW, OWN, REALS
from tests.kernels.put.entries import append_request
from towline.kernels.jit import rows
from towline.kernels.put import stamp


class OneByOne:
    """The model: each request by itself, by the kernel that validates and stamps, published by hand."""

    def __init__(self, queues: dict[tuple[bytes, int], int]) -> None:
        self.log, self.at = np.zeros(LOG, np.uint8), 0
        self.next = dict(queues)

    def put(self, groups: list[tuple[tuple[bytes, int], list[bytes]]]) -> list[tuple[int, int]]:
        """(queue offset, physical offset) of each group's first record."""
        frame = np.frombuffer(b"".join(b"".join(data) for _, data in groups), np.uint8)
        arena = np.frombuffer(b"".join(topic for (topic, _), _ in groups), np.uint8)
        filled = np.zeros(len(groups), rows.GROUP)
        places, before, start = [], 0, 0
        for number, (queue, data) in enumerate(groups):
            size = sum(map(len, data))
            filled[number] = (size, len(data), self.next[queue], start, len(queue[0]), queue[1], 0)
            places.append((self.next[queue], BASE + self.at + before))
            before, start = before + size, start + len(queue[0])
        result, reals = np.zeros(stamp.RESULT_SIZE, np.int64), REALS.at(NOW, NOW)
        assert not append_request(
            self.log, self.at, frame, filled, len(groups), arena, OWN, BASE, NOW, HOST, 1 << 20, CHECKS, reals, result
        )
        self.log[self.at : self.at + 8] = frame[:8]
        self.at += frame.size
        for (queue, _), following in zip(groups, filled["next_offset"].tolist(), strict=True):
            self.next[queue] = following
        return places
