"""A client's link to a node: reconnects after a loss, and keeps the node's welcome. Used by one thread.

Of several endpoints each is greeted over a link of its own (H20). They are tried one after the other: the next as soon
as nobody listens at the one before, or when that has not answered for a moment. The first node that fits is used, and
the links to the others are closed.
"""

import math
import time
from collections.abc import Callable, Mapping
from typing import Any, Final

from towline.errors import LinkRefused, NoAnswer
from towline.link.context import Context
from towline.link.dealer import await_any
from towline.link.keys import Key, environment_key
from towline.link.poller import Poller
from towline.link.unclosed import call_in_child
from towline.link.wire import Link

from .endpoints import Endpoints, Fit, anybody, is_tls, masters, masters_like, several
from .keys import now_ms
from .wires import link_to

CLOSER_MS: Final = 1000  # the client waits this much longer than the node takes to answer at worst
NEXT_S: Final = 0.02  # a node that says nothing for so long is not waited for alone
AGAIN_S: Final = 0.2  # before a node that does not fit is asked again
BROKE_S: Final = 0.02  # before one whose connection broke is
NOT_MASTER: Final = "NOT_MASTER"
STARTING: Final = "STARTING"  # a question that the node can answer in a moment
LEARNED_MAX: Final = 16


def own_facts(role: str, name: str, cluster: str) -> dict[str, str]:
    """The client's facts for the greeting. An empty cluster is not compared; a client never knows the store's id."""
    return {"role": role, "cluster": cluster, "store": "", "name": name}


