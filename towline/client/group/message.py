"""A message as a group's member gets it: it knows how often it came, and can be asked for again later."""

from collections.abc import Callable

from towline.client.message import ReceivedMessage, Rows
from towline.format.record.properties import ORIGIN_MESSAGE_ID, RETRY_TOPIC

from .queue import Handed
from .subscription import RETRY_PREFIX


class GroupMessage(ReceivedMessage):
    """What came back through the group's retry topic shows the topic it was first sent to."""

    __slots__ = ("_send_back", "handed")

    def __init__(
        self,
        rows: Rows,
        row: int,
        *,
        body_size_max: int,
        send_back: "Callable[[GroupMessage, int | None], bool]",
        handed: Handed,
    ) -> None:
        super().__init__(b"", body_size_max=body_size_max, rows=rows, row=row)
        self._send_back = send_back
        self.handed = handed  # the piece of its queue that it came with

    @property
    def stored_topic(self) -> str:
        """Where this copy stands: the group's retry topic, when it came back."""
        return super().topic

    @property
    def topic(self) -> str:
        stored = self.stored_topic
        return self.properties.get(RETRY_TOPIC, stored) if stored.startswith(RETRY_PREFIX) else stored

    @property
    def reconsume_times(self) -> int:
        """How often it was sent back before."""
        return self.record.reconsume_times

    @property
    def origin_message_id(self) -> str:
        """The offset id of the first copy."""
        return self.properties.get(ORIGIN_MESSAGE_ID, self.message_id)

    def retry_later(self, level: int | None = None) -> bool:
        """Sends it back: the group gets it again after a delay, level 3 + `reconsume_times` unless one is given.

        After `retryMaxTimes` of the group (16), with a negative level, or when its properties leave no room for those
        of a retry, it goes to the dead-letter topic %DLQ%group instead. False for a dead letter. When this returns the
        copy is stored, so the message itself may count as finished. Raises NotStorable when no copy ever can be;
        NoWayBack, and what a producer's `send` raises: then nothing was stored, and trying again may help.
        """
        return self._send_back(self, level)
