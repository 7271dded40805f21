"""What a reader of a node gets."""

from towline.client.consumer import Consumer
from towline.client.message import ReceivedMessage
from towline.link.endpoints import ipc_endpoint

from .nodes import TestNode
from .waiting import await_

DEADLINE_S = 60.0


def read_all(node: TestNode, topic: str, *, least: int = 0) -> list[ReceivedMessage]:
    """Everything readable in a topic, when that are so many."""
    found: list[ReceivedMessage] = []
    with Consumer(ipc_endpoint(node.runtime, "serve"), topic, suspend_ms=100) as consumer:

        def complete() -> bool:
            found.extend(consumer.poll(100))
            return len(found) >= least and consumer.at_end

        await_(complete, DEADLINE_S, f"{least} messages of {topic}")
    return found


def bodies(node: TestNode, topic: str, least: int = 0) -> list[bytes]:
    return sorted(message.body for message in read_all(node, topic, least=least))
