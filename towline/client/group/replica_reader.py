"""A link to a slave, for queues that the master would rather have read there (`slave_read_enable`).

A slave serves confirmed messages only. The slave must have the master's epoch: after a change of the master the member
joins again, and this link is made again too. It is used by the member's I/O thread; nothing here waits.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from towline.client.link.connection import Connection
from towline.client.link.endpoints import Endpoints
from towline.errors import LinkRefused, MalformedFrame, NoAnswer
from towline.format.wire.frames import Buffer
from towline.link.context import Context
from towline.link.poller import Poller
from towline.link.wire import Link

LOOK_S: Final = 1.0  # so long a slave is searched for
STEP_S: Final = 0.02
AGAIN_S: Final = 10.0  # between two such searches, and after one that was of no use
SLAVE: Final = "slave"


class ReplicaReader:
    """The link to a slave; `master` is the connection to the master."""

    def __init__(
        self,
        context: Context,
        endpoints: Endpoints | Callable[[], Endpoints],
        facts: Mapping[str, str],
        poller: Poller,
        master: Connection,
    ) -> None:
        self._master = master
        self._connection = Connection(context, endpoints, facts, poller, self._fits)
        self._look_until: float | None = None
        self._not_before = 0.0

    @property
    def is_open(self) -> bool:
        return self._connection.is_open

    def link(self, now: float) -> Link | None:
        """The link to the slave; None while there is none, then to be asked again STEP_S later."""
        if not self._master.has_choice or now < self._not_before:
            return None
        if self._connection.is_open:
            return self._connection.link
        self._look_until = now + LOOK_S if self._look_until is None else self._look_until
        try:
            link = self._connection.open(0)
        except (NoAnswer, LinkRefused):
            if now >= self._look_until:
                self.drop(now + AGAIN_S)
            return None
        self._look_until = None
        return link

    def due(self, now: float) -> float:
        """When `link` may have a link."""
        return max(now + STEP_S, self._not_before)

    def receive(self) -> Iterator[list[Buffer]]:
        """The messages of the slave. Raises MalformedFrame where the link is broken."""
        link = self._connection.link
        if link is None:
            return
        try:
            while (parts := link.receive()) is not None:
                yield parts
        except LinkRefused as error:
            raise MalformedFrame(error.describe()) from None
        if link.lost:
            raise MalformedFrame("the connection was lost")

    def drop(self, not_before: float = 0.0) -> None:
        self._connection.close()
        self._look_until, self._not_before = None, not_before

    def _fits(self, welcome: Mapping[str, Any]) -> str:
        if welcome.get("broker_role") != SLAVE:
            return "it is no slave"
        epoch = int(welcome.get("epoch", 0))
        return "" if epoch == self._master.epoch else f"it is of epoch {epoch}, the master of {self._master.epoch}"
