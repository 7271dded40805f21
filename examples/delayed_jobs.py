"""Jobs that are delivered later: after the delay of a level, or at a time. One of them is taken back.

    python examples/delayed_jobs.py tcp://127.0.0.1:10911

Level 1 is a second, where `message_delay_level` is not changed. The text of a handle may be kept in a database: another
process can take the message back with it.
"""

import sys
import time

from towline import AdminClient, Consumer, Message, Producer

TOPIC = "reminders"
WAIT_MS = 60_000


def main(endpoint: str) -> None:
    with AdminClient(endpoint) as admin:
        admin.create_topic(TOPIC, 1)  # one queue: messages are read in the order of their delivery
    with Producer(endpoint) as producer:
        producer.send(Message(TOPIC, b"now"))
        producer.send(Message(TOPIC, b"level 1", delay_level=1))
        now = int(time.time() * 1000)
        producer.send(Message(TOPIC, b"in three seconds", deliver_at=now + 3_000))
        in_an_hour = producer.send(Message(TOPIC, b"in an hour", deliver_at=now + 3_600_000))
        taken_back = producer.cancel(in_an_hour.handle)
    print("in an hour: taken back,", taken_back.status.name)
    read = []
    with Consumer(endpoint, TOPIC, start="first") as consumer:
        while len(read) < 3 and (messages := consumer.poll(WAIT_MS)):
            read += [message.body.decode() for message in messages]
    print("delivered:", ", ".join(read))


if __name__ == "__main__":
    main(sys.argv[1])
