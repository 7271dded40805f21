"""The follow process of a slave: keeps the metadata files like the master's."""

import zlib
from pathlib import PurePath
from typing import ClassVar, Final

from towline.errors import LinkRefused, MalformedFrame, NoAnswer
from towline.format.frames import ASK, Kind, json_part, kind_of, read_json
from towline.format.topics import loads_fastjson
from towline.limits import SLEEP_MAX_MS
from towline.link.context import close_context, new_context
from towline.link.dealer import Link
from towline.link.poller import Poller
from towline.log.config_file import ConfigFile
from towline.node.context import Node
from towline.node.greeting import own_facts
from towline.runtime.doorbell import Doorbell
from towline.runtime.positions import Counter, Duty

GREET_MS: Final = 500
RETRY_MS: Final = 1000
ANSWER_MS: Final = 5000


class FollowAgent:
    duty: ClassVar[Duty] = Duty.FOLLOW

    def __init__(self, node: Node) -> None:
        self._node = node
        self._line = node.line
        self._link: Link | None = None
        self._have: dict[str, int] = {}
        self._asked_at: int | None = None
        self._next_at = 0

    def on_start(self, bell: Doorbell) -> None:
        self._bell = bell
        self._context = new_context()
        self._poller = Poller(bell.fileno())
        config = self._node.store.config
        self._have = {path.name: zlib.crc32(path.read_bytes()) for path in config.glob("*.json")}

    def do_work(self) -> int:
        now = self._node.clock.monotonic_ms()
        if self._link is None:
            return self._connect(now) if now >= self._next_at else 0
        try:
            done = self._take_answers(now)
        except (MalformedFrame, LinkRefused) as error:
            self._leave(now, str(error))
            return 0
        if self._link.lost or (self._asked_at is not None and now - self._asked_at > ANSWER_MS):
            self._leave(now, "the master does not answer")
            return 0
        question = [ASK.pack(Kind.ASK, now), json_part({"op": "metadata", "have": self._have})]
        if self._asked_at is None and now >= self._next_at and self._link.send(question):
            self._asked_at = now
        return done

    def sleep_ms(self) -> int:
        return SLEEP_MAX_MS

    def wait(self, timeout_ms: int) -> bool:
        return self._poller.poll(timeout_ms) and self._poller.ready(self._bell.fileno())

    def drain(self) -> bool:
        return True

    def on_close(self) -> None:
        if hasattr(self, "_context"):
            if self._link is not None:
                self._link.close()
            close_context(self._context)

    def _connect(self, now: int) -> int:
        facts = own_facts(self._node, "follower") | {"store": ""}
        master = self._node.settings.ha_master_address
        assert master is not None, "a slave's settings name its master"
        link = Link(self._context, master, facts)
        try:
            link.greet(GREET_MS)
        except (LinkRefused, NoAnswer) as error:
            link.close()
            self._next_at = self._node.clock.monotonic_ms() + RETRY_MS
            self._node.log.warning("%s", error)
            return 0
        self._link = link
        self._poller.add(link)
        self._asked_at, self._next_at = None, now
        return 1

    def _leave(self, now: int, why: str) -> None:
        assert self._link is not None
        self._node.log.warning("the link for metadata ends: %s", why)
        self._poller.remove(self._link)
        self._link.close()
        self._link = None
        self._next_at = now + RETRY_MS

    def _take_answers(self, now: int) -> int:
        done = 0
        while self._link is not None and (parts := self._link.receive()) is not None:
            if kind_of(parts[0]) != Kind.ANSWER or len(parts) != 2:
                raise MalformedFrame("the master answered metadata with something else")
            files = read_json(parts[1]).get("files", {})
            for name, text in files.items():
                self._store(str(name), str(text))
            self._asked_at, self._next_at = None, now + self._node.settings.metadata_interval_ms
            done += 1
        return done

    def _store(self, name: str, text: str) -> None:
        if PurePath(name).name != name or not name.endswith(".json"):
            raise MalformedFrame(f"the master sent a metadata file named {name!r}")
        path = self._node.store.config / name
        ConfigFile(path).save(loads_fastjson(text, str(path)))
        self._have[name] = zlib.crc32(text.encode())
        self._line.count(Counter.BATCHES)


def build(node: Node) -> FollowAgent:
    return FollowAgent(node)
