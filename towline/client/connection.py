"""A link that is made anew when it is lost, and what the node said in its welcome. Used by one thread."""

import math
import time
from collections.abc import Mapping
from typing import Any, Final

from towline.errors import NoAnswer
from towline.link.context import Context
from towline.link.dealer import Link
from towline.link.poller import Poller

from .keys import now_ms

CLOSER_MS: Final = 1000  # the client waits this much longer than the node takes to answer at worst


def own_facts(role: str, name: str, cluster: str) -> dict[str, str]:
    """Who we are, for the greeting. An empty cluster is not compared; a client never knows the store's id."""
    return {"role": role, "cluster": cluster, "store": "", "name": name}


class Connection:
    """`link` is None between a loss and the next `open`."""

    def __init__(self, context: Context, endpoint: str, facts: Mapping[str, str], poller: Poller) -> None:
        self.endpoint = endpoint
        self._context = context
        self._facts = facts
        self._poller = poller
        self._greeted = False
        self._ahead_ms = 0
        self.link: Link | None = None
        self.welcome: dict[str, Any] = {}

    @property
    def is_open(self) -> bool:
        """A greeting has passed. That the link was lost since, the link itself says."""
        return self._greeted

    def open(self, timeout_ms: int) -> Link:
        """The greeted link. Raises NoAnswer, after which it may be called again, LinkRefused, InvalidEndpoint."""
        if self.link is not None and self.link.lost:
            self.close()
        if self.link is None:
            self.link = Link(self._context, self.endpoint, self._facts)
        if not self._greeted:
            self._greet(self.link, timeout_ms)
        return self.link

    def server_now_ms(self) -> int:
        """The node's clock, as far as its welcome told."""
        return now_ms() + self._ahead_ms

    def answer_ms(self, at_least: int) -> int:
        """How long an answer may take: `at_least`, or what the node says it may wait for disk and slave, and a bit."""
        promised = int(self.welcome.get("answer_ms", 0))
        return max(at_least, promised + CLOSER_MS if promised else 0)

    def close(self) -> None:
        if self.link is None:
            return
        if self._greeted:
            self._poller.remove(self.link)
        self.link.close()
        self.link, self._greeted = None, False

    def _greet(self, link: Link, timeout_ms: int) -> None:
        asked = now_ms()
        try:
            self.welcome = link.greet(timeout_ms)
        except NoAnswer:
            if link.lost:
                self.close()
            raise
        except BaseException:
            self.close()
            raise
        answered = now_ms()
        self._ahead_ms = int(self.welcome.get("now", answered)) - (asked + answered) // 2
        self._greeted = True
        self._poller.add(link)


def remaining_ms(deadline: float) -> int:
    """Whole ms until a monotonic moment, rounded up, never negative."""
    return max(0, math.ceil((deadline - time.monotonic()) * 1000))
