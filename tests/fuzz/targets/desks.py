"""A log with one request, of the socket or of a ring, for the kernels that store."""

from types import SimpleNamespace
from typing import Final

import numpy as np

from tests.kernels.put.desk import NOW, Log
from towline.format.record.record import MessageEncoder
from towline.format.wire.put_ring import REQUESTS_SIZE_MIN, entry_max, file_size
from towline.kernels.jit import rows
from towline.kernels.jit.rows import RequestStatus, Sender
from towline.kernels.put import append, put_ring, socket_rows

AREA: Final = REQUESTS_SIZE_MIN
QUEUES: Final = [(topic, queue_id) for topic in (b"orders", b"another") for queue_id in (0, 1)]
_FIRST: Final = 100  # queue offset of each queue's next record
_ENCODERS: Final = {topic: MessageEncoder(topic) for topic, _ in QUEUES}


def sent(number: int, queue: tuple[bytes, int] = QUEUES[0], size: int = 100) -> bytes:
    """A record as our clients encode it."""
    properties = b"UNIQ_KEY\x01%08d\x02" % number
    return _ENCODERS[queue[0]].encode(queue[1], bytes([number & 0xFF]) * size, properties, born_timestamp=NOW)


class SocketDesk(Log):
    """One row of a request of the socket."""

    def __init__(self, head: np.ndarray, records: np.ndarray) -> None:
        super().__init__()
        for topic, queue_id in QUEUES:
            self.allow(topic, queue_id, _FIRST)
        self.rows = np.zeros(1, rows.REQUEST)
        row = self.rows[0]
        for name, held in (("head", head), ("records", records)):
            row[name], row[f"{name}_size"] = held.ctypes.data, held.size
        row["received_ms"], row["memory"] = 1_000, head.size + records.size
        row["status"], row["sender"] = RequestStatus.WAITING, Sender.CLIENT
        self._marks = np.zeros(append.MARKS_SIZE, np.int64)
        self._answers = np.zeros(socket_rows.ANSWERS_SIZE, np.uint8)

    def serve(self) -> int:
        self.begin()
        return append.append_rows(self.rows, 0, 1, self._marks.view(np.uint8), self._answers, self.arguments)


class RingDesk(Log):
    """A ring whose client may have written anything."""

    def __init__(self) -> None:
        super().__init__()
        for topic, queue_id in QUEUES:
            self.allow(topic, queue_id, _FIRST)
        view = memoryview(bytearray(file_size(AREA)))
        self.memory = SimpleNamespace(view=view, words=view.cast("q"))
        self.bytes_of_ring = np.frombuffer(view, np.uint8)
        self.rows = np.zeros(100, rows.REQUEST)
        self._kept = np.zeros(2 * append.ANSWER_MAX, np.uint8)
        self._entry = np.zeros(entry_max(AREA), np.uint8)
        self._rings = np.zeros(1, put_ring.RING)
        ring = rows.fields_of(self._rings)[0]
        ring.area, ring.entry, ring.entry_max = AREA, self._entry.ctypes.data, self._entry.size

    def serve(self) -> int:
        self.begin()
        return put_ring.serve_ring(self.bytes_of_ring, self._rings, self.rows, self._kept, self.arguments)
