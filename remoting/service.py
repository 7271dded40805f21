"""The duty cycle of remoting: connections, what they ask for, the ways to put and to schedule."""

import gc
import ipaddress
import time
from dataclasses import replace
from functools import partial
from typing import Any, ClassVar, Final

from towline.format.record.message_id import encode_offset_id
from towline.format.record.record import Host
from towline.format.remoting.codes import RequestCode, ResponseCode
from towline.format.remoting.command import Command
from towline.format.remoting.consumers import read_heartbeat
from towline.format.remoting.headers import UnregisterClient, read_header
from towline.format.remoting.routes import Broker
from towline.format.remoting.stored import BrokerFacts
from towline.kernels.remoting import turns
from towline.limits import KIB, MIB
from towline.link.context import close_context, new_context
from towline.link.dealer import Link
from towline.link.poller import Poller
from towline.link.put_ring import ClientRing
from towline.log.state.topics_file import TopicsFile
from towline.node.peers.handshake import own_facts
from towline.node.peers.local_links import LocalLink
from towline.node.process.context import Node
from towline.node.process.curve_keys import key_ring_of
from towline.node.process.endpoints import local_endpoint
from towline.runtime.doorbell import Doorbell
from towline.runtime.idle_sleep import IdleSleep
from towline.runtime.positions import Counter, Duty
from towline.runtime.remoting_counts import RemotingCounts
from towline.runtime.settings_model import BrokerRole

from .access import Access
from .admin import Admin
from .assignments import Assignments
from .client_calls import ClientCalls
from .clients import Clients
from .connections import Answer, Connection, Connections
from .consumers import Consumers
from .copied_files import CopiedFiles
from .group_offsets import GroupOffsets
from .group_search import GroupSearch
from .inbox import Inbox
from .log_reads import LogReads
from .name_server import NameServerAgent
from .names import Names
from .own_pulls import OwnPulls
from .plain_sends import PlainSends
from .pop_acks import PopAcks
from .pop_subjects import Subjects
from .pops import Pops
from .producers import Producers
from .put_client import DEADLINE_MS, PutClient
from .questions import Questions
from .read_from import FromMaster
from .readers import Readers
from .refused import refuse
from .replies import Replies
from .requests import Handler, Requests, alone
from .send_backs import SendBacks
from .slave_brokers import SlaveBrokers
from .tls import Security
from .topics import EVERY_MS, TopicDesk
from .traffic import Traffic
from .transactions import Transactions
from .tunnels import PUT, SCHEDULE, SERVE, SOCKETS_MAX, Tunnels

SILENT_EVERY_MS: Final = 1_000
LINKS_EVERY_MS: Final = 2
STAY_MS: Final = 5  # for clients that ask again and again, before all else is looked at


