"""Consumers as a slave hears of them: it keeps no groups, but their heartbeats say what they read, and who they are."""

import json

from towline.format.remoting.codes import RequestRefused, ResponseCode
from towline.format.remoting.command import Command
from towline.format.remoting.consumers import ConsumerData, SubscriptionData, read_heartbeat
from towline.format.remoting.headers import ConsumerGroup, UnregisterClient, read_header
from towline.runtime.remoting_counts import RemotingCounts

from .clients import Clients
from .connections import Answer, Connection


class ReplicaConsumers:
    """Known from a client's heartbeat on until its connection ends or it unregisters."""

    def __init__(self, counts: RemotingCounts) -> None:
        self._clients = Clients(counts)
        self._of_group: dict[str, dict[str, ConsumerData]] = {}  # by group and client
        self._of_client: dict[str, set[str]] = {}  # groups

    def subscription(self, group: str, topic: str) -> SubscriptionData | None:
        """The newest that a member of the group told."""
        members = self._of_group.get(group, {}).values()
        found = [each.subscriptions[topic] for each in members if topic in each.subscriptions]
        return max(found, key=lambda each: each.version, default=None)

    def heartbeat(self, connection: Connection, request: Command, answer: Answer) -> None:
        """HEART_BEAT. Raises MalformedFrame, RequestRefused."""
        said = read_heartbeat(request.json())
        self._clients.heartbeat(connection, request, said)
        for group in self._of_client.get(said.client_id, set()) - said.consumers.keys():
            self._leave(group, said.client_id)
        for group, data in said.consumers.items():
            self._of_group.setdefault(group, {})[said.client_id] = data
            self._of_client.setdefault(said.client_id, set()).add(group)
        answer(ResponseCode.SUCCESS)

    def unregister(self, connection: Connection, request: Command, answer: Answer) -> None:
        """UNREGISTER_CLIENT. Raises MalformedFrame, RequestRefused."""
        header = read_header(UnregisterClient, request.fields)
        self._clients.unregister(connection, header)
        self._leave(header.consumer_group, header.client_id)
        answer(ResponseCode.SUCCESS)

    def members(self, request: Command, answer: Answer) -> None:
        """GET_CONSUMER_LIST_BY_GROUP, which is asked here while there is no master. Raises MalformedFrame,
        RequestRefused."""
        group = read_header(ConsumerGroup, request.fields).consumer_group
        if group not in self._of_group:
            raise RequestRefused(ResponseCode.SYSTEM_ERROR, f"no consumer for this group, {group}")
        answer(ResponseCode.SUCCESS, body=json.dumps({"consumerIdList": sorted(self._of_group[group])}).encode())

    def ended(self, connection: Connection) -> None:
        """Forgets whoever was on a connection."""
        for client_id in list(connection.client_ids):
            if self._clients.connection_of(client_id) is connection:
                for group in list(self._of_client.get(client_id, ())):
                    self._leave(group, client_id)
        self._clients.ended(connection)

    def _leave(self, group: str, client_id: str) -> None:
        members, groups = self._of_group.get(group, {}), self._of_client.get(client_id, set())
        members.pop(client_id, None)
        groups.discard(group)
        if not members:
            self._of_group.pop(group, None)
        if not groups:
            self._of_client.pop(client_id, None)
