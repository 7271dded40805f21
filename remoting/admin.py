"""What RocketMQ's tools ask for beside what clients do: by request, who handles it."""

from collections.abc import Callable

from towline.format.remoting.codes import RequestCode
from towline.node.process.context import Node

from .admin_broker import BrokerAdmin
from .admin_clients import ClientAdmin
from .admin_groups import GroupAdmin
from .admin_node import NodeAdmin
from .admin_offsets import OffsetAdmin
from .admin_queues import QueueAdmin
from .admin_topics import TopicAdmin
from .client_calls import ClientCalls
from .clients import Clients
from .connections import Connections
from .consumers import Consumers
from .ha_status import HaStatus
from .questions import Questions
from .readers import Readers
from .requests import Handle
from .store_times import StoreTimes
from .topics import TopicDesk
from .traffic import Traffic


class Admin:
    """Handles administration requests: of topics and queues, of groups, of clients, of the node."""

    def __init__(
        self,
        node: Node,
        serve: Questions,
        topics: TopicDesk,
        clients: Clients,
        consumers: Consumers,
        connections: Connections,
        readers: Readers,
        calls: ClientCalls,
        traffic: Traffic,
        group_changed: Callable[..., None],
        where: str,
    ) -> None:
        """`group_changed` gets a group, and a topic where only what the group does there has changed. `where`:
        `host:port` of this node."""
        broker, times = node.settings.broker_name, StoreTimes(serve)
        self._topics = TopicAdmin(serve, topics, times, traffic, broker)
        self._groups = GroupAdmin(
            serve, topics, times, consumers, clients, connections, traffic, group_changed, broker, node.store
        )
        self._queues = QueueAdmin(serve, topics, times, consumers, broker, where)
        self._clients = ClientAdmin(clients, consumers, calls, readers, broker)
        self._node = NodeAdmin(node, serve)
        self._ha = HaStatus(node)
        self._offsets = OffsetAdmin(serve, topics, times, consumers, group_changed, node.clock.now_ms, broker, where)
        self._broker = BrokerAdmin(serve, topics, traffic)

    def look(self) -> None:
        """Called about every second."""
        self._node.look()
        self._ha.look()

    def handlers(self) -> dict[int, Handle]:
        """By request code."""
        topics, groups, broker = self._topics, self._groups, self._broker
        return {
            RequestCode.GET_ALL_TOPIC_CONFIG: topics.configs,
            RequestCode.GET_TOPIC_CONFIG: topics.config,
            RequestCode.GET_TOPIC_STATS_INFO: topics.stats,
            RequestCode.DELETE_TOPIC_IN_BROKER: topics.delete,
            RequestCode.QUERY_TOPIC_CONSUME_BY_WHO: groups.of_topic,
            RequestCode.GET_CONSUME_STATS: groups.progress,
            RequestCode.GET_CONSUMER_CONNECTION_LIST: groups.connections,
            RequestCode.GET_PRODUCER_CONNECTION_LIST: groups.producers,
            RequestCode.INVOKE_BROKER_TO_RESET_OFFSET: groups.reset,
            RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP: groups.configure,
            RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST: groups.configure_list,
            RequestCode.DELETE_SUBSCRIPTIONGROUP: groups.delete,
            RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG: groups.configs,
            RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG: groups.config,
            RequestCode.QUERY_TOPICS_BY_CONSUMER: self._offsets.topics_of,
            RequestCode.QUERY_SUBSCRIPTION_BY_CONSUMER: self._offsets.subscription_of,
            RequestCode.QUERY_CONSUME_TIME_SPAN: self._offsets.spans,
            RequestCode.CLONE_GROUP_OFFSET: self._offsets.clone,
            RequestCode.QUERY_CORRECTION_OFFSET: self._offsets.corrections,
            RequestCode.QUERY_CONSUME_QUEUE: self._queues.entries,
            RequestCode.GET_BROKER_CONSUME_STATS: self._queues.of_all_groups,
            RequestCode.GET_ALL_PRODUCER_INFO: self._clients.producers,
            RequestCode.GET_CONSUMER_RUNNING_INFO: self._clients.running_info,
            RequestCode.CONSUME_MESSAGE_DIRECTLY: self._clients.consume,
            RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_BROKER: broker.system_topics,
            RequestCode.UPDATE_BROKER_CONFIG: broker.update,
            RequestCode.VIEW_BROKER_STATS_DATA: broker.stats,
            RequestCode.GET_BROKER_RUNTIME_INFO: self._node.runtime_info,
            RequestCode.GET_BROKER_CONFIG: self._node.config,
            RequestCode.GET_BROKER_HA_STATUS: self._ha.tell,
        }