class RemotingAgent:
    """The duty cycle of remoting."""

    duty: ClassVar[Duty] = Duty.REMOTING

    def __init__(self, node: Node) -> None:
        self._node = node
        self._line = node.line
        self._silent_at = self._topics_at = self._links_at = 0
        self._listens = True
        self._known_changes = 0

    def on_start(self, bell: Doorbell) -> None:
        node, settings = self._node, self._node.settings
        self._bell = bell
        self._context = new_context(SOCKETS_MAX)
        counts = RemotingCounts(node.positions)
        self._clients = Clients(counts)
        self._access = Access(key_ring_of(node))
        self._connections = Connections(
            settings.remoting_addresses,
            lambda connection, data: self._inbox.take(connection, data),
            lambda: self._put.is_full,
            Security.of(settings),
            counts,
        )
        self._poller = Poller(bell.fileno(), self._connections.fileno())
        self._put = PutClient(
            self._link("put"),
            self._poller,
            node.clock.now_ms,
            self._make_plain,
            self._connections.deliver,
            self._connections.lose,
            node.log,
        )
        self._inbox = Inbox(
            self._put, lambda *came: self._requests.handle(*came), partial(self._line.count, Counter.MESSAGES)
        )
        self._schedule = Questions(self._link("schedule"), KIB)
        self._serve = Questions(self._link("serve"), MIB, self._serve_lost)
        self._link_cycles = (self._put.cycle_link, self._schedule.cycle, self._serve.cycle)
        self._serve_consumers()
        self._serve_tools()
        self._serve_own_clients()
        handlers = self._for_all() | self._for_producers() | self._for_consumers() | self._for_pops()
        handlers[RequestCode.TOWLINE] = self._tunnels.handle
        handlers |= self._brokers.handlers() | CopiedFiles(node).handlers()
        names = Names(self._topics, settings)
        for of_tools in (names.placed(), names.handlers(), self._admin.handlers()):
            handlers |= {code: alone(handle) for code, handle in of_tools.items()}
        self._requests = Requests(self._connections, self._line, self._access, handlers, refuse, self._calls.answered)
        gc.freeze()

    def _serve_consumers(self) -> None:
        node, settings = self._node, self._node.settings
        self._search = GroupSearch(node)
        self._search.begin()
        self._brokers = SlaveBrokers(node, self._where)
        self._topics = TopicDesk(TopicsFile(node.store.config / "topics.json"), self._put, self._broker, settings)
        self._topics.refresh()
        self._traffic = Traffic(node.runtime.put_stats)
        self._log_reads = LogReads(node, self._tell_read)
        self._readers = Readers(
            self._serve,
            self._topics,
            lambda group, topic: self._consumers.subscription(group, topic),
            lambda *commit: self._offsets.commit(*commit),
            FromMaster(self._search),
            self._traffic.pulled,
            self._log_reads,
            filters=settings.enable_property_filter,
        )
        self._offsets = GroupOffsets(self._serve, self._readers)
        self._consumers = Consumers(self._serve, self._topics, self._connections, settings.broker_name, node.log)
        self._calls = ClientCalls(self._connections)
        self._subjects = Subjects(self._serve, self._topics, node.log)
        clocks = node.clock.monotonic_ms, node.clock.now_ms
        self._pops = Pops(self._serve, self._readers, self._topics, self._subjects, settings.broker_name, *clocks)
        self._pop_acks = PopAcks(self._put, self._readers, self._topics, self._subjects, self._pops, *clocks, node.log)

    def _serve_tools(self) -> None:
        node = self._node
        self._admin = Admin(
            node,
            self._serve,
            self._topics,
            self._clients,
            self._consumers,
            self._connections,
            self._readers,
            self._calls,
            self._traffic,
            self._pops.forget,
            self._where,
        )

    def _serve_own_clients(self) -> None:
        node = self._node
        self._tunnels = Tunnels(
            self._context,
            self._poller,
            {name: self._local(name) for name in (PUT, SERVE, SCHEDULE)},
            self._put,
            self._connections,
            key_ring_of(node),
            node.clock.now_ms,
            node.log,
            self._topics,
            OwnPulls(self._topics, self._log_reads),
        )

    def _for_all(self) -> dict[int, Handler]:
        return {
            RequestCode.UPDATE_AND_CREATE_TOPIC: alone(self._topics.make),
            RequestCode.UPDATE_AND_CREATE_TOPIC_LIST: alone(self._topics.make_list),
            RequestCode.HEART_BEAT: self._heartbeat,
            RequestCode.UNREGISTER_CLIENT: self._unregister,
            RequestCode.QUERY_MESSAGE: alone(self._readers.query),
            RequestCode.VIEW_MESSAGE_BY_ID: alone(self._readers.view),
        }

    def _make_plain(self, ring: ClientRing, size: int) -> PlainSends | None:
        """The way of plain sends; none where each record gets a CRC of its own, or each request is signed."""
        settings, welcome = self._node.settings, self._put.welcome
        if welcome.get("append_property_crc") or not self._access.is_open:
            return None
        return PlainSends(
            ring,
            size,
            cluster=settings.broker_cluster_name,
            store_host=Host(ipaddress.ip_address(settings.broker_ip1).packed, settings.listen_port),
            store_ipv6=bool(welcome.get("store_host_ipv6")),
            wall_ms=self._node.clock.now_ms,
            deadline_ms=DEADLINE_MS,
            refused=self._connections.counts.refused,
        )

    def _for_producers(self) -> dict[int, Handler]:
        node, settings = self._node, self._node.settings
        host = Host(ipaddress.ip_address(settings.broker_ip1).packed, settings.listen_port)
        producers = Producers(
            self._put,
            self._topics,
            self._facts_of_broker,
            settings.broker_name,
            host,
            node.clock.now_ms,
            self._clients.sent_half,
        )
        replies = Replies(producers, self._clients, self._connections, self._where, node.log)
        self._transactions = Transactions(
            self._schedule, self._clients, self._connections, lambda place: encode_offset_id(host, place), node.log
        )
        return {
            RequestCode.SEND_MESSAGE: producers.send,
            RequestCode.SEND_MESSAGE_V2: producers.send,
            RequestCode.SEND_BATCH_MESSAGE: producers.send,
            RequestCode.RECALL_MESSAGE: producers.recall,
            RequestCode.SEND_REPLY_MESSAGE: replies.reply,
            RequestCode.SEND_REPLY_MESSAGE_V2: replies.reply,
            RequestCode.END_TRANSACTION: alone(self._transactions.end),
        }

    def _for_consumers(self) -> dict[int, Handler]:
        readers, consumers = self._readers, self._consumers
        send_backs = SendBacks(self._put, self._topics, readers, self._facts_of_broker)
        return {
            RequestCode.PULL_MESSAGE: alone(readers.pull),
            RequestCode.LITE_PULL_MESSAGE: alone(readers.pull),
            RequestCode.GET_MAX_OFFSET: alone(readers.bound),
            RequestCode.GET_MIN_OFFSET: alone(readers.bound),
            RequestCode.SEARCH_OFFSET_BY_TIMESTAMP: alone(readers.search),
            RequestCode.GET_EARLIEST_MSG_STORETIME: alone(readers.earliest),
            RequestCode.QUERY_CONSUMER_OFFSET: alone(self._offsets.offset),
            RequestCode.UPDATE_CONSUMER_OFFSET: alone(self._offsets.update_offset),
            RequestCode.GET_CONSUMER_LIST_BY_GROUP: alone(consumers.members),
            RequestCode.CHECK_CLIENT_CONFIG: alone(readers.check_filter),
            RequestCode.LOCK_BATCH_MQ: alone(consumers.lock),
            RequestCode.UNLOCK_BATCH_MQ: alone(consumers.unlock),
            RequestCode.CONSUMER_SEND_MSG_BACK: alone(send_backs.send_back),
        }

    def _for_pops(self) -> dict[int, Handler]:
        assignments = Assignments(self._serve, self._topics, self._consumers, self._node.settings.broker_name)
        return {
            RequestCode.QUERY_ASSIGNMENT: alone(assignments.query),
            RequestCode.SET_MESSAGE_REQUEST_MODE: alone(assignments.set_mode),
            RequestCode.POP_MESSAGE: alone(self._pops.pop),
            RequestCode.NOTIFICATION: alone(self._pops.notify),
            RequestCode.POLLING_INFO: alone(self._pops.polling),
            RequestCode.ACK_MESSAGE: alone(self._pop_acks.ack),
            RequestCode.BATCH_ACK_MESSAGE: alone(self._pop_acks.ack_all),
            RequestCode.CHANGE_MESSAGE_INVISIBLETIME: alone(self._pop_acks.extend),
        }

    def adjust(self) -> None:
        self._topics.adjust(self._node.settings)
        self._log_reads.adjust()

    def do_work(self) -> int:
        now_ms = self._node.clock.monotonic_ms()
        if now_ms >= self._topics_at:
            self._topics_at = now_ms + EVERY_MS
            self._links_at = 0  # an end of theirs wakes nobody
            self._topics.refresh()
        if self._topics.changes != self._known_changes:
            self._known_changes = self._topics.changes
            if self._put.plain is not None:
                self._put.plain.forget_topics()
        self._put.disarm()
        done = self._put.cycle(now_ms) + self._cycle_links(now_ms)
        asked = self._serve_clients(now_ms)
        self._transactions.cycle(now_ms)
        self._consumers.cycle(now_ms)
        self._calls.cycle(now_ms)
        self._traffic.cycle(now_ms)
        self._offsets.cycle(now_ms)
        if self._log_reads.cycle(now_ms):
            self._connections.hold_files()
            self._tunnels.close_files()
        self._pops.cycle(now_ms)
        self._pop_acks.cycle(now_ms)
        self._subjects.cycle(now_ms)
        self._connections.flush()
        done += self._tunnels.go_on()
        if now_ms >= self._silent_at:
            self._silent_at = now_ms + SILENT_EVERY_MS
            self._connections.drop_silent(time.monotonic())
            self._admin.look()
        self._forget_dropped()
        if asked:
            done += asked + self._stay()
        # Where everything was done that is there, another turn would only find that out: whatever comes ends the sleep.
        return 0 if self._put.may_sleep and not self._connections.are_stalled else done

    def _serve_clients(self, now_ms: int) -> int:
        """Takes what has arrived, and the answers of put that come at once; returns how much of what has arrived."""
        if self._put.is_full:
            return 0
        asked = self._connections.cycle()
        self._put.await_answer()
        self._put.cycle(now_ms)
        return asked

    def _stay(self) -> int:
        """Has a kernel serve those who ask again at once, for STAY_MS at most. Returns how much it was."""
        clock, connections = self._node.clock, self._connections
        done, now_ms = 0, clock.monotonic_ms()
        until_ms = now_ms + STAY_MS
        while now_ms < until_ms:
            plain = self._put.plain
            if plain is None or self._put.is_full or connections.are_stalled:
                break
            why = plain.stay(connections, self._poller.descriptors, until_ms - now_ms)
            self._line.count(Counter.MESSAGES, plain.taken)
            now_ms = clock.monotonic_ms()
            if why == turns.LEFT:
                self._put.await_answer()
                self._put.cycle(now_ms)
            connections.flush()
            done += plain.taken + (why == turns.LEFT)
            if why == turns.SHOWN:
                self._poller.shown(plain.shown)
            if why != turns.LEFT:
                break
        return done

    def _cycle_links(self, now_ms: int) -> int:
        """Looks at the sockets that were readable, at all where nobody has polled for a while: a look costs as much as
        a send."""
        due = now_ms >= self._links_at
        if due:
            self._links_at = now_ms + LINKS_EVERY_MS
        done = 0
        for link, cycle in zip(self._links, self._link_cycles, strict=True):
            if due or (link is not None and self._poller.ready(link)):
                done += cycle(now_ms)
        for connection in self._requests.look_for_changes(now_ms):
            self._consumers.leave_what_is_not_permitted(connection)
        return done + self._tunnels.cycle(now_ms)

    def sleep_ms(self) -> int:
        """What a request needs to know of the topics is looked up before it: only members, pops and links are due by
        time."""
        if self._tunnels.are_greeting:
            return LINKS_EVERY_MS
        now_ms = self._node.clock.monotonic_ms()
        waits = self._consumers.are_due or self._transactions.pauses(now_ms) or not all(self._links)
        waits = waits or self._pops.are_due or bool(self._subjects.busy)
        waits = waits or self._offsets.are_due or self._log_reads.is_due
        return EVERY_MS if waits else self._access.look_ms

    def wait(self, timeout_ms: int, rest: IdleSleep | None) -> bool:
        self._listen(not self._put.is_full)
        if not self._put.arm():
            return False
        found = self._poller.poll(timeout_ms, rest)
        self._links_at = self._node.clock.monotonic_ms() + LINKS_EVERY_MS
        return found and self._poller.ready(self._bell.fileno())

    def drain(self) -> bool:
        """Nothing is owed: who is not answered when the connections end asks the next master."""
        self._offsets.flush()
        return True

    def on_close(self) -> None:
        if hasattr(self, "_put"):
            self._put.close()
            self._schedule.close()
            self._serve.close()
            self._traffic.close()
            self._log_reads.close()
        if hasattr(self, "_tunnels"):
            self._tunnels.close()
        if hasattr(self, "_connections"):
            self._connections.close()
            close_context(self._context)
        if hasattr(self, "_search"):
            self._search.close()

    def _listen(self, listens: bool) -> None:
        """Whether a client's request ends the sleep: not while put has no room for it."""
        if listens != self._listens:
            self._listens = listens
            change = self._poller.add if listens else self._poller.remove
            change(self._connections.fileno())

    # --- requests

    def _heartbeat(self, connection: Connection, request: Command, answer: Answer) -> None:
        said = read_heartbeat(request.json())
        self._consumers.check(said)
        self._clients.heartbeat(connection, request, said)
        joined = partial(answer, ResponseCode.SUCCESS)
        self._consumers.heard(said.client_id, connection, said.consumers.values(), joined)

    def _unregister(self, connection: Connection, request: Command, answer: Answer) -> None:
        header = read_header(UnregisterClient, request.fields)
        self._clients.unregister(connection, header)
        self._consumers.unregister(header.client_id, header.consumer_group)
        answer(ResponseCode.SUCCESS)

    def _tell_read(self, topic: str, rows: list[list[int]]) -> None:
        self._serve.ask("follow", {"topic": topic, "read": rows}, lambda found, rest: None)

    def _serve_lost(self) -> None:
        self._consumers.lost()
        self._subjects.lost()

    def _forget_dropped(self) -> None:
        while self._connections.dropped:
            connection, why = self._connections.dropped.popleft()
            self._clients.ended(connection)
            self._consumers.ended(connection)
            self._tunnels.ended(connection)
            self._brokers.ended(connection)
            self._node.log.info("the connection of %s:%d ends: %s", *connection.peer, why)

    def _broker(self) -> Broker:
        """The group, with the slaves as they were found last, and those of RocketMQ."""
        self._search.begin()
        found = self._search.broker
        return replace(found, addresses={**self._brokers.addresses, **found.addresses})

    @property
    def _links(self) -> tuple[Link | None, ...]:
        return self._put.link, self._schedule.link, self._serve.link

    @property
    def _where(self) -> str:
        return f"{self._node.settings.broker_ip1}:{self._node.settings.listen_port}"

    @property
    def _facts_of_broker(self) -> BrokerFacts:
        settings = self._node.settings
        return BrokerFacts(settings.broker_cluster_name, len(settings.delay_levels_ms), settings.timer_max_delay_sec)

    def _link(self, service: str) -> LocalLink:
        node = self._node
        return LocalLink(self._context, self._local(service), self._facts, self._poller, node.log)

    def _local(self, service: str) -> str:
        return local_endpoint(self._node.runtime, service)

    def _facts(self) -> dict[str, Any]:
        return own_facts(self._node, "producer")


def build(node: Node) -> RemotingAgent | NameServerAgent:
    return NameServerAgent(node) if node.settings.broker_role is BrokerRole.SLAVE else RemotingAgent(node)
