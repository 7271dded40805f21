"""Clients by what their heartbeats say: who they are, which producer groups they belong to (spec 11.3).

A client is known on the connection of its last heartbeat, until that ends or it unregisters. Whoever sent a half can be
checked before its first heartbeat: Java's producers have that up to 30 s later, since they open no connection for a
broker whose address they have one to, as to the name server that this port is as well.

What is kept of all heartbeats has bounds, in bytes and in members of groups. A heartbeat that would go beyond is
refused; one that says no more than its client's last one never is.
"""

import random
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from towline.format.remoting.codes import RequestRefused, ResponseCode
from towline.format.remoting.command import Command
from towline.format.remoting.consumers import Heartbeat
from towline.format.remoting.headers import UnregisterClient
from towline.limits import KIB, MIB
from towline.runtime.remoting_counts import RemotingCounts, Total

from .connections import Connection

CLIENTS_MAX: Final = 64  # of one connection
KEPT_MAX: Final = 64 * MIB  # of what heartbeats say, as `cost_of` has it
MEMBERS_MAX: Final = 10_000  # of consumer groups, a client counting once in each: serve takes as many
CLIENT_ID_SHOWN: Final = 100  # characters of it in a refusal
_CLIENT_COST: Final = 2 * KIB
_GROUP_COST: Final = 512  # of producers
_MEMBER_COST: Final = 4 * KIB  # with what is asked for it
_SUBSCRIPTION_COST: Final = 512


@dataclass(slots=True, eq=False)
class Client:
    """One client: `language` and `version` are those of its commands, `heard_ms` when its last heartbeat came."""

    client_id: str
    connection: Connection
    language: str
    version: int
    producer_groups: set[str] = field(default_factory=set)
    consumer_groups: set[str] = field(default_factory=set)
    cost: int = 0  # in bytes, of what is kept
    heard_ms: int = 0

    @property
    def address(self) -> str:
        return f"{self.connection.peer[0]}:{self.connection.peer[1]}"


