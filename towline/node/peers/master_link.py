"""A slave's link to its master, with reconnection: the receiver uses one for the log, follow one for metadata."""

from collections.abc import Callable, Mapping
from typing import Any, Final

from towline.errors import LinkRefused, MalformedFrame, NoAnswer
from towline.format.wire.frames import Buffer
from towline.limits import FRAME_SIZE_MAX, LINK_HIGH_WATER, SLEEP_MAX_MS
from towline.link.context import close_context, new_context
from towline.link.dealer import Link, await_any
from towline.link.handshake import LEFT, encode_refusal
from towline.link.poller import Pollable, Poller
from towline.node.process.context import Node
from towline.node.process.curve_keys import key_of
from towline.runtime.doorbell import Doorbell
from towline.runtime.idle_sleep import IdleSleep
from towline.runtime.settings import Settings

from .peer_server import NOT_MASTER

GREET_MS: Final = 500
RETRY_MS: Final = 500
QUICK_RETRY_MS: Final = 100  # while the nodes of the group are changing their roles
LAST_WORD_MS: Final = 100  # so long a master that takes nothing keeps a closed link
QUICK_S: Final = 10  # and how long after a link was lost that may be


def master_addresses(settings: Settings) -> list[str]:
    """Where the master may be, the address that was set for it first; not this node's own."""
    peers = [where for peer, where in settings.peers.items() if peer != settings.broker_id]
    named = [settings.ha_master_address] if settings.ha_master_address is not None else []
    own = settings.peers.get(settings.broker_id)
    return [where for where in dict.fromkeys(named + peers) if where != own]


class MasterLink:
    """`connect` when `due`; then `send` and `receive` until `disconnect`. `wait` sleeps on doorbell and link.

    Of several addresses one is tried per `connect`, the next at once when nobody listens there or it is no master.
    """

    def __init__(
        self, node: Node, bell: Doorbell, *, frame_size_max: int = FRAME_SIZE_MAX, high_water: int = LINK_HIGH_WATER
    ) -> None:
        self._addresses = master_addresses(node.settings)
        self._at = 0
        self._node = node
        self._bell = bell
        self._frame_size_max, self._high_water = frame_size_max, high_water
        self._context = new_context()
        self._key = key_of(node)
        self._poller = Poller(bell.fileno())
        self._link: Link | None = None
        self._retry_at = 0
        self._quick_until = 0
        self._alone = True
        self._reported = ""
        self._refused: LinkRefused | None = None
        self._troubles: dict[str, LinkRefused | NoAnswer | MalformedFrame] = {}
        if not self._addresses:
            node.log.error("there is no master to follow: set ha_peers, or ha_master_address, and start again")

    def adjust(self) -> None:
        """Goes by the addresses of `node.settings` as they are now; a link to one that is none of them ends."""
        addresses = master_addresses(self._node.settings)
        if addresses == self._addresses:
            return
        tried = self.address
        if self.connected and tried not in addresses:
            self.disconnect(f"{tried} is none of the group's addresses any more")
        self._addresses = addresses
        self._at = addresses.index(tried) if tried in addresses else 0

    def watch(self, source: Pollable) -> None:
        """Adds a source that ends a `wait`; the caller checks it after each."""
        self._poller.add(source)
        self._alone = False

    @property
    def connected(self) -> bool:
        return self._link is not None

    @property
    def address(self) -> str:
        """Of the connected master, or of the node that is tried next; empty where there is none to try."""
        return self._addresses[self._at] if self._addresses else ""

    @property
    def trouble(self) -> str:
        """Why there is no connection, as it was logged; empty while there is one."""
        return self._reported

    @property
    def refused(self) -> LinkRefused | None:
        """The refusal by a master, or of a master; None while there is none."""
        return self._refused

    @property
    def lost(self) -> bool:
        """The connection broke; `disconnect` comes next."""
        return self._link is not None and self._link.lost

    def due(self, now_ms: int) -> bool:
        """Whether it is time to connect."""
        return self._link is None and bool(self._addresses) and now_ms >= self._retry_at

    def due_ms(self, now_ms: int) -> int:
        """Of a link that is not there: milliseconds until it is time, at most the longest sleep of a process."""
        return min(SLEEP_MAX_MS, max(0, self._retry_at - now_ms) if self._addresses else SLEEP_MAX_MS)

    def connect(self, facts: Mapping[str, Any], agree: Callable[[dict[str, Any]], None]) -> bool:
        """Greet with `facts`; `agree` checks the welcome and raises what it cannot accept. A failure is logged."""
        link = Link(
            self._context,
            self.address,
            facts,
            frame_size_max=self._frame_size_max,
            high_water=self._high_water,
            key=self._key,
        )
        try:
            agree(self._greet(link))
        except (LinkRefused, NoAnswer, MalformedFrame) as error:
            link.close()
            self._next(error)
            return False
        self._link, self._reported, self._refused, self._troubles = link, "", None, {}
        self._poller.add(link)
        return True

    def disconnect(self, why: str) -> None:
        """Close the link, saying why; it is made again a little later (H20: never used again after trouble)."""
        if self._link is not None:
            self._poller.remove(self._link)
            self._link.send(encode_refusal(LinkRefused(LEFT, why)))
            self._link.close(LAST_WORD_MS)
            self._link, self._refused = None, None
            now = self._node.clock.monotonic_ms()
            self._quick_until = now + 1000 * QUICK_S if len(self._addresses) > 1 else 0
            self._retry_later(f"the link to the master ends: {why}", now)

    def send(self, parts: list[bytes]) -> bool:
        return self._link is not None and self._link.send(parts)

    def receive(self) -> list[Buffer] | None:
        """The next message. Raises LinkRefused."""
        if self._link is None or (self._alone and self._poller.was_silent()):
            return None
        return self._link.receive()

    def wait(self, timeout_ms: int, rest: IdleSleep | None) -> bool:
        """Whether the bell rang."""
        return self._poller.poll(timeout_ms, rest) and self._poller.ready(self._bell.fileno())

    def close(self) -> None:
        if self._link is not None:
            self._link.close()
        close_context(self._context)

    def _greet(self, link: Link) -> dict[str, Any]:
        """Waits GREET_MS at most; a refused connection ends it at once."""
        clock = self._node.clock
        deadline = clock.monotonic_ms() + GREET_MS
        while (welcome := link.try_greet()) is None:
            remaining = deadline - clock.monotonic_ms()
            if remaining <= 0 or link.refused:
                raise NoAnswer(link.endpoint, GREET_MS, link.trouble)
            await_any((link,), remaining)
        return welcome

    def _next(self, error: LinkRefused | NoAnswer | MalformedFrame) -> None:
        """Tries the next address; after a round through all of them there is a pause, logged once."""
        self._troubles[self.address] = error
        now = self._node.clock.monotonic_ms()
        self._at = (self._at + 1) % len(self._addresses)
        if self._at and isinstance(error, NoAnswer | LinkRefused):
            self._retry_at = now
            return
        known = list(self._troubles.values())
        telling = [trouble for trouble in known if NOT_MASTER not in str(trouble)]
        self._refused = next((trouble for trouble in telling if isinstance(trouble, LinkRefused)), None)
        self._retry_later("; ".join(dict.fromkeys(map(str, telling or known))), now)
        self._troubles = {}

    def _retry_later(self, why: str, now: int) -> None:
        self._retry_at = now + (QUICK_RETRY_MS if now < self._quick_until else RETRY_MS)
        if why != self._reported:  # a master that stays away is logged once
            self._node.log.warning("%s", why)
        self._reported = why
