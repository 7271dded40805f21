"""The follow process of a slave: copies the master's metadata files and answers the slave's peers."""

import re
import zlib
from typing import Any, ClassVar, Final, NoReturn

from towline.errors import (
    DiskFull,
    LinkRefused,
    MalformedFile,
    MalformedFrame,
    StoreNotWritable,
    SyncFailed,
)
from towline.filter.subscriptions import FILE as FILTERS
from towline.filter.subscriptions import without_births
from towline.format.files.epochs import node_of
from towline.format.files.topics import loads_fastjson
from towline.format.wire.frames import ANSWER, ASK, Kind, expect, json_part, kind_of, read_json
from towline.limits import LOOK_MS, MIB
from towline.link.context import close_context, new_context
from towline.link.endpoints import parse, tcp_endpoint
from towline.link.handshake import BAD_FRAME
from towline.link.server import Request, Sent, Server
from towline.log.files.config_file import ConfigFile
from towline.log.state.floors import LOG_END, QUEUE_FLOORS
from towline.log.state.topics_file import NAME as TOPICS
from towline.log.state.topics_file import TopicsConfig
from towline.node.peers.handshake import own_facts
from towline.node.peers.master_link import MasterLink
from towline.node.peers.peer_server import NOT_MASTER, PEER, PeerServer
from towline.node.process.context import Node
from towline.node.process.curve_keys import key_ring_of
from towline.node.process.endpoints import ha_endpoints, local_endpoint
from towline.runtime.doorbell import Doorbell
from towline.runtime.idle_sleep import IdleSleep
from towline.runtime.positions import Counter, Duty, Position

from .rocketmq.metadata import RocketmqMetadata

ANSWER_MS: Final = 5000  # beyond the time for which a question is held
ASK_AGAIN_MS: Final = 10
QUESTIONS_PER_TURN: Final = 64
HIGH_WATER: Final = 64
_TROUBLE: Final = (MalformedFrame, MalformedFile, LinkRefused, DiskFull, StoreNotWritable, SyncFailed)
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}\.json")


