"""Which queues nobody else can have locked, whatever has become of the process of the node that gave us the locks.

A lock lives for its time after the node renewed it, so after the question of ours that was granted. Nobody else gets it
before, from the process that knows of it; one that was started since, and knows nothing, believes whoever claims it.
"""

from collections.abc import Collection, Iterable

Queue = tuple[str, int]


class Claims:
    """Used by the I/O thread. Times are those of `boottime_s`."""

    def __init__(self) -> None:
        self._until: dict[Queue, float] = {}

    def of(self, queues: Iterable[Queue], now: float) -> list[list[str | int]]:
        """Those of `queues` that were ours when we last heard, and still are; as questions carry them."""
        return [list(queue) for queue in queues if now < self._until.get(queue, 0.0)]

    def answered(self, asked: Iterable[Queue], locked: Collection[Queue], until: float) -> None:
        """Of those that were asked for, only the locked ones are ours."""
        for queue in asked:
            if queue in locked:
                self._until[queue] = until
            else:
                self._until.pop(queue, None)

    def give_back(self, queues: Iterable[Queue], now: float) -> list[list[str | int]]:
        """The same as `of`; they are not claimed again, even when nobody says that they arrived."""
        found = self.of(queues, now)
        for topic, queue_id in found:
            del self._until[str(topic), int(queue_id)]
        return found
