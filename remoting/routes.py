"""What a name server tells: where a topic's queues are, and which brokers there are (spec 11.3)."""

import json
from collections.abc import Mapping
from typing import Any

from towline.format.files.topics import TopicConfig


def route_of(topic: TopicConfig, broker: str, cluster: str, addresses: Mapping[int, str]) -> bytes:
    """The route of a topic, JSON. `addresses` by broker id, 0 for the master."""
    return _json(
        {
            "brokerDatas": [_broker(broker, cluster, addresses)],
            "filterServerTable": {},
            "queueDatas": [
                {
                    "brokerName": broker,
                    "perm": topic.perm,
                    "readQueueNums": topic.read_queue_nums,
                    "topicSysFlag": topic.topic_sys_flag,
                    "writeQueueNums": topic.write_queue_nums,
                }
            ],
        }
    )


def cluster_of(broker: str, cluster: str, addresses: Mapping[int, str]) -> bytes:
    """The brokers of the cluster, JSON."""
    return _json(
        {
            "brokerAddrTable": {broker: _broker(broker, cluster, addresses)},
            "clusterAddrTable": {cluster: [broker]},
        }
    )


def _broker(broker: str, cluster: str, addresses: Mapping[int, str]) -> dict[str, Any]:
    return {
        "brokerAddrs": {str(number): address for number, address in sorted(addresses.items())},
        "brokerName": broker,
        "cluster": cluster,
        "enableActingMaster": False,
    }


def _json(value: object) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()
