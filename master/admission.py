"""The one gate of the put process: a named cause with its numbers, before a byte is copied."""

from dataclasses import dataclass

from towline.format.status import PutStatus
from towline.runtime.positions import Position, Positions


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a request is not stored. `record` and `rule` name the culprit where there is one."""

    status: PutStatus
    sentence: str
    rule: int = 0
    record: int = -1
    retry_after_ms: int = 0


class Gate:
    """Looks at the store's state once per turn; a request then costs one comparison."""

    def __init__(self, positions: Positions, *, waiting_max: int, flush_backlog_max: int) -> None:
        self._positions = positions
        self._waiting_max = waiting_max
        self._backlog_max = flush_backlog_max

    def look(self, waiting: int) -> Refusal | None:
        """The refusal that every request of this turn gets, None when the gate is open."""
        positions = self._positions
        if positions.get(Position.SYNC_FAILED):
            return Refusal(
                PutStatus.SERVICE_NOT_AVAILABLE,
                "cause=sync_failed: a sync of the log failed, so nothing more can be promised; look at the disk, then "
                "restart the node",
            )
        if stopped := positions.get(Position.DISPATCH_STOPPED):
            return Refusal(
                PutStatus.SERVICE_NOT_AVAILABLE,
                f"cause=dispatch_stopped: reput cannot read the record at offset {stopped - 1}; run "
                "`towline master status`",
            )
        if waiting >= self._waiting_max:
            return Refusal(
                PutStatus.SYSTEM_BUSY,
                f"cause=waiting_requests waiting={waiting} limit={self._waiting_max} retry_after=20ms",
                retry_after_ms=20,
            )
        backlog = positions.get(Position.APPENDED) - positions.get(Position.FLUSHED)
        if backlog > self._backlog_max:
            return Refusal(
                PutStatus.SYSTEM_BUSY,
                f"cause=flush_backlog backlog={backlog} limit={self._backlog_max} retry_after=40ms",
                retry_after_ms=40,
            )
        return None
