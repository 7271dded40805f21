"""A real broker of today, which stops and starts again on its files."""

import os
import signal
from pathlib import Path
from typing import Final

import confluent_kafka

from peers import kafka
from peers.jars import JavaMissing
from peers.plan import Setup
from tests.kafka.samples import Row
from tests.requirements import need

STARTED: Final = "Kafka Server started"
STOP_S: Final = 60.0
READ_S: Final = 30.0


class Broker(kafka.KafkaNode):
    """One that stops and starts again on its files."""

    def __init__(self, directory: Path) -> None:
        self.data, self._said = directory / "data", directory / "log"
        super().__init__(directory, Setup())

    def stop(self) -> None:
        """A clean one."""
        os.kill(self._process.pid, signal.SIGTERM)
        self._process.wait(STOP_S)

    def start_again(self) -> None:
        before = self._said.read_text().count(STARTED)
        self.again()
        self._await(lambda: self._said.read_text().count(STARTED) > before)

    def committed(self, topic: str) -> list[Row]:
        """What a consumer of what is committed gets of partition 0, up to its last stable offset."""
        settings = {
            "bootstrap.servers": self.address,
            "group.id": "judge",
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
        }
        consumer = confluent_kafka.Consumer(settings)
        consumer.assign([confluent_kafka.TopicPartition(topic, 0, confluent_kafka.OFFSET_BEGINNING)])
        found: list[Row] = []
        while (message := consumer.poll(READ_S)) is not None and message.error() is None:
            found.append(row_of(message))
        consumer.close()
        return found

    def offset_at(self, topic: str, timestamp: int) -> int | None:
        """What it says of the first record of partition 0 with this time or a later one."""
        consumer = confluent_kafka.Consumer({"bootstrap.servers": self.address, "group.id": "judge"})
        (found,) = consumer.offsets_for_times([confluent_kafka.TopicPartition(topic, 0, timestamp)], READ_S)
        consumer.close()
        assert found.error is None
        return found.offset if found.offset >= 0 else None

    def bounds(self, topic: str) -> tuple[int, int]:
        """The first offset and the one behind the last."""
        consumer = confluent_kafka.Consumer({"bootstrap.servers": self.address, "group.id": "judge"})
        found = consumer.get_watermark_offsets(confluent_kafka.TopicPartition(topic, 0), READ_S)
        consumer.close()
        return found


def row_of(message: confluent_kafka.Message) -> Row:
    headers = [(name, value) for name, value in message.headers() or []]
    return message.offset(), message.timestamp()[1], message.key(), message.value(), headers


def started(directory: Path) -> Broker:
    """Skips where its jars cannot be had."""
    try:
        return Broker(directory)
    except JavaMissing as error:
        need({error.name: str(error)})
        raise