class Connection:
    """A connection to the node that fits. `link` is None between a loss and the next `open`.

    endpoints  of one service of the nodes, or a function that names them whenever a node is searched for
    key        shown at TCP endpoints; by default the one that the environment variable TOWLINE_KEYS names
    fit        says of a welcome why its node is not the one; with `masters`, one of a lower epoch than a master
               before is none either, and nodes that are no masters say where theirs is
    """

    def __init__(
        self,
        context: Context,
        endpoints: Endpoints | Callable[[], Endpoints],
        facts: Mapping[str, str],
        poller: Poller,
        fit: Fit = anybody,
        key: Key | None = None,
    ) -> None:
        self._key = key or environment_key()
        self._find = endpoints if callable(endpoints) else None
        self._given = () if callable(endpoints) else several(endpoints)
        self._context = context
        self._facts = facts
        self._poller = poller
        self._fit = fit
        self._learned: dict[str, None] = {}
        self._last = ""  # the endpoint of the newest welcome
        self._shunned = ""  # it comes last when a node is searched for
        self._trying: dict[str, Link] = {}
        self._not_before: dict[str, float] = {}
        self._troubles: dict[str, str] = {}
        self._refusals: dict[str, LinkRefused] = {}
        self._begin_at = 0.0
        self._epochs: dict[str, int] = {}  # store id -> greatest epoch of a master
        self.set_clock(now_ms())
        self.link: Link | None = None
        self._muted = False
        self.welcome: dict[str, Any] = {}
        call_in_child(self)

    @property
    def endpoint(self) -> str:
        """The endpoint of the node that welcomed us last; before that, all endpoints."""
        return self._last or ",".join(self._given)

    @property
    def everywhere(self) -> tuple[str, ...]:
        """Endpoints of all nodes that are known, the one that welcomed us last first. Any thread may ask."""
        known = (*self._given, *list(self._learned))
        return tuple(dict.fromkeys((self._last, *known) if self._last else known))

    @property
    def has_choice(self) -> bool:
        """Whether the node may be found elsewhere, now or later."""
        return self._find is not None or len(self._given) + len(self._learned) > 1

    @property
    def is_open(self) -> bool:
        """Whether a greeting has passed. `link.lost` shows a later loss."""
        return self.link is not None

    @property
    def is_alive(self) -> bool:
        """The same, and that the node has not closed the link since while nobody polled it. Any thread may ask."""
        link = self.link
        return link is not None and not (self._muted and link.has_ended)

    @property
    def epoch(self) -> int:
        """The epoch in the node's welcome; 0 where it has none."""
        return int(self.welcome.get("epoch", 0))

    @property
    def own_port(self) -> int:
        """The TCP port of our end of the connection; 0 for another transport."""
        return 0 if self.link is None else self.link.own_port

    def mute(self) -> bool:
        """Takes the link out of the poller, where other threads wait on it themselves; until `unmute`."""
        if self.link is None or not self.link.takes_turns:
            return False
        self._poller.remove(self.link)
        self._muted = True
        return True

    def unmute(self) -> None:
        """Puts it back, if it is still open."""
        if self.link is not None and self._muted:
            self._poller.add(self.link)
        self._muted = False

    def open(self, timeout_ms: int) -> Link:
        """The greeted link. Raises NoAnswer, after which it may be called again, LinkRefused, InvalidEndpoint.

        LinkRefused only when every endpoint has refused us, for another reason than that it is no master; or for that
        one where the only node that was named never was ours.
        """
        if self.link is not None and self.link.lost:
            self.close()
        return self.link or self._search(timeout_ms)

    def server_now_ms(self) -> int:
        """The node's clock as its welcome gave it; a step of our own clock does not change it."""
        return self._zero_ms + _monotonic_ms()

    def set_clock(self, node_ms: int) -> None:
        """Sets what the node's clock shows now."""
        self._zero_ms = node_ms - _monotonic_ms()

    def answer_ms(self, at_least: int) -> int:
        """How long an answer may take: `at_least`, or the node's own waits for disk and slave and CLOSER_MS more."""
        promised = int(self.welcome.get("answer_ms", 0))
        return max(at_least, promised + CLOSER_MS if promised else 0)

    def move_on(self, learned: tuple[str, ...] = ()) -> None:
        """Closes the link to a node that failed; other nodes are tried first, `learned` among them."""
        self.learn(learned)
        if self._last and self.has_choice:
            self._shunned = self._last
            self._not_before[self._last] = time.monotonic() + AGAIN_S
        self.close()

    def finds_later_master(self) -> bool:
        """While the node is silent: whether another is master in a later epoch.

        Never waits; to be called again and again, until `stop_search` or `move_on`.
        """
        now = time.monotonic()
        for endpoint in self._candidates():
            if endpoint != self._last and endpoint not in self._trying and self._due(endpoint, now):
                self._begin(endpoint)
        for endpoint, link in list(self._trying.items()):
            try:
                welcome = link.try_greet()
            except (NoAnswer, LinkRefused) as error:
                self._postpone(endpoint, error.describe())
                continue
            if welcome is None:
                continue
            if not self._misfit(endpoint, welcome) and int(welcome.get("epoch", 0)) > self.epoch:
                return True
            self._postpone(endpoint, "it is no later master")
        return False

    def stop_search(self) -> None:
        if self._trying:
            self._close_candidates()

    def close(self) -> None:
        """Closes the link; `open` makes a new one."""
        self._close_candidates()
        if self.link is not None:
            if not self._muted:
                self._poller.remove(self.link)
            self._muted = False
            self.link.close()
            self.link = None

    def forked(self) -> None:
        """Drops the links without closing them, which would end the parent's."""
        self.link = None
        self._trying.clear()

    # --- search for the node

    def _search(self, timeout_ms: int) -> Link:
        if self._find is not None:
            self._given = several(self._find())
            for endpoint in self._trying.keys() - self._given:
                self._trying.pop(endpoint).close()
        deadline = time.monotonic() + timeout_ms / 1000
        while True:
            now = time.monotonic()
            self._connect_next(now)
            link = self._check_candidates()
            if link is not None:
                return link
            everywhere = self._candidates()
            if all(endpoint in self._refusals for endpoint in everywhere):
                refused = self._refusals[everywhere[-1]]
                self._close_candidates()
                raise refused
            remaining = deadline - now
            if remaining <= 0:
                raise NoAnswer(",".join(everywhere), timeout_ms, self._why(everywhere))
            wait_s = min([remaining, *(at - now for at in self._not_before.values() if at > now)])
            if any(endpoint not in self._trying and self._due(endpoint, now) for endpoint in everywhere):
                wait_s = min(wait_s, self._begin_at - now)
            await_any(self._trying.values(), max(0, math.ceil(wait_s * 1000)))

    def _candidates(self) -> list[str]:
        found = list(dict.fromkeys((*self._given, *self._learned)))
        first = self._last if self._last != self._shunned else ""
        return sorted(found, key=lambda endpoint: (endpoint == self._shunned, endpoint != first))

    def _due(self, endpoint: str, now: float) -> bool:
        return self._not_before.get(endpoint, 0.0) <= now

    def _connect_next(self, now: float) -> None:
        """A link to the next endpoint, when its turn has come."""
        for endpoint in self._candidates():
            if endpoint in self._trying or not self._due(endpoint, now):
                continue
            if now < self._begin_at and not all(link.refused for link in self._trying.values()):
                return
            self._refusals.pop(endpoint, None)
            self._begin(endpoint)
            self._begin_at = now + NEXT_S

    def _begin(self, endpoint: str) -> None:
        self._trying[endpoint] = link_to(self._context, endpoint, self._facts, self._key)

    def _check_candidates(self) -> Link | None:
        """The link of the first node that fits, if its welcome is here."""
        for endpoint, link in list(self._trying.items()):
            try:
                welcome = link.try_greet()
            except NoAnswer as error:
                self._postpone(endpoint, error.trouble, BROKE_S)
            except LinkRefused as error:
                self._postpone(endpoint, error.describe())
                if error.code != NOT_MASTER or not (self.has_choice or self._last):
                    self._refusals[endpoint] = error
            else:
                if welcome is None:
                    continue
                trouble = self._misfit(endpoint, welcome)
                if not trouble:
                    return self._accept(endpoint, welcome)
                self._postpone(endpoint, trouble)
        return None

    def _misfit(self, endpoint: str, welcome: Mapping[str, Any]) -> str:
        """Why this node is not taken. Where there is no other, every node is: it says itself what is wrong."""
        if self._fit is masters:
            self.learn(masters_like(endpoint, welcome))
        if not self.has_choice:
            return ""
        trouble = self._fit(welcome)
        if trouble or self._fit is not masters:
            return trouble
        store, epoch = str(welcome.get("store", "")), int(welcome.get("epoch", 0))
        newest = self._epochs.get(store, 0)
        if epoch < newest:
            return f"its epoch {epoch} is over: a master of epoch {newest} was there"
        self._epochs[store] = epoch
        return ""

    def _accept(self, endpoint: str, welcome: dict[str, Any]) -> Link:
        link = self._trying.pop(endpoint)
        self._close_candidates()
        self.link, self.welcome, self._last, self._shunned = link, welcome, endpoint, ""
        took_ms = (time.monotonic() - link.greeted_at) * 1000
        self.set_clock(int(welcome.get("now", now_ms())) + int(took_ms) // 2)
        self._poller.add(link)
        return link

    def led_to(self, facts: Mapping[str, Any]) -> tuple[str, ...]:
        """Endpoints of the master that the node names in its answer, of the kind by which we came."""
        return masters_like(self._last, facts)

    def learn(self, endpoints: tuple[str, ...]) -> None:
        """Adds endpoints at which the node may be. Who was given TLS is not led away from it."""
        secret = any(map(is_tls, self._given))
        for endpoint in endpoints:
            if (is_tls(endpoint) or not secret) and endpoint not in self._given and len(self._learned) < LEARNED_MAX:
                self._learned[endpoint] = None

    def _postpone(self, endpoint: str, trouble: str, seconds: float = AGAIN_S) -> None:
        self._trying.pop(endpoint).close()
        self._troubles[endpoint] = trouble
        self._not_before[endpoint] = time.monotonic() + seconds

    def _why(self, endpoints: list[str]) -> str:
        """What an attempt ended with says more than how far the next one is."""
        troubles = {
            endpoint: self._troubles.get(endpoint) or (link.trouble if (link := self._trying.get(endpoint)) else "")
            for endpoint in endpoints
        }
        if len(endpoints) == 1:
            return troubles[endpoints[0]]
        return "; ".join(f"{endpoint}: {trouble}" for endpoint, trouble in troubles.items() if trouble)

    def _close_candidates(self) -> None:
        for link in self._trying.values():
            link.close()
        self._trying.clear()
        self._troubles.clear()
        self._refusals.clear()
        self._not_before = {at: when for at, when in self._not_before.items() if when > time.monotonic()}
        self._begin_at = 0.0


def _monotonic_ms() -> int:
    return time.monotonic_ns() // 1_000_000


def remaining_ms(deadline: float) -> int:
    """Whole ms until a monotonic moment, rounded up, never negative."""
    return max(0, math.ceil((deadline - time.monotonic()) * 1000))
