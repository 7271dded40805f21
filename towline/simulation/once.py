"""What a confirmed log says of idempotent producers: each message stands in it once, in the order of its numbers."""

from collections.abc import Iterator

from towline.format.record import sequence

from .disk import records_of


class Once:
    """A log as it grows."""

    def __init__(self) -> None:
        self._at = 0
        self._messages: set[int] = set()
        self._epochs: dict[int, int] = {}  # by producer: the newest
        # By producer and queue. A program without a name that begins anew is another producer: nothing fences what it
        # had under way, so that may come later.
        self._numbers: dict[tuple[int, int], tuple[int, int]] = {}  # the newest, of its epoch
        self._newest: dict[tuple[int, int], int] = {}  # likewise: the newest message, as programs count them

    def look(self, data: bytes | bytearray, end: int) -> Iterator[tuple[str, str]]:
        """Yields the invariants that do not hold of what has come since the last look, up to `end`, and how."""
        at, self._at = self._at, max(self._at, end)
        for record in records_of(data, at, end):
            place = place_in(data, record.end)
            if place is None:
                continue
            message, queue = record.message, record.queue
            said = f"message {message}, number {place.number} of epoch {place.epoch} of producer {place.producer}"
            if message in self._messages:
                yield "once", f"{said}, in queue {queue}"
            self._messages.add(message)
            if not self._follows(place.producer, queue, place.epoch, place.number):
                known = self._numbers.get((place.producer, queue))
                yield "order", f"{said}, in queue {queue}, comes after number and epoch {known}"
            line = place.producer, queue
            if message < self._newest.get(line, 0):
                yield "order", f"{said}, in queue {queue}, comes after message {self._newest[line]}"
            self._newest[line] = message

    def _follows(self, producer: int, queue: int, epoch: int, number: int) -> bool:
        newest = self._epochs.get(producer, -1)
        self._epochs[producer] = max(newest, epoch)
        before, in_epoch = self._numbers.get((producer, queue), (-1, -1))
        self._numbers[producer, queue] = number, epoch
        return epoch >= newest and number == (before + 1 if epoch == in_epoch else 0)


def place_in(data: bytes | bytearray, end: int) -> sequence.Place | None:
    """The place of the record that ends there."""
    start = end - sequence.SIZE
    return sequence.decode(bytes(data[start:end])) if data.startswith(sequence.HEAD, start) else None
