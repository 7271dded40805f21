"""A message as a group member gets it: how often it was delivered, and `retry_later`."""

from collections.abc import Callable

from towline.client.message import ReceivedMessage, Rows
from towline.format.record.properties import ORIGIN_MESSAGE_ID, RETRY_TOPIC
from towline.limits import RETRY_TOPIC_PREFIX

from .queue import Delivery


class GroupMessage(ReceivedMessage):
    """A message of a group. One from the group's retry topic shows the topic it was first sent to."""

    __slots__ = ("_send_back", "delivery")

    def __init__(
        self,
        rows: Rows,
        row: int,
        *,
        body_size_max: int,
        send_back: "Callable[[GroupMessage, int | None], bool]",
        delivery: Delivery,
    ) -> None:
        super().__init__(b"", body_size_max=body_size_max, rows=rows, row=row)
        self._send_back = send_back
        self.delivery = delivery  # with which it came

    @property
    def stored_topic(self) -> str:
        """The topic of this copy: the group's retry topic after a retry."""
        return super().topic

    @property
    def topic(self) -> str:
        stored = self.stored_topic
        return self.properties.get(RETRY_TOPIC, stored) if stored.startswith(RETRY_TOPIC_PREFIX) else stored

    @property
    def reconsume_times(self) -> int:
        """How often the message was sent back before."""
        return self.record.reconsume_times

    @property
    def origin_message_id(self) -> str:
        """The offset id of the first copy of the message."""
        return self.properties.get(ORIGIN_MESSAGE_ID, self.message_id)

    def retry_later(self, level: int | None = None) -> bool:
        """Sends the message back: the group gets it again after level 3 + `reconsume_times`, or `level`.

        After `retryMaxTimes` of the group (16), with a negative level, or when its properties leave no room for those
        of a retry, it goes to the dead-letter topic %DLQ%group instead. False for a dead letter. When this returns the
        copy is stored, so the message itself may count as finished. Raises NotStorable when no copy ever can be;
        NoWayBack, and what a producer's `send` raises: then nothing was stored, and trying again may help.
        """
        return self._send_back(self, level)
