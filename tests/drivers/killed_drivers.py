"""kill -9 of a driver in the middle of its batches, again and again; then what it copied is counted.

While one driver copies, the next starts Spark, and waits until it may begin.
"""

import json
import random
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import psutil

from tests.processes.nodes import TestNode, free_port
from tests.processes.waiting import Watch, await_
from tests.spark.class_archive import JAVA_OPTIONS, java_options
from towline.limits import MIB
from towline.loadtest.bench.made_log import MadeLog, make_log
from towline.runtime.positions import Position
from towline.spark import planning, reading
from towline.spark.options import SourceOptions

REPOSITORY = Path(__file__).parents[2]
LIFE_S = 600.0  # until a driver has written something, or has ended
TOPIC = "copied"


class Copying:
    """A log of `records` in `segments` of its own, and a node that it is copied to. `settings` are the sessions'."""

    def __init__(self, root: Path, records: int, limit: int, segment_size: int, settings: Mapping[str, str]) -> None:
        self.log: MadeLog = make_log(root / "source", records, 4, segment_size=segment_size, per_topic=2)
        self.node = TestNode(
            "master",
            root / "target",
            ha_listen_port=free_port(),
            flush_disk_type="ASYNC_FLUSH",
            default_topic_queue_nums=4,
            mapped_file_size_commit_log=64 * MIB,
            mapped_file_size_consume_queue=20 * 300_000,
            max_hash_slot_num=500_000,
            max_index_num=2_000_000,
        )
        self._checkpoint = root / "checkpoint"
        self._limit = limit
        self._settings = json.dumps(dict(settings) | {JAVA_OPTIONS: java_options()})
        self._next: subprocess.Popen[bytes] | None = None
        self.replayed = 0  # lives that began with a batch that was written in part

    def run(self, kills: int, draw: random.Random) -> None:
        """Lives that end by kill -9 somewhere in what they would write, then one that ends by itself."""
        try:
            self._run(kills, draw)
        finally:
            if self._next is not None:
                kill(self._next)

    def _run(self, kills: int, draw: random.Random) -> None:
        size = self._record_size()
        for left in range(kills, 0, -1):
            at = self._end()
            whole = self.log.total * size - at
            life = self._begin(last=False)
            until = at + draw.uniform(0.02, 0.9) * max(size, whole) / (left + 1)
            await_(
                lambda life=life, until=until: self._end() > until or life.poll() is not None, LIFE_S, "a driver writes"
            )
            assert life.poll() is None, f"the driver ended with {life.returncode}: {_said(life)}"
            kill(life)
            self.replayed += not self._is_committed()
        life = self._begin(last=True)
        _, said = life.communicate(timeout=LIFE_S)
        assert life.returncode == 0, said[-3000:]

    def check(self) -> None:
        """Every message of the log once, and under one unique key."""
        end = self.node.at(Position.APPENDED)
        await_(lambda: self.node.at(Position.DISPATCHED) == end, LIFE_S, "everything is dispatched")
        options = SourceOptions.parse({"path": str(self.node.store.root), "subscribe": TOPIC, "readMode": "scan"})
        made = planning.plan(options, ("body", "uniqKey"))
        places, keys = [], set[str]()
        for partition in made.partitions:
            for batch in reading.read(partition, made.reading):
                places.append(np.array(batch["body"].to_pylist(), dtype="S20").astype(np.int64))
                keys.update(batch["uniqKey"].to_pylist())
        found = np.sort(np.concatenate(places))
        expected = self._expected()
        assert len(found) == len(np.unique(found)), f"{len(found) - len(np.unique(found))} messages are doubled"
        assert np.array_equal(found, expected), f"{len(np.setdiff1d(expected, found))} messages are lost"
        assert len(keys) == len(expected)

    def _expected(self) -> "np.ndarray[tuple[int], np.dtype[np.int64]]":
        per_segment = (self.log.segment_size - 8) // self.log.record_size
        numbers = np.arange(self.log.total)
        return numbers // per_segment * self.log.segment_size + numbers % per_segment * self.log.record_size

    def _begin(self, *, last: bool) -> "subprocess.Popen[bytes]":
        life = self._next or self._start()
        self._next = None if last else self._start()
        assert life.stdin is not None
        life.stdin.write(b"begin\n")
        life.stdin.flush()
        return life

    def _start(self) -> "subprocess.Popen[bytes]":
        words = [str(self.log.root), str(self.node.store.root), TOPIC, str(self._checkpoint), str(self._limit)]
        command = [sys.executable, "-m", "tests.drivers.stream_driver", *words, self._settings]
        pipe = subprocess.PIPE
        return subprocess.Popen(command, cwd=REPOSITORY, stdin=pipe, stdout=pipe, stderr=subprocess.STDOUT)

    def _end(self) -> int:
        return self.node.at(Position.APPENDED)

    def _is_committed(self) -> bool:
        """Whether the newest batch that was begun was noted as written."""
        newest = [
            max((int(path.name) for path in (self._checkpoint / name).glob("*") if path.name.isdigit()), default=-1)
            for name in ("offsets", "commits")
        ]
        return newest[0] == newest[1]

    def _record_size(self) -> int:
        """Bytes of a copy, roughly."""
        return 88 + 10 + 1 + len(TOPIC) + 2 + 42


def kill(driver: "subprocess.Popen[bytes]") -> None:
    """The driver and its JVM at once; the workers of its tasks notice, and may write on until they do."""
    processes = psutil.Process(driver.pid).children(recursive=True)
    watch = Watch(process.pid for process in processes)
    for process in [*(one for one in processes if one.name() == "java"), psutil.Process(driver.pid)]:
        process.kill()
    driver.communicate()
    watch.await_gone(LIFE_S)


def _said(life: "subprocess.Popen[bytes]") -> str:
    return life.communicate()[0].decode("utf-8", "replace")[-3000:]
