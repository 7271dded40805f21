"""A member of a consumer group as a process of its own. It writes down everything that comes, line by line as it comes.

python -m tests.processes.group_member '{"endpoint": ..., "group": ..., "topics": ..., "journal": path, ...}'

With `rest_ms` it works so long on each message, so that there is always something in store.

+ topic queue offset           the queue is ours from there on
- topic queue offset           it went; what was finished of it
topic queue offset time key    a message, with the machine's monotonic clock in ns
"""

import json
import os
import signal
import sys
import threading
import time
from typing import Any

from towline.client.group.consumer import GroupConsumer
from towline.client.group.message import GroupMessage


class Journal:
    def __init__(self, consumer: GroupConsumer, path: str, rest_ms: int) -> None:
        self._consumer = consumer
        self._rest_s = rest_ms / 1000
        self._never = threading.Event()
        self._told = 0
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def write(self, line: str) -> None:
        os.write(self._file, f"{line}\n".encode())

    def changes(self) -> None:
        changes = list(self._consumer.rebalances)
        for change in changes[self._told :]:
            for mark, queues in (("-", change.lost), ("+", change.gained)):
                for (topic, queue), offset in queues.items():
                    self.write(f"{mark} {topic} {queue} {offset}")
        self._told = len(changes)

    def message(self, message: GroupMessage) -> None:
        self.changes()
        place = f"{message.topic} {message.queue_id} {message.queue_offset}"
        self.write(f"{place} {time.monotonic_ns()} {message.unique_key}")
        if self._rest_s:
            self._never.wait(self._rest_s)


def main(given: dict[str, Any]) -> None:
    path, rest_ms = given.pop("journal"), given.pop("rest_ms", 0)
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    consumer = GroupConsumer(given.pop("endpoint"), given.pop("group"), given.pop("topics"), **given)
    journal = Journal(consumer, path, rest_ms)
    listener = threading.Thread(target=consumer.listen, args=(journal.message,))
    listener.start()
    signal.sigwait({signal.SIGTERM})
    consumer.close()
    listener.join()
    journal.changes()


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
