"""Cuts of a node that makes a segment, a queue or a unit file every few messages; what no sync kept is taken away."""

import contextlib
import json
import os
import shutil
import signal
import threading
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Final

from tests.soak.ledger import Ledger
from towline.client.message import Message
from towline.client.producer import Producer
from towline.errors import TowlineError
from towline.format.record.properties import UNIQ_KEY
from towline.limits import KIB, MIB
from towline.log.state.durable_file import DurableFile
from towline.runtime.positions import Position

from .nodes import TestNode
from .stored import Stored
from .unsynced import watched
from .waiting import await_

SEGMENT: Final = MIB
BODY: Final = 40 * KIB  # 25 messages fill a segment
QUEUE_FILE: Final = 20 * 8
PER_TOPIC: Final = 24  # of one queue: three files of it
SETTINGS: Final = {
    "mapped_file_size_commit_log": SEGMENT,
    "mapped_file_size_consume_queue": QUEUE_FILE,
    "enable_consume_queue_ext": True,
    "mapped_file_size_consume_queue_ext": 20 * 12 + 4,
    "flush_interval_consume_queue": 20,
    "flush_consume_queue_thorough_interval": 20,
}
MESSAGES_MAX: Final = 4 * PER_TOPIC  # then the power goes, whatever was synced
SENT_MAX_MS: Final = 10_000  # of an answer that a node owes which has gone


class NameCuts:
    """One store over many cuts: the node is started, cut while it is loaded, and looked at."""

    def __init__(self, root: Path) -> None:
        self.node = TestNode("master", root / "store", **SETTINGS)
        self._trace = root / "trace"
        self._ledger = Ledger(self.node.store.commitlog, SEGMENT)
        self._sent = 0

    def cut(self, at: int, wanted: Callable[[Path], bool], lost: Callable[[], bool] = lambda: True) -> list[Path]:
        """The power goes when the `at`th sync of something `wanted` came back. The names that were `lost`."""
        self.node.start()
        start = json.loads(self.node.store.recovery.read_text())["end"]
        self._ledger.look(start, self.node.at(Position.APPENDED))
        await_(self._dispatched, 60.0, "what the cut took is derived again")
        pids = self.node.pids().values()  # the supervisor before those whom it would start again
        power, count = threading.Event(), 0

        def on_sync(path: Path) -> None:
            nonlocal count
            count += wanted(path)
            if count == at and not power.is_set():
                for pid in pids:
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGKILL)
                power.set()

        with watched(self.node, self._trace, on_sync) as unsynced:
            self._load(power)
            self.node.kill_all(seed=at)
        shutil.rmtree(self.node.runtime)
        gone = unsynced.take_away(lost)
        self._check_promised()
        return gone

    def a_roll(self, path: Path) -> bool:
        return path == self.node.store.commitlog

    def a_new_queue(self, path: Path) -> bool:
        return path == self.node.store.consumequeue

    def a_queue_file(self, path: Path) -> bool:
        return path.parent.parent == self.node.store.consumequeue

    def a_unit_file(self, path: Path) -> bool:
        return path.is_relative_to(self.node.store.consumequeue_ext) and path.is_dir()

    def any_sync(self, path: Path) -> bool:
        return True

    def finish(self) -> int:
        """Everything that was acknowledged is in the log, and in its queues. How many messages that were."""
        self.node.start()
        start, end = json.loads(self.node.store.recovery.read_text())["end"], self.node.at(Position.APPENDED)
        self._ledger.look(start, end)
        await_(self._dispatched, 60.0, "everything is dispatched")
        assert self.node.stop()
        stored = Stored(self.node.store, end, SEGMENT, QUEUE_FILE)
        assert stored.check_queues() == sum(map(len, self._ledger.found.values())) >= len(self._ledger.acked) > 0
        stored.close()
        return len(self._ledger.acked)

    def _dispatched(self) -> bool:
        return self.node.at(Position.DISPATCHED) == self.node.at(Position.APPENDED)

    def _load(self, power: threading.Event) -> None:
        """Until the power goes; an error is then no news."""
        linger = {"linger_ms": 0, "retries": 0, "delivery_timeout_ms": SENT_MAX_MS}
        producer = Producer(self.node.endpoint, compression=None, **linger)
        try:
            for _ in range(MESSAGES_MAX):
                self._send(producer, power)
        except TowlineError:
            assert power.wait(SENT_MAX_MS / 1000), "only a cut ends the load"
        finally:
            producer.close(flush=False)

    def _send(self, producer: Producer, power: threading.Event) -> None:
        key, body = f"{self._sent:016d}", os.urandom(BODY)
        topic = f"topic-{self._sent // PER_TOPIC}"
        self._sent += 1
        self._ledger.sent[key] = topic, zlib.crc32(body)
        future = producer.send_async(Message(topic, body, tags="made", properties={UNIQ_KEY: key}, queue_id=0))
        await_(lambda: future.done() or power.is_set(), 60.0, "the message has an outcome")
        result = future.result(0 if power.is_set() else None)
        assert result.acknowledged, result
        self._ledger.acked[key] = result.physical_offset

    def _check_promised(self) -> None:
        """What `durable` calls synced is there: every segment, queue, entry and unit of it."""
        state = DurableFile(self.node.store.root).load()
        assert state is not None
        held = {int(path.name) for path in self.node.store.commitlog.iterdir()}
        wanted = set(range(0, state.flushed, SEGMENT))
        assert wanted <= held, f"segments {sorted(wanted - held)} of a log synced to {state.flushed} have no name"
        stored = Stored(self.node.store, state.queues_durable, SEGMENT, QUEUE_FILE)
        stored.check_queues(more=True)
        stored.close()
