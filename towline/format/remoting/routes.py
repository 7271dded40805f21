"""What a name server tells, as JSON: where a topic's queues are, and which brokers there are (spec 11.3)."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from towline.errors import MalformedFrame
from towline.format.files.topics import TopicConfig


@dataclass(frozen=True, slots=True)
class Broker:
    """A broker as clients know it. `addresses`: `host:port` by broker id, 0 for the master."""

    name: str
    cluster: str
    addresses: Mapping[int, str]

    @property
    def members(self) -> dict[str, Any]:
        return {
            "brokerAddrs": {str(number): address for number, address in sorted(self.addresses.items())},
            "brokerName": self.name,
            "cluster": self.cluster,
            "enableActingMaster": False,
        }


def slave_id(node: int) -> int:
    """A slave's broker id: that of its node and 1, since 0 is the master's, whichever node that is."""
    return node + 1


@dataclass(frozen=True, slots=True)
class QueueData:
    """The queues of a topic at one broker. `perm`: a sum of 4 read, 2 write, 1 made by itself (template)."""

    broker: str
    read_queues: int
    write_queues: int
    perm: int


def read_route(said: Any) -> list[QueueData]:
    """The queues of a topic, by the names of their brokers. Raises MalformedFrame."""
    try:
        found = [
            QueueData(str(row["brokerName"]), int(row["readQueueNums"]), int(row["writeQueueNums"]), int(row["perm"]))
            for row in said["queueDatas"]
        ]
    except (KeyError, TypeError, ValueError):
        raise MalformedFrame("a route names no queues") from None
    return sorted(found, key=lambda each: each.broker)


def read_cluster(said: Any) -> dict[str, Broker]:
    """The brokers by their names. Raises MalformedFrame."""
    try:
        return {
            name: Broker(
                name,
                str(row["cluster"]),
                {int(number): str(address) for number, address in row["brokerAddrs"].items()},
            )
            for name, row in sorted(said["brokerAddrTable"].items())
        }
    except (KeyError, TypeError, ValueError, AttributeError):
        raise MalformedFrame("the name server tells of no brokers") from None


def route_of(topic: TopicConfig, broker: Broker) -> bytes:
    """The route of a topic."""
    return _json(
        {
            "brokerDatas": [broker.members],
            "filterServerTable": {},
            "queueDatas": [
                {
                    "brokerName": broker.name,
                    "perm": topic.perm,
                    "readQueueNums": topic.read_queue_nums,
                    "topicSysFlag": topic.topic_sys_flag,
                    "writeQueueNums": topic.write_queue_nums,
                }
            ],
        }
    )


def cluster_of(broker: Broker) -> bytes:
    """The brokers of the cluster."""
    return _json(
        {"brokerAddrTable": {broker.name: broker.members}, "clusterAddrTable": {broker.cluster: [broker.name]}}
    )


def system_topics_of(broker: Broker) -> bytes:
    """The topics that are named after the cluster and its broker, and the address at which that is asked for others."""
    address = broker.addresses[min(broker.addresses)]
    return _json({"brokerAddr": address, "topicList": [broker.cluster, broker.name]})


def _json(value: object) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()
