"""What the two links to a RocketMQ master have in common: when they are made again, and what the node's log says."""

from typing import Final

from towline.errors import LinkRefused
from towline.limits import SLEEP_MAX_MS
from towline.link.poller import Pollable, Poller
from towline.node.process.context import Node
from towline.runtime.doorbell import Doorbell
from towline.runtime.idle_sleep import IdleSleep

RETRY_MS: Final = 1_000
AGAIN_MS: Final = 60_000  # a rule that goes on being broken is logged so often
KNOWN_MAX: Final = 64


class RetriedLink:
    """The state of a link towards the process that uses it, with the words of `MasterLink`."""

    def __init__(self, node: Node, bell: Doorbell, address: str) -> None:
        self.address = address
        self.connected = False
        self.trouble = ""  # why there is no connection, as it was logged; empty while there is one
        self.refused: LinkRefused | None = None
        self._node, self._bell = node, bell
        self._poller = Poller(bell.fileno())
        self._retry_at = 0
        self._said: dict[str, int] = {}  # rule -> when it was logged

    @property
    def lost(self) -> bool:
        """Whether the connection broke; here `receive` says so, by name."""
        return False

    def adjust(self) -> None:
        """Goes by the settings as they are now: neither address may change while a node runs."""

    def watch(self, source: Pollable) -> None:
        """Adds a source that ends a `wait`; the caller checks it after each."""
        self._poller.add(source)

    def due(self, now_ms: int) -> bool:
        """Whether it is time to connect."""
        return not self.connected and now_ms >= self._retry_at

    def due_ms(self, now_ms: int) -> int:
        """Of a link that is not there: milliseconds until it is time, at most the longest sleep of a process."""
        return min(SLEEP_MAX_MS, max(0, self._retry_at - now_ms))

    def wait(self, timeout_ms: int, rest: IdleSleep | None) -> bool:
        """Whether the bell rang."""
        return self._poller.poll(timeout_ms, rest) and self._poller.ready(self._bell.fileno())

    def _made(self) -> None:
        self.connected, self.trouble, self.refused = True, "", None

    def _not_made(self, error: LinkRefused) -> None:
        """There is no link by this refusal, or none any more. It is logged once a minute for each rule."""
        self.connected, self.refused = False, error
        self._retry_later(error.code, f"{self.address} is not followed: {error.code}: {error.sentence}")

    def _ended(self, why: str) -> None:
        self.connected, self.refused = False, None
        self._retry_later(why, f"the link to {self.address} ends: {why}")

    def _retry_later(self, rule: str, text: str) -> None:
        now = self._node.clock.monotonic_ms()
        self._retry_at, self.trouble = now + RETRY_MS, text
        if rule in self._said and now - self._said[rule] < AGAIN_MS:
            return
        if len(self._said) >= KNOWN_MAX:
            self._said.clear()
        self._said[rule] = now
        self._node.log.warning("%s", text)
