"""What RocketMQ's consumers read from a slave: messages, bounds, offsets of groups; commits go on to the master."""

from typing import Any

from towline.format.remoting.codes import RequestCode
from towline.format.remoting.routes import slave_id
from towline.limits import MIB
from towline.link.context import close_context, new_context
from towline.link.poller import Poller
from towline.node.peers.handshake import own_facts
from towline.node.peers.local_links import LocalLink
from towline.node.process.context import Node
from towline.node.process.endpoints import local_endpoint
from towline.runtime.remoting_counts import RemotingCounts

from .connections import Connection
from .group_offsets import GroupOffsets
from .group_search import GroupSearch
from .questions import Questions
from .read_from import FromSlave
from .readers import Readers
from .replica_consumers import ReplicaConsumers
from .requests import Handler, alone
from .topics import TopicRoutes


class Replica:
    """The way to this node's serve."""

    def __init__(
        self, node: Node, poller: Poller, search: GroupSearch, topics: TopicRoutes, counts: RemotingCounts
    ) -> None:
        settings = node.settings
        self._context = new_context()
        endpoint = local_endpoint(node.runtime, "serve")

        def facts() -> dict[str, Any]:
            return own_facts(node, "consumer")

        self._serve = Questions(LocalLink(self._context, endpoint, facts, poller, node.log), MIB)
        self._consumers = ReplicaConsumers(counts)
        self._readers = Readers(
            self._serve,
            topics,
            self._consumers.subscription,
            lambda *commit: self._offsets.commit(*commit),
            FromSlave(slave_id(settings.broker_id), search),
            filters=settings.enable_property_filter,
        )
        self._offsets = GroupOffsets(self._serve, self._readers)

    def handlers(self) -> dict[int, Handler]:
        """By request code."""
        readers, consumers, offsets = self._readers, self._consumers, self._offsets
        return {
            RequestCode.HEART_BEAT: consumers.heartbeat,
            RequestCode.UNREGISTER_CLIENT: consumers.unregister,
            RequestCode.GET_CONSUMER_LIST_BY_GROUP: alone(consumers.members),
            RequestCode.CHECK_CLIENT_CONFIG: alone(readers.check_filter),
            RequestCode.PULL_MESSAGE: alone(readers.pull),
            RequestCode.LITE_PULL_MESSAGE: alone(readers.pull),
            RequestCode.GET_MAX_OFFSET: alone(readers.bound),
            RequestCode.GET_MIN_OFFSET: alone(readers.bound),
            RequestCode.SEARCH_OFFSET_BY_TIMESTAMP: alone(readers.search),
            RequestCode.GET_EARLIEST_MSG_STORETIME: alone(readers.earliest),
            RequestCode.QUERY_MESSAGE: alone(readers.query),
            RequestCode.VIEW_MESSAGE_BY_ID: alone(readers.view),
            RequestCode.QUERY_CONSUMER_OFFSET: alone(offsets.offset),
            RequestCode.UPDATE_CONSUMER_OFFSET: alone(offsets.update_offset),
        }

    def cycle(self, now_ms: int) -> int:
        self._offsets.cycle(now_ms)
        return self._serve.cycle(now_ms)

    @property
    def is_due(self) -> bool:
        """Whether `cycle` has something to do that wakes nobody."""
        return self._offsets.are_due

    def ended(self, connection: Connection) -> None:
        self._consumers.ended(connection)

    def close(self) -> None:
        self._serve.close()
        close_context(self._context)
