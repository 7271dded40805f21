"""A slave's link to its master: made, lost and made again, by the receiver for the log and by follow for metadata."""

from collections.abc import Callable, Mapping
from typing import Any, Final

from towline.errors import LinkRefused, MalformedFrame, NoAnswer
from towline.format.frames import Buffer
from towline.limits import FRAME_SIZE_MAX, LINK_HIGH_WATER
from towline.link.context import close_context, new_context
from towline.link.dealer import Link
from towline.link.poller import Poller
from towline.runtime.doorbell import Doorbell

from .context import Node

GREET_MS: Final = 500
RETRY_MS: Final = 500


class MasterLink:
    """`connect` when `due`; then `send` and `receive` until `leave`. `wait` sleeps on the bell and on the link."""

    def __init__(
        self, node: Node, bell: Doorbell, *, frame_size_max: int = FRAME_SIZE_MAX, high_water: int = LINK_HIGH_WATER
    ) -> None:
        assert node.settings.ha_master_address is not None, "a slave's settings name its master"
        self._address: str = node.settings.ha_master_address
        self._node = node
        self._bell = bell
        self._frame_size_max, self._high_water = frame_size_max, high_water
        self._context = new_context()
        self._poller = Poller(bell.fileno())
        self._link: Link | None = None
        self._retry_at = 0
        self._told = ""

    @property
    def connected(self) -> bool:
        return self._link is not None

    @property
    def lost(self) -> bool:
        """The connection broke; `leave` comes next."""
        return self._link is not None and self._link.lost

    def due(self, now_ms: int) -> bool:
        """Whether it is time to connect."""
        return self._link is None and now_ms >= self._retry_at

    def connect(self, facts: Mapping[str, Any], agree: Callable[[dict[str, Any]], None]) -> bool:
        """Greet with `facts`; `agree` looks at the welcome and raises what it cannot accept. A failure is logged."""
        link = Link(
            self._context, self._address, facts, frame_size_max=self._frame_size_max, high_water=self._high_water
        )
        try:
            agree(link.greet(GREET_MS))
        except (LinkRefused, NoAnswer, MalformedFrame) as error:
            link.close()
            self._put_off(str(error))
            return False
        self._link, self._told = link, ""
        self._poller.add(link)
        return True

    def leave(self, why: str) -> None:
        """Close the link; it is made again a little later (H20: never used again after trouble)."""
        if self._link is not None:
            self._poller.remove(self._link)
            self._link.close()
            self._link = None
            self._put_off(f"the link to the master ends: {why}")

    def send(self, parts: list[bytes]) -> bool:
        return self._link is not None and self._link.send(parts)

    def receive(self) -> list[Buffer] | None:
        """The next message. Raises LinkRefused."""
        return None if self._link is None or self._poller.was_silent() else self._link.receive()

    def wait(self, timeout_ms: int) -> bool:
        """Whether the bell rang."""
        return self._poller.poll(timeout_ms) and self._poller.ready(self._bell.fileno())

    def close(self) -> None:
        if self._link is not None:
            self._link.close()
        close_context(self._context)

    def _put_off(self, why: str) -> None:
        self._retry_at = self._node.clock.monotonic_ms() + RETRY_MS
        if why != self._told:  # a master that stays away is told of once
            self._node.log.warning("%s", why)
        self._told = why
