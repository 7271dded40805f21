"""Clients by what their heartbeats say: who they are, which producer groups they belong to (spec 11.3).

A client is known on the connection of its last heartbeat, until that ends or it unregisters.
"""

import random
import time
from dataclasses import dataclass, field
from typing import Final

from towline.format.remoting.codes import RequestRefused, ResponseCode
from towline.format.remoting.command import Command
from towline.format.remoting.consumers import Heartbeat
from towline.format.remoting.headers import UnregisterClient

from .connections import Connection

CLIENTS_MAX: Final = 64  # of one connection


@dataclass(slots=True, eq=False)
class Client:
    """One client: `language` and `version` are those of its commands, `heard_ms` when its last heartbeat came."""

    client_id: str
    connection: Connection
    language: str
    version: int
    producer_groups: set[str] = field(default_factory=set)
    heard_ms: int = 0

    @property
    def address(self) -> str:
        return f"{self.connection.peer[0]}:{self.connection.peer[1]}"


class Clients:
    """All clients that are known."""

    def __init__(self) -> None:
        self._known: dict[str, Client] = {}
        self._producers: dict[str, set[Client]] = {}
        self.group_changes = 1  # of `producer_groups`

    def __len__(self) -> int:
        return len(self._known)

    @property
    def producer_groups(self) -> list[str]:
        return list(self._producers)

    def producer_of(self, group: str) -> Client | None:
        """Any client of a producer group."""
        found = self._producers.get(group)
        return random.choice(tuple(found)) if found else None

    def producers_of(self, group: str) -> list[Client]:
        """All clients of a producer group, by their ids."""
        return sorted(self._producers.get(group, ()), key=lambda client: client.client_id)

    def find(self, client_id: str) -> Client | None:
        return self._known.get(client_id)

    def connection_of(self, client_id: str) -> Connection | None:
        found = self._known.get(client_id)
        return None if found is None else found.connection

    def heartbeat(self, connection: Connection, request: Command, heartbeat: Heartbeat) -> None:
        """Notes what a HEART_BEAT says. Raises RequestRefused."""
        client_id, groups = heartbeat.client_id, set(heartbeat.producer_groups)
        client = self._known.get(client_id)
        if client is None or client.connection is not connection:
            if client is not None:
                self._forget(client)
            if len(connection.client_ids) >= CLIENTS_MAX:
                raise RequestRefused(ResponseCode.SYSTEM_ERROR, f"{CLIENTS_MAX} clients are on this connection already")
            client = self._known[client_id] = Client(client_id, connection, request.language, request.version)
            connection.client_ids.add(client_id)
        for group in groups - client.producer_groups:
            self._join(client, group)
        for group in client.producer_groups - groups:
            self._leave(client, group)
        client.producer_groups, client.heard_ms = groups, time.time_ns() // 1_000_000

    def unregister(self, header: UnregisterClient) -> None:
        """Takes a client out of the producer group that UNREGISTER_CLIENT names."""
        client = self._known.get(header.client_id)
        if client is None:
            return
        if header.producer_group in client.producer_groups:
            client.producer_groups.discard(header.producer_group)
            self._leave(client, header.producer_group)
        if not client.producer_groups:
            self._forget(client)

    def ended(self, connection: Connection) -> None:
        """Forgets whoever was on a connection."""
        for client_id in list(connection.client_ids):
            client = self._known.get(client_id)
            if client is not None and client.connection is connection:
                self._forget(client)

    def _forget(self, client: Client) -> None:
        for group in client.producer_groups:
            self._leave(client, group)
        client.connection.client_ids.discard(client.client_id)
        del self._known[client.client_id]

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