class FollowAgent:
    """The duty cycle of the follow process."""

    duty: ClassVar[Duty] = Duty.FOLLOW

    def __init__(self, node: Node) -> None:
        self._node = node
        self._line = node.line
        self._have: dict[str, int] = {}
        # By name: the ends of the log that it speaks of, and contents, the oldest one that waits and the newest. A log
        # that is always behind the newest comes to the oldest all the same.
        self._held_back: dict[str, list[tuple[int, Any]]] = {}
        self._master_takes = ""
        self._asked_at: int | None = None
        self._next_at = 0
        self._patience_ms = ANSWER_MS + node.settings.metadata_interval_ms

    def on_start(self, bell: Doorbell) -> None:
        follows_rocketmq = self._node.settings.rocketmq_master_broker is not None
        self._link: MasterLink | RocketmqMetadata
        self._link = RocketmqMetadata(self._node, bell) if follows_rocketmq else MasterLink(self._node, bell)
        self._peer_server = PeerServer(self._node)
        self._context, self._other_context = new_context(), new_context()  # one ZAP handler each
        self._server = Server(
            self._context,
            ha_endpoints(self._node.settings, self._node.runtime, "slave"),
            own=own_facts(self._node, "ha"),
            keys=key_ring_of(self._node),
            greet=self._greet,
            counted=lambda: self._line.count(Counter.REFUSED),
            frame_size_max=MIB,
            high_water=HIGH_WATER,
        )
        self._refusing = Server(
            self._other_context,
            [local_endpoint(self._node.runtime, "put")],
            own=own_facts(self._node, "put"),
            greet=self._refuse,
            frame_size_max=MIB,
            high_water=HIGH_WATER,
        )
        for server in (self._server, self._refusing):
            self._link.watch(server)
        config = self._node.store.config
        self._have = {path.name: zlib.crc32(path.read_bytes()) for path in config.glob("*.json")}

    def adjust(self) -> None:
        self._link.adjust()

    def do_work(self) -> int:
        now = self._node.clock.monotonic_ms()
        answered = self._answer_peers()
        return answered + self._follow(now)

    def _follow(self, now: int) -> int:
        try:
            self._apply_held_back()
            if not self._link.connected:
                return self._connect() if self._link.due(now) else 0
            done = self._receive_answers(now)
        except _TROUBLE as error:  # of the master, or of our own disk: it is asked again a little later
            self._link.disconnect(str(error))
            return 0
        if self._link.lost or (self._asked_at is not None and now - self._asked_at > self._patience_ms):
            self._link.disconnect("no answer about metadata")
            return 0
        hold_ms = self._node.settings.metadata_interval_ms
        asked = {"op": "metadata", "have": self._have, "hold_ms": hold_ms} | self._floors_wanted()
        question = [ASK.pack(Kind.ASK, now), json_part(asked)]
        if self._asked_at is None and now >= self._next_at and self._link.send(question):
            self._asked_at = now
        return done

    def sleep_ms(self) -> int:
        return LOOK_MS if self._link.connected else self._link.due_ms(self._node.clock.monotonic_ms())

    def wait(self, timeout_ms: int, rest: IdleSleep | None) -> bool:
        return self._link.wait(timeout_ms, rest)

    def drain(self) -> bool:
        return True

    def on_close(self) -> None:
        if hasattr(self, "_link"):
            self._link.close()
        if hasattr(self, "_refusing"):
            for server, context in ((self._server, self._context), (self._refusing, self._other_context)):
                server.close()
                close_context(context)

    # --- peers

    def _greet(self, facts: dict[str, Any]) -> dict[str, Any]:
        """Accepts peers; anybody else is refused with the name of the master, as far as it is known here."""
        if facts.get("role") != PEER:
            self._refuse(facts)
        return {"now": self._node.clock.now_ms()}

    def _refuse(self, _: dict[str, Any]) -> NoReturn:
        positions, own = self._node.positions, self._node.settings.broker_id
        epoch = max(positions.get(Position.EPOCH), positions.get(Position.PROMISED))
        known = f"the master of epoch {epoch} is node {node_of(epoch)}" if epoch else "it knows of no master"
        where = f", which takes them at {self._master_takes}" if self._link.connected and self._master_takes else ""
        raise LinkRefused(NOT_MASTER, f"node {own} is a slave and takes no messages; {known}{where}")

    def _answer_peers(self) -> int:
        self._refusing.receive()  # nobody is let in: that is done by the greeting
        done = 0
        while done < QUESTIONS_PER_TURN and (request := self._server.receive()) is not None:
            done += 1
            try:
                self._answer(request)
            except (MalformedFrame, MalformedFile) as error:
                self._reject(request, str(error))
            except (DiskFull, StoreNotWritable, SyncFailed) as error:  # a promise that cannot be kept is not given
                self._node.log.error("a peer gets no answer: %s", error)
        return done

    def _answer(self, request: Request) -> None:
        if kind_of(request.parts[0]) != Kind.ASK or len(request.parts) != 2:
            raise MalformedFrame(f"kind {kind_of(request.parts[0])} is no question of a peer")
        _, request_id = expect(ASK, request.parts[0])
        answer = self._peer_server.answer(read_json(request.parts[1]))
        parts = [ANSWER.pack(Kind.ANSWER, 0, request_id, 0), json_part(answer)]
        if self._server.send(request.peer, parts) is Sent.PAUSED:
            self._server.cut_unread(request.peer)

    def _reject(self, request: Request, why: str) -> None:
        self._line.count(Counter.REFUSED)
        self._node.log.warning("the link of a peer is cut: %s", why)
        self._server.refuse(request, LinkRefused(BAD_FRAME, why))

    # --- the master

    def _connect(self) -> int:
        """Connects to the master. A slave with an empty log may ask for metadata, so its store id is not compared."""
        facts = own_facts(self._node, "follower") | {"store": ""}
        self._asked_at, self._next_at = None, 0
        for name in self._held_back:  # of another link, or another master
            self._have.pop(name, None)
        self._held_back.clear()
        return int(self._link.connect(facts, self._on_welcome))

    def _on_welcome(self, welcome: dict[str, Any]) -> None:
        """Notes where the master takes messages, on the host where it was found, for producers that connect here."""
        found, port = parse(self._link.address), welcome.get("listen_port")
        self._master_takes = tcp_endpoint(found.host, port) if isinstance(port, int) and port else ""

    def _floors_wanted(self) -> dict[str, int]:
        """A request for queue floors, once, for a log that begins in the middle of the master's."""
        positions = self._node.positions
        start = positions.get(Position.LOG_MIN)
        if positions.get(Position.APPENDED) == start:  # where it begins is not settled yet
            return {}
        known = (self._node.store.config / QUEUE_FLOORS).exists()
        return {} if known or not start else {"floors_at": start}

    def _receive_answers(self, now: int) -> int:
        done = 0
        while (parts := self._link.receive()) is not None:
            if kind_of(parts[0]) != Kind.ANSWER or len(parts) != 2:
                raise MalformedFrame("the master answered metadata with something else")
            files = read_json(parts[1]).get("files", {})
            if not isinstance(files, dict):
                raise MalformedFrame(f"the master's metadata files are {type(files).__name__}")
            for name, text in files.items():
                self._accept_file(str(name), str(text))
            self._asked_at, self._next_at = None, now + ASK_AGAIN_MS
            done += 1
        return done

    def _accept_file(self, name: str, text: str) -> None:
        if not _NAME.fullmatch(name):
            raise MalformedFrame(f"the master sent a metadata file named {name!r}")
        path = self._node.store.config / name
        try:
            content = loads_fastjson(text, str(path))
        except RecursionError:
            raise MalformedFrame(f"the master's {name} is nested too deeply") from None
        end = content.get(LOG_END, 0) if isinstance(content, dict) else 0
        if type(end) is not int:
            raise MalformedFrame(f"the master's {name} speaks of the log to {end!r}")
        self._have[name] = zlib.crc32(text.encode())
        if end > self._node.positions.get(Position.FLUSHED):
            self._held_back[name] = [*self._held_back.get(name, [])[:1], (end, content)]
        else:
            self._held_back.pop(name, None)
            self._save_file(name, content)

    def _apply_held_back(self) -> None:
        """Saves delivery progress when this log holds it on disk: after a promotion messages would be lost
        otherwise."""
        flushed = self._node.positions.get(Position.FLUSHED) if self._held_back else 0
        for name, waiting in list(self._held_back.items()):
            ready = [content for end, content in waiting if end <= flushed]
            if ready:
                self._held_back[name] = waiting[len(ready) :]
                if not self._held_back[name]:
                    del self._held_back[name]
                self._save_file(name, ready[-1])

    def _save_file(self, name: str, content: Any) -> None:
        if name == FILTERS:
            content = without_births(content)
        kind = TopicsConfig if name == TOPICS else ConfigFile
        try:
            kind(self._node.store.config / name).save(content)
        except (DiskFull, StoreNotWritable, SyncFailed):
            self._have.pop(name, None)
            raise
        self._line.count(Counter.BATCHES)


def build(node: Node) -> FollowAgent:
    return FollowAgent(node)
