"""The way from remoting to put: a ring in shared memory for what is sent, and put's socket for questions about topics."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from towline.errors import MalformedFrame
from towline.format.wire.frames import (
    ANSWER,
    ASK,
    Group,
    Kind,
    PutAnswer,
    decode_put_answer,
    encode_put,
    expect,
    json_part,
    kind_of,
    read_json,
)
from towline.link.dealer import Link
from towline.link.poller import Poller
from towline.link.put_ring import ClientRing, Offer
from towline.node.peers.local_links import LocalLink

OPEN_RING: Final = "open_ring"
DEADLINE_MS: Final = 3_000  # put refuses what it takes up later: the client has given up by then

Done = Callable[[PutAnswer | None], None]
Told = Callable[[dict[str, Any] | None], None]  # facts, or those of a refusal; None: the answer was lost


@dataclass(slots=True)
class _Asked:
    done: Told


class PutClient:
    """Puts and questions of this process. Used by one thread."""

    def __init__(self, link: LocalLink, poller: Poller, wall_ms: Callable[[], int]) -> None:
        self._local, self._poller, self._wall_ms = link, poller, wall_ms
        self._link: Link | None = None
        self._ring: ClientRing | None = None
        self._agreed = False
        self._puts: dict[int, Done] = {}
        self._asked: dict[int, Told] = {}
        self._next_id = 0

    @property
    def is_ready(self) -> bool:
        """Whether puts can be sent now."""
        return self._agreed

    @property
    def welcome(self) -> dict[str, Any]:
        return self._local.welcome

    def cycle(self, now_ms: int) -> int:
        """Takes answers; returns how many."""
        link = self._local.open(now_ms)
        if link is not self._link:
            self._lose()
            self._link = link
            if link is not None:
                self._begin()
        if link is None:
            return 0
        try:
            return self._receive(link) + self._receive_ring()
        except MalformedFrame:
            self._local.lose(now_ms)
            self._lose()
            return 1

    def put(self, groups: Sequence[Group], records: bytes, done: Done) -> bool:
        """Sends records; False where the ring has no room, or there is none."""
        if self._ring is None or not self._agreed:
            return False
        self._next_id += 1
        head = encode_put(self._next_id, 0, self._wall_ms() + DEADLINE_MS, groups)
        if not self._ring.fits(len(head) + len(records)) or not self._ring.send(head, records):
            return False
        self._puts[self._next_id] = done
        return True

    def ask(self, op: str, facts: dict[str, Any], done: Told) -> bool:
        if self._link is None:
            return False
        self._next_id += 1
        if not self._link.send([ASK.pack(Kind.ASK, self._next_id), json_part({"op": op, **facts})]):
            return False
        self._asked[self._next_id] = done
        return True

    def arm(self) -> bool:
        """Prepares for sleep; False when an answer is there already."""
        return self._ring is None or self._ring.arm()

    def disarm(self) -> None:
        if self._ring is not None:
            self._ring.disarm()

    def close(self) -> None:
        self._lose()
        self._local.close()

    def _begin(self) -> None:
        """Makes a ring, and asks put to take it."""
        offer = Offer.of(self._local.welcome)
        if offer is None:
            return
        self._ring = ClientRing(offer)
        self._poller.add(self._ring.fileno())
        self.ask(OPEN_RING, self._ring.facts, self._opened)

    def _opened(self, facts: dict[str, Any] | None) -> None:
        self._agreed = facts is not None and "error" not in facts

    def _receive(self, link: Link) -> int:
        done = 0
        while (parts := link.receive()) is not None:
            if kind_of(parts[0]) != Kind.ANSWER:
                raise MalformedFrame(f"put sent a message of kind {kind_of(parts[0])}")
            _, _, request_id, _ = expect(ANSWER, parts[0])
            told = self._asked.pop(request_id, None)
            if told is not None:
                told(read_json(parts[1]))
            done += 1
        return done

    def _receive_ring(self) -> int:
        done = 0
        while self._ring is not None and (answer := self._ring.receive()) is not None:
            found = decode_put_answer(answer)
            put = self._puts.pop(found.request_id, None)
            if put is not None:
                put(found)
            done += 1
        return done

    def _lose(self) -> None:
        """The fate of what has no answer is unknown."""
        if self._ring is not None:
            self._poller.remove(self._ring.fileno())
            self._ring.close()
        self._link, self._ring, self._agreed = None, None, False
        puts, self._puts = list(self._puts.values()), {}
        asked, self._asked = list(self._asked.values()), {}
        for put in puts:
            put(None)
        for told in asked:
            told(None)