class Clients:
    """All clients that are known."""

    def __init__(self, counts: RemotingCounts) -> None:
        self._counts = counts
        self._kept = 0  # bytes
        self._members = 0  # of consumer groups
        self._known: dict[str, Client] = {}
        self._producers: dict[str, set[Client]] = {}
        self._senders: dict[str, Connection] = {}  # of halves, by their producer group: the last one
        self.group_changes = 1  # of `producer_groups`

    def __len__(self) -> int:
        return len(self._known)

    @property
    def producer_groups(self) -> list[str]:
        """Those of which a producer can be checked."""
        return list(dict.fromkeys([*self._producers, *self._senders]))

    def producer_of(self, group: str, may: Callable[[Connection], bool] = lambda connection: True) -> Connection | None:
        """The connection of any client of a producer group that `may` be asked; before their first heartbeat, of who
        sent a half."""
        found = [client.connection for client in self._producers.get(group, ()) if may(client.connection)]
        sender = self._senders.get(group)
        if not found and sender is not None and may(sender):
            return sender
        return random.choice(found) if found else None

    def producers_of(self, group: str) -> list[Client]:
        """All clients of a producer group, by their ids."""
        return sorted(self._producers.get(group, ()), key=lambda client: client.client_id)

    def find(self, client_id: str) -> Client | None:
        return self._known.get(client_id)

    def connection_of(self, client_id: str) -> Connection | None:
        found = self._known.get(client_id)
        return None if found is None else found.connection

    def sent_half(self, connection: Connection, group: str) -> None:
        """Notes who sent a half of a producer group. What is too much for one connection waits for a heartbeat."""
        before, cost = self._senders.get(group), _half_cost(group)
        if before is connection or len(connection.half_groups) >= CLIENTS_MAX:
            return
        if before is None and self._kept + cost > KEPT_MAX:
            return
        if before is None:
            self.group_changes += 1
            self._keep(cost)
        else:
            before.half_groups.discard(group)
        self._senders[group] = connection
        connection.half_groups.add(group)

    def heartbeat(self, connection: Connection, request: Command, heartbeat: Heartbeat) -> None:
        """Notes what a HEART_BEAT says. Raises RequestRefused, and has noted nothing then."""
        client_id, groups = heartbeat.client_id, set(heartbeat.producer_groups)
        client, cost = self._known.get(client_id), cost_of(heartbeat)
        _check_key(client, connection)
        moves = client is None or client.connection is not connection
        if moves and len(connection.client_ids) >= CLIENTS_MAX:
            raise RequestRefused(ResponseCode.SYSTEM_ERROR, f"{CLIENTS_MAX} clients are on this connection already")
        self._check_room(client, cost, len(heartbeat.consumers))
        if client is not None and moves:
            self._forget(client)
        if client is None or moves:
            client = self._known[client_id] = Client(client_id, connection, request.language, request.version)
            connection.client_ids.add(client_id)
        for group in groups - client.producer_groups:
            self._join(client, group)
        for group in client.producer_groups - groups:
            self._leave(client, group)
        self._members += len(heartbeat.consumers) - len(client.consumer_groups)
        self._keep(cost - client.cost)
        client.cost, client.producer_groups, client.consumer_groups = cost, groups, set(heartbeat.consumers)
        client.heard_ms = time.time_ns() // 1_000_000

    def _check_room(self, client: Client | None, cost: int, members: int) -> None:
        """Raises RequestRefused where a client says more than before and there is no room for it."""
        cost_before, members_before = (0, 0) if client is None else (client.cost, len(client.consumer_groups))
        kept, known = self._kept + cost - cost_before, self._members + members - members_before
        if cost > cost_before and kept > KEPT_MAX:
            why = f"heartbeats would take {kept} bytes here, and {KEPT_MAX} are kept of all clients"
            raise RequestRefused(ResponseCode.SYSTEM_BUSY, f"{why}: start fewer clients, or subscribe to less")
        if members > members_before and known > MEMBERS_MAX:
            why = f"clients would be members of {known} groups in all here, and {MEMBERS_MAX} are taken"
            raise RequestRefused(ResponseCode.SYSTEM_BUSY, f"{why}: start fewer clients, or with fewer groups")

    def unregister(self, connection: Connection, header: UnregisterClient) -> None:
        """Takes a client out of the groups that UNREGISTER_CLIENT names; one without groups is forgotten. Raises
        RequestRefused."""
        client = self._known.get(header.client_id)
        _check_key(client, connection)
        if client is None:
            return
        self._forget_sender(client.connection, header.producer_group)
        if header.producer_group in client.producer_groups:
            client.producer_groups.discard(header.producer_group)
            self._leave(client, header.producer_group)
        if header.consumer_group in client.consumer_groups:
            client.consumer_groups.discard(header.consumer_group)
            self._members -= 1
        if not client.producer_groups and not client.consumer_groups:
            self._forget(client)

    def ended(self, connection: Connection) -> None:
        """Forgets whoever was on a connection."""
        for group in list(connection.half_groups):
            self._forget_sender(connection, group)
        for client_id in list(connection.client_ids):
            client = self._known.get(client_id)
            if client is not None and client.connection is connection:
                self._forget(client)

    def _forget_sender(self, connection: Connection, group: str) -> None:
        if group in connection.half_groups:
            connection.half_groups.discard(group)
            del self._senders[group]
            self._keep(-_half_cost(group))
            self.group_changes += 1

    def _forget(self, client: Client) -> None:
        for group in client.producer_groups:
            self._leave(client, group)
        client.connection.client_ids.discard(client.client_id)
        del self._known[client.client_id]
        self._members -= len(client.consumer_groups)
        self._keep(-client.cost)

    def _keep(self, cost: int) -> None:
        self._kept += cost
        self._counts.set(Total.KEPT, self._kept)
        self._counts.set(Total.CLIENTS, len(self._known))

    def _join(self, client: Client, group: str) -> None:
        if group not in self._producers:
            self._producers[group] = set()
            self.group_changes += 1
        self._producers[group].add(client)

    def _leave(self, client: Client, group: str) -> None:
        members = self._producers.get(group, set())
        members.discard(client)
        if not members and self._producers.pop(group, None) is not None:
            self.group_changes += 1


def _check_key(client: Client | None, connection: Connection) -> None:
    """Raises RequestRefused where a client is there with another key than who speaks for it: it would lose its groups,
    and its replies to who asks. Without keys everybody is believed."""
    if client is None or client.connection is connection or not client.connection.is_open:
        return
    known, shown = client.connection.key, connection.key
    if known is not None and shown is not None and known.name != shown.name:
        why = f"the client {client.client_id[:CLIENT_ID_SHOWN]!r} is connected with another key than {shown.name!r}"
        raise RequestRefused(ResponseCode.NO_PERMISSION, why)


def cost_of(heartbeat: Heartbeat) -> int:
    """Bytes of memory that are taken for as long as a client says this."""
    texts = [heartbeat.client_id, *heartbeat.producer_groups]
    subscriptions = 0
    for group, data in heartbeat.consumers.items():
        subscriptions += len(data.subscriptions)
        texts += [group, *data.facts.values(), *data.subscriptions]
        texts += [each.expression for each in data.subscriptions.values()]
    objects = len(heartbeat.producer_groups) * _GROUP_COST + len(heartbeat.consumers) * _MEMBER_COST
    return _CLIENT_COST + objects + subscriptions * _SUBSCRIPTION_COST + sum(map(sys.getsizeof, texts))


def _half_cost(group: str) -> int:
    return _GROUP_COST + sys.getsizeof(group)
