"""Forwards commits from a slave to its master; other questions are answered with the master's address.

The master is found by asking the peers. A thread waits for them and for the master, so that no pull waits.
"""

import threading
import time
from collections.abc import Mapping
from queue import SimpleQueue
from typing import Any, Final

from towline.errors import InvalidEndpoint, LinkRefused, MalformedFrame, NoAnswer, TowlineError
from towline.format.wire.frames import ANSWER, ASK, Kind, expect, json_part, kind_of, read_json
from towline.link.dealer import greet
from towline.link.keys import FORWARDER
from towline.link.poller import Poller
from towline.link.tcp_link import TcpLink
from towline.log.state.role_file import MASTER
from towline.node.peers.find_master import MasterFinder
from towline.node.peers.handshake import own_facts
from towline.node.peers.peer_server import NOT_MASTER
from towline.node.process.context import Node
from towline.node.process.curve_keys import key_of
from towline.node.process.endpoints import REMOTING

from .errors import GroupRefused, Refusal
from .watching import ReplyAddress

FORWARDED: Final = ("group_commit",)
WAITING_MAX: Final = 4_096
GREET_MS: Final = 500
ANSWER_MS: Final = 3_000
STEP_MS: Final = 100

Facts = Mapping[str, Any]
Done = tuple[ReplyAddress, Facts | TowlineError]


class NotMaster(GroupRefused):
    """`masters`: service name -> endpoints of the master, as far as they are known."""

    def __init__(self, op: str, masters: Mapping[str, list[str]]) -> None:
        super().__init__(Refusal.NOT_MASTER, f"this node is a slave, and {op} is for the master")
        self.masters = dict(masters)


class MasterRefused(GroupRefused):
    """The master's own refusal of a forwarded question, word for word."""

    def __init__(self, facts: Facts) -> None:
        super().__init__(Refusal.NOT_MASTER, str(facts.get("sentence", "")))
        self.facts = facts


class Forwarder:
    """The queue of the forwarding thread. `submit` and `finished` are for one thread; nothing runs before the first
    question."""

    def __init__(self, node: Node) -> None:
        self._jobs: SimpleQueue[tuple[ReplyAddress, Facts] | None] = SimpleQueue()
        self._done: SimpleQueue[Done] = SimpleQueue()
        self._waiting = 0
        self._master = MasterServe(node)
        self._log = node.log
        self._thread: threading.Thread | None = None

    @property
    def waiting(self) -> int:
        """The number of questions without an answer."""
        return self._waiting

    def submit(self, reply_to: ReplyAddress, question: Facts) -> None:
        """Raises NotMaster when too many wait."""
        if self._waiting >= WAITING_MAX:
            raise NotMaster(str(question["op"]), {})
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="forwarding", daemon=True)
            self._thread.start()
        self._waiting += 1
        self._jobs.put((reply_to, question))

    def finished(self) -> list[Done]:
        found = []
        while not self._done.empty():
            found.append(self._done.get())
        self._waiting -= len(found)
        return found

    def close(self) -> None:
        """Gives up the question under way."""
        self._master.stopping.set()
        if self._thread is not None:
            self._jobs.put(None)
            self._thread.join()
        self._master.close()

    def _run(self) -> None:
        while (job := self._jobs.get()) is not None:
            reply_to, question = job
            try:
                self._done.put((reply_to, self._master.answer(question)))
            except TowlineError as error:
                self._done.put((reply_to, error))
            except Exception:
                self._log.exception("a question for the master could not be forwarded")
                self._done.put((reply_to, NotMaster(str(question["op"]), {})))


class MasterServe:
    """A link to the serve process of the followed master, through its remoting port. Used by one thread."""

    def __init__(self, node: Node) -> None:
        self.stopping = threading.Event()
        self._node = node
        self._key = key_of(node)
        self._poller = Poller()
        self._link: TcpLink | None = None
        self._finder = MasterFinder(node, self.stopping)
        self._told = ""
        self._next_id = 0

    def answer(self, question: Facts) -> Facts:
        """The master's answer. Raises MasterRefused with its refusal; NotMaster where a question is not or cannot be
        forwarded."""
        masters = self._finder.find()
        if question["op"] not in FORWARDED:
            raise NotMaster(str(question["op"]), masters)
        for endpoint in masters.get(REMOTING, ()):
            try:
                return self._handle_question(endpoint, question)
            except (NoAnswer, LinkRefused, MalformedFrame, InvalidEndpoint) as error:
                self.close_link()
                self._finder.forget()
                self._log_once(f"commits cannot be forwarded: {error}")
        raise NotMaster(str(question["op"]), masters)

    def close(self) -> None:
        self.close_link()

    def close_link(self) -> None:
        if self._link is not None:
            self._poller.remove(self._link)
            self._link.close()
            self._link = None

    def _handle_question(self, endpoint: str, question: Facts) -> Facts:
        deadline = time.monotonic() + ANSWER_MS / 1000
        link = self._linked(endpoint)
        self._next_id += 1
        if not link.send([ASK.pack(Kind.ASK, self._next_id), json_part(dict(question))]):
            raise NoAnswer(endpoint, 0, "the link takes no question")
        while not link.lost and not self.stopping.is_set() and time.monotonic() < deadline:
            parts = link.receive()
            if parts is None:
                self._poller.poll(STEP_MS)
                continue
            if kind_of(parts[0]) != Kind.ANSWER or len(parts) != 2:
                raise MalformedFrame(f"kind {kind_of(parts[0])} in {len(parts)} parts answers no commit")
            _, status, request_id, _ = expect(ANSWER, parts[0])
            if request_id == self._next_id:
                self._told = ""
                facts = read_json(parts[1])
                if status:
                    raise MasterRefused(facts)
                return facts
        raise NoAnswer(endpoint, ANSWER_MS, "it does not answer a forwarded commit")

    def _linked(self, endpoint: str) -> TcpLink:
        link = self._link
        if link is not None and link.endpoint == endpoint and not link.has_ended:
            return link
        self.close_link()
        link = TcpLink(endpoint, own_facts(self._node, FORWARDER), key=self._key)
        try:
            _greet(link)
        except BaseException:
            link.close()
            raise
        self._link = link
        self._poller.add(link)
        self._node.log.info("commits of groups are forwarded to %s", endpoint)
        return link

    def _log_once(self, why: str) -> None:
        if why != self._told:
            self._told = why
            self._node.log.warning("%s", why)


def _greet(link: TcpLink) -> None:
    """Raises LinkRefused, also by a node that is no master, which might be ourselves; NoAnswer after GREET_MS."""
    role = greet(link, GREET_MS).get("broker_role")
    if role != MASTER:
        raise LinkRefused(NOT_MASTER, f"{link.endpoint} is no master but {role!r}")
