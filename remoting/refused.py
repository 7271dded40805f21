"""Requests of RocketMQ's tools and brokers that have no meaning here: why, and what to do instead."""

from typing import Final

from towline.format.remoting.codes import RequestRefused, ResponseCode
from towline.format.remoting.command import Command
from towline.link.keys import KEYS_MADE

from .connections import Answer, Connection

_ACCOUNTS: Final = f"access is by the keys of a cluster, not by RocketMQ's users and rules: {KEYS_MADE}"
_BROKER: Final = "a broker of RocketMQ follows a master that was started with rocketmq_ha_port: see docs/migration.md"
_BY_ITSELF: Final = "a node removes by itself what has expired, as its settings say: see docs/operations.md"
_CONTAINER: Final = "there is no container of brokers: `towline master start` and `towline slave start` start nodes"
_CONTROLLER: Final = "there is no controller: masters change by etcd or `towline promote`, see docs/operations.md"
_COLD_DATA: Final = "who reads old messages is not slowed down: let them read from slaves (slave_read_enable)"
_ROCKSDB: Final = "queues are files, there is no RocksDB"
ABSENT: Final = {
    **dict.fromkeys((43, 45, 60, 61, 402), f"{_BROKER}; offsets of a group are told by GET_CONSUME_STATS (208)"),
    **dict.fromkeys(range(50, 54), _ACCOUNTS),
    100: "no values are kept for a name server: order a topic by sending its messages to one queue",
    **dict.fromkeys((103, 104, 322, 901, 904, 906), f"{_BROKER}; nodes are told by GET_BROKER_CLUSTER_INFO (106)"),
    223: "a client's state is told by GET_CONSUMER_RUNNING_INFO (307)",
    **dict.fromkeys((306, 316, 329), _BY_ITSELF),
    323: "a half that was given up is in the topic TRANS_CHECK_MAX_TIME_TOPIC, and is not checked again",
    353: "a group may read all topics or none: set its consumeEnable with UPDATE_AND_CREATE_SUBSCRIPTIONGROUP (200)",
    **dict.fromkeys((354, 355), _ROCKSDB),
    513: "the queues of a topic are those of one node: make the topic with UPDATE_AND_CREATE_TOPIC (17)",
    **dict.fromkeys((902, 903), _CONTAINER),
    **dict.fromkeys(range(1001, 1019), _CONTROLLER),
    **dict.fromkeys(range(2001, 2005), _COLD_DATA),
    **dict.fromkeys(range(3001, 3011), _ACCOUNTS),
    200_052: "a message is looked at without being taken by PULL_MESSAGE (11)",
}


def refuse(_: Connection, request: Command, answer: Answer) -> None:
    """Raises RequestRefused for what nobody handles."""
    why = f"request type {request.code} not supported"
    if request.code in ABSENT:
        why += f": {ABSENT[request.code]}"
    raise RequestRefused(ResponseCode.REQUEST_CODE_NOT_SUPPORTED, why)
