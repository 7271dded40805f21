"""The follow process of a slave: keeps the metadata files like the master's."""

import zlib
from pathlib import PurePath
from typing import ClassVar, Final

from towline.errors import LinkRefused, MalformedFrame
from towline.format.frames import ASK, Kind, json_part, kind_of, read_json
from towline.format.topics import loads_fastjson
from towline.limits import SLEEP_MAX_MS
from towline.log.config_file import ConfigFile
from towline.node.context import Node
from towline.node.greeting import own_facts
from towline.node.master_link import MasterLink
from towline.runtime.doorbell import Doorbell
from towline.runtime.positions import Counter, Duty

ANSWER_MS: Final = 5000


class FollowAgent:
    duty: ClassVar[Duty] = Duty.FOLLOW

    def __init__(self, node: Node) -> None:
        self._node = node
        self._line = node.line
        self._have: dict[str, int] = {}
        self._asked_at: int | None = None
        self._next_at = 0

    def on_start(self, bell: Doorbell) -> None:
        self._link = MasterLink(self._node, bell)
        config = self._node.store.config
        self._have = {path.name: zlib.crc32(path.read_bytes()) for path in config.glob("*.json")}

    def do_work(self) -> int:
        now = self._node.clock.monotonic_ms()
        if not self._link.connected:
            return self._connect() if self._link.due(now) else 0
        try:
            done = self._take_answers(now)
        except (MalformedFrame, LinkRefused) as error:
            self._link.leave(str(error))
            return 0
        if self._link.lost or (self._asked_at is not None and now - self._asked_at > ANSWER_MS):
            self._link.leave("no answer about metadata")
            return 0
        question = [ASK.pack(Kind.ASK, now), json_part({"op": "metadata", "have": self._have})]
        if self._asked_at is None and now >= self._next_at and self._link.send(question):
            self._asked_at = now
        return done

    def sleep_ms(self) -> int:
        return SLEEP_MAX_MS

    def wait(self, timeout_ms: int) -> bool:
        return self._link.wait(timeout_ms)

    def drain(self) -> bool:
        return True

    def on_close(self) -> None:
        if hasattr(self, "_link"):
            self._link.close()

    def _connect(self) -> int:
        """Metadata may be asked by a slave whose log is still empty, so its store id is not compared."""
        facts = own_facts(self._node, "follower") | {"store": ""}
        self._asked_at, self._next_at = None, 0
        return int(self._link.connect(facts, lambda welcome: None))

    def _take_answers(self, now: int) -> int:
        done = 0
        while (parts := self._link.receive()) is not None:
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
