"""Administration of all groups of nodes of a cluster."""

from collections.abc import Callable
from datetime import datetime
from types import TracebackType
from typing import Any, Literal, Self, TypeVar

from towline.client.link.endpoints import Endpoints
from towline.client.link.routes import GroupRoute, group_routes

from .admin import ALWAYS_MS, FOUND_MAX, AdminClient, Found
from .errors import UnknownGroup

Result = TypeVar("Result")


class ClusterAdmin:
    """Administers every group of nodes through its master; results are by the group's name. Used by one thread.

    `endpoint` is cluster:PATH or etcd:http://HOST:PORT/NAME. Half an answer is none: every call raises what
    `AdminClient` raises for any of the groups. What changes something has then changed it in the groups before, in the
    order of `names`, and may be called again.
    """

    def __init__(self, endpoint: Endpoints, *, name: str = "", cluster: str = "", timeout_ms: int = 5_000) -> None:
        """Raises InvalidEndpoint, UnreadableCluster, BadCluster, EtcdSilent."""
        self._facts: dict[str, Any] = {"name": name, "cluster": cluster, "timeout_ms": timeout_ms}
        self._ways: dict[str, GroupRoute] = {way.name: way for way in group_routes(endpoint)}
        self._clients: dict[str, AdminClient] = {}

    @property
    def names(self) -> list[str]:
        """The names of the groups of nodes."""
        return list(self._ways)

    def of(self, broker_name: str) -> AdminClient:
        """The client of one group alone. Raises UnknownGroup."""
        if broker_name not in self._ways:
            raise UnknownGroup(broker_name, ", ".join(self.names))
        if broker_name not in self._clients:
            endpoints = self._ways[broker_name].endpoints
            self._clients[broker_name] = AdminClient(endpoints, masters_only=True, **self._facts)
        return self._clients[broker_name]

    # --- topics

    def topics(self) -> dict[str, list[dict[str, Any]]]:
        """Group of nodes -> its topics, as `AdminClient.topics`."""
        return self._each(AdminClient.topics)

    def create_topic(self, topic: str, queues: int, **more: Any) -> dict[str, dict[str, Any]]:
        """Makes the topic with so many queues in every group. A group that has it refuses: AskRefused TopicExists."""
        return self._each(lambda admin: admin.create_topic(topic, queues, **more))

    def alter_topic(self, topic: str, **changes: Any) -> dict[str, dict[str, Any]]:
        return self._each(lambda admin: admin.alter_topic(topic, **changes))

    def delete_topic(self, topic: str) -> dict[str, dict[str, Any]]:
        return self._each(lambda admin: admin.delete_topic(topic))

    def bounds(self, topic: str) -> dict[str, dict[int, tuple[int, int]]]:
        """Group of nodes -> queue id -> lowest offset, and the offset after the newest message."""
        return self._each(lambda admin: admin.bounds(topic))

    # --- messages

    def by_key(
        self,
        topic: str,
        key: str,
        *,
        begin: datetime | int = 0,
        end: datetime | int = ALWAYS_MS,
        max_count: int = FOUND_MAX,
    ) -> dict[str, Found]:
        """Group of nodes -> messages with this key, at most `max_count` of each."""
        return self._each(lambda admin: admin.by_key(topic, key, begin=begin, end=end, max_count=max_count))

    def by_unique_key(
        self,
        topic: str,
        unique_key: str,
        *,
        begin: datetime | int = 0,
        end: datetime | int = ALWAYS_MS,
        max_count: int = FOUND_MAX,
    ) -> dict[str, Found]:
        """Group of nodes -> messages with this unique key, at most `max_count` of each."""
        return self._each(
            lambda admin: admin.by_unique_key(topic, unique_key, begin=begin, end=end, max_count=max_count)
        )

    # --- consumer groups

    def groups(self, *, lag: bool = False) -> dict[str, list[dict[str, Any]]]:
        """Group of nodes -> its consumer groups, as `AdminClient.groups`."""
        return self._each(lambda admin: admin.groups(lag=lag))

    def describe_group(self, group: str) -> dict[str, dict[str, Any]]:
        return self._each(lambda admin: admin.describe_group(group))

    def group_offsets(self, group: str, *topics: str) -> dict[str, dict[str, dict[int, int]]]:
        """Group of nodes -> topic -> queue id -> the offset at which the group goes on, -1 for none."""
        return self._each(lambda admin: admin.group_offsets(group, *topics))

    def reset_offsets(
        self, group: str, topic: str, to: Literal["first", "last"] | datetime | int
    ) -> dict[str, dict[int, int]]:
        """Group of nodes -> queue id -> offset, as `AdminClient.reset_offsets`."""
        return self._each(lambda admin: admin.reset_offsets(group, topic, to))

    def configure_group(self, group: str, **settings: Any) -> dict[str, dict[str, Any]]:
        return self._each(lambda admin: admin.configure_group(group, **settings))

    def delete_group(self, group: str) -> dict[str, list[str]]:
        return self._each(lambda admin: admin.delete_group(group))

    def close(self) -> None:
        for client in self._clients.values():
            client.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _each(self, ask: Callable[[AdminClient], Result]) -> dict[str, Result]:
        return {name: ask(self.of(name)) for name in self.names}
