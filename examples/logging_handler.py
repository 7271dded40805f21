"""A `logging.Handler` that sends each record of the log as JSON, and never holds up the program that logs.

    python examples/logging_handler.py tcp://127.0.0.1:10911

Where the producer's buffer is full (the node is away), records are counted and left out: a log must not stop its
program. Give it to loggers of your own: what `towline` itself logs would come back to it.
"""

import logging
import sys

from towline import Consumer, Message, Producer, TowlineError


class TowlineHandler(logging.Handler):
    def __init__(self, endpoint: str, topic: str) -> None:
        super().__init__()
        self.left_out = 0
        self._topic, self._producer = topic, Producer(endpoint, value_serializer="json")

    def emit(self, record: logging.LogRecord) -> None:
        line = {"level": record.levelname, "logger": record.name, "text": self.format(record)}
        try:  # at once, whatever the node does; `note` is called on a thread of the producer
            self._producer.send_async(Message(self._topic, line, key=record.name, tags=record.levelname), self.note)
        except TowlineError:
            self.left_out += 1

    def note(self, result: object, error: BaseException | None) -> None:
        self.left_out += error is not None

    def close(self) -> None:
        self._producer.close()  # waits for what is on its way
        super().close()


def main(endpoint: str) -> None:
    log, handler = logging.getLogger("shop"), TowlineHandler(endpoint, "log")
    log.addHandler(handler)
    log.setLevel(logging.INFO)
    log.info("order %d is paid", 17)
    log.warning("order %d is late", 18)
    handler.close()
    print("left out:", handler.left_out)
    with Consumer(endpoint, "log", tags="WARNING", start="first", value_deserializer="json") as consumer:
        for message in consumer.poll(10_000):
            print(message.value["level"], message.value["logger"], message.value["text"])


if __name__ == "__main__":
    main(sys.argv[1])
