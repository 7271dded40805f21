"""A hundred tasks of one event loop send, and one reads, with the clients of `towline.aio`.

    python examples/asyncio_tasks.py tcp://127.0.0.1:10911

No task has a thread of its own: tasks that send beside each other fill one batch while the one before is on its way.
"""

import asyncio
import sys

from towline import Message
from towline.aio import AsyncAdminClient, AsyncConsumer, AsyncProducer

TOPIC = "measurements"
TASKS, EACH = 100, 10


async def measure(producer: AsyncProducer, sensor: int) -> int:
    """How many were acknowledged."""
    results = [await producer.send(Message(TOPIC, b"%d" % value, key=sensor)) for value in range(EACH)]
    return sum(result.acknowledged for result in results)


async def read(endpoint: str) -> tuple[int, bool]:
    """How many came, and whether those of each sensor came in their order."""
    values: dict[str | None, list[int]] = {}
    async with AsyncConsumer(endpoint, TOPIC, start="first") as consumer:
        async for message in consumer:
            values.setdefault(message.key, []).append(int(message.body))
            if sum(map(len, values.values())) == TASKS * EACH:
                break
    return sum(map(len, values.values())), all(each == list(range(EACH)) for each in values.values())


async def main(endpoint: str) -> None:
    async with AsyncAdminClient(endpoint) as admin:
        await admin.create_topic(TOPIC, 4)
    async with AsyncProducer(endpoint) as producer, asyncio.TaskGroup() as group:
        reading = group.create_task(read(endpoint))
        sending = [group.create_task(measure(producer, sensor)) for sensor in range(TASKS)]
    came, in_order = reading.result()
    print(f"acknowledged {sum(task.result() for task in sending)}, read {came}, in order: {in_order}")


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
