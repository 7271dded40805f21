"""What was sent, what was promised and what the log holds, kept over many kills: each look reads only what is new."""

import threading
import zlib
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from towline.client.message import ReceivedMessage
from towline.kernels.base.directory import QueueDirectory
from towline.log.commitlog.commit_log import CommitLogReader
from towline.log.commitlog.dispatch import DispatchScan

Place = tuple[int, int, int]  # log offset, end, CRC of the body


@dataclass
class Ledger:
    """`sent` and `acked` are told by the load while it runs; `look` compares them with the log on disk."""

    commitlog: Path
    segment_size: int
    sent: dict[str, tuple[str, int]] = field(default_factory=dict)  # key -> topic, CRC of the body
    acked: dict[str, int] = field(default_factory=dict)  # key -> log offset that the acknowledgement named
    acked_at: dict[str, float] = field(default_factory=dict)  # key -> monotonic time of the acknowledgement
    outcomes: Counter[str] = field(default_factory=Counter)
    found: dict[str, list[Place]] = field(default_factory=dict)
    lock: threading.Lock = field(default_factory=threading.Lock)
    looked: int = 0  # the log before it has been read
    checked: set[str] = field(default_factory=set)  # acknowledged and seen in the log, at the offset that was named

    def look(self, start: int, end: int) -> int:
        """Reads what the log got since the last look and checks every promise. Returns how many records were new.

        `start` is where the log ended after recovery: what was seen from there on was cut off.
        """
        if start < self.looked:
            self._forget(start)
        before = self.looked
        new = self._read(end)
        assert self.looked == end, f"the log can be read up to {self.looked} of {end}, from {before} on"
        lost = [key for key in self.acked if key not in self.checked and not self._holds(key)]
        assert not lost, self._lost(lost, start)
        self.checked |= self.acked.keys()
        return new

    def give_up(self, end: int) -> list[str]:
        """Promises of records at `end` or later that no disk kept: they are forgotten, and told."""
        lost = [key for key, at in self.acked.items() if at >= end]
        for key in lost:
            del self.acked[key]
            self.checked.discard(key)
        return lost

    @property
    def doubles(self) -> int:
        return sum(len(places) - 1 for places in self.found.values())

    def acked_in(self, data: bytes) -> list[str]:
        """Acknowledged keys whose records stand in `data` and nowhere in the log."""
        keys = (part.partition(b"\x02")[0].decode("ascii", "replace") for part in data.split(b"UNIQ_KEY\x01")[1:])
        return [key for key in keys if key in self.acked and not self.found.get(key)]

    def _holds(self, key: str) -> bool:
        _, crc = self.sent[key]
        return any(at == self.acked[key] and found == crc for at, _, found in self.found.get(key, ()))

    def _forget(self, start: int) -> None:
        for key, places in list(self.found.items()):
            kept = [place for place in places if place[1] <= start]
            if len(kept) < len(places):
                self.checked.discard(key)
                self.found[key] = kept
        self.looked = start

    def _read(self, end: int) -> int:
        """The log of a node that nobody puts to, up to `end`: every record is one that was sent."""
        log = CommitLogReader(self.commitlog, self.segment_size)
        log.load()
        scan = DispatchScan(log, QueueDirectory())
        count = 0
        while self.looked < end:
            batch = scan.read(self.looked, end)
            assert batch.end > self.looked, f"{batch.rule.name} at {batch.end} of {end}"
            for at, size in zip(batch.rows["phy"].tolist(), batch.rows["size"].tolist(), strict=True):
                message = ReceivedMessage(bytes(batch.log[at - batch.base : at - batch.base + size]))
                key, crc = message.unique_key or "", zlib.crc32(message.record.body)
                assert self.sent.get(key) == (message.topic, crc), f"{key!r} at {at} was never sent like this"
                self.found.setdefault(key, []).append((at, at + size, crc))
                count += 1
            self.looked = batch.end
        log.close()
        return count

    def _lost(self, lost: list[str], start: int) -> str:
        places = sorted(self.acked[key] for key in lost)
        return (
            f"lost {len(lost)} of {len(self.acked)} acknowledged messages, acknowledged at {places[:3]} {places[-1]}; "
            f"recovery ended the log at {start}; the first is {lost[0]}, now at {self.found.get(lost[0])}"
        )
