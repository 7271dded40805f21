"""What readers see of a topic."""

from tests.processes.grouping import serve_of
from tests.processes.nodes import TestNode
from tests.processes.waiting import await_
from towline.client.consumer import Consumer
from towline.client.message import ReceivedMessage

WAIT_S = 30.0


def bodies(node: TestNode, topic: str, count: int) -> list[bytes]:
    return [message.body for message in messages(node, topic, count)]


def messages(node: TestNode, topic: str, count: int) -> list[ReceivedMessage]:
    """The first `count` messages of a topic, in the order of the log."""
    found: list[ReceivedMessage] = []
    with Consumer(serve_of(node), topic) as consumer:

        def enough() -> bool:
            found.extend(consumer.poll(100))
            return len(found) >= count

        await_(enough, WAIT_S, f"{count} messages of {topic}, of which {len(found)} came")
    return sorted(found, key=lambda message: message.record.physical_offset)
