"""What RocketMQ's tools ask for beside what clients do: by request, who handles it."""

from collections.abc import Callable
from typing import TypeAlias

from towline.format.remoting.codes import RequestCode
from towline.format.remoting.command import Command
from towline.node.process.context import Node

from .admin_groups import GroupAdmin
from .admin_node import NodeAdmin
from .admin_topics import TopicAdmin
from .clients import Clients
from .connections import Answer, Connections
from .consumers import Consumers
from .questions import Questions
from .store_times import StoreTimes
from .topics import TopicDesk

Handle: TypeAlias = Callable[[Command, Answer], None]


class Admin:
    """Handles administration requests: of topics, of groups and their clients, of the node."""

    def __init__(
        self,
        node: Node,
        serve: Questions,
        topics: TopicDesk,
        clients: Clients,
        consumers: Consumers,
        connections: Connections,
        group_changed: Callable[..., None],
    ) -> None:
        """`group_changed` gets a group, and a topic where only what the group does there has changed."""
        broker, times = node.settings.broker_name, StoreTimes(serve)
        self._topics = TopicAdmin(serve, topics, times, broker)
        self._groups = GroupAdmin(
            serve, topics, times, consumers, clients, connections, group_changed, broker, node.store
        )
        self._node = NodeAdmin(node, serve)

    def handlers(self) -> dict[int, Handle]:
        """By request code."""
        topics, groups = self._topics, self._groups
        return {
            RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER: topics.names,
            RequestCode.GET_ALL_TOPIC_CONFIG: topics.configs,
            RequestCode.GET_TOPIC_CONFIG: topics.config,
            RequestCode.GET_TOPIC_STATS_INFO: topics.stats,
            RequestCode.DELETE_TOPIC_IN_BROKER: topics.delete,
            RequestCode.DELETE_TOPIC_IN_NAMESRV: topics.forget,
            RequestCode.GET_KV_CONFIG: topics.value,
            RequestCode.DELETE_KV_CONFIG: topics.forget_value,
            RequestCode.QUERY_TOPIC_CONSUME_BY_WHO: groups.of_topic,
            RequestCode.GET_CONSUME_STATS: groups.progress,
            RequestCode.GET_CONSUMER_CONNECTION_LIST: groups.connections,
            RequestCode.GET_PRODUCER_CONNECTION_LIST: groups.producers,
            RequestCode.INVOKE_BROKER_TO_RESET_OFFSET: groups.reset,
            RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP: groups.configure,
            RequestCode.DELETE_SUBSCRIPTIONGROUP: groups.delete,
            RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG: groups.configs,
            RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG: groups.config,
            RequestCode.GET_BROKER_RUNTIME_INFO: self._node.runtime_info,
            RequestCode.GET_BROKER_CONFIG: self._node.config,
        }
