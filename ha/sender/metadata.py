"""A master's metadata as its slaves follow it: the files of config/ that a promoted slave must have."""

import zlib
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

from towline.errors import ForeignFile, MalformedFrame, SegmentSizeMismatch
from towline.limits import SLAVES_MAX
from towline.log.files.config_file import encode
from towline.log.state.floors import QUEUE_FLOORS, floors_at
from towline.places import Store

CHECK_EVERY_MS: Final = 20  # between two checks of the files, while somebody waits for a change
HOLD_MAX_MS: Final = 60_000

FOLLOWED: Final = (
    "topics.json",
    "subscriptionGroup.json",
    "consumerOffset.json",
    "consumerFilter.json",
    "messageRequestMode.json",
    "delayOffset.json",
    "timerOffset.json",
    "transactionOffset.json",
)


class HeldQuestion(NamedTuple):
    """A question that waits for a change of the files."""

    request_id: int
    question: dict[str, Any]
    until_ms: int


class Metadata:
    """Answers {"have": {name: crc}, "hold_ms": n} with the files that differ: at once, or when one changes.

    So a topic or a group reaches the slaves some milliseconds after its creation; `due` is called in each cycle.
    """

    def __init__(self, store: Store, queue_file_size: int) -> None:
        self._store, self._queue_file_size = store, queue_file_size
        self._held: dict[bytes, HeldQuestion] = {}
        self._seen = self._check_files()
        self._next_ms = 0

    def ask(self, peer: bytes, request_id: int, question: dict[str, Any], now_ms: int) -> dict[str, Any] | None:
        """The answer, or None when it will come from `due`. Raises MalformedFrame."""
        hold_ms = question.get("hold_ms", 0)
        if type(hold_ms) is not int or not 0 <= hold_ms <= HOLD_MAX_MS:
            raise MalformedFrame(f"a question is held for {HOLD_MAX_MS} ms at most, not for {hold_ms!r}")
        facts = read_metadata(self._store, question)
        start = question.get("floors_at", 0)
        if type(start) is not int or start < 0:
            raise MalformedFrame(f"no log begins at {start!r}")
        if start:
            facts["files"] |= self._floors(start)
        if facts["files"] or not hold_ms:
            return facts
        if len(self._held) >= SLAVES_MAX and peer not in self._held:
            self._held.pop(next(iter(self._held)))
        self._held[peer] = HeldQuestion(request_id, question, now_ms + hold_ms)
        return None

    def _floors(self, start: int) -> dict[str, str]:
        """The queue floors of a slave whose log begins at `start`; none where the queues are unreadable now, and it
        asks again."""
        try:
            content = floors_at(self._store, self._queue_file_size, start)
        except (SegmentSizeMismatch, ForeignFile, OSError):
            return {}
        return {QUEUE_FLOORS: encode(content).decode()}

    def due(self, now_ms: int) -> Iterator[tuple[bytes, int, dict[str, Any]]]:
        """(peer, request id, answer) of the questions that can be answered now."""
        if not self._held or now_ms < self._next_ms:
            return
        self._next_ms = now_ms + CHECK_EVERY_MS
        seen = self._check_files()
        changed, self._seen = seen != self._seen, seen
        for peer, held in list(self._held.items()):
            facts = read_metadata(self._store, held.question) if changed else {"files": {}}
            if facts["files"] or now_ms >= held.until_ms:
                del self._held[peer]
                yield peer, held.request_id, facts

    def _check_files(self) -> list[tuple[int, int, int]]:
        """The files' identities, which change with each save."""
        seen = []
        for name in FOLLOWED:
            try:
                found = (self._store.config / name).stat()
            except FileNotFoundError:
                seen.append((0, 0, 0))
            else:
                seen.append((found.st_ino, found.st_mtime_ns, found.st_size))
        return seen


def read_metadata(store: Store, question: dict[str, Any]) -> dict[str, Any]:
    """{"files": {name: text}} of the files whose CRC-32 is not the one the slave names in {"have": {name: crc}}."""
    have = question.get("have")
    if question.get("op") != "metadata" or not isinstance(have, dict):
        raise MalformedFrame(f"the ha process answers 'metadata', not {question.get('op')!r}")
    files = {}
    for name in FOLLOWED:
        path = store.config / name
        data = path.read_bytes() if path.exists() else b""
        if data and zlib.crc32(data) != have.get(name):
            files[name] = data.decode()
    return {"files": files}
